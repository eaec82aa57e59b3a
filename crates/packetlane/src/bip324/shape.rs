//! Traffic shaping: hides the sizes and times of one connection's packets behind decoys and delays.
//!
//! BIP324 hides what is sent, not how much and when. A [`Shaper`] decides for one direction of one
//! connection when queued bytes may leave, and which decoys go with them. It has no socket, clock or
//! keys: time is an argument, and the caller seals the decoys.
//!
//! In each turn of an event loop, and when [`Shaper::wake_at`] has come:
//!
//! 1. [`Shaper::push`] the wire length of each message added to the connection's outbox;
//! 2. add the decoys that [`Shaper::decoy`] asks for, behind them;
//! 3. write at most [`Shaper::released`] bytes of the outbox, and report them with
//!    [`Shaper::written`].
//!
//! ```
//! use packetlane::Engine;
//! use packetlane::bip324::shape::{Priority, Shape, Shaper};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let shape = Shape::pad(50_000_000, Duration::ZERO);
//! let mut shaper = Shaper::random(shape, Engine::detect()?)?;
//! let now = Duration::ZERO;
//! shaper.push(now, 1000, Priority::Normal);
//! // 1000 bytes become 1024: a packet of 24 bytes has contents of 4.
//! assert_eq!(shaper.decoy(now), Some(4));
//! assert_eq!(shaper.decoy(now), None);
//! assert_eq!(shaper.released(), 1024);
//! shaper.written(1024);
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "std")]
use super::error::HandshakeError;
use super::packet::OVERHEAD;
use crate::engine::Engine;
use alloc::collections::VecDeque;
use core::fmt;
use core::time::Duration;
use packetlane_lanes::Kernels;
use zeroize::Zeroizing;

/// Length of a packet without contents, in bytes: the shortest decoy.
const MIN_DECOY: u64 = OVERHEAD as u64;

/// Longest decoy, in bytes on the wire. A longer gap gets several.
const MAX_DECOY: u64 = 64 * 1024;

/// Shorter flights are padded to this length, in bytes. Most messages of a quiet connection are
/// shorter, and the difference costs little.
const MIN_FLIGHT: u64 = 256;

/// Flights of twice this length, in bytes, are not imitated: Bitcoin has no such message.
const MAX_IMITATED: u64 = 1 << 22;

/// The powers of two of imitated flights.
const CLASSES: usize = MAX_IMITATED.ilog2() as usize + 1;

/// In how many parts bytes are spread over [`Shape::max_delay`].
const PARTS: u64 = 8;

/// Shortest write of [`Pace::Constant`], in bytes, unless little is due.
const MIN_WRITE: u64 = 64;

/// Bounds of the time between two writes, in microseconds.
const MIN_INTERVAL: u64 = 10_000;
const MAX_INTERVAL: u64 = 1_000_000;

/// A day in microseconds.
const DAY: u64 = 24 * 3600 * 1_000_000;

/// The part of a day whose budget may be saved up: an hour, in microseconds.
const MAX_SAVED: u64 = DAY / 24;

/// The part of what is saved up that cover flights leave for padding.
const FOR_PADDING: u64 = MAX_SAVED / 4;

/// How one direction of a connection is shaped. The parts can be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Pads each flight, that is all that is sent at once, with a decoy behind it: to 256 bytes, or
    /// beyond that to the next length of Padmé (Nikitin et al., "Reducing Metadata Leakage from
    /// Encrypted Files and Communication with PURBs", 2019), which adds at most 12 %. A decoy has at
    /// least 20 bytes.
    pub pad: bool,
    /// Sends decoys at random times, as long as earlier flights of the connection. All powers of two
    /// that flights have had are imitated equally often, as often as the budget allows. So rare long
    /// flights, which tell most, are imitated most.
    pub cover: bool,
    /// When bytes leave.
    pub pace: Pace,
    /// The budget: how many bytes of decoys may be sent per day. An hour's share can be saved up, and
    /// is there at the beginning. Once it is spent, flights are neither padded nor imitated.
    pub bytes_per_day: u64,
    /// Maximum time for which bytes are held. Zero: not at all.
    pub max_delay: Duration,
    /// Whether messages of [`Priority::Urgent`] may be held, too.
    pub delay_urgent: bool,
}

/// When bytes leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At once.
    Immediate,
    /// In eight equal parts over [`Shape::max_delay`].
    Spread,
    /// The same number of bytes at regular intervals, in total [`Shape::bytes_per_day`]; decoys fill
    /// what messages do not. A multiple of it if bytes would be held for longer than
    /// [`Shape::max_delay`]. Without padding and cover, which would add nothing.
    Constant,
}

/// Whether a message may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Up to [`Shape::max_delay`].
    Normal,
    /// Not at all, unless [`Shape::delay_urgent`] is set: a block or its announcement. Everything that
    /// was queued before leaves with it, because packets are in order.
    Urgent,
}

