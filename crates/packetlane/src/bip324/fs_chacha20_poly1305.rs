//! FSChaCha20Poly1305 for the packets (BIP324, "Rekeying wrappers").
//!
//! ChaCha20-Poly1305 whose nonce counts packets and rekeys. After 224 packets the key is
//! replaced: the first 32 bytes of the AEAD of 32 zero bytes under nonce (2^32 - 1, epoch)
//! are the next key. The keys do not depend on what the packets say, so a batch may hold
//! packets from both sides of a rekey.

use super::error::Exhausted;
use super::precomputed::PrecomputedKeystream;
use super::rekey::{REKEY_INTERVAL, nonce};
use crate::arena::{BatchKey, index};
use crate::batch::{Batch, Plan};
use crate::engine::cpu::{Cpu, SingleKernel};
use core::ops::Range;
use packetlane_lanes::{Job, Key, Nonce, Outcome};
use zeroize::{Zeroize, Zeroizing};

/// The cipher of the packets of one direction.
///
/// A packet needs all of it, and no more than one line of the cache.
#[repr(C)]
pub(super) struct FsChaCha20Poly1305 {
    key: Key,
    epoch: u64,
    keystream: PrecomputedKeystream,
    /// How many packets the key has served. [`REKEY_INTERVAL`] when the last key of all is
    /// spent, and where an interval that would have rekeyed was not ended: then no packet may follow.
    used: u32,
    cpu: Cpu,
}

const _: () = assert!(core::mem::size_of::<FsChaCha20Poly1305>() <= 64);

impl FsChaCha20Poly1305 {
    /// Without a key yet.
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

    /// What it runs on.
    #[inline]
    pub(super) fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// Which packet is next: its number since the last rekey, and the epoch.
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

    /// Adds the next packet to the jobs of `batch`: the text of `text_len` bytes at `start`
    /// of its arena, without AAD. `batch_key` is where the batch holds the key.
    #[inline(always)]
    pub(super) fn add_job<Direction>(
        &mut self,
        batch_key: &mut BatchKey,
        batch: &mut Batch<Direction>,
        start: usize,
        text_len: usize,
    ) -> Result<(), Exhausted> {
        let (number, epoch) = self.next()?;
        // The batch has better use for its lanes. What was precomputed of the packets behind it stays.
        if self.keystream.left() > 0 {
            self.keystream.consume(self.keystream.per_packet());
        }
        let key = batch.index_of(batch_key, &self.key);
        batch.add_job(job(start, text_len, key, nonce(number, epoch)));
        self.advance(batch_key);
        Ok(())
    }

    /// As [`Self::add_job`], for a text that is there already: `kernel` seals or opens it here and now.
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

    /// Counts the next `count` packets, which end before the next rekey or with it. Returns where `batch`
    /// holds their key. [`Self::end_interval`] must follow.
    #[inline]
    pub(super) fn begin_interval<Direction>(
        &mut self,
        batch_key: &mut BatchKey,
        batch: &mut Batch<Direction>,
        count: usize,
    ) -> u32 {
        // What is left of it would be taken for that of later packets.
        self.keystream.wipe();
        self.used += index(count);
        batch.index_of(batch_key, &self.key)
    }

    /// The last `left` packets that were counted did not come. Replaces the key if it has served its
    /// last packet.
    #[inline]
    pub(super) fn end_interval(&mut self, batch_key: &mut BatchKey, left: usize) {
        self.used -= index(left);
        self.rekey_if_due(batch_key);
    }

    /// Seals or opens the next packet here and now.
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
        let wanted = self.keystream.wanted(self.cpu.backend, text.len());
        // A packet's blocks must be neighbours: if some of the last packet's are missing, all of them are
        // computed again.
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

    /// Counts a packet.
    #[inline]
    fn advance(&mut self, batch_key: &mut BatchKey) {
        self.used += 1;
        self.rekey_if_due(batch_key);
    }

    /// Replaces the key right after its last packet.
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
        // Block 0 of the keystream makes the tag, so the AEAD's text begins with block 1.
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

/// The job of a text at `start` in a batch's arena.
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
