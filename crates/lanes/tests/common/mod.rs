//! Shared by the tests of this crate: memory between unmapped pages, packets sealed by other
//! libraries, and batches of them.
#![allow(
    unsafe_code,
    dead_code,
    unreachable_pub,
    reason = "guard pages; each test uses part of this module"
)]

use chacha20poly1305::aead::{AeadInOut, KeyInit};
use packetlane_lanes::{Backend, Block, Job, Key, Nonce, Outcome, TAG_LEN, Work};
use std::cell::RefCell;
use std::io::Write;
use std::ops::Range;
use std::sync::Once;

/// Returns the backends that this machine supports. The first call prints which ones it lacks.
pub fn backends() -> Vec<Backend> {
    static SAID: Once = Once::new();
    let (have, lack): (Vec<Backend>, Vec<Backend>) =
        Backend::ALL.iter().copied().partition(|b| b.is_available());
    SAID.call_once(|| {
        for backend in lack {
            // Not `eprintln!`: the test harness hides what passing tests print.
            let _ = writeln!(
                std::io::stderr(),
                "NOT RUN: this CPU lacks the backend {backend:?}"
            );
        }
    });
    have
}

/// The end of the bytes at which an unmapped page lies.
#[derive(Clone, Copy, Debug)]
pub enum Guard {
    /// Before the first byte, which is therefore at the start of a page.
    Front,
    /// After the last byte.
    Back,
}

impl Guard {
    /// Both ends.
    pub const BOTH: [Guard; 2] = [Guard::Front, Guard::Back];
}

const PAGE: usize = 4096;

/// Writable pages between two unmapped ones.
struct Pages {
    map: *mut std::ffi::c_void,
    /// Bytes, with the unmapped pages.
    len: usize,
}

/// How many [`Pages`] a thread keeps.
const KEPT: usize = 64;

thread_local! {
    /// Pages for the next [`Guarded`] of this thread: mapping them anew interrupts all other threads,
    /// which takes most of the time of these tests on a virtual machine.
    static FREE: RefCell<Vec<Pages>> = const { RefCell::new(Vec::new()) };
}

impl Pages {
    /// Pages for `len` bytes. What they hold is not specified.
    fn new(len: usize) -> Self {
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
        let len = len.next_multiple_of(PAGE) + 2 * PAGE;
        let free = FREE.with_borrow_mut(|free| {
            let index = free.iter().position(|pages| pages.len == len)?;
            Some(free.swap_remove(index))
        });
        if let Some(pages) = free {
            return pages;
        }
        // SAFETY: the mapping is new and overlaps nothing. The two protected pages lie in it,
        // one at each end.
        let map = unsafe {
            let map = mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
            .unwrap();
            mprotect(map, PAGE, MprotectFlags::empty()).unwrap();
            mprotect(map.byte_add(len - PAGE), PAGE, MprotectFlags::empty()).unwrap();
            map
        };
        Self { map, len }
    }

    /// Keeps the pages for the next one that needs as many.
    fn keep(self) {
        FREE.with_borrow_mut(|free| {
            if free.len() == KEPT {
                free.remove(0);
            }
            free.push(self);
        });
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `new` made this mapping, and no borrow of it is left.
        unsafe { rustix::mm::munmap(self.map, self.len).unwrap() }
    }
}

/// Bytes next to an unmapped page: a kernel that accesses bytes beyond that end is killed.
pub struct Guarded {
    /// Until it is dropped.
    pages: Option<Pages>,
    range: Range<usize>,
}

