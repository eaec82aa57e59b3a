//! Runs the packets of a batch on a backend, one window of packets at a time.
//!
//! Sealing processes the payload first, because header masks are derived from ciphertext. Opening
//! processes the header first, because it determines nonce and key phase. A window is small enough
//! that its packets stay in the second-level cache from one step to the next.

use super::header::{self, MAX_NUMBER_LEN, nearest_number};
use super::key_ring::{KeyRef, KeyRing, Phase};
use crate::arena::index;
#[cfg(feature = "parallel")]
use crate::engine::{cpu::span, threads::Part};
use alloc::sync::Arc;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::ops::Range;
use packetlane_lanes::{Backend, Header, Job, Key, Outcome, TAG_LEN, Work};

/// Number of packets in a window: enough to fill the lanes, and few enough for the cache.
pub(super) const WINDOW: usize = 64;

/// Number of masks computed at once to unprotect headers: as many as ChaCha20 computes blocks at
/// once.
const MASKS: usize = 32;

/// A packet to open, and what is known about it.
pub(super) struct OpenJob {
    /// Its start in the arena. `len` includes the tag.
    pub(super) start: u32,
    pub(super) len: u32,
    pub(super) pn_offset: u32,
    /// Known once its header is unprotected, as is the phase.
    pub(super) header_len: u32,
    /// Its index among the batch's packets.
    pub(super) place: u32,
    /// The index of its key ring.
    pub(super) keys: u32,
    /// Its packet number; the expected one until its header is unprotected.
    pub(super) number: u64,
    pub(super) phase: Phase,
}

impl OpenJob {
    pub(super) fn range(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.len as usize
    }
}

/// The key rings of the packets with one cipher, without duplicates.
#[derive(Default)]
pub(super) struct KeyRings {
    list: Vec<Arc<KeyRing>>,
    /// See [`Keys::mixed`].
    pub(super) mixed: bool,
}

impl KeyRings {
    /// Adds a ring. Returns its index.
    #[inline]
    pub(super) fn add(&mut self, ring: &Arc<KeyRing>) -> u32 {
        self.mixed |= !self.list.is_empty();
        self.list.push(Arc::clone(ring));
        index(self.list.len() - 1)
    }

    /// Returns the ring at index `at`.
    #[inline]
    pub(super) fn ring(&self, at: u32) -> &KeyRing {
        &self.list[at as usize]
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.mixed = false;
    }

    /// Returns the keys for the kernels.
    #[inline]
    pub(super) fn keys(&self) -> Keys<'_> {
        Keys {
            rings: &self.list,
            mixed: self.mixed,
        }
    }
}

/// The keys of packets with one cipher.
#[derive(Clone, Copy)]
pub(super) struct Keys<'k> {
    pub(super) rings: &'k [Arc<KeyRing>],
    /// Whether some packet has a [`KeyRef`] other than the first ring in its current phase.
    pub(super) mixed: bool,
}

