//! FSChaCha20Poly1305 for the packets (BIP324, "Rekeying wrappers").
//!
//! ChaCha20-Poly1305 with a nonce that counts packets and rekeys. After 224 packets, the first 32
//! bytes of the AEAD of 32 zero bytes under the nonce (2^32 - 1, epoch) become the next key. Keys
//! do not depend on the contents of packets, so a batch may hold packets from both sides of a
//! rekey.

use super::error::Exhausted;
use super::precomputed::PrecomputedKeystream;
use super::rekey::{REKEY_INTERVAL, nonce};
use crate::arena::{BatchKey, index};
use crate::batch::{Batch, Plan};
use crate::engine::cpu::{Cpu, SingleKernel};
use core::ops::Range;
use packetlane_lanes::{Job, Key, Nonce, Outcome};
use zeroize::{Zeroize, Zeroizing};

/// The packet cipher of one direction. Every packet reads all of it, so it fits in one cache line.
#[repr(C)]
pub(super) struct FsChaCha20Poly1305 {
    key: Key,
    epoch: u64,
    keystream: PrecomputedKeystream,
    /// Number of packets that the current key has protected. [`REKEY_INTERVAL`] when the last key
    /// is exhausted, or when an interval that should have rekeyed was not ended: no packet may
    /// follow then.
    used: u32,
    cpu: Cpu,
}

const _: () = assert!(core::mem::size_of::<FsChaCha20Poly1305>() <= 64);

impl FsChaCha20Poly1305 {
    /// Creates the cipher without a key.
    pub(super) fn new(cpu: Cpu, epoch: u64) -> Self {
        Self {
            key: [0; 32],
            epoch,
            keystream: PrecomputedKeystream::new(),
            used: 0,
            cpu,
        }
    }

    pub(super) fn set_key(&mut self, key: &Key) {
        self.key.copy_from_slice(key);
    }

    /// See [`PrecomputedKeystream::enable`].
    pub(super) fn enable_precomputed_keystream(&mut self, on: bool) {
        self.keystream.enable(on);
    }

    /// Returns the CPU configuration that it runs on.
    #[inline]
    pub(super) fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// Returns the index of the next packet since the last rekey, and the epoch.
    #[inline]
    pub(super) fn next(&self) -> Result<(u32, u64), Exhausted> {
        match self.used {
            used @ ..REKEY_INTERVAL => Ok((used, self.epoch)),
            _ => Err(Exhausted),
        }
    }

    #[inline]
    pub(super) fn prefetch(&self) {
        packetlane_lanes::prefetch(self);
    }

    /// Adds a job for the next packet to `batch`: the text of `text_len` bytes at `start` in its
    /// arena, without AAD. `batch_key` caches the key's index in the batch.
    #[inline(always)]
    pub(super) fn add_job<Direction>(
        &mut self,
        batch_key: &mut BatchKey,
        batch: &mut Batch<Direction>,
        start: usize,
        text_len: usize,
    ) -> Result<(), Exhausted> {
        let (number, epoch) = self.next()?;
        // The batch has free lanes for this packet's keystream. Only this packet's precomputed
        // blocks are dropped; those of later packets stay.
        if self.keystream.left() > 0 {
            self.keystream.consume(self.keystream.per_packet());
        }
        let key = batch.index_of(batch_key, &self.key);
        batch.add_job(job(start, text_len, key, nonce(number, epoch)));
        self.advance(batch_key);
        Ok(())
    }

    /// Like [`Self::add_job`], for a text that is already in place: `kernel` seals or opens it now.
    #[inline(always)]
    pub(super) fn run_job<Direction>(
        &mut self,
        kernel: SingleKernel,
        batch_key: &mut BatchKey,
        batch: &mut Batch<Direction>,
        start: usize,
        text_len: usize,
    ) -> Result<(), Exhausted> {
        let (number, epoch) = self.next()?;
        let text = start..start + text_len;
        let bytes = batch.arena_mut().bytes_mut();
        let outcome = self.run_single(kernel, batch_key, bytes, 0..0, text)?;
        batch.add_done(job(start, text_len, 0, nonce(number, epoch)), outcome);
        Ok(())
    }