impl Guarded {
    /// A copy of `bytes`. Both ends of the mapping have an unmapped page; `guard` says which
    /// one the bytes touch.
    pub fn new(bytes: &[u8], guard: Guard) -> Self {
        let pages = Pages::new(bytes.len());
        let range = match guard {
            Guard::Front => PAGE..PAGE + bytes.len(),
            Guard::Back => pages.len - PAGE - bytes.len()..pages.len - PAGE,
        };
        let mut guarded = Self {
            pages: Some(pages),
            range,
        };
        guarded.bytes().copy_from_slice(bytes);
        guarded
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        let pages = self.pages.as_mut().unwrap();
        // SAFETY: the range lies in the writable middle of the mapping, which lives as long as
        // `self`; the slice borrows `self`.
        unsafe {
            let start = pages.map.cast::<u8>().add(self.range.start);
            std::slice::from_raw_parts_mut(start, self.range.len())
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(pages) = self.pages.take() {
            pages.keep();
        }
    }
}

/// Pseudorandom numbers, the same for the same seed.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        // A counter, mixed by the finaliser of MurmurHash3.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
            mixed = (mixed ^ (mixed >> 33)).wrapping_mul(factor);
        }
        mixed ^ (mixed >> 33)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    /// Returns a length below `end`; every power of two is about equally likely.
    pub fn length(&mut self, end: usize) -> usize {
        let bits = end.ilog2() + 1;
        let magnitude = self.below(bits as usize + 1);
        self.below(1 << magnitude).min(end - 1)
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend(self.number().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        self.bytes(N).try_into().unwrap()
    }

    /// A packet with AAD and text of these lengths.
    pub fn packet(&mut self, aad: usize, text: usize) -> Packet {
        let (key, nonce) = (self.array(), self.array());
        Packet::new(key, nonce, self.bytes(aad), self.bytes(text))
    }
}

/// One packet, as plaintext and sealed.
#[derive(Clone, Debug)]
pub struct Packet {
    pub key: Key,
    pub nonce: Nonce,
    pub aad: Vec<u8>,
    pub text: Vec<u8>,
    /// Ciphertext and tag.
    pub sealed: Vec<u8>,
    /// Whether opening `sealed` must succeed; otherwise it must be refused.
    pub genuine: bool,
}

impl Packet {
    /// A packet sealed by RustCrypto and by ring, which must agree.
    pub fn new(key: Key, nonce: Nonce, aad: Vec<u8>, text: Vec<u8>) -> Self {
        let mut sealed = text.clone();
        chacha20poly1305::ChaCha20Poly1305::new(&key.into())
            .encrypt_in_place(&nonce.into(), &aad, &mut sealed)
            .unwrap();
        assert_eq!(
            sealed,
            ring(&key, nonce, &aad, &text),
            "the oracles disagree"
        );
        Self {
            key,
            nonce,
            aad,
            text,
            sealed,
            genuine: true,
        }
    }

    /// The packet with one bit of AAD, ciphertext or tag flipped.
    pub fn damaged(mut self, noise: &mut Noise) -> Self {
        flip_a_bit(noise, &mut self.aad, &mut self.sealed);
        self.genuine = false;
        self
    }
}

/// Flips a bit of AAD, ciphertext or tag, each of the three equally often unless it is empty.
pub fn flip_a_bit(noise: &mut Noise, aad: &mut [u8], sealed: &mut [u8]) {
    let bit = 1 << noise.below(8);
    let text = sealed.len() - TAG_LEN;
    match noise.below(3) {
        0 if !aad.is_empty() => aad[noise.below(aad.len())] ^= bit,
        1 if text > 0 => sealed[noise.below(text)] ^= bit,
        _ => sealed[text + noise.below(TAG_LEN)] ^= bit,
    }
}

fn ring(key: &Key, nonce: Nonce, aad: &[u8], text: &[u8]) -> Vec<u8> {
    use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).unwrap());
    let mut sealed = text.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    key.seal_in_place_append_tag(nonce, Aad::from(aad), &mut sealed)
        .unwrap();
    sealed
}

/// Packets in one buffer, and the expected contents of the buffer after sealing and after opening.
pub struct Batch {
    plain: Vec<u8>,
    sealed: Vec<u8>,
    opened: Vec<u8>,
    keys: Vec<u8>,
    jobs: Vec<Job>,
    genuine: Vec<bool>,
}

