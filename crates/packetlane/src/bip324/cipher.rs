//! The two ciphers of one direction: FSChaCha20 for the lengths and FSChaCha20Poly1305 for the
//! packets (BIP324, "Overall packet encryption and decryption").
//!
//! Both replace their keys every 224 packets and wipe the old ones, so a compromised node cannot
//! decrypt traffic from before its last rekey.

use super::error::{Exhausted, OpenError, SealError};
use super::fs_chacha20::FsChaCha20;
use super::fs_chacha20_poly1305::FsChaCha20Poly1305;
use super::keys::SessionKeys;
use super::packet::{HEADER_LEN, LENGTH_LEN, MAX_CONTENTS_LEN, OVERHEAD, PacketKind};
use super::precomputed::MAX_PRECOMPUTED_KEYSTREAM;
use super::rekey::{REKEY_INTERVAL, nonce};
use crate::arena::{BatchKey, index};
use crate::batch::{Batch, Plan};
use crate::copy::append;
use crate::engine::Engine;
use crate::engine::cpu::SingleKernel;
use crate::key_exchange::Role;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use packetlane_lanes::{Backend, Job, Kernels, Key, Outcome, TAG_LEN};
use zeroize::ZeroizeOnDrop;

/// One direction of a session, one packet at a time, for callers that frame packets themselves.
/// [`Outbound`](super::Outbound) and [`Inbound`](super::Inbound) are built on it.
///
/// Calls must follow packet order: [`Cipher::seal`] on the sending side;
/// [`Cipher::decrypt_length`], then [`Cipher::open`], for each packet on the receiving side.
///
/// ```
/// use packetlane::bip324::{Cipher, PacketKind, Session};
/// use packetlane::Engine;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::detect()?;
/// let mut sender = Cipher::new(engine, &[1; 32], &[2; 32]);
/// let mut receiver = Cipher::new(engine, &[1; 32], &[2; 32]);
///
/// let mut wire = Vec::new();
/// sender.seal(PacketKind::Genuine, b"", b"contents", &mut wire)?;
/// let length = *wire.first_chunk().expect("3 bytes");
/// assert_eq!(receiver.decrypt_length(length)?, 8);
/// let packet = Session::LENGTH_LEN..wire.len();
/// let (kind, contents) = receiver.open(&mut wire, 0..0, packet)?;
/// assert_eq!((kind, &wire[contents]), (PacketKind::Genuine, &b"contents"[..]));
/// # Ok(())
/// # }
/// ```
pub struct Cipher {
    /// Boxed, because moving a secret leaves a copy at its old address, which nothing wipes.
    state: Box<State>,
    /// The packet key's index in a batch. Outside `state`, whose first cache line has no room for
    /// it.
    batch_key: BatchKey,
    /// Number of lengths encrypted with the current key. Stored outside the box, so that the
    /// address of the next mask is known before `state` is in the cache.
    lengths: u32,
}

/// Both ciphers of a direction in one allocation. With thousands of sessions, cache misses
/// dominate: a packet touches the first cache line of this struct and the line with its length
/// mask.
#[repr(C, align(64))]
struct State {
    packet: FsChaCha20Poly1305,
    length: FsChaCha20,
    /// Fills the last cache line. Padding would keep stack contents from where the state was
    /// created, such as part of an earlier packet's key.
    rest: [u8; REST],
}

/// Length of [`State`]'s filler, in bytes.
const REST: usize = (size_of::<FsChaCha20Poly1305>() + size_of::<FsChaCha20>()).wrapping_neg() % 64;

impl Drop for State {
    fn drop(&mut self) {
        self.packet.wipe();
        self.length.wipe();
    }
}

impl Cipher {
    /// Maximum precomputed keystream that one direction of a session holds, in bytes; see
    /// [`Cipher::set_precomputed_keystream`].
    pub const MAX_PRECOMPUTED_KEYSTREAM: usize = MAX_PRECOMPUTED_KEYSTREAM;

    /// Creates the ciphers of one direction from its two keys in
    /// [`SessionKeys`](super::SessionKeys).
    #[must_use]
    pub fn new(engine: Engine, length_key: &Key, packet_key: &Key) -> Self {
        Self::at_epoch(engine, length_key, packet_key, 0)
    }

    /// Creates the ciphers of both directions for `role`: outbound, then inbound.
    pub(super) fn pair(engine: Engine, keys: &SessionKeys, role: Role) -> [Self; 2] {
        let initiator = Self::new(engine, &keys.initiator_length, &keys.initiator_packet);
        let responder = Self::new(engine, &keys.responder_length, &keys.responder_packet);
        match role {
            Role::Initiator => [initiator, responder],
            Role::Responder => [responder, initiator],
        }
    }

