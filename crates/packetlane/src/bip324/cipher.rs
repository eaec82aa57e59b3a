//! The ciphers of one direction: FSChaCha20 for the lengths and
//! FSChaCha20Poly1305 for the packets (BIP324, "Rekeying wrappers").
//!
//! Both take a new key from their own keystream every 224 packets and forget the
//! old one, so that who captures a node cannot read what it received before.
//! Their keys do not depend on what the packets say, which is why a batch may
//! hold packets from both sides of a rekey.

use super::{
    HEADER_LEN, IGNORE_BIT, LENGTH_LEN, MAX_CONTENTS_LEN, OVERHEAD, OpenError, PacketKind, Role,
    SealError, SessionKeys,
};
use crate::batch::index;
use crate::copy::append;
use crate::engine::Kernel;
use crate::{Backend, Batch, Block, Engine, Key, Nonce, Outcome, TAG_LEN};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// How many packets one key serves.
pub const REKEY_INTERVAL: u32 = 224;

/// Bytes of keystream that mask the lengths of one key's packets.
const MASKS_LEN: usize = LENGTH_LEN * REKEY_INTERVAL as usize;

/// Keystream of one key of FSChaCha20: the masks, then the next key. Exactly 11
/// blocks.
const STREAM_LEN: usize = MASKS_LEN + 32;

/// Both counters of a direction are spent: 224 * 2^64 packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the packet counters of this session are spent: make a new connection")
    }
}

impl core::error::Error for Exhausted {}

/// The nonce of an epoch: a number within the epoch, then the number of rekeys
/// before it.
fn nonce(number: u32, epoch: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&number.to_le_bytes());
    nonce[4..].copy_from_slice(&epoch.to_le_bytes());
    nonce
}

/// FSChaCha20 for the lengths: encrypts and decrypts alike.
///
/// It holds the whole keystream of its key, which one call of the engine makes,
/// and the next key is the end of it.
#[repr(C)]
struct LengthCipher {
    epoch: u64,
    stream: [u8; STREAM_LEN],
}

impl LengthCipher {
    /// Without keystream yet.
    fn new(epoch: u64) -> Self {
        Self {
            epoch,
            stream: [0; STREAM_LEN],
        }
    }

    /// Makes the keystream of `key`.
    fn set_key(&mut self, engine: &Engine, key: &Key) {
        engine.keystream(key, nonce(0, self.epoch), 0, &mut self.stream);
    }

    /// Encrypts or decrypts the next length; `used` is how many the key has.
    #[inline]
    fn crypt(
        &mut self,
        engine: &Engine,
        used: &mut u32,
        length: [u8; LENGTH_LEN],
    ) -> Result<[u8; LENGTH_LEN], Exhausted> {
        let number = match *used {
            number @ ..REKEY_INTERVAL => number,
            _ => {
                self.rekey(engine)?;
                0
            }
        };
        *used = number + 1;
        let at = LENGTH_LEN * number as usize;
        let mask = [self.stream[at], self.stream[at + 1], self.stream[at + 2]];
        Ok([
            length[0] ^ mask[0],
            length[1] ^ mask[1],
            length[2] ^ mask[2],
        ])
    }

    #[cold]
    fn rekey(&mut self, engine: &Engine) -> Result<(), Exhausted> {
        self.epoch = self.epoch.checked_add(1).ok_or(Exhausted)?;
        let mut key = Zeroizing::new([0; 32]);
        key.copy_from_slice(&self.stream[MASKS_LEN..]);
        self.set_key(engine, &key);
        Ok(())
    }
}

/// The most memory that keystream ahead takes, a direction, in bytes.
pub const MAX_KEYSTREAM_AHEAD: usize = 1024;

/// As many blocks: they fill the lanes of AVX-512 once.
const AHEAD_BLOCKS: usize = MAX_KEYSTREAM_AHEAD / size_of::<Block>();

