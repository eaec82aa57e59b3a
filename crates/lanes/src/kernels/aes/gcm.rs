//! AES-GCM over a list of packets (NIST SP 800-38D, section 7).
//!
//! ```text
//! mask       = AES(nonce || 1)
//! ciphertext = text xor AES(nonce || 2), AES(nonce || 3), ...
//! hash       = GHASH(AAD, padding, ciphertext, padding, both lengths in bits)
//! tag        = hash xor mask
//! ```
//!
//! Optimisations:
//!
//! 1. *Groups.* Consecutive blocks of a packet fill the lanes of vectors. [`GROUP`] vectors are
//!    encrypted together, enough that no round of AES waits for the previous one. The last group
//!    has the remaining vectors, up to [`GROUP`] + 1.
//! 2. *Spare lanes.* The lane after the last block of the text encrypts the counter block of the
//!    mask, and the same lane hashes the block of lengths.
//! 3. *Powers.* GHASH is a sum of products of blocks and powers of the hash key. The products of a
//!    group are added up before they are reduced. Then the lanes are added up.
//! 4. *Overlapping packets.* The next packet begins while the instructions for the tag of the
//!    previous one are still in flight. Only consecutive packets that are [`short`] share vectors.
//! 5. *Hashing while encrypting.* Where that is faster ([`AesBlocks::ONE_PASS`]), a group is hashed
//!    during rounds of AES: when sealing, those of the next group; when opening, its own. Otherwise
//!    sealing hashes after everything is encrypted, and opening decrypts after everything is
//!    hashed.
//! 6. *Counters.* The counters of a group differ in a few bits, which one XOR sets. As the first
//!    counter is 2, the last two blocks of a group have the high bits of the next group.
//!
//! When opening, the last group waits for the tag. If that is wrong, it is XORed with zeros instead
//! of the keystream. The groups before it are decrypted after a branch on the verdict, which is
//! public; in one pass, they are encrypted again.

use super::ctr::{counter_block, counters, rounds_from, unroll};
use super::ghash::{Sum, consecutive};
use super::key::{Block, GROUP, GcmKey, HALVED, POWERS};
use super::short;
use crate::job::{Job, Outcome, difference, verdict_of};
use crate::vector::{AesBlocks, MAX_BLOCKS, opaque_pointer};

/// The detached AAD and tag of a single packet, which are not in the buffer of its text.
#[derive(Default)]
pub(crate) struct Detached<'a> {
    pub(crate) aad: Option<&'a [u8]>,
    /// Where sealing writes the tag. Opening always reads it after the text.
    pub(crate) tag: Option<&'a mut Block>,
}

/// A group of ciphertext to be hashed: its address, and the same in registers. If there are too few
/// registers, it is read again.
#[derive(Clone, Copy)]
struct Group<V> {
    text: *const u8,
    vectors: [V; GROUP],
}

/// The state of a packet in GHASH (SP 800-38D, section 6.4) and counter mode (section 6.5).
struct Packet<'k, B: AesBlocks> {
    key: &'k GcmKey,
    /// The nonce and a counter of 0 in each lane, XORed with the first round key.
    nonce: B::Vector,
    /// The index of the next group.
    group: u32,
    /// The common part of its counter blocks: see [`base_of`](Self::base_of).
    base: B::Vector,
    /// The hash of all previous groups in the first lane, to be added to the next vector.
    hash: B::Vector,
    text: *mut u8,
    /// How many bytes of the text are left.
    left: usize,
    /// How many vectors are left, including the one with the lengths.
    vectors: usize,
}

impl<'k, B: AesBlocks> Packet<'k, B> {
    /// How many powers are used.
    const POWERS: usize = {
        assert!(!B::KARATSUBA || B::LANES <= 2, "powers have sums");
        if B::KARATSUBA { HALVED } else { POWERS }
    };

    /// XORed into the base of a group to get its counters, and those of one more vector.
    const COUNTERS: [[Block; MAX_BLOCKS]; GROUP + 1] = {
        let mut counters = [[[0; 16]; MAX_BLOCKS]; GROUP + 1];
        let mut i = 0;
        while i < (GROUP + 1) * B::LANES {
            let counter = (2 + i) % (GROUP * B::LANES);
            counters[i / B::LANES][i % B::LANES] = counter_block(counter as u32);
            i += 1;
        }
        counters
    };