    /// Like [`Cipher::new`], but starts at epoch `epoch`, as if `epoch` rekeys had happened.
    pub(super) fn at_epoch(engine: Engine, length_key: &Key, packet_key: &Key, epoch: u64) -> Self {
        let cpu = engine.cpu();
        let mut state = Box::new(State {
            packet: FsChaCha20Poly1305::new(cpu, epoch),
            length: FsChaCha20::new(epoch),
            rest: [0; REST],
        });
        // Keys are set in place, because a move would leave a copy.
        state.packet.set_key(packet_key);
        state.length.set_key(cpu, length_key);
        Self {
            state,
            batch_key: BatchKey::default(),
            lengths: 0,
        }
    }

    /// Turns the precomputed keystream on or off; it is on by default. It makes packets that arrive
    /// a few at a time several times as fast. It holds up to [`Cipher::MAX_PRECOMPUTED_KEYSTREAM`]
    /// bytes, which are as secret as the key, because they decrypt the next packets. Turning it off
    /// wipes and frees them; a program may do so for sessions that have long been idle, and turn it
    /// on again. While it is off, all packets in batches wait for the engine.
    pub fn set_precomputed_keystream(&mut self, on: bool) {
        self.state.packet.enable_precomputed_keystream(on);
    }

    /// See [`Outbound::prefetch`](super::Outbound::prefetch).
    #[inline]
    pub(super) fn prefetch(&self) {
        self.state.packet.prefetch();
        self.state.length.prefetch(self.lengths);
    }

    /// Encrypts the length of the next packet's contents, in bytes. The result occupies
    /// [`LENGTH_LEN`] bytes on the wire, little-endian.
    #[inline]
    pub(super) fn encrypt_length(&mut self, length: usize) -> Result<u32, SealError> {
        let number = u32::try_from(length).unwrap_or(u32::MAX);
        if length > MAX_CONTENTS_LEN {
            return Err(SealError::TooLong { length });
        }
        let State { packet, length, .. } = &mut *self.state;
        packet.next()?;
        Ok(length.crypt(packet.cpu(), &mut self.lengths, number)?)
    }

    /// Decrypts the length field before the next packet. Returns the length of the packet's
    /// contents, in bytes; the whole packet is [`Session::OVERHEAD`](super::Session::OVERHEAD)
    /// bytes longer. The length is not authenticated until the packet is opened.
    ///
    /// # Errors
    ///
    /// [`OpenError::Exhausted`] after 224 * 2^64 packets.
    pub fn decrypt_length(&mut self, length: [u8; LENGTH_LEN]) -> Result<usize, OpenError> {
        Ok(self.next_length(length)?)
    }

    /// Like [`Cipher::decrypt_length`], with a smaller error type that needs fewer registers.
    #[inline]
    pub(super) fn next_length(&mut self, length: [u8; LENGTH_LEN]) -> Result<usize, Exhausted> {
        let State {
            packet,
            length: masks,
            ..
        } = &mut *self.state;
        let [a, b, c] = length;
        let length = u32::from_le_bytes([a, b, c, 0]);
        Ok(masks.crypt(packet.cpu(), &mut self.lengths, length)? as usize)
    }

    /// Adds a job for the next packet of this direction. Its length field starts at `start` in the
    /// batch's arena, and its text follows.
    #[inline(always)]
    pub(super) fn add_job<Direction>(
        &mut self,
        batch: &mut Batch<Direction>,
        start: usize,
        contents_len: usize,
    ) -> Result<(), Exhausted> {
        let (packet, batch_key) = (&mut self.state.packet, &mut self.batch_key);
        let text_len = HEADER_LEN + contents_len;
        packet.add_job(batch_key, batch, start + LENGTH_LEN, text_len)
    }

    /// Checks that one more packet can be protected; see [`Self::check_left`].
    #[inline]
    pub(super) fn check_next(&self) -> Result<(), Exhausted> {
        self.state.packet.next().map(|_| ())
    }

    /// Checks that `count` more packets can be protected.
    ///
    /// # Errors
    ///
    /// [`Exhausted`] if fewer are left.
    pub(super) fn check_left(&self, count: usize) -> Result<(), Exhausted> {
        if count == 0 {
            return Ok(());
        }
        let (number, epoch) = self.state.packet.next()?;
        let later = (u64::MAX - epoch).saturating_mul(REKEY_INTERVAL.into());
        match count as u64 <= later.saturating_add((REKEY_INTERVAL - number).into()) {
            true => Ok(()),
            false => Err(Exhausted),
        }
    }