impl Shape {
    /// Everything leaves at once, without decoys.
    pub const NONE: Self = Self {
        pad: false,
        cover: false,
        pace: Pace::Immediate,
        bytes_per_day: 0,
        max_delay: Duration::ZERO,
        delay_urgent: false,
    };

    /// Padding, with this budget; bursts are spread over `max_delay`, if that is not zero.
    #[must_use]
    pub const fn pad(bytes_per_day: u64, max_delay: Duration) -> Self {
        Self {
            pad: true,
            pace: match max_delay.is_zero() {
                true => Pace::Immediate,
                false => Pace::Spread,
            },
            bytes_per_day,
            max_delay,
            ..Self::NONE
        }
    }

    /// Like [`Shape::pad`], with cover flights.
    #[must_use]
    pub const fn cover(bytes_per_day: u64, max_delay: Duration) -> Self {
        Self {
            cover: true,
            ..Self::pad(bytes_per_day, max_delay)
        }
    }

    /// A constant rate.
    #[must_use]
    pub const fn constant(bytes_per_day: u64, max_delay: Duration) -> Self {
        Self {
            pace: Pace::Constant,
            bytes_per_day,
            max_delay,
            ..Self::NONE
        }
    }

    /// Microseconds between two writes of held bytes.
    fn interval(&self) -> u64 {
        let delay = micros(self.max_delay);
        match self.pace {
            Pace::Immediate => 0,
            Pace::Spread => (delay / PARTS).max(MIN_INTERVAL),
            Pace::Constant => {
                let at_least = MIN_WRITE * DAY / self.bytes_per_day.max(1);
                delay.clamp(MIN_INTERVAL, MAX_INTERVAL).max(at_least)
            }
        }
    }

    /// Bytes of a write of [`Pace::Constant`].
    fn constant_write(&self) -> u64 {
        let bytes = u128::from(self.bytes_per_day) * u128::from(self.interval());
        ((bytes / u128::from(DAY)) as u64).max(1)
    }

    /// When a message that is added now must leave.
    fn due(&self, now: u64, priority: Priority) -> u64 {
        let is_held =
            self.pace != Pace::Immediate && (priority == Priority::Normal || self.delay_urgent);
        match is_held {
            true => now + micros(self.max_delay),
            false => now,
        }
    }
}

/// Counts of a [`Shaper`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shaped {
    /// Decoys.
    pub decoys: u64,
    /// Bytes of decoys on the wire.
    pub decoy_bytes: u64,
    /// Flights that were not padded because the budget was spent.
    pub unpadded: u64,
    /// The longest time for which a byte of a message was held. This and the next include the time in
    /// which the caller could not write, because the peer did not read.
    pub max_delay: Duration,
    /// The time for which bytes of messages were held, summed up over all bytes.
    pub delay: Duration,
}

impl Shaped {
    /// Adds the counts of another shaper.
    pub fn add(&mut self, other: &Self) {
        self.decoys += other.decoys;
        self.decoy_bytes += other.decoy_bytes;
        self.unpadded += other.unpadded;
        self.max_delay = self.max_delay.max(other.max_delay);
        self.delay += other.delay;
    }
}

/// Shapes one direction of one connection. See the [module](self).
pub struct Shaper {
    shape: Shape,
    random: Random,
    /// Messages added since the last flight: their bytes, and the highest priority.
    flight: (u64, Priority),
    /// Bytes that are held, in order.
    held: VecDeque<Held>,
    /// Their sum.
    held_bytes: u64,
    /// Bytes that may be written.
    released: u64,
    /// Bytes of decoys that are still to be added to what is held.
    owed: (u64, Priority),
    /// Bytes of [`Pace::Constant`] that leave once all decoys are added.
    leaving: u64,
    /// When held bytes leave next.
    next_write: Option<u64>,
    /// The next cover flight, and when it leaves.
    cover: Option<(Flight, u64)>,
    /// The last flight of each power of two.
    seen: [Option<Flight>; CLASSES],
    /// What is left of the budget, in bytes times [`DAY`], and when that was.
    saved: (u128, Option<u64>),
    counts: Shaped,
}

/// A flight's bytes, and the highest priority of its messages.
type Flight = (u64, Priority);

/// Bytes that are held: first those of messages, then those of decoys.
#[derive(Clone, Copy, Debug)]
struct Held {
    messages: u64,
    decoys: u64,
    since: u64,
    due: u64,
}

impl Held {
    fn bytes(&self) -> u64 {
        self.messages + self.decoys
    }
}