impl Batch {
    /// The packets, one after the other, from `offset` on. The AAD lies right before the text
    /// for even packets, right after the tag for odd ones. The keys are in the reverse order of
    /// the packets, each once, followed by a key that no job uses.
    pub fn new(packets: &[Packet], offset: usize) -> Self {
        let nothing = vec![0xee; offset];
        let mut batch = Self {
            plain: nothing.clone(),
            sealed: nothing.clone(),
            opened: nothing,
            keys: Vec::new(),
            jobs: Vec::new(),
            genuine: packets.iter().map(|packet| packet.genuine).collect(),
        };
        let mut keys: Vec<Key> = Vec::new();
        for packet in packets.iter().rev() {
            if keys.last() != Some(&packet.key) {
                keys.push(packet.key);
            }
        }
        keys.push([0xee; 32]);
        batch.keys = keys.concat();
        let mut key = keys.len() - 1;
        for (i, packet) in packets.iter().enumerate() {
            if keys[key] != packet.key {
                key -= 1;
            }
            let (text_len, aad_len) = (packet.text.len(), packet.aad.len());
            let begin = batch.plain.len();
            let (before, after) = match i % 2 {
                0 => (&packet.aad[..], &[][..]),
                _ => (&[][..], &packet.aad[..]),
            };
            let text = begin + before.len();
            let aad = match i % 2 {
                0 => begin,
                _ => text + text_len + TAG_LEN,
            };
            batch.jobs.push(Job {
                text: text.try_into().unwrap(),
                text_len: text_len.try_into().unwrap(),
                aad: aad.try_into().unwrap(),
                aad_len: aad_len.try_into().unwrap(),
                key,
                nonce: packet.nonce,
            });
            let tag = &packet.sealed[text_len..];
            let opened = match packet.genuine {
                true => [&packet.text, tag].concat(),
                false => packet.sealed.clone(),
            };
            let plain = [&packet.text[..], &[0xee; TAG_LEN]].concat();
            for (bytes, packet) in [
                (&mut batch.plain, &plain),
                (&mut batch.sealed, &packet.sealed),
                (&mut batch.opened, &opened),
            ] {
                bytes.extend(before);
                bytes.extend(packet);
                bytes.extend(after);
            }
        }
        batch
    }

    /// Seals and opens the batch next to an unmapped page, and compares every byte: as a list, out of place, and
    /// one packet at a time with none, some or all of its keystream precomputed.
    pub fn check_guarded(&self, backend: Backend, guard: Guard) {
        let kernels = backend.kernels();
        let jobs = &self.jobs[..];
        let mut keys = Guarded::new(&self.keys, guard);
        let keys: &[Key] = keys.bytes().as_chunks().0;
        let mut outcomes = vec![Outcome::Pending; self.jobs.len()];

        // Out of place: only the first blocks of the texts are in place.
        let (mut rest, mut without_rest) = (Vec::new(), self.plain.clone());
        for job in jobs {
            let text = job.text as usize..(job.text + job.text_len) as usize;
            let text = &mut without_rest[text][(job.text_len as usize).min(64)..];
            rest.extend_from_slice(text);
            text.fill(0xee);
        }
        let mut rest = Guarded::new(&rest, guard);
        let mut sources = Vec::new();
        let mut left = &*rest.bytes();
        for job in jobs {
            let source;
            (source, left) = left.split_at((job.text_len as usize).saturating_sub(64));
            sources.push(source);
        }
        let mut buffer = Guarded::new(&without_rest, guard);
        kernels.seal_from(
            Work {
                bytes: buffer.bytes(),
                keys,
                jobs,
                outcomes: &mut outcomes,
            },
            &sources,
        );
        self.check_sealed(backend, guard, buffer.bytes(), &outcomes);

        outcomes.fill(Outcome::Pending);
        let mut buffer = Guarded::new(&self.plain, guard);
        let bytes = buffer.bytes();
        kernels.seal(Work {
            bytes,
            keys,
            jobs,
            outcomes: &mut outcomes,
        });
        self.check_sealed(backend, guard, bytes, &outcomes);

        outcomes.fill(Outcome::Pending);
        kernels.open(Work {
            bytes,
            keys,
            jobs,
            outcomes: &mut outcomes,
        });
        self.check_opened(backend, guard, bytes, &outcomes);

        self.check_single(backend, guard, keys, |_| 0);
        self.check_single(backend, guard, keys, |_| 2);
        self.check_single(backend, guard, keys, |i| i * 7 % 9);
    }