/// The most blocks that are computed ahead of one packet: with more, what a call has left
/// over for the next one is less than the way through the batch costs.
const MOST_AHEAD: usize = 12;

/// Fewer packets in a batch than this are few. With two blocks each, as many are
/// ready at a time.
const FEW_PACKETS: usize = AHEAD_BLOCKS / 2;

/// After so many packets of at most a block of text, one more of them is expected.
const SHORT_PACKETS: u8 = 4;

/// Keystream of the next packets, computed ahead of them: a nonce is a counter,
/// and one packet by itself leaves most lanes idle. It never reaches beyond a
/// rekey. What is used is wiped.
struct KeystreamAhead {
    on: bool,
    /// No memory before the first use.
    blocks: Option<Box<[Block; AHEAD_BLOCKS]>>,
    /// How many of them belong to one packet; for the last one there may not have been
    /// room for so many.
    each: u8,
    /// Which of them are left: the next packet's come first.
    next: u8,
    end: u8,
    /// How many packets were of at most a block of text, one after the other; of those
    /// that it has a part in.
    short: u8,
}

impl KeystreamAhead {
    fn new() -> Self {
        Self {
            on: true,
            blocks: None,
            each: 0,
            next: 0,
            end: 0,
            short: 0,
        }
    }

    /// Whether it has a part in a packet that is one of `packets` of a turn: there is
    /// some, or so few of them might want it.
    #[inline]
    fn has_part(&self, packets: usize) -> bool {
        self.next < self.end || packets < FEW_PACKETS
    }

    /// How many blocks it had better have of a packet with `text_len` bytes of text, one
    /// of `packets` of a turn; 0 if that is not worth while. One or two packets leave
    /// most lanes idle. Of a few more, all have to be covered: otherwise the others' lanes
    /// have room for this one too.
    #[inline]
    fn wanted(&mut self, engine: &Engine, packets: usize, text_len: usize) -> usize {
        let short = text_len <= size_of::<Block>();
        self.short = if short {
            self.short.saturating_add(1)
        } else {
            0
        };
        if !self.on || packets > 2 && (packets >= FEW_PACKETS || self.short <= SHORT_PACKETS) {
            return 0;
        }
        // A block for the tag, and the text's. Longer texts fill lanes by
        // themselves: for them the tag's and the odd one that the header makes; none
        // where their hash goes beside their rounds.
        match 1 + text_len.div_ceil(size_of::<Block>()) {
            needed if needed > engine.backend().max_precomputed_blocks() => 0,
            needed @ ..=MOST_AHEAD => needed,
            _ => 2,
        }
    }

    /// Computes it for the packets from `number` of `epoch` on, `each` blocks for each, in
    /// the hope that they will be as long as the first; of that from block `first` on.
    #[cold]
    #[allow(clippy::cast_possible_truncation, reason = "there are 16 blocks")]
    fn compute(
        &mut self,
        engine: &Engine,
        key: &Key,
        (mut number, epoch): (u32, u64),
        first: usize,
        each: usize,
    ) {
        let left = (REKEY_INTERVAL - number) as usize * each - first;
        let end = left.min(AHEAD_BLOCKS);
        let mut of = [(0, [0; 12]); AHEAD_BLOCKS];
        let mut next = (first as u32, nonce(number, epoch));
        for place in &mut of[..end] {
            *place = next;
            next.0 += 1;
            if next.0 == each as u32 {
                number += 1;
                next = (0, nonce(number, epoch));
            }
        }
        (self.each, self.next, self.end) = (each as u8, 0, end as u8);
        let blocks = self
            .blocks
            .get_or_insert_with(|| Box::new([[0; size_of::<Block>()]; AHEAD_BLOCKS]));
        engine.precompute_keystream(key, &of[..end], &mut blocks[..end]);
    }

    /// Where the first `count` of what is left lie; there may be fewer.
    #[inline]
    fn first(&self, count: usize) -> Range<usize> {
        let next = usize::from(self.next);
        next..usize::from(self.end).min(next + count)
    }