    /// # Safety
    ///
    /// The job must lie in the buffer that begins at `bytes`, and its key must be in `keys`.
    #[inline(always)]
    unsafe fn new(b: B, bytes: *mut u8, keys: &[&'k GcmKey], job: &Job) -> Self {
        // SAFETY: the caller guarantees that the key is in the list.
        let key: &GcmKey = unsafe { keys.get_unchecked(job.key) };
        let [n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11] = job.nonce;
        let nonce =
            u128::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11, 0, 0, 0, 0]);
        let left = job.text_len as usize;
        let nonce = b.xor(b.splat_number(&nonce), b.splat(&key.cipher.keys[0]));
        Self {
            key,
            nonce,
            group: 0,
            base: nonce,
            hash: b.zero(),
            // SAFETY: the caller guarantees that the text lies in the buffer.
            text: unsafe { bytes.add(job.text as usize) },
            left,
            vectors: left.div_ceil(16) / B::LANES + 1,
        }
    }

    /// Whether the next group is not the last one. The last group has [`GROUP`] + 1 vectors if it
    /// would otherwise have only one, which might hold no block of the text.
    #[inline(always)]
    fn has_full_group(&self) -> bool {
        self.vectors > GROUP + 1
    }

    /// Returns how many groups precede the last one.
    #[inline(always)]
    fn full_groups(&self) -> usize {
        self.vectors.saturating_sub(2) / GROUP
    }

    /// Returns how many blocks of the text are in the last vector, which also has the lengths.
    #[inline(always)]
    fn last_blocks(&self) -> usize {
        self.left.div_ceil(16) % B::LANES
    }

    /// Returns the power for the first lane of the vector that is `vectors` before the last one.
    #[inline(always)]
    fn last_power(&self, vectors: usize) -> usize {
        vectors * B::LANES + self.last_blocks() + 1
    }

    /// Returns the products of the AAD, which is hashed before the first group.
    ///
    /// # Safety
    ///
    /// The job's AAD must be readable, at its offset from `bytes`.
    #[inline(always)]
    unsafe fn hash_aad(&mut self, b: B, bytes: *const u8, job: &Job) -> Sum<B::Vector> {
        let mut sum = Sum::zero(b);
        if job.aad_len == 0 {
            return sum;
        }
        // SAFETY: the caller guarantees that the AAD lies at this offset.
        let mut source = unsafe { bytes.add(job.aad as usize) };
        let mut left = job.aad_len as usize;
        let size = 16 * B::LANES;
        // If the AAD does not fill its vectors, the first one is short, and its blocks are `early`
        // lanes before those that they belong to. Each is therefore multiplied by a power that is
        // `early` lower.
        let mut early = left.div_ceil(16).wrapping_neg() % B::LANES;
        if left <= size {
            // AAD of one vector, as most packets have. There are always powers for it.
            // SAFETY: `left` is the whole AAD, which the caller guarantees.
            let blocks = b.reverse(unsafe { b.load_first(source, left) });
            let power = match self.has_full_group() {
                true => (GROUP + 1) * B::LANES,
                false => self.last_power(self.vectors),
            };
            sum.add_consecutive::<B, 0>(b, blocks, consecutive(b, self.key, power - early));
            return sum;
        }
        let mut vectors = left.div_ceil(size);
        // The number of vectors that there are powers for, in addition to those of the next group.
        let has_full_group = self.has_full_group();
        let reach = match has_full_group {
            true => Self::POWERS / B::LANES - GROUP,
            false => (Self::POWERS - self.last_blocks() - 1) / B::LANES + 1 - self.vectors,
        };
        loop {
            let len = left.min(size - 16 * early);
            // SAFETY: `len` is at most `left`, the bytes of AAD from `source` on.
            let mut blocks = unsafe { b.load_first(source, len) };
            blocks = b.xor(b.reverse(blocks), self.hash);
            self.hash = b.zero();
            let power = if vectors > reach {
                B::LANES
            } else if has_full_group {
                (GROUP + vectors) * B::LANES
            } else {
                self.last_power(self.vectors + vectors - 1)
            };
            sum.add_consecutive::<B, 0>(b, blocks, consecutive(b, self.key, power - early));
            early = 0;
            if vectors > reach {
                self.hash = b.sum_in_first(sum.reduced(b));
                sum = Sum::zero(b);
            }
            left -= len;
            vectors -= 1;
            if vectors == 0 {
                return sum;
            }
            source = source.wrapping_add(len);
        }
    }

    /// Encrypts blocks, and in each of the first rounds hashes one vector of a `group` of
    /// ciphertext. The instructions of each run while those of the other wait.
    ///
    /// # Safety
    ///
    /// A whole group must be readable at `group.text`.
    #[inline(always)]
    unsafe fn encrypt_and_hash<const K: usize>(
        &mut self,
        b: B,
        states: &mut [B::Vector; K],
        mut sum: Sum<B::Vector>,
        group: Group<B::Vector>,
    ) {
        let powers = consecutive(b, self.key, GROUP * B::LANES);
        // Besides states and group, the products need four registers.
        let in_registers = K + GROUP + 4 <= B::REGISTERS;
        macro_rules! rounds {
            ($($round:literal: vector $vector:literal),*) => {
                $(
                    let vector = match in_registers {
                        true => group.vectors[$vector],
                        // SAFETY: the caller guarantees the group.
                        false => unsafe { b.load(group.text.add($vector * 16 * B::LANES)) },
                    };
                    let blocks = self.to_multiply(b, $vector, vector);
                    let round_key = &self.key.cipher.keys[$round];
                    sum.add_in_round::<B, K, $vector>(b, states, round_key, blocks, powers);
                )*
            };
        }
        // Vector 0 depends on the hash of the previous groups, so it is the fourth. One half of
        // that hash's reduction comes before round 9, the other after the last round.
        rounds!(1: vector 1, 2: vector 2, 3: vector 3, 4: vector 0);
        rounds!(5: vector 4, 6: vector 5, 7: vector 6, 8: vector 7);
        let mut middle = sum.after_first_fold(b);
        b.tie(&mut middle, &mut states[0]);
        rounds_from(b, &self.key.cipher, 9, states);
        b.tie(&mut states[K - 1], &mut middle);
        self.hash = b.sum_in_first(sum.after_second_fold(b, middle));
    }

    /// Returns vector `i` of a group that is not the last, ready to be multiplied by powers of the
    /// hash key.
    #[inline(always)]
    fn to_multiply(&self, b: B, i: usize, vector: B::Vector) -> B::Vector {
        let blocks = b.reverse(vector);
        match i {
            0 => b.xor(blocks, self.hash),
            _ => blocks,
        }
    }

    /// Returns the common part of the counter blocks of a group, XORed with the first round key:
    /// the nonce, and the counter without the bits that count within a group.
    #[inline(always)]
    fn base_of(&self, b: B, group: u32) -> B::Vector {
        let counter = group * (GROUP * B::LANES) as u32;
        let [.., k12, k13, k14, k15] = self.key.cipher.keys[0];
        let round_key = u32::from_le_bytes([k12, k13, k14, k15]);
        b.with_last_word(self.nonce, counter.swap_bytes() ^ round_key)
    }

    /// Returns the counter blocks of the next `K` vectors, XORed with the first round key. `next`
    /// is the base of the next group.
    #[inline(always)]
    fn next_counters<const K: usize>(&self, b: B, next: B::Vector) -> [B::Vector; K] {
        // As the first counter is 2, the last two blocks of a group have the base of the next one.
        let end = GROUP * B::LANES - 2;
        let mut states = [self.base; K];
        unroll!(K, |i| {
            unroll!(B::LANES, |lane| if i * B::LANES + lane >= end {
                states[i] = b.with_lane_of(states[i], lane, next);
            });
            let bits = const { &Self::COUNTERS };
            states[i] = b.xor(states[i], counters(b, &bits[i]));
        });
        states
    }

    /// Returns the counter blocks of the last group, XORed with the first round key. The counter
    /// block of the mask is in the lane after the text's.
    #[inline(always)]
    fn last_counters<const K: usize>(&self, b: B) -> [B::Vector; K] {
        let mut states = self.next_counters::<K>(b, self.base_of(b, self.group + 1));
        let first = b.xor(self.nonce, b.splat(&counter_block(1)));
        states[K - 1] = b.with_lane_of(states[K - 1], self.last_blocks(), first);
        states
    }

    /// Hashes groups that are not the last. `sum` holds the products of the AAD, and zeros after
    /// the first group.
    ///
    /// # Safety
    ///
    /// `groups` groups must be readable at `source`.
    #[inline(always)]
    unsafe fn hash_groups(
        &mut self,
        b: B,
        sum: &mut Sum<B::Vector>,
        mut source: *const u8,
        groups: usize,
    ) {
        let powers = consecutive(b, self.key, GROUP * B::LANES);
        for _ in 0..groups {
            macro_rules! vectors {
                ($($vector:literal)*) => {
                    $(
                        let vector = source.wrapping_add($vector * 16 * B::LANES);
                        // SAFETY: the caller guarantees the group.
                        let vector = unsafe { b.load(vector) };
                        let blocks = self.to_multiply(b, $vector, vector);
                        sum.add_consecutive::<B, $vector>(b, blocks, powers);
                    )*
                };
            }
            vectors!(0 1 2 3 4 5 6 7);
            self.hash = b.sum_in_first(sum.reduced(b));
            *sum = Sum::zero(b);
            source = source.wrapping_add(GROUP * B::LANES * 16);
        }
    }

    /// Hashes the last group and the block of lengths. The hash is the XOR of all lanes of the
    /// result.
    #[inline(always)]
    fn hash_last<const K: usize>(
        &self,
        b: B,
        mut sum: Sum<B::Vector>,
        blocks: [B::Vector; K],
        job: &Job,
    ) -> B::Vector {
        unroll!(K, |i| {
            let mut blocks = b.reverse(blocks[i]);
            if i == K - 1 {
                let lengths = u128::from(job.aad_len) << 67 | u128::from(job.text_len) << 3;
                blocks = b.with_lane(blocks, self.last_blocks(), lengths);
            }
            if i == 0 {
                blocks = b.xor(blocks, self.hash);
            }
            let powers = consecutive(b, self.key, self.last_power(K - 1 - i));
            sum.add_consecutive::<B, 0>(b, blocks, powers);
        });
        sum.reduced(b)
    }

    /// Returns how many bytes of the text are left from vector `i` of the last group on.
    #[inline(always)]
    fn len_of(&self, i: usize) -> usize {
        self.left.saturating_sub(i * 16 * B::LANES)
    }

    /// Loads the text of the last group. Only its last two vectors may be incomplete.
    ///
    /// # Safety
    ///
    /// The remaining text must be readable, and end in the last or last but one of `K` vectors.
    #[inline(always)]
    unsafe fn load_last<const K: usize>(&self, b: B) -> [B::Vector; K] {
        let mut texts = [b.zero(); K];
        unroll!(K, |i| {
            let text = self.text.wrapping_add(i * 16 * B::LANES);
            // SAFETY: the caller guarantees the text. All vectors but the last two are full,
            // and of these two only the bytes of the text are read.
            texts[i] = unsafe {
                match i + 2 < K {
                    true => b.load(text),
                    false => b.load_first(text, self.len_of(i)),
                }
            };
        });
        texts
    }

    /// Stores the text of the last group.
    ///
    /// # Safety
    ///
    /// As for [`load_last`](Self::load_last), and the text must be writable.
    #[inline(always)]
    unsafe fn store_last<const K: usize>(&self, b: B, texts: [B::Vector; K]) {
        unroll!(K, |i| {
            let text = self.text.wrapping_add(i * 16 * B::LANES);
            // SAFETY: the caller guarantees the text; see [`load_last`](Self::load_last).
            unsafe {
                match i + 2 < K {
                    true => b.store(texts[i], text),
                    false => b.store_first(texts[i], text, self.len_of(i)),
                }
            }
        });
    }

    /// Encrypts or decrypts a group that is not the last, advances past it, and returns the result.
    /// If there is a group `to_hash`, it is hashed at the same time. `sum` holds the products of
    /// the AAD, and zeros after the first group that is hashed.
    ///
    /// # Safety
    ///
    /// The remaining text must be readable and writable, and longer than a group. The group
    /// `to_hash` must be readable.
    #[inline(always)]
    unsafe fn crypt_group(
        &mut self,
        b: B,
        sum: &mut Sum<B::Vector>,
        to_hash: Option<Group<B::Vector>>,
    ) -> [B::Vector; GROUP] {
        let next = self.base_of(b, self.group + 1);
        let mut states = self.next_counters::<GROUP>(b, next);
        // SAFETY: the caller guarantees the group.
        unsafe { self.next_keystream(b, &mut states, sum, to_hash) };
        unroll!(GROUP, |i| {
            let text = self.text.wrapping_add(i * 16 * B::LANES);
            // SAFETY: the caller guarantees the text, which is longer than a group, and `i` is
            // below `GROUP`.
            unsafe {
                states[i] = b.xor(states[i], b.load(text));
                b.store(states[i], text);
            }
        });
        (self.base, self.group) = (next, self.group + 1);
        self.advance(1);
        states
    }

    /// Turns counter blocks into keystream. If there is a group `to_hash`, it is hashed at the same
    /// time.
    ///
    /// # Safety
    ///
    /// That group must be readable.
    #[inline(always)]
    unsafe fn next_keystream<const K: usize>(
        &mut self,
        b: B,
        states: &mut [B::Vector; K],
        sum: &mut Sum<B::Vector>,
        to_hash: Option<Group<B::Vector>>,
    ) {
        if let Some(group) = to_hash {
            // SAFETY: the caller guarantees the group.
            unsafe { self.encrypt_and_hash(b, states, *sum, group) };
            *sum = Sum::zero(b);
        } else {
            rounds_from(b, &self.key.cipher, 1, states);
        }
    }

    /// Encrypts the last group and returns the tag. `sum` holds the products of the AAD, to which
    /// those of the group are added. If there is a group `to_hash`, it is hashed at the same time.
    ///
    /// # Safety
    ///
    /// As for [`store_last`](Self::store_last). The group `to_hash` must be readable.
    #[inline(always)]
    unsafe fn seal_last<const K: usize>(
        &mut self,
        b: B,
        mut sum: Sum<B::Vector>,
        to_hash: Option<Group<B::Vector>>,
        job: &Job,
    ) -> u128 {
        let lane = self.last_blocks();
        let mut keystream = self.last_counters::<K>(b);
        // SAFETY: the caller guarantees the group.
        unsafe { self.next_keystream(b, &mut keystream, &mut sum, to_hash) };
        let mask = b.only_lane(keystream[K - 1], lane);
        // SAFETY: the caller guarantees the text.
        let mut texts = unsafe { self.load_last::<K>(b) };
        unroll!(K, |i| {
            texts[i] = b.xor(texts[i], keystream[i]);
            if i + 2 >= K {
                texts[i] = b.first(texts[i], self.len_of(i));
            }
        });
        // SAFETY: the caller guarantees the text; see [`load_last`](Self::load_last).
        unsafe { self.store_last::<K>(b, texts) };
        let hash = self.hash_last(b, sum, texts, job);
        b.sum(b.xor(b.reverse(hash), mask))
    }

    /// Compares the tag with the one after the text, and decrypts the last group if they are equal.
    /// Returns their [`difference`]. `sum` holds the products of the AAD, to which those of the
    /// group are added.
    ///
    /// # Safety
    ///
    /// As for [`store_last`](Self::store_last).
    #[inline(always)]
    unsafe fn open_last<const K: usize>(&mut self, b: B, sum: Sum<B::Vector>, job: &Job) -> u64 {
        let lane = self.last_blocks();
        let mut keystream = self.last_counters::<K>(b);
        rounds_from(b, &self.key.cipher, 1, &mut keystream);
        let mask = b.only_lane(keystream[K - 1], lane);
        // SAFETY: the caller guarantees the text.
        let mut texts = unsafe { self.load_last::<K>(b) };
        let hash = self.hash_last(b, sum, texts, job);
        let tag = b.sum(b.xor(b.reverse(hash), mask));
        // SAFETY: the tag of 16 bytes follows the text, of which `left` bytes are left.
        let sent = unsafe { self.text.add(self.left).cast::<u128>().read_unaligned() };
        let difference = difference(tag, sent);
        // All ones if `difference` is 0, otherwise 0.
        let equal = ((difference | difference.wrapping_neg()) >> 63).wrapping_sub(1);
        let equal = b.splat_number(&(u128::from(equal) << 64 | u128::from(equal)));
        unroll!(K, |i| texts[i] =
            b.xor(texts[i], b.and(keystream[i], equal)));
        // SAFETY: the caller guarantees the text; see [`load_last`](Self::load_last).
        unsafe { self.store_last::<K>(b, texts) };
        difference
    }

    /// Continues after groups that are not the last.
    #[inline(always)]
    fn skip(&mut self, b: B, groups: usize) {
        self.group += groups as u32;
        self.base = self.base_of(b, self.group);
        self.advance(groups);
    }

    /// Advances past the text of groups that are not the last.
    #[inline(always)]
    fn advance(&mut self, groups: usize) {
        let len = groups * GROUP * B::LANES * 16;
        self.text = self.text.wrapping_add(len);
        self.left -= len;
        self.vectors -= groups * GROUP;
    }
}