    /// Decides when the next `count` packets run, if they are about to be added to `batch`.
    /// `contents_len` is the total length of their contents, in bytes.
    #[inline(always)]
    pub(super) fn plan<Direction>(
        &self,
        batch: &Batch<Direction>,
        count: usize,
        contents_len: usize,
    ) -> Plan {
        let text_len = count * HEADER_LEN + contents_len;
        self.state.packet.plan(batch, count, text_len)
    }

    /// Begins an interval: the next `count` packets for `batch`, or those left before the rekey if
    /// fewer. Counts them, and wipes any remaining precomputed keystream. Lengths are not encrypted
    /// or decrypted yet. The caller must call [`Self::end_interval`] afterwards.
    #[inline]
    pub(super) fn begin_interval<Direction>(
        &mut self,
        batch: &mut Batch<Direction>,
        count: usize,
    ) -> Result<Interval<'_>, Exhausted> {
        let State { packet, length, .. } = &mut *self.state;
        let (number, epoch) = packet.next()?;
        let masks = length.masks(packet.cpu(), &mut self.lengths, count)?;
        let key = packet.begin_interval(&mut self.batch_key, batch, masks.len());
        Ok(Interval {
            masks,
            number,
            epoch,
            key,
        })
    }

    /// Ends an interval of which the last `lengths` lengths and the last `packets` packets were not
    /// used. Rekeys if the interval used the last packet of a key.
    #[inline]
    pub(super) fn end_interval(&mut self, lengths: usize, packets: usize) {
        self.lengths -= index(lengths);
        self.state.packet.end_interval(&mut self.batch_key, packets);
    }

    /// Returns the backend of this direction.
    pub(super) fn backend(&self) -> Backend {
        self.state.packet.cpu().backend
    }

    /// Like [`Self::add_job`], for contents that are already in place: `kernel` seals or opens them
    /// now.
    #[inline(always)]
    pub(super) fn run_job<Direction>(
        &mut self,
        kernel: SingleKernel,
        batch: &mut Batch<Direction>,
        start: usize,
        contents_len: usize,
    ) -> Result<(), Exhausted> {
        let (packet, batch_key) = (&mut self.state.packet, &mut self.batch_key);
        let text_len = HEADER_LEN + contents_len;
        packet.run_job(kernel, batch_key, batch, start + LENGTH_LEN, text_len)
    }

    /// Seals the next packet and appends it to `out`. `aad` is the garbage that this side sent, for
    /// its first packet; empty for all others.
    ///
    /// # Errors
    ///
    /// [`SealError::TooLong`] if the contents exceed
    /// [`Session::MAX_CONTENTS_LEN`](super::Session::MAX_CONTENTS_LEN) bytes,
    /// [`SealError::Exhausted`] after 224 * 2^64 packets. `out` is then unchanged.
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
        let [a, b, c, _] = length.to_le_bytes();
        out.extend_from_slice(&[a, b, c, kind.header()]);
        append(out, contents);
        out.extend_from_slice(&[0; TAG_LEN]);
        // A subslice, because `out` may be longer than a job's 32-bit offsets can address.
        let bytes = &mut out[before..];
        let text = aad.len() + LENGTH_LEN..bytes.len() - TAG_LEN;
        let (packet, batch_key) = (&mut self.state.packet, &mut self.batch_key);
        let sealed = packet.run_single(Kernels::seal_single, batch_key, bytes, 0..aad.len(), text);
        out.drain(before..before + aad.len());
        sealed?;
        Ok(())
    }

    /// Opens the next packet in place. `bytes[packet]` is the packet without its length field,
    /// `bytes[aad]` the AAD. Returns the packet's kind and the range of its contents in `bytes`.
    ///
    /// # Errors
    ///
    /// [`OpenError::TooShort`] if the packet is shorter than header byte and tag (17 bytes),
    /// [`OpenError::BadTag`], or [`OpenError::Exhausted`] after 224 * 2^64 packets. `bytes` is then
    /// unchanged.
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
        let length = packet.len();
        if length < HEADER_LEN + TAG_LEN {
            return Err(OpenError::TooShort { length });
        }
        let text = packet.start..packet.end - TAG_LEN;
        let (cipher, batch_key) = (&mut self.state.packet, &mut self.batch_key);
        let (number, epoch) = cipher.next()?;
        let outcome =
            cipher.run_single(Kernels::open_single, batch_key, bytes, aad, text.clone())?;
        if outcome != Outcome::Authentic {
            let packet = number;
            return Err(OpenError::BadTag { packet, epoch });
        }
        let kind = PacketKind::from_header(bytes[text.start]);
        Ok((kind, text.start + HEADER_LEN..text.end))
    }
}

impl ZeroizeOnDrop for Cipher {}

/// The next packets of one direction, at most up to the next rekey. Setup that they share is done
/// once.
pub(super) struct Interval<'a> {
    masks: &'a [[u8; LENGTH_LEN]],
    /// Index of the first packet since the last rekey.
    number: u32,
    epoch: u64,
    /// Index of the key in the batch.
    key: u32,
}