    /// The first `count` of what is left, or fewer.
    #[inline]
    fn blocks(&self, count: usize) -> &[Block] {
        match &self.blocks {
            Some(blocks) => &blocks[self.first(count)],
            None => &[],
        }
    }

    /// Wipes them, as they have been used.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "there are 16 blocks")]
    fn advance(&mut self, count: usize) {
        let used = self.first(count);
        if let Some(blocks) = &mut self.blocks {
            self.next = used.end as u8;
            for used in &mut blocks[used] {
                *used = [0; size_of::<Block>()];
                zeroize::optimization_barrier(used);
            }
        }
    }

    fn wipe(&mut self) {
        if let Some(blocks) = &mut self.blocks {
            blocks.as_flattened_mut().zeroize();
        }
        (self.next, self.end) = (0, 0);
    }
}

/// FSChaCha20Poly1305 for the packets: which key and nonce the next one has.
#[repr(C)]
struct PacketCipher {
    key: Key,
    used: u32,
    /// Turn of the batch that holds `key`, and its index there; turn 0, which
    /// no batch has, if none does.
    index: u32,
    turn: usize,
    /// `None` when the last key of all is spent.
    epoch: Option<u64>,
    keystream: KeystreamAhead,
    engine: Engine,
}

impl PacketCipher {
    /// Without a key yet.
    fn new(engine: Engine, epoch: u64) -> Self {
        Self {
            key: [0; 32],
            used: 0,
            index: 0,
            turn: 0,
            epoch: Some(epoch),
            keystream: KeystreamAhead::new(),
            engine,
        }
    }

    /// The nonce of the next packet.
    #[inline]
    fn nonce(&self) -> Result<Nonce, Exhausted> {
        Ok(nonce(self.used, self.epoch.ok_or(Exhausted)?))
    }

    /// Takes what is known ahead of the next packet's keystream into `batch`; its text is
    /// `text_len` bytes, and it is one of `packets` of a turn. Where that pays, what is
    /// missing is computed, and more for the packets behind it. Returns the index of the
    /// first block, and how many there are.
    #[inline(always)]
    fn add_keystream(&mut self, batch: &mut Batch, packets: usize, text_len: usize) -> (u32, u32) {
        let wanted = self.keystream.wanted(&self.engine, packets, text_len);
        let blocks = self.keystream.blocks(self.keystream.each.into());
        let (first, mut count) = (batch.add_keystream(blocks), blocks.len());
        self.keystream.advance(count);
        if count < wanted
            && self.keystream.next == self.keystream.end
            && let Some(epoch) = self.epoch
        {
            let place = (self.used, epoch);
            self.keystream
                .compute(&self.engine, &self.key, place, count, wanted);
            let missing = wanted - count;
            batch.add_keystream(self.keystream.blocks(missing));
            self.keystream.advance(missing);
            count = wanted;
        }
        (first, index(count))
    }

    /// Seals or opens the next packet by itself.
    fn one(
        &mut self,
        kernel: Kernel,
        bytes: &mut [u8],
        aad: Range<usize>,
        text: Range<usize>,
    ) -> Result<Outcome, Exhausted> {
        let nonce = self.nonce()?;
        let wanted = self.keystream.wanted(&self.engine, 1, text.len());
        // A packet's blocks have to lie one behind the other here: if there are not all
        // of the last one's, they are computed again.
        let left = usize::from(self.keystream.end - self.keystream.next);
        if left < wanted
            && left <= self.keystream.each.into()
            && let Some(epoch) = self.epoch
        {
            let place = (self.used, epoch);
            self.keystream.advance(left);
            self.keystream
                .compute(&self.engine, &self.key, place, 0, wanted);
        }
        let blocks = self.keystream.blocks(self.keystream.each.into());
        let (secrets, count) = ((&self.key, blocks), blocks.len());
        let outcome = self.engine.one(kernel, secrets, nonce, bytes, aad, text);
        self.keystream.advance(count);
        self.advance();
        Ok(outcome)
    }