// Without the seed.
impl fmt::Debug for Shaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shaper")
            .field("shape", &self.shape)
            .field("held", &self.held_bytes)
            .field("released", &self.released)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl Shaper {
    /// Creates a shaper. `seed` determines lengths and times of cover flights: it must be random and
    /// secret, as whoever knows it can tell decoys from messages.
    #[must_use]
    pub fn new(shape: Shape, engine: Engine, seed: [u8; 32]) -> Self {
        Self {
            shape,
            random: Random::new(engine, seed),
            flight: (0, Priority::Normal),
            held: VecDeque::new(),
            held_bytes: 0,
            released: 0,
            owed: (0, Priority::Normal),
            leaving: 0,
            next_write: None,
            cover: None,
            seen: [None; CLASSES],
            saved: (
                u128::from(shape.bytes_per_day) * u128::from(MAX_SAVED),
                None,
            ),
            counts: Shaped::default(),
        }
    }

    /// Creates a shaper with a seed from the operating system (feature `std`).
    ///
    /// # Errors
    ///
    /// [`HandshakeError::NoEntropy`] if the operating system returns no random bytes.
    #[cfg(feature = "std")]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    pub fn random(shape: Shape, engine: Engine) -> Result<Self, HandshakeError> {
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(&mut seed[..]).map_err(|_| HandshakeError::NoEntropy)?;
        Ok(Self::new(shape, engine, *seed))
    }

    /// Adds a message of `wire_len` bytes: the length of its packet. `now` is the time since some
    /// moment, which is the same in all calls.
    pub fn push(&mut self, now: Duration, wire_len: usize, priority: Priority) {
        self.flight.0 += wire_len as u64;
        if priority == Priority::Urgent {
            self.flight.1 = priority;
        }
        self.hold(micros(now), wire_len as u64, priority, false);
    }

    /// Ends the flight of the messages added so far, and decides what leaves now. Returns the length of
    /// the contents of a decoy, which the caller must add to the connection behind everything else.
    /// What the contents are does not matter. To be called until it returns `None`; a
    /// caller with no room for more may write first and go on later.
    pub fn decoy(&mut self, now: Duration) -> Option<usize> {
        let now = micros(now);
        self.save(now);
        if self.owed.0 == 0 {
            let flight = core::mem::replace(&mut self.flight, (0, Priority::Normal));
            self.owed = match self.shape.pace {
                Pace::Constant => (self.fill(now), Priority::Normal),
                _ => self.decoys_for(flight, now),
            };
        }
        let (owed, priority) = self.owed;
        let decoy = match owed {
            0 => 0,
            // What is left must be a decoy, too.
            owed if owed >= MAX_DECOY + MIN_DECOY => MAX_DECOY,
            owed => owed.max(MIN_DECOY),
        };
        if decoy > 0 {
            self.owed.0 = owed.saturating_sub(decoy);
            self.hold(now, decoy, priority, true);
            self.counts.decoys += 1;
            self.counts.decoy_bytes += decoy;
        }
        self.release(now);
        (decoy > 0).then(|| (decoy - MIN_DECOY) as usize)
    }

    /// Lets everything that is held leave, at the next [`Shaper::decoy`]. For a caller whose queue is
    /// full: what comes next may be urgent.
    pub fn flush(&mut self, now: Duration) {
        let now = micros(now);
        for held in &mut self.held {
            held.due = held.due.min(now);
        }
    }

    /// How many bytes may be written now: those at the front of what the connection has queued.
    #[must_use]
    pub fn released(&self) -> usize {
        usize::try_from(self.released).unwrap_or(usize::MAX)
    }

    /// Reports how many bytes were written.
    ///
    /// # Panics
    ///
    /// If they are more than [`Shaper::released`].
    pub fn written(&mut self, bytes: usize) {
        let left = self.released.checked_sub(bytes as u64);
        self.released = left.expect("more bytes were written than released");
    }

    /// When to call [`Shaper::decoy`] again, if no message comes before: at once if it did not return
    /// `None` yet. `None` if there is no need.
    #[must_use]
    pub fn wake_at(&self) -> Option<Duration> {
        if self.owed.0 > 0 {
            return Some(Duration::ZERO);
        }
        let cover = self.cover.map(|(_, at)| at);
        // Packets are in order, so the first is due first.
        let message = self.held.iter().find(|held| held.messages > 0);
        let due = message.map(|held| held.due);
        let first = [self.next_write, cover, due].into_iter().flatten().min();
        first.map(Duration::from_micros)
    }

    /// What the shaper has done.
    #[must_use]
    pub fn counts(&self) -> Shaped {
        self.counts
    }

    /// Adds bytes to those that are held.
    fn hold(&mut self, now: u64, bytes: u64, priority: Priority, is_decoy: bool) {
        if bytes == 0 {
            return;
        }
        let due = self.shape.due(now, priority);
        self.held_bytes += bytes;
        // Packets are in order, so nothing before it may leave later. The last is due last.
        for held in self.held.iter_mut().rev().take_while(|held| held.due > due) {
            held.due = due;
        }
        let (messages, decoys) = if is_decoy { (0, bytes) } else { (bytes, 0) };
        // One entry for an interval, and one for all that waits only for a slow caller, so that there
        // are few.
        let same = |last: &Held| {
            now < last.since + self.shape.interval().max(1) || due <= now && last.due <= now
        };
        match self.held.back_mut() {
            Some(last) if same(last) => {
                // For how long decoys are held does not matter.
                if last.messages == 0 {
                    last.since = now;
                }
                last.messages += messages;
                last.decoys += decoys;
            }
            _ => self.held.push_back(Held {
                messages,
                decoys,
                since: now,
                due,
            }),
        }
    }

    /// Padding of a flight, and a cover flight whose time has come.
    fn decoys_for(&mut self, flight: Flight, now: u64) -> Flight {
        let mut decoys = (0, flight.1);
        if flight.0 > 0 && self.shape.pad {
            let padding = padded(flight.0) - flight.0;
            match self.spend(padding, 0) {
                true => decoys.0 = padding,
                false => self.counts.unpadded += 1,
            }
        }
        if !self.shape.cover || self.shape.bytes_per_day == 0 {
            return decoys;
        }
        if flight.0 > 0
            && let Some(seen) = self.seen.get_mut(flight.0.ilog2() as usize)
        {
            *seen = Some(flight);
        }
        if let Some((imitated, at)) = self.cover
            && at <= now
        {
            self.cover = None;
            // Not together with messages, which would make both stand out.
            if flight.0 == 0 && self.held_bytes == 0 && self.spend(imitated.0, FOR_PADDING) {
                decoys = imitated;
            }
        }
        if self.cover.is_none() {
            self.cover = self.next_cover(now);
        }
        decoys
    }

    /// Draws the next cover flight and its time. `None` as long as nothing was sent.
    fn next_cover(&mut self, now: u64) -> Option<(Flight, u64)> {
        let pad = self.shape.pad;
        // The budget never suffices for longer ones, and waiting for their time would waste it.
        let most = u128::from(self.shape.bytes_per_day) * u128::from(MAX_SAVED - FOR_PADDING);
        let known = || {
            let seen = self.seen.iter().flatten();
            let flights = seen.map(|&(len, priority)| match pad {
                true => (padded(len), priority),
                false => (len.max(MIN_DECOY), priority),
            });
            flights.filter(|(len, _)| u128::from(*len) * u128::from(DAY) <= most)
        };
        let drawn = self.random.below(known().count() as u64)?;
        let (len, priority) = known().nth(drawn as usize)?;
        // So the budget is spent on average.
        let mean = u128::from(len) * u128::from(DAY) / u128::from(self.shape.bytes_per_day);
        Some((
            (len, priority),
            now + 1 + self.random.exponential(mean as u64),
        ))
    }

    /// Decides how much of [`Pace::Constant`] leaves now, and returns how many bytes of decoys it
    /// lacks.
    fn fill(&mut self, now: u64) -> u64 {
        let (interval, write) = (self.shape.interval(), self.shape.constant_write());
        let is_time = *self.next_write.get_or_insert(now) <= now;
        let mut bytes = self.due_by(now);
        if is_time {
            // Only once if several were missed: a burst of decoys would show that the program was busy.
            self.next_write = Some(now + interval);
            bytes = self.due_by(now + interval).max(write);
        }
        self.leaving = bytes.div_ceil(write) * write;
        let lacking = self.leaving.saturating_sub(self.held_bytes);
        if is_time {
            let cost = u128::from(lacking) * u128::from(DAY);
            self.saved.0 = self.saved.0.saturating_sub(cost);
        } else if !self.spend(lacking, interval) {
            // Others' requests must not multiply the rate. The next regular write is paid for.
            self.leaving = bytes;
            self.counts.unpadded += 1;
            return 0;
        }
        lacking
    }

    /// Lets bytes leave.
    fn release(&mut self, now: u64) {
        let mut bytes = match self.shape.pace {
            Pace::Immediate => self.held_bytes,
            Pace::Constant => self.leaving.min(self.held_bytes),
            Pace::Spread => self.spread(now),
        };
        self.leaving = self.leaving.saturating_sub(bytes);
        while let Some(first) = self.held.front_mut()
            && bytes > 0
        {
            let part = bytes.min(first.bytes());
            let of_messages = part.min(first.messages);
            first.messages -= of_messages;
            first.decoys -= part - of_messages;
            bytes -= part;
            self.held_bytes -= part;
            self.released += part;
            if of_messages > 0 {
                let delay = Duration::from_micros(now.saturating_sub(first.since));
                self.counts.max_delay = self.counts.max_delay.max(delay);
                self.counts.delay += delay * u32::try_from(of_messages).unwrap_or(u32::MAX);
            }
            if first.bytes() == 0 {
                self.held.pop_front();
            }
        }
        if self.held.is_empty() && self.shape.pace == Pace::Spread {
            self.next_write = None;
        }
    }

    /// How many bytes of [`Pace::Spread`] leave now: of all that is held, the same part in each interval
    /// that is left.
    fn spread(&mut self, now: u64) -> u64 {
        let interval = self.shape.interval();
        // The parts are those of the whole flight.
        if self.owed.0 > 0 || *self.next_write.get_or_insert(now) > now {
            return self.due_by(now);
        }
        self.next_write = Some(now + interval);
        let part = |held: &Held| {
            let writes = held.due.saturating_sub(now).div_ceil(interval);
            held.bytes().div_ceil(writes.max(1))
        };
        self.held.iter().map(part).sum()
    }

    /// Bytes that must leave by this time: up to the last message that is due.
    fn due_by(&self, time: u64) -> u64 {
        let is_due = |held: &Held| held.messages > 0 && held.due <= time;
        let due = self
            .held
            .iter()
            .rposition(is_due)
            .map_or(0, |last| last + 1);
        self.held.iter().take(due).map(Held::bytes).sum()
    }

    /// Adds the budget for the time since the last call.
    fn save(&mut self, now: u64) {
        let (saved, last) = self.saved;
        let passed = now.saturating_sub(last.unwrap_or(now));
        let last = last.map_or(now, |last| last.max(now));
        let share = u128::from(self.shape.bytes_per_day);
        let saved = saved + share * u128::from(passed);
        self.saved = (saved.min(share * u128::from(MAX_SAVED)), Some(last));
    }

    /// Takes bytes from the budget, if it has so many, and then still those of so many microseconds.
    fn spend(&mut self, bytes: u64, reserve: u64) -> bool {
        let reserve = u128::from(self.shape.bytes_per_day) * u128::from(reserve);
        let left = (self.saved.0).checked_sub(u128::from(bytes) * u128::from(DAY));
        let left = left.filter(|left| *left >= reserve);
        self.saved.0 = left.unwrap_or(self.saved.0);
        left.is_some()
    }
}