/// Calls a method of the packet for the remaining number of vectors.
macro_rules! last {
    ($packet:ident.$method:ident $arguments:tt) => {
        last!(@ $packet, $method, $arguments, 1 2 3 4 5 6 7 8)
    };
    (@ $packet:ident, $method:ident, $arguments:tt, $($number:literal)*) => {
        match $packet.vectors {
            $($number => last!(@call $packet, $method, $number, $arguments),)*
            _ => last!(@call $packet, $method, 9, $arguments),
        }
    };
    (@call $packet:ident, $method:ident, $number:literal, ($($argument:expr),*)) => {
        $packet.$method::<$number>($($argument),*)
    };
}

const _: () = assert!(GROUP + 1 == 9);

/// Calls a function of [`short`] for the number of blocks of text.
macro_rules! short {
    ($blocks:ident, $function:ident $arguments:tt) => {
        short!(@ $blocks, $function, $arguments, 1 2 3 4 5 6 7)
    };
    (@ $blocks:ident, $function:ident, $arguments:tt, $($number:literal)*) => {
        match $blocks {
            $($number => short!(@call $function, { $number + 1 }, $arguments),)*
            _ => short!(@call $function, { short::MAX + 1 }, $arguments),
        }
    };
    (@call $function:ident, $number:tt, ($($argument:expr),*)) => {
        short::$function::<B, $number>($($argument),*)
    };
}