    /// Counts a packet. The key is replaced as soon as its last packet is.
    #[inline]
    fn advance(&mut self) {
        self.used += 1;
        if self.used == REKEY_INTERVAL {
            self.rekey();
        }
    }

    #[cold]
    fn rekey(&mut self) {
        let Some(epoch) = self.epoch else { return };
        self.keystream.wipe();
        // The AEAD of 32 zero bytes under this nonce begins with the next key:
        // block 1 of its keystream, since block 0 makes the tag.
        let mut key = Zeroizing::new([0; 32]);
        self.engine
            .keystream(&self.key, nonce(u32::MAX, epoch), 1, key.as_mut());
        self.key.copy_from_slice(&*key);
        self.used = 0;
        self.epoch = epoch.checked_add(1);
        self.turn = 0;
    }
}

/// One direction of a session, packet by packet: what a caller needs who frames
/// packets himself. [`Outbound`](super::Outbound) and
/// [`Inbound`](super::Inbound) are made of it.
///
/// Calls must come in the order of the packets: [`Cipher::seal`] on one side,
/// [`Cipher::decrypt_length`] and [`Cipher::open`] in turn on the other.
pub struct Cipher {
    /// In a box, since what is secret should not be moved: it would leave a copy at its
    /// old place, which nobody wipes.
    state: Box<State>,
    /// How many lengths their key has masked: here, so that where the next mask lies
    /// is known before the state is at hand.
    lengths: u32,
}

/// Both ciphers of a direction, in one piece of memory: with thousands of sessions
/// memory is what takes time, and a packet needs the first lines of it, and that of its
/// mask.
#[repr(C, align(64))]
struct State {
    packet: PacketCipher,
    length: LengthCipher,
    /// What is left of the last line. Otherwise it would take along what lies on the
    /// stack where a state is made: something of an earlier packet's key.
    rest: [u8; REST],
}

const REST: usize = (size_of::<PacketCipher>() + size_of::<LengthCipher>()).wrapping_neg() % 64;

impl Drop for State {
    fn drop(&mut self) {
        self.packet.key.zeroize();
        self.packet.keystream.wipe();
        self.length.stream.zeroize();
    }
}

impl Cipher {
    /// The ciphers of one direction, from the two keys that
    /// [`SessionKeys`](super::SessionKeys) has for it.
    #[must_use]
    pub fn new(engine: Engine, length_key: &Key, packet_key: &Key) -> Self {
        Self::at_epoch(engine, length_key, packet_key, 0)
    }

    /// The ciphers of both directions as `role` uses them: outbound, inbound.
    pub(crate) fn pair(engine: Engine, keys: &SessionKeys, role: Role) -> [Self; 2] {
        let initiator = Self::new(engine, &keys.initiator_length, &keys.initiator_packet);
        let responder = Self::new(engine, &keys.responder_length, &keys.responder_packet);
        match role {
            Role::Initiator => [initiator, responder],
            Role::Responder => [responder, initiator],
        }
    }

    /// As [`Cipher::new`], but with keys that are `epoch` rekeys old.
    pub(crate) fn at_epoch(engine: Engine, length_key: &Key, packet_key: &Key, epoch: u64) -> Self {
        let mut state = Box::new(State {
            packet: PacketCipher::new(engine, epoch),
            length: LengthCipher::new(epoch),
            rest: [0; REST],
        });
        // Where they stay.
        state.packet.key.copy_from_slice(packet_key);
        state.length.set_key(&engine, length_key);
        Self { state, lengths: 0 }
    }