impl Interval<'_> {
    /// Returns the number of packets.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.masks.len()
    }

    /// Returns the packets, in order.
    #[inline(always)]
    pub(super) fn packets(&self) -> impl Iterator<Item = NextPacket> {
        let packet = |(&[a, b, c], number): (&[u8; LENGTH_LEN], u32)| NextPacket {
            mask: u32::from_le_bytes([a, b, c, 0]),
            job: Job {
                key: self.key as usize,
                nonce: nonce(number, self.epoch),
                ..Job::default()
            },
        };
        self.masks.iter().zip(self.number..).map(packet)
    }
}

/// A packet of an [`Interval`].
pub(super) struct NextPacket {
    mask: u32,
    /// The job, without its text.
    job: Job,
}

impl NextPacket {
    /// Encrypts or decrypts the length of the packet's contents, of [`LENGTH_LEN`] bytes.
    #[inline(always)]
    pub(super) fn crypt_length(&self, length: u32) -> u32 {
        length ^ self.mask
    }

    /// Returns its job, as [`Cipher::add_job`] would add it.
    #[inline(always)]
    pub(super) fn job(self, start: u32, contents_len: u32) -> Job {
        Job {
            text: start + index(LENGTH_LEN),
            text_len: index(HEADER_LEN) + contents_len,
            ..self.job
        }
    }
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cipher")
            .field("next_packet_and_epoch", &self.state.packet.next().ok())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::rekey::REKEY_INTERVAL;
    use super::*;

    /// After the last packet, seal, open and batches return an error.
    #[test]
    fn counters_stop_with_an_error() {
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
        assert_eq!(receiver.decrypt_length([0; 3]), Err(OpenError::Exhausted));
        let refused = receiver.open(&mut [0; 17], 0..0, 0..17);
        assert_eq!(refused, Err(OpenError::Exhausted));
        // Batches, too.
        let mut batch = crate::batch::SealBatch::new();
        assert_eq!(sender.add_job(&mut batch, 0, 0), Err(Exhausted));
        assert!(sender.begin_interval(&mut batch, 1).is_err());
        assert!(batch.is_empty());
    }

    /// Exactly as many packets can be protected as are left.
    #[test]
    fn the_number_of_packets_left_is_exact() {
        for (epochs, used) in [(0, 0), (0, 100), (1, 7), (3, 223)] {
            let epoch = u64::MAX - epochs;
            let mut cipher = Cipher::at_epoch(Engine::portable(), &[1; 32], &[2; 32], epoch);
            let mut batch = crate::batch::SealBatch::new();
            if used > 0 {
                let added = cipher.begin_interval(&mut batch, used).unwrap().len();
                assert_eq!(added, used);
                cipher.end_interval(0, 0);
            }
            let mut left = (usize::try_from(epochs).unwrap() + 1) * 224 - used;
            assert_eq!(cipher.check_left(left), Ok(()));
            assert_eq!(cipher.check_left(left + 1), Err(Exhausted));
            while left > 0 {
                left -= cipher.begin_interval(&mut batch, left).unwrap().len();
                cipher.end_interval(0, 0);
            }
            assert!(cipher.begin_interval(&mut batch, 1).is_err());
        }
        let cipher = Cipher::new(Engine::portable(), &[1; 32], &[2; 32]);
        assert_eq!(cipher.check_left(usize::MAX), Ok(()));
    }

    /// A packet too short for header byte and tag does not advance the counter. A wrong tag is
    /// reported with the packet's number and epoch.
    #[test]
    fn refused_packets() {
        let engine = Engine::portable();
        let cipher = || Cipher::at_epoch(engine, &[1; 32], &[2; 32], 5);
        let (mut sender, mut receiver) = (cipher(), cipher());
        for length in 0..HEADER_LEN + TAG_LEN {
            let refused = receiver.open(&mut [0; 17], 0..0, 0..length);
            assert_eq!(refused, Err(OpenError::TooShort { length }));
        }
        for packet in 0..3 {
            let mut wire = Vec::new();
            let kind = PacketKind::Genuine;
            sender.seal(kind, b"", b"x", &mut wire).unwrap();
            wire[LENGTH_LEN] ^= u8::from(packet == 2);
            let end = wire.len();
            let opened = receiver.open(&mut wire, 0..0, LENGTH_LEN..end);
            let expected = match packet {
                2 => Err(OpenError::BadTag { packet, epoch: 5 }),
                _ => Ok((kind, end - TAG_LEN - 1..end - TAG_LEN)),
            };
            assert_eq!(opened, expected);
        }
    }
}