const _: () = assert!(short::MAX == 8);

/// Seals every job.
///
/// # Safety
///
/// The jobs, with their tags, must lie in `bytes`, and their keys must be in `keys`. With an
/// AAD or a tag that lies `detached` there must be only one job, whose AAD begins at offset 0
/// of the detached one and lies in it.
#[inline(always)]
pub(crate) unsafe fn seal_all<B: AesBlocks>(
    b: B,
    bytes: &mut [u8],
    detached: Detached<'_>,
    keys: &[&GcmKey],
    jobs: &[Job],
) {
    let bytes = bytes.as_mut_ptr();
    let aads = detached.aad.map_or(bytes.cast_const(), <[u8]>::as_ptr);
    let detached_tag = detached
        .tag
        .map_or(core::ptr::null_mut(), core::ptr::from_mut);
    let mut left = jobs;
    while let [job, others @ ..] = left {
        // SAFETY: the caller guarantees the jobs. If there are several, nothing is detached.
        unsafe {
            if let Some(blocks) = short::shared_blocks(b, left) {
                short!(blocks, seal(b, bytes, keys, left));
                left = &left[B::LANES..];
                continue;
            }
            let tag = seal_one(b, bytes, aads, keys, job);
            let destination = match detached_tag.is_null() {
                true => bytes.add(job.tag().start),
                false => detached_tag.cast(),
            };
            destination.cast::<u128>().write_unaligned(tag.to_le());
        }
        left = others;
    }
}