    /// See [`Batch::plan`].
    #[inline(always)]
    pub(super) fn plan<Direction>(
        &self,
        batch: &Batch<Direction>,
        count: usize,
        text_len: usize,
    ) -> Plan {
        batch.plan(self.cpu, self.keystream.is_enabled(), count, text_len)
    }

    /// Counts the next `count` packets, which must not cross a rekey. Returns the key's index in
    /// `batch`. The caller must call [`Self::end_interval`] afterwards.
    #[inline]
    pub(super) fn begin_interval<Direction>(
        &mut self,
        batch_key: &mut BatchKey,
        batch: &mut Batch<Direction>,
        count: usize,
    ) -> u32 {
        // The remaining blocks would be used for the wrong packets.
        self.keystream.wipe();
        self.used += index(count);
        batch.index_of(batch_key, &self.key)
    }

    /// Takes back the last `left` packets that were counted but not used. Replaces the key if it
    /// has protected its last packet.
    #[inline]
    pub(super) fn end_interval(&mut self, batch_key: &mut BatchKey, left: usize) {
        self.used -= index(left);
        self.rekey_if_due(batch_key);
    }

    /// Seals or opens the next packet now.
    #[inline]
    pub(super) fn run_single(
        &mut self,
        kernel: SingleKernel,
        batch_key: &mut BatchKey,
        bytes: &mut [u8],
        aad: Range<usize>,
        text: Range<usize>,
    ) -> Result<Outcome, Exhausted> {
        let (number, epoch) = self.next()?;
        let wanted = self
            .keystream
            .blocks_to_precompute(self.cpu.backend, text.len());
        // A packet's blocks must be contiguous: if some of this packet's are missing, all of them
        // are recomputed.
        let left = self.keystream.left();
        if left < wanted && left <= self.keystream.per_packet() {
            self.keystream.consume(left);
            self.keystream
                .compute(self.cpu.backend, &self.key, (number, epoch), wanted);
        }
        let blocks = self.keystream.blocks(self.keystream.per_packet());
        let (secrets, count) = ((&self.key, blocks), blocks.len());
        let nonce: Nonce = nonce(number, epoch);
        let outcome = self
            .cpu
            .run_single(kernel, secrets, nonce, bytes, aad, text);
        self.keystream.consume(count);
        self.advance(batch_key);
        Ok(outcome)
    }

    /// Counts one packet.
    #[inline]
    fn advance(&mut self, batch_key: &mut BatchKey) {
        self.used += 1;
        self.rekey_if_due(batch_key);
    }

    /// Replaces the key if it has just protected its last packet.
    #[inline]
    fn rekey_if_due(&mut self, batch_key: &mut BatchKey) {
        if self.used == REKEY_INTERVAL {
            self.rekey(batch_key);
        }
    }

    #[cold]
    fn rekey(&mut self, batch_key: &mut BatchKey) {
        self.keystream.wipe();
        *batch_key = BatchKey::default();
        // Block 0 of the keystream keys Poly1305, so the text's keystream begins with block 1.
        let mut key = Zeroizing::new([0; 32]);
        self.cpu
            .keystream(&self.key, nonce(u32::MAX, self.epoch), 1, key.as_mut());
        self.key.copy_from_slice(&*key);
        if let Some(epoch) = self.epoch.checked_add(1) {
            (self.epoch, self.used) = (epoch, 0);
        }
    }

    pub(super) fn wipe(&mut self) {
        self.key.zeroize();
        self.keystream.wipe();
    }
}

/// Creates the job of a text at `start` in a batch's arena.
#[inline(always)]
fn job(start: usize, text_len: usize, key: u32, nonce: Nonce) -> Job {
    Job {
        text: index(start),
        text_len: index(text_len),
        key: key as usize,
        nonce,
        ..Job::default()
    }
}