impl Keys<'_> {
    #[inline(always)]
    fn is_aes(&self) -> bool {
        self.rings[0].is_aes()
    }

    /// Seals the payloads of at most a window of packets.
    #[inline(always)]
    pub(super) fn seal(&self, backend: Backend, bytes: &mut [u8], jobs: &mut [Job]) {
        let outcomes = &mut [Outcome::Pending; WINDOW];
        if self.is_aes() {
            with_keys(*self, jobs, KeyRing::gcm_key, |keys, jobs| {
                backend.kernels().gcm_seal(Work {
                    bytes,
                    keys,
                    jobs,
                    outcomes,
                });
            });
        } else {
            with_copied_keys(*self, jobs, KeyRing::chacha20_key, |keys, jobs| {
                backend.kernels().seal(Work {
                    bytes,
                    keys,
                    jobs,
                    outcomes,
                });
            });
        }
    }

    /// Seals one packet with ChaCha20-Poly1305, payload and header.
    #[inline(always)]
    fn seal_alone(&self, backend: Backend, bytes: &mut [u8], job: &Job, header: &Header) {
        let key = KeyRef(job.key());
        let (ring, phase) = (&self.rings[key.keys()], key.phase());
        let keys = [ring.chacha20_key(phase), ring.chacha20_header_key(phase)];
        backend.kernels().seal_with_header(bytes, keys, job, header);
    }

    /// Protects the headers of at most a window of packets, whose payloads are sealed.
    #[inline(always)]
    pub(super) fn protect(&self, backend: Backend, bytes: &mut [u8], headers: &mut [Header]) {
        if self.is_aes() {
            with_keys(*self, headers, KeyRing::aes_key, |keys, headers| {
                backend.kernels().aes_mask_headers(bytes, keys, headers);
            });
        } else {
            let key = KeyRing::chacha20_header_key;
            with_copied_keys(*self, headers, key, |keys, headers| {
                backend
                    .kernels()
                    .chacha20_mask_headers(bytes, keys, headers);
            });
        }
    }

    /// Unprotects at most a window of headers in the piece of the arena that begins at `base`.
    /// Appends the jobs that open the payloads to `jobs`, with offsets in that piece. Returns
    /// whether one of them uses keys of another phase than the current one.
    #[inline(always)]
    pub(super) fn unprotect(
        &self,
        backend: Backend,
        (base, bytes): (usize, &mut [u8]),
        packets: &mut [OpenJob],
        jobs: &mut Vec<Job>,
    ) -> bool {
        let base = index(base);
        let mut other_phase = false;
        for packets in packets.chunks_mut(MASKS) {
            // Not initialised arrays: filling them takes as long as a single packet.
            let (mut samples, mut masks) =
                (ArrayVec::<_, MASKS>::new(), ArrayVec::<_, MASKS>::new());
            for packet in &*packets {
                let offset = packet.start - base + packet.pn_offset + MAX_NUMBER_LEN as u32;
                samples.push((KeyRef::new(packet.keys, Phase::Current).0, offset));
                masks.push(0);
            }
            let samples = &mut samples[..];
            if self.is_aes() {
                with_keys(*self, samples, KeyRing::aes_key, |keys, samples| {
                    backend
                        .kernels()
                        .aes_masks(bytes, keys, samples, &mut masks);
                });
            } else {
                let key = KeyRing::chacha20_header_key;
                with_copied_keys(*self, samples, key, |keys, samples| {
                    backend
                        .kernels()
                        .chacha20_masks(bytes, keys, samples, &mut masks);
                });
            }
            jobs.extend(packets.iter_mut().zip(&masks).map(|(packet, &mask)| {
                let ring = &*self.rings[packet.keys as usize];
                let start = packet.start - base;
                let bytes = &mut bytes[start as usize..][..packet.len as usize];
                let pn_offset = packet.pn_offset as usize;
                let (truncated, len) = header::unprotect(bytes, pn_offset, mask);
                packet.number = nearest_number(packet.number, truncated, len);
                packet.header_len = packet.pn_offset + len as u32;
                packet.phase = ring.phase(bytes[0], packet.number);
                other_phase |= packet.phase != Phase::Current;
                Job {
                    text: start + packet.header_len,
                    text_len: packet.len - packet.header_len - TAG_LEN as u32,
                    aad: start,
                    aad_len: packet.header_len,
                    key: KeyRef::new(packet.keys, packet.phase).0 as usize,
                    nonce: ring.packet_key(packet.phase).nonce(packet.number),
                }
            }));
        }
        other_phase
    }

    /// Opens at most a window of payloads, whose headers are unprotected.
    #[inline(always)]
    pub(super) fn open(
        &self,
        backend: Backend,
        bytes: &mut [u8],
        jobs: &mut [Job],
        outcomes: &mut [Outcome],
    ) {
        if self.is_aes() {
            with_keys(*self, jobs, KeyRing::gcm_key, |keys, jobs| {
                backend.kernels().gcm_open(Work {
                    bytes,
                    keys,
                    jobs,
                    outcomes,
                });
            });
        } else {
            with_copied_keys(*self, jobs, KeyRing::chacha20_key, |keys, jobs| {
                backend.kernels().open(Work {
                    bytes,
                    keys,
                    jobs,
                    outcomes,
                });
            });
        }
    }
}