/// Encrypts the text of a job and returns its tag.
///
/// # Safety
///
/// As for [`seal_all`], where the buffers of text and AAD begin at `bytes` and `aads`.
#[inline(always)]
unsafe fn seal_one<B: AesBlocks>(
    b: B,
    bytes: *mut u8,
    aads: *const u8,
    keys: &[&GcmKey],
    job: &Job,
) -> u128 {
    // SAFETY: the caller guarantees that text and AAD lie in their buffers. A group is taken
    // from the text only if the text is longer than that; the group to be hashed is the one before.
    unsafe {
        let mut packet = Packet::new(b, bytes, keys, job);
        let mut sum = packet.hash_aad(b, aads, job);
        let mut text = packet.text;
        if B::ONE_PASS && packet.has_full_group() {
            let mut vectors = packet.crypt_group(b, &mut sum, None);
            while packet.has_full_group() {
                let next = packet.text;
                vectors = packet.crypt_group(b, &mut sum, Some(Group { text, vectors }));
                text = next;
            }
            return last!(packet.seal_last(b, sum, Some(Group { text, vectors }), job));
        }
        let groups = packet.full_groups();
        if !B::ONE_PASS {
            for _ in 0..groups {
                packet.crypt_group(b, &mut sum, None);
            }
            packet.hash_groups(b, &mut sum, text, groups);
        }
        last!(packet.seal_last(b, sum, None, job))
    }
}