    /// Whether keystream of the next packets is computed ahead where few come at a
    /// time, which makes each several times as fast; on unless turned off. It takes
    /// up to [`MAX_KEYSTREAM_AHEAD`] bytes, which are as secret as the key: who has
    /// them reads those packets. Turning it off wipes them; what packets in a batch have
    /// taken is wiped by [`Batch::clear`].
    pub fn set_precomputed_keystream(&mut self, on: bool) {
        let keystream = &mut self.state.packet.keystream;
        keystream.on = on;
        if !on {
            keystream.wipe();
        }
    }

    /// See [`Outbound::prefetch`](super::Outbound::prefetch).
    #[inline]
    pub(crate) fn prefetch(&self) {
        let State { packet, length, .. } = &*self.state;
        packetlane_lanes::prefetch(packet);
        packetlane_lanes::prefetch(&packet.keystream);
        packetlane_lanes::prefetch(
            &length.stream[LENGTH_LEN * self.lengths.min(REKEY_INTERVAL) as usize],
        );
    }

    /// Encrypts the length of the next packet's contents.
    #[inline]
    pub(crate) fn encrypt_length(&mut self, length: usize) -> Result<[u8; LENGTH_LEN], SealError> {
        let number = u32::try_from(length).unwrap_or(u32::MAX);
        if length > MAX_CONTENTS_LEN {
            return Err(SealError::TooLong { length });
        }
        let State { packet, length, .. } = &mut *self.state;
        if packet.epoch.is_none() {
            return Err(SealError::Exhausted);
        }
        let [a, b, c, _] = number.to_le_bytes();
        length
            .crypt(&packet.engine, &mut self.lengths, [a, b, c])
            .map_err(|Exhausted| SealError::Exhausted)
    }

    /// Decrypts the length in front of the next packet: that of its contents, in
    /// bytes. The packet has [`OVERHEAD`] bytes more. Nothing authenticates a
    /// length before its packet is opened.
    ///
    /// # Errors
    ///
    /// After 224 * 2^64 packets.
    pub fn decrypt_length(&mut self, length: [u8; LENGTH_LEN]) -> Result<usize, Exhausted> {
        let State {
            packet,
            length: masks,
            ..
        } = &mut *self.state;
        let [a, b, c] = masks.crypt(&packet.engine, &mut self.lengths, length)?;
        Ok(u32::from_le_bytes([a, b, c, 0]) as usize)
    }

    /// Adds the packet whose length and text lie at `start` of the batch's arena
    /// to its jobs, as the next one of this direction.
    #[inline(always)]
    pub(crate) fn add_job(
        &mut self,
        batch: &mut Batch,
        start: usize,
        contents_len: usize,
    ) -> Result<(), Exhausted> {
        let text_len = HEADER_LEN + contents_len;
        let packet = &mut self.state.packet;
        let nonce = packet.nonce()?;
        let packets = batch.expected_len();
        let (keystream, keystream_blocks) = if packet.keystream.has_part(packets) {
            packet.add_keystream(batch, packets, text_len)
        } else {
            (0, 0)
        };
        let covered = (keystream_blocks as usize).saturating_sub(1) * size_of::<Block>();
        if text_len > covered && packet.turn != batch.turn() {
            (packet.turn, packet.index) = (batch.turn(), batch.add_key(&packet.key));
        }
        batch.add_job(crate::Job {
            text: index(start + LENGTH_LEN),
            text_len: index(text_len),
            aad: 0,
            aad_len: 0,
            key: packet.index,
            keystream,
            keystream_blocks,
            nonce,
        });
        packet.advance();
        Ok(())
    }