/// Packets to seal, header and payload, and their piece of the arena, which begins at offset
/// `base`.
pub(super) struct SealPart<'p> {
    pub(super) backend: Backend,
    pub(super) keys: Keys<'p>,
    pub(super) base: usize,
    pub(super) bytes: &'p mut [u8],
    pub(super) jobs: &'p mut [Job],
    pub(super) headers: &'p mut [Header],
}

impl SealPart<'_> {
    #[inline]
    pub(super) fn run(self) {
        let base = index(self.base);
        let (mut all_jobs, mut all_headers) = (self.jobs, self.headers);
        // Not with `chunks_mut`, which is slower for a single packet.
        while !all_jobs.is_empty() {
            let len = all_jobs.len().min(WINDOW);
            let (jobs, headers);
            (jobs, all_jobs) = all_jobs.split_at_mut(len);
            (headers, all_headers) = all_headers.split_at_mut(len);
            if base > 0 {
                for (job, header) in jobs.iter_mut().zip(&mut *headers) {
                    (job.text, job.aad) = (job.text - base, job.aad - base);
                    (header.first, header.number) = (header.first - base, header.number - base);
                }
            }
            if let ([job], [header]) = (&*jobs, &*headers)
                && !self.keys.is_aes()
            {
                self.keys.seal_alone(self.backend, self.bytes, job, header);
                continue;
            }
            self.keys.seal(self.backend, self.bytes, jobs);
            self.keys.protect(self.backend, self.bytes, headers);
        }
    }
}

#[cfg(feature = "parallel")]
impl Part for SealPart<'_> {
    fn len(&self) -> usize {
        self.jobs.len()
    }

    fn span(&self, packet: usize) -> Range<usize> {
        span(&self.jobs[packet])
    }

    fn text_len(&self, packet: usize) -> usize {
        self.jobs[packet].text_len as usize
    }

    fn split_off(&mut self, packet: usize, start: usize) -> Self {
        Self {
            base: start,
            bytes: split_off(&mut self.bytes, start - self.base),
            jobs: split_off(&mut self.jobs, packet),
            headers: split_off(&mut self.headers, packet),
            ..*self
        }
    }

    fn run(self) {
        self.run();
    }
}

/// Packets to open, header and payload, and their piece of the arena, which begins at
/// offset `base`.
pub(super) struct OpenPart<'p> {
    pub(super) backend: Backend,
    pub(super) keys: Keys<'p>,
    pub(super) base: usize,
    pub(super) bytes: &'p mut [u8],
    pub(super) packets: &'p mut [OpenJob],
    pub(super) outcomes: &'p mut [Outcome],
}

impl OpenPart<'_> {
    /// Runs its packets, with `jobs` as scratch memory for those of a window.
    #[inline]
    pub(super) fn run(self, jobs: &mut Vec<Job>) {
        let Self {
            backend,
            base,
            bytes,
            mut packets,
            mut outcomes,
            mut keys,
        } = self;
        let mixed = keys.mixed;
        // Not with `chunks_mut`, which is slower for a single packet.
        while !packets.is_empty() {
            let len = packets.len().min(WINDOW);
            let (window, results);
            (window, packets) = packets.split_at_mut(len);
            (results, outcomes) = outcomes.split_at_mut(len);
            keys.mixed = mixed | keys.unprotect(backend, (base, bytes), window, jobs);
            keys.open(backend, bytes, jobs, results);
            jobs.clear();
        }
    }
}