/// Opens every job whose tag is correct. `differences[i]` becomes the [`difference`] of the tags of
/// job `i`.
///
/// # Safety
///
/// As for [`seal_all`].
#[inline(always)]
pub(crate) unsafe fn open_all<B: AesBlocks>(
    b: B,
    bytes: &mut [u8],
    detached: Detached<'_>,
    keys: &[&GcmKey],
    jobs: &[Job],
    differences: &mut [u64],
) {
    let bytes = bytes.as_mut_ptr();
    let aads = detached.aad.map_or(bytes.cast_const(), <[u8]>::as_ptr);
    let (mut left, mut results) = (jobs, differences);
    while let ([job, ..], [result, ..]) = (left, &mut *results) {
        // SAFETY: the caller guarantees the jobs. If there are several, nothing is detached.
        let done = unsafe {
            if let Some(blocks) = short::shared_blocks(b, left) {
                short!(blocks, open(b, bytes, keys, left, results));
                B::LANES
            } else {
                *result = open_one(b, bytes, aads, keys, job);
                1
            }
        };
        (left, results) = (&left[done..], &mut results[done..]);
    }
}

/// Opens a job if its tag is correct. Returns the [`difference`] of the tags.
///
/// # Safety
///
/// As for [`open_all`], where the buffers of text and AAD begin at `bytes` and `aads`.
#[inline(always)]
unsafe fn open_one<B: AesBlocks>(
    b: B,
    bytes: *mut u8,
    aads: *const u8,
    keys: &[&GcmKey],
    job: &Job,
) -> u64 {
    // SAFETY: as in `seal_one`, but a group is hashed while it is decrypted; a tag is always read
    // after its text, where the caller guarantees it.
    unsafe {
        let mut packet = Packet::new(b, bytes, keys, job);
        let groups = packet.full_groups();
        let mut sum = packet.hash_aad(b, aads, job);
        if B::ONE_PASS {
            while packet.has_full_group() {
                let mut vectors = [b.zero(); GROUP];
                unroll!(GROUP, |i| {
                    vectors[i] = b.load(packet.text.add(i * 16 * B::LANES));
                });
                let text = opaque_pointer(packet.text);
                packet.crypt_group(b, &mut sum, Some(Group { text, vectors }));
            }
        } else {
            packet.hash_groups(b, &mut sum, packet.text, groups);
            packet.skip(b, groups);
        }
        let difference = last!(packet.open_last(b, sum, job));
        // Text that was decrypted before its tag was found to be wrong is encrypted again; text
        // that waited for the tag is decrypted.
        if groups == 0 || B::ONE_PASS == (verdict_of(difference) == Outcome::Authentic) {
            return difference;
        }
        let mut packet = Packet::new(b, bytes, keys, job);
        let mut sum = Sum::zero(b);
        for _ in 0..groups {
            packet.crypt_group(b, &mut sum, None);
        }
        difference
    }
}