    /// Appends the next packet to `out`, sealed. `aad` is the garbage that the
    /// side has sent, for its first packet, and empty for all others.
    ///
    /// # Errors
    ///
    /// If the contents are longer than [`MAX_CONTENTS_LEN`], or after 224 * 2^64
    /// packets. Nothing is appended then.
    pub fn seal(
        &mut self,
        kind: PacketKind,
        aad: &[u8],
        contents: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        let length = self.encrypt_length(contents.len())?;
        let before = out.len();
        out.reserve(aad.len() + contents.len() + OVERHEAD);
        out.extend_from_slice(aad);
        out.extend_from_slice(&length);
        out.push(kind.header());
        append(out, contents);
        out.extend_from_slice(&[0; TAG_LEN]);
        // `out` may be longer than the offsets of a job can say.
        let packet = &mut out[before..];
        let text = aad.len() + LENGTH_LEN..packet.len() - TAG_LEN;
        let cipher = &mut self.state.packet;
        let sealed = cipher.one(Backend::seal, packet, 0..aad.len(), text);
        out.drain(before..before + aad.len());
        sealed.map(drop).map_err(|Exhausted| SealError::Exhausted)
    }

    /// Opens the next packet in place: `bytes[packet]` is the packet without its
    /// length, `bytes[aad]` the AAD. Returns what it is and where its contents
    /// lie.
    ///
    /// # Errors
    ///
    /// If the packet is shorter than header and tag, if its tag is wrong, or
    /// after 224 * 2^64 packets. The bytes are as they were then.
    ///
    /// # Panics
    ///
    /// If one of the ranges lies outside `bytes`.
    pub fn open(
        &mut self,
        bytes: &mut [u8],
        aad: Range<usize>,
        packet: Range<usize>,
    ) -> Result<(PacketKind, Range<usize>), OpenError> {
        if packet.len() < HEADER_LEN + TAG_LEN {
            return Err(OpenError::BadTag);
        }
        let text = packet.start..packet.end - TAG_LEN;
        let cipher = &mut self.state.packet;
        let outcome = cipher
            .one(Backend::open, bytes, aad, text.clone())
            .map_err(|Exhausted| OpenError::Exhausted)?;
        if outcome != Outcome::Authentic {
            return Err(OpenError::BadTag);
        }
        let kind = PacketKind::from_header(bytes[text.start]);
        Ok((kind, text.start + HEADER_LEN..text.end))
    }
}

impl PacketKind {
    /// The header byte that says it.
    pub(crate) fn header(self) -> u8 {
        match self {
            PacketKind::Genuine => 0,
            PacketKind::Decoy => IGNORE_BIT,
        }
    }

    /// What the header byte says; only its top bit means anything.
    pub(crate) fn from_header(header: u8) -> Self {
        if header & IGNORE_BIT == 0 {
            PacketKind::Genuine
        } else {
            PacketKind::Decoy
        }
    }
}

impl ZeroizeOnDrop for Cipher {}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cipher")
            .field("epoch", &self.state.packet.epoch)
            .field("packets", &self.state.packet.used)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last packets that the counters allow, and the first that they do not.
    #[test]
    fn counters_end_in_an_error() {
        let engine = Engine::portable();
        let cipher = || Cipher::at_epoch(engine, &[1; 32], &[2; 32], u64::MAX);
        let (mut sender, mut receiver) = (cipher(), cipher());
        let mut wire = Vec::new();
        for _ in 0..REKEY_INTERVAL {
            wire.clear();
            sender
                .seal(PacketKind::Genuine, b"", b"x", &mut wire)
                .unwrap();
            let length = receiver.decrypt_length([wire[0], wire[1], wire[2]]);
            assert_eq!(length, Ok(1));
            let end = wire.len();
            receiver.open(&mut wire, 0..0, LENGTH_LEN..end).unwrap();
        }
        wire.clear();
        let refused = sender.seal(PacketKind::Genuine, b"", b"x", &mut wire);
        assert_eq!(refused, Err(SealError::Exhausted));
        assert_eq!(wire, b"");
        assert_eq!(receiver.decrypt_length([0; 3]), Err(Exhausted));
        let refused = receiver.open(&mut [0; 17], 0..0, 0..17);
        assert_eq!(refused, Err(OpenError::Exhausted));
        // And in a batch.
        let mut batch = Batch::new();
        assert_eq!(sender.add_job(&mut batch, 0, 0), Err(Exhausted));
        assert!(batch.is_empty());
    }
}