#[cfg(feature = "parallel")]
impl Part for OpenPart<'_> {
    fn len(&self) -> usize {
        self.packets.len()
    }

    fn span(&self, packet: usize) -> Range<usize> {
        self.packets[packet].range()
    }

    fn text_len(&self, packet: usize) -> usize {
        self.packets[packet].len as usize
    }

    fn split_off(&mut self, packet: usize, start: usize) -> Self {
        Self {
            base: start,
            bytes: split_off(&mut self.bytes, start - self.base),
            packets: split_off(&mut self.packets, packet),
            outcomes: split_off(&mut self.outcomes, packet),
            ..*self
        }
    }

    fn run(self) {
        self.run(&mut Vec::with_capacity(WINDOW));
    }
}

/// Splits off the elements from `at` on.
#[cfg(feature = "parallel")]
fn split_off<'s, T>(slice: &mut &'s mut [T], at: usize) -> &'s mut [T] {
    let (rest, split) = core::mem::take(slice).split_at_mut(at);
    *slice = rest;
    split
}

/// A kernel's argument for one packet, with the index of a key.
trait Keyed {
    /// Returns its [`KeyRef`] until its window runs, then the index of its key in the kernel's list
    /// of keys.
    fn key(&self) -> u32;

    /// Sets it.
    fn set_key(&mut self, key: u32);
}

impl Keyed for Job {
    #[inline]
    fn key(&self) -> u32 {
        index(self.key)
    }

    #[inline]
    fn set_key(&mut self, key: u32) {
        self.key = key as usize;
    }
}

impl Keyed for Header {
    #[inline]
    fn key(&self) -> u32 {
        self.key
    }

    #[inline]
    fn set_key(&mut self, key: u32) {
        self.key = key;
    }
}

/// A sample.
impl Keyed for (u32, u32) {
    #[inline]
    fn key(&self) -> u32 {
        self.0
    }

    #[inline]
    fn set_key(&mut self, key: u32) {
        self.0 = key;
    }
}

/// Calls `work` with up to [`WINDOW`] packets and a list of their keys.
#[inline(always)]
fn with_keys<'k, T: Keyed, K: 'k>(
    keys: Keys<'k>,
    packets: &mut [T],
    key: impl Fn(&'k KeyRing, Phase) -> &'k K,
    work: impl FnOnce(&[&'k K], &mut [T]),
) {
    match keys.mixed {
        false => work(&[key(&keys.rings[0], Phase::Current)], packets),
        true => with_listed_keys(keys, packets, key, work),
    }
}

/// The same for packets with several keys. A separate function, because its list takes stack that
/// packets with a single key do not need.
#[inline(never)]
fn with_listed_keys<'k, T: Keyed, K: 'k>(
    keys: Keys<'k>,
    packets: &mut [T],
    key: impl Fn(&'k KeyRing, Phase) -> &'k K,
    work: impl FnOnce(&[&'k K], &mut [T]),
) {
    let mut list = ArrayVec::<_, WINDOW>::new();
    // Consecutive packets often have the same key.
    let mut last = None;
    for packet in &mut *packets {
        if last != Some(packet.key()) {
            last = Some(packet.key());
            let key_ref = KeyRef(packet.key());
            list.push(key(&keys.rings[key_ref.keys()], key_ref.phase()));
        }
        packet.set_key(index(list.len() - 1));
    }
    work(&list, packets);
}

/// The same for kernels that need their keys contiguous in memory: several keys are copied, and the
/// copies wiped.
#[inline(always)]
fn with_copied_keys<'k, T: Keyed>(
    keys: Keys<'k>,
    packets: &mut [T],
    key: impl Fn(&'k KeyRing, Phase) -> &'k Key,
    work: impl FnOnce(&[Key], &mut [T]),
) {
    with_keys(keys, packets, key, |keys, packets| match keys {
        [only] => work(core::slice::from_ref(only), packets),
        _ => with_copies(keys, |keys| work(keys, packets)),
    });
}

/// Calls `work` with copies of keys.
#[inline(never)]
fn with_copies(keys: &[&Key], work: impl FnOnce(&[Key])) {
    let mut keys: ArrayVec<Key, WINDOW> = keys.iter().map(|key| **key).collect();
    work(&keys);
    for key in &mut keys {
        *key = [0; 32];
        zeroize::optimization_barrier(key);
    }
}