/// The length of a padded flight. The difference is 0 or that of a decoy.
fn padded(flight: u64) -> u64 {
    let padded = padme(flight.max(MIN_FLIGHT));
    match padded - flight {
        0 => padded,
        1..MIN_DECOY => padme(flight + MIN_DECOY),
        _ => padded,
    }
}

/// Padmé: the next length whose binary digits end in zeros, except for as many as it takes to write
/// the length of the length.
fn padme(len: u64) -> u64 {
    let exponent = len.ilog2();
    let zeros = exponent - (exponent.ilog2() + 1);
    len.next_multiple_of(1 << zeros)
}

/// Microseconds, at most a century, so that sums do not overflow.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).map_or(36_500 * DAY, |time| time.min(36_500 * DAY))
}

/// Random numbers: a ChaCha20 stream.
struct Random {
    kernels: Kernels,
    key: Zeroizing<[u8; 32]>,
    block: Zeroizing<[u8; 64]>,
    /// The next block, and how many bytes of the current one are used.
    next: (u32, usize),
}

impl Random {
    fn new(engine: Engine, seed: [u8; 32]) -> Self {
        Self {
            kernels: engine.backend().kernels(),
            key: Zeroizing::new(seed),
            block: Zeroizing::new([0; 64]),
            next: (0, 64),
        }
    }