    /// Seals and opens one packet after the other, with `precomputed` blocks of keystream for
    /// packet `i`.
    fn check_single(
        &self,
        backend: Backend,
        guard: Guard,
        keys: &[Key],
        precomputed: impl Fn(usize) -> usize,
    ) {
        let kernels = backend.kernels();
        let mut keystream = Vec::<Block>::new();
        for (i, job) in self.jobs.iter().enumerate() {
            let first = keystream.len();
            keystream.resize(first + precomputed(i), [0xee; 64]);
            let of: Vec<_> = (0..precomputed(i) as u32).map(|n| (n, job.nonce)).collect();
            let blocks = &mut keystream[first..];
            kernels.precompute_keystream(&keys[job.key], &of, blocks);
        }
        let mut keystream = Guarded::new(keystream.as_flattened(), guard);
        let mut keystream: &[Block] = keystream.bytes().as_chunks().0;
        let with_keystream: Vec<_> = self
            .jobs
            .iter()
            .enumerate()
            .map(|(i, job)| {
                let its_keystream;
                (its_keystream, keystream) = keystream.split_at(precomputed(i));
                (job, &keys[job.key], its_keystream)
            })
            .collect();
        let mut buffer = Guarded::new(&self.plain, guard);
        let bytes = buffer.bytes();
        let packets = with_keystream.iter();
        let outcomes: Vec<_> = packets
            .map(|(job, key, keystream)| kernels.seal_single(key, keystream, bytes, job))
            .collect();
        self.check_sealed(backend, guard, bytes, &outcomes);
        let packets = with_keystream.iter();
        let outcomes: Vec<_> = packets
            .map(|(job, key, keystream)| kernels.open_single(key, keystream, bytes, job))
            .collect();
        self.check_opened(backend, guard, bytes, &outcomes);
    }

    /// Checks the result of sealing, and substitutes the damaged packets.
    fn check_sealed(&self, backend: Backend, guard: Guard, bytes: &mut [u8], outcomes: &[Outcome]) {
        for (i, (job, outcome)) in self.jobs.iter().zip(outcomes).enumerate() {
            assert_eq!(*outcome, Outcome::Sealed, "{backend:?} {guard:?} {i}");
            let start = job.text as usize;
            let range = start..start + job.text_len as usize + TAG_LEN;
            let (actual, expected) = (&mut bytes[range.clone()], &self.sealed[range]);
            assert!(
                (actual == expected) == self.genuine[i],
                "{backend:?} {guard:?}: packet {i} of {}, {} bytes: sealing gave other bytes",
                self.jobs.len(),
                job.text_len
            );
            actual.copy_from_slice(expected);
        }
        assert!(
            bytes == self.sealed,
            "{backend:?} {guard:?}: sealing wrote outside the packets"
        );
    }

    /// Checks the result of opening the sealed bytes, some of them damaged.
    fn check_opened(&self, backend: Backend, guard: Guard, bytes: &[u8], outcomes: &[Outcome]) {
        for (i, (genuine, outcome)) in self.genuine.iter().zip(outcomes).enumerate() {
            let expected = match genuine {
                true => Outcome::Authentic,
                false => Outcome::BadTag,
            };
            let len = self.jobs[i].text_len;
            assert_eq!(
                *outcome, expected,
                "{backend:?} {guard:?}: packet {i}, {len} bytes"
            );
        }
        assert!(
            bytes == self.opened,
            "{backend:?} {guard:?}: opening gave other bytes"
        );
    }

    /// [`Batch::check_guarded`] with the unmapped page at either end.
    pub fn check(&self, backend: Backend) {
        for guard in Guard::BOTH {
            self.check_guarded(backend, guard);
        }
    }
}

/// Checks `packets` as one batch, on each of `backends`.
pub fn check(backends: &[Backend], packets: &[Packet]) {
    let batch = Batch::new(packets, 0);
    for &backend in backends {
        batch.check(backend);
    }
}