    fn number(&mut self) -> u64 {
        if self.next.1 == self.block.len() {
            *self.block = [0; 64];
            // After 2^32 blocks the stream repeats: 2^34 cover flights.
            (self.kernels).chacha20(&self.key, &[0; 12], self.next.0, &mut *self.block);
            self.next = (self.next.0.wrapping_add(1), 0);
        }
        let start = self.next.1;
        self.next.1 += 8;
        let bytes = self.block[start..].first_chunk().expect("8 bytes");
        u64::from_le_bytes(*bytes)
    }

    /// A number below `limit`, which is small. `None` if there is none.
    fn below(&mut self, limit: u64) -> Option<u64> {
        self.number().checked_rem(limit)
    }

    /// A number of an exponential distribution with this mean, within some per cent: `-ln(u)` for `u`
    /// in `0..1` by its leading zeros, and a straight line between powers of two.
    fn exponential(&mut self, mean: u64) -> u64 {
        /// ln 2 times 2^32.
        const LN_2: u128 = 2_977_044_472;
        let uniform = self.number() | 1;
        let zeros = uniform.leading_zeros();
        // The digits after the leading one, times 2^32: log2 of 1 + f is about f.
        let fraction = (uniform << zeros << 1) >> 32;
        let log2 = (u128::from(zeros + 1) << 32) - u128::from(fraction);
        let ln = (log2 * LN_2) >> 32;
        let number = (u128::from(mean) * ln) >> 32;
        u64::try_from(number).map_or(36_500 * DAY, |number| number.min(36_500 * DAY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MB: u64 = 1_000_000;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn shaper(shape: Shape) -> Shaper {
        Shaper::new(shape, Engine::detect().unwrap(), [7; 32])
    }

    /// Adds the decoys and writes everything. Returns the bytes of both.
    fn turn(shaper: &mut Shaper, now: Duration) -> (u64, u64) {
        let mut decoys = 0;
        while let Some(contents) = shaper.decoy(now) {
            decoys += contents as u64 + MIN_DECOY;
        }
        let written = shaper.released();
        shaper.written(written);
        (decoys, written as u64)
    }

    #[test]
    fn lengths_of_flights_are_those_of_padme() {
        // Figures by hand from the definition in the paper.
        for (len, expected) in [
            (256, 256),
            (257, 272),
            (1000, 1024),
            (1025, 1088),
            (1_700_000, 1_703_936),
        ] {
            assert_eq!(padme(len), expected, "{len}");
        }
        for len in (1..5000).chain((5000..4_000_000).step_by(997)) {
            let padding = padded(len) - len;
            assert!(padding == 0 || padding >= MIN_DECOY, "{len}: {padding}");
            assert_eq!(padded(padded(len)), padded(len));
            // At most 12 %, or the next but one length if no decoy fits before.
            let most = len.max(MIN_FLIGHT) * 12 / 100 + 2 * MIN_DECOY;
            assert!(
                len + padding <= len.max(MIN_FLIGHT) + most,
                "{len}: {padding}"
            );
        }
    }

    #[test]
    fn without_a_shape_everything_leaves_at_once() {
        let mut shaper = shaper(Shape::NONE);
        assert_eq!(turn(&mut shaper, ms(0)), (0, 0));
        shaper.push(ms(1), 100, Priority::Normal);
        shaper.push(ms(1), 200, Priority::Urgent);
        assert_eq!(turn(&mut shaper, ms(1)), (0, 300));
        assert_eq!(
            (shaper.wake_at(), shaper.counts()),
            (None, Shaped::default())
        );
    }

    #[test]
    fn padding_ends_with_the_budget() {
        let mut shaper = shaper(Shape {
            pad: true,
            bytes_per_day: 24 * 500,
            ..Shape::NONE
        });
        let mut sent = Vec::new();
        for _ in 0..3 {
            shaper.push(ms(0), 56, Priority::Normal);
            sent.push(turn(&mut shaper, ms(0)));
        }
        assert_eq!(sent, [(200, 256), (200, 256), (0, 56)]);
        assert_eq!(
            (shaper.counts().unpadded, shaper.counts().decoy_bytes),
            (1, 400)
        );
        // 200 bytes are there again after 12 minutes.
        shaper.push(ms(720_000), 56, Priority::Normal);
        assert_eq!(turn(&mut shaper, ms(720_000)), (200, 256));
    }

    #[test]
    fn a_burst_is_spread_in_equal_parts() {
        let mut shaper = shaper(Shape {
            pace: Pace::Spread,
            max_delay: ms(800),
            ..Shape::NONE
        });
        shaper.push(ms(0), 8000, Priority::Normal);
        let mut written = Vec::new();
        let mut now = ms(0);
        while let Some(at) = Some(now).filter(|_| written.iter().sum::<u64>() < 8000) {
            written.push(turn(&mut shaper, at).1);
            now = shaper.wake_at().unwrap_or(at);
        }
        assert_eq!(written, [1000; 8]);
        assert_eq!(
            (shaper.wake_at(), shaper.counts().max_delay),
            (None, ms(700))
        );
    }

    #[test]
    fn an_urgent_message_takes_everything_before_it_along() {
        let shape = Shape {
            pace: Pace::Spread,
            max_delay: ms(800),
            ..Shape::NONE
        };
        for delay_urgent in [false, true] {
            let mut shaper = shaper(Shape {
                delay_urgent,
                ..shape
            });
            shaper.push(ms(0), 8000, Priority::Normal);
            assert_eq!(turn(&mut shaper, ms(0)).1, 1000);
            shaper.push(ms(10), 500, Priority::Urgent);
            let expected = if delay_urgent { 0 } else { 7500 };
            assert_eq!(turn(&mut shaper, ms(10)).1, expected);
        }
    }

    #[test]
    fn a_constant_rate_is_constant_until_something_is_due() {
        let mut shaper = shaper(Shape {
            pace: Pace::Constant,
            bytes_per_day: 1000 * 24 * 3600,
            max_delay: ms(2000),
            ..Shape::NONE
        });
        let mut written = Vec::new();
        for second in 0..6 {
            match second {
                1 => shaper.push(ms(1000), 1500, Priority::Normal),
                3 => shaper.push(ms(3000), 10_000, Priority::Normal),
                _ => {}
            }
            written.push(turn(&mut shaper, ms(1000 * second)).1);
        }
        // The 10,000 bytes are due at 5 seconds: what has not left by then leaves one interval
        // before, rounded up.
        assert_eq!(written, [1000, 1000, 1000, 1000, 9000, 1000]);
        assert_eq!(shaper.counts().max_delay, ms(1000));
        // Between two writes nothing leaves, but a block does.
        assert_eq!(turn(&mut shaper, ms(5500)), (0, 0));
        shaper.push(ms(5600), 1700, Priority::Urgent);
        assert_eq!(turn(&mut shaper, ms(5600)).1, 2000);
    }

    /// Runs random messages through every shape: bytes and order are kept, as only lengths move; no
    /// budget and no delay is exceeded; what is kept in memory is bounded.
    #[test]
    fn no_shape_exceeds_its_limits() {
        let mut random = Random::new(Engine::detect().unwrap(), [9; 32]);
        for case in 0..96_u64 {
            let shape = Shape {
                pad: case & 1 != 0,
                cover: case & 2 != 0,
                pace: [Pace::Immediate, Pace::Spread, Pace::Constant][(case / 4 % 3) as usize],
                bytes_per_day: [0, 5 * MB, 100 * MB][(case % 3) as usize],
                max_delay: ms([0, 1, 200, 5000][(case / 12 % 4) as usize]),
                delay_urgent: case >= 48,
            };
            let mut shaper = shaper(shape);
            let (mut now, mut pushed, mut written, mut decoys) = (0, 0, 0, 0);
            let mut busiest = 0;
            for _ in 0..2000 {
                let next = now + random.exponential(300_000);
                // Whenever the shaper asks for it, and when there is a message.
                while let Some(at) = shaper.wake_at().map(micros).filter(|at| *at <= next) {
                    let sent = turn(&mut shaper, Duration::from_micros(at));
                    (decoys, written) = (decoys + sent.0, written + sent.1);
                    now = now.max(at);
                    let wakes_later = shaper.wake_at().is_none_or(|later| micros(later) > at);
                    assert!(wakes_later, "{shape:?}");
                }
                now = next;
                let len = 21 + random.number() % [100, 2000, 30_000][(pushed % 3) as usize];
                let priority = match random.number() % 10 {
                    0 => Priority::Urgent,
                    _ => Priority::Normal,
                };
                shaper.push(Duration::from_micros(now), len as usize, priority);
                pushed += len;
                let sent = turn(&mut shaper, Duration::from_micros(now));
                (decoys, written) = (decoys + sent.0, written + sent.1);
                busiest = busiest.max(shaper.held.len());
                if priority == Priority::Urgent && !shape.delay_urgent
                    || shape.pace == Pace::Immediate
                {
                    assert!(
                        shaper.held.iter().all(|held| held.messages == 0),
                        "{shape:?}"
                    );
                }
            }
            assert_eq!(written + shaper.held_bytes, pushed + decoys, "{shape:?}");
            let counts = shaper.counts();
            assert_eq!(counts.decoy_bytes, decoys);
            assert!(counts.max_delay <= shape.max_delay, "{shape:?}: {counts:?}");
            assert!(busiest < 20, "{shape:?}: {busiest}");
            if shape.pace != Pace::Constant || shape.bytes_per_day > 0 {
                let budget = u128::from(shape.bytes_per_day) * u128::from(now + MAX_SAVED);
                // What fills a constant rate may be shorter than the shortest decoy.
                let paid = decoys.saturating_sub(MIN_DECOY);
                assert!(
                    u128::from(paid) * u128::from(DAY) <= budget,
                    "{shape:?}: {decoys}"
                );
            }
            // A constant rate needs none as long as there are enough messages.
            if shape.pace != Pace::Constant {
                let has_decoys = (shape.pad || shape.cover) && shape.bytes_per_day > 0;
                assert_eq!(decoys > 0, has_decoys, "{shape:?}");
            }
        }
    }

    /// An idle connection that has sent flights of three lengths: each is imitated equally often, and
    /// the budget is spent.
    #[test]
    fn cover_flights_imitate_all_lengths() {
        let mut shaper = shaper(Shape {
            cover: true,
            bytes_per_day: 50 * MB,
            ..Shape::NONE
        });
        for len in [30, 500, 20_000] {
            shaper.push(ms(0), len, Priority::Normal);
            turn(&mut shaper, ms(0));
        }
        let mut found = alloc::collections::BTreeMap::<u64, u64>::new();
        let mut all = 0;
        while let Some(at) = shaper.wake_at().filter(|at| *at <= ms(86_400_000)) {
            let (decoys, written) = turn(&mut shaper, at);
            assert_eq!(decoys, written);
            *found.entry(written).or_default() += 1;
            all += written;
        }
        found.remove(&0);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [30, 500, 20_000]);
        let (few, many) = (found.values().min().unwrap(), found.values().max().unwrap());
        assert!(*few > 2000 && *many < few + few / 5, "{found:?}");
        assert!((40 * MB..52 * MB).contains(&all), "{all}");
    }

    /// A flight for which the budget never suffices is not drawn: it would only pass the time.
    #[test]
    fn flights_above_the_budget_are_not_imitated() {
        for pad in [false, true] {
            let mut shaper = shaper(Shape {
                pad,
                cover: true,
                bytes_per_day: 50 * MB,
                ..Shape::NONE
            });
            for len in [300, 1_700_000] {
                shaper.push(ms(0), len, Priority::Normal);
                turn(&mut shaper, ms(0));
            }
            let mut all = 0;
            while let Some(at) = shaper.wake_at().filter(|at| *at <= ms(86_400_000)) {
                all += turn(&mut shaper, at).1;
            }
            assert!((40 * MB..52 * MB).contains(&all), "{all}");
        }
    }

    /// Decoys between the regular writes are paid for by messages that took the place of others.
    #[test]
    fn urgent_messages_do_not_multiply_a_constant_rate() {
        let shape = Shape::constant(50 * MB, ms(1000));
        let mut shaper = shaper(shape);
        let (mut now, mut decoys) = (ms(0), 0);
        let mut regular = Vec::new();
        while now < ms(3_600_000) {
            // A peer asks for headers a hundred times a second, and gets none.
            shaper.push(now, 45, Priority::Urgent);
            decoys += turn(&mut shaper, now).0;
            now += ms(10);
        }
        assert!(decoys <= 2 * 50 * MB / 24, "{decoys}");
        // The regular writes are as ever.
        while let Some(at) = shaper.wake_at().filter(|_| regular.len() < 3) {
            regular.push(turn(&mut shaper, at).1);
        }
        assert_eq!(regular, [578; 3]);
    }

    /// A long cover flight leaves in the same parts as a message of its length.
    #[test]
    fn long_cover_flights_are_spread_as_messages_are() {
        let parts = |shaper: &mut Shaper, from: Duration| {
            let mut parts = Vec::new();
            let mut now = from;
            while parts.len() < 8 {
                let written = turn(shaper, now).1;
                parts.extend(Some(written).filter(|written| *written > 0));
                now = shaper.wake_at().unwrap_or(now);
            }
            parts
        };
        for priority in [Priority::Normal, Priority::Urgent] {
            let mut shaper = shaper(Shape {
                delay_urgent: true,
                ..Shape::cover(500 * MB, ms(800))
            });
            shaper.push(ms(0), padded(300_000) as usize, priority);
            let of_message = parts(&mut shaper, ms(0));
            let at = shaper.wake_at().unwrap();
            assert!(at > ms(800));
            assert_eq!(parts(&mut shaper, at), of_message);
        }
    }

    /// What a peer that does not read keeps waiting needs no entry per message.
    #[test]
    fn bytes_that_are_due_are_one_entry() {
        for pace in [Pace::Immediate, Pace::Spread, Pace::Constant] {
            let mut shaper = shaper(Shape {
                pace,
                ..Shape::pad(50 * MB, ms(100))
            });
            for second in 0..1000 {
                shaper.push(ms(1000 * second), 29, Priority::Urgent);
            }
            assert_eq!(shaper.held.len(), 1, "{pace:?}");
        }
    }

    #[test]
    fn nothing_is_not_held() {
        let mut shaper = shaper(Shape::pad(50 * MB, ms(800)));
        shaper.push(ms(0), 0, Priority::Urgent);
        assert_eq!(turn(&mut shaper, ms(0)), (0, 0));
        assert_eq!(shaper.wake_at(), None);
        // The next message is held as long as any.
        shaper.push(ms(1), 1024, Priority::Normal);
        assert_eq!(turn(&mut shaper, ms(1)), (0, 128));
    }

    #[test]
    fn extreme_settings_do_not_overflow() {
        for bytes_per_day in [0, 1, u64::MAX] {
            for max_delay in [Duration::ZERO, Duration::from_micros(1), Duration::MAX] {
                for case in 0..12_u8 {
                    let mut shaper = shaper(Shape {
                        pad: case & 1 != 0,
                        cover: case & 2 != 0,
                        pace: [Pace::Immediate, Pace::Spread, Pace::Constant][case as usize / 4],
                        bytes_per_day,
                        max_delay,
                        delay_urgent: false,
                    });
                    let times = [ms(5), ms(0), Duration::MAX, ms(7), ms(9)];
                    for (now, len) in times.into_iter().zip([0, 1, 1 << 24, 56, 1 << 40]) {
                        shaper.push(now, len, Priority::Normal);
                        for _ in 0..100 {
                            shaper.decoy(now);
                        }
                        shaper.written(shaper.released());
                        let _ = shaper.wake_at();
                    }
                }
            }
        }
    }

    #[test]
    fn gaps_have_the_mean_of_an_exponential_distribution() {
        let mut random = Random::new(Engine::detect().unwrap(), [3; 32]);
        let numbers: Vec<_> = (0..20_000).map(|_| random.exponential(1_000_000)).collect();
        let mean = numbers.iter().sum::<u64>() / 20_000;
        assert!((930_000..1_070_000).contains(&mean), "{mean}");
        let above = numbers.iter().filter(|number| **number > 2_000_000).count();
        // e^-2 of them.
        assert!((2400..3000).contains(&above), "{above}");
        assert_eq!(random.exponential(0), 0);
        assert!(random.exponential(u64::MAX) <= 36_500 * DAY);
    }
}
