//! AES-GCM over a list of packets (NIST SP 800-38D, section 7).
//!
//! A packet's blocks lie in vectors of as many as the instruction set has lanes. Its
//! vectors are worked off in groups, [`GROUP`] of them and at last what is left: enough
//! that no round of AES waits for the one before. Of the packet's first counter block,
//! which encrypts the tag, and of the block of lengths, with which GHASH ends, each takes
//! the lane behind the last of the text.
//!
//! GHASH is a sum of products of blocks and powers of the hash key. The products of a
//! group are added up before they are reduced. In a group that is not the last, all lanes
//! of a vector are multiplied by the same power, and so the lanes are hashed detached; in
//! the last, each lane by its own, which brings them together.
//!
//! Packets are sealed one after the other: none is too short to fill the lanes with its
//! own blocks, and while the CPU waits for the tag of one it is busy with the next.
//! Sealing a long text, each group is hashed while the next is encrypted, or, where there
//! are not the registers for it, after all of them are.
//!
//! Opening, the tag is checked before anything is decrypted, and no branch depends on it:
//! where it is wrong the text is exclusive-ored with zeros in place of the keystream.

use super::ctr::{counter_block, counter_blocks, counters, each, rounds_from};
use super::ghash::{Sum, power_of, powers_from};
use super::key::{Block, GROUP, GcmKey, POWERS};
use crate::job::{Job, difference};
use crate::vector::AesBlocks;

/// Where AAD and tag of a single packet lie that lie elsewhere than its text, if they do.
#[derive(Default)]
pub(crate) struct Detached<'a> {
    pub(crate) aad: Option<&'a [u8]>,
    /// A tag to be written: one that is checked is behind the text.
    pub(crate) tag: Option<&'a mut Block>,
}

/// A packet on its way through GHASH (SP 800-38D, section 6.4) and the counter mode
/// (section 6.5).
struct Packet<'k, B: AesBlocks> {
    key: &'k GcmKey,
    /// What all counter blocks have in common: the nonce, and a counter of 0; and the
    /// first round key, exclusive-ored into it.
    nonce: B::Vector,
    /// The counters of the next vector as they stand in their blocks, and zeros.
    counters: B::Vector,
    /// The first of them, as a number.
    counter: u32,
    /// The lanes' hashes of all groups before, to be added to the next vector.
    hash: B::Vector,
    text: *mut u8,
    /// How many bytes of the text are left.
    left: usize,
    /// How many vectors are left, that with the lengths included.
    vectors: usize,
}

impl<'k, B: AesBlocks> Packet<'k, B> {
    /// # Safety
    ///
    /// The job must lie in the buffer that begins at `bytes`, and its key be there.
    #[inline(always)]
    unsafe fn new(b: B, bytes: *mut u8, keys: &[&'k GcmKey], job: &Job) -> Self {
        // SAFETY: the caller vouches for the key.
        let key: &GcmKey = unsafe { keys.get_unchecked(job.key as usize) };
        let [n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11] = job.nonce;
        let nonce =
            u128::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11, 0, 0, 0, 0]);
        let left = job.text_len as usize;
        Self {
            key,
            nonce: b.xor(b.splat_number(&nonce), b.splat(&key.cipher.keys[0])),
            counters: counters(b, const { &counter_blocks(2) }),
            counter: 2,
            hash: b.zero(),
            // SAFETY: the caller vouches for the job.
            text: unsafe { bytes.add(job.text as usize) },
            left,
            vectors: left.div_ceil(16) / B::LANES + 1,
        }
    }

    /// Whether the next group is not the last. That is one vector longer rather than
    /// so short that it would not hold the text's last block.
    #[inline(always)]
    fn is_long(&self) -> bool {
        self.vectors > GROUP + 1
    }

    /// How many groups there are before the last.
    #[inline(always)]
    fn groups(&self) -> usize {
        self.vectors.saturating_sub(2) / GROUP
    }

    /// How many blocks of the text the last vector has.
    #[inline(always)]
    fn last_blocks(&self) -> usize {
        self.left.div_ceil(16) % B::LANES
    }

    /// The power of the first lane of the vector that lies `vectors` before the last.
    #[inline(always)]
    fn last_power(&self, vectors: usize) -> usize {
        vectors * B::LANES + self.last_blocks() + 1
    }

    /// The products of the AAD, as it goes before the first group.
    ///
    /// # Safety
    ///
    /// The AAD must be readable.
    #[inline(always)]
    unsafe fn aad(&mut self, b: B, bytes: *const u8, job: &Job) -> Sum<B::Vector> {
        let mut sum = Sum::zero(b);
        if job.aad_len == 0 {
            return sum;
        }
        // SAFETY: the caller vouches for it.
        let mut place = unsafe { bytes.add(job.aad as usize) };
        let mut left = job.aad_len as usize;
        let size = 16 * B::LANES;
        // The first vector is the one that is not full, and each of its blocks lies so
        // many lanes before its own: it takes a power so much lower.
        let early = left.div_ceil(16).wrapping_neg() % B::LANES;
        if left <= size {
            // What most packets have. There are powers for one vector.
            // SAFETY: so many are there.
            let blocks = b.reverse(unsafe { b.load_first(place, left) });
            let powers = match self.is_long() {
                true => power_of(b, &self.key.powers, (GROUP + 1) * B::LANES - early),
                false => powers_from(b, self.key, self.last_power(self.vectors) - early),
            };
            sum.add(b, blocks, powers);
            return sum;
        }
        let mut vectors = left.div_ceil(size);
        let mut early = early;
        // How many vectors there are powers for, beside those of the next group.
        let (long, group) = (self.is_long(), self.vectors.min(GROUP + 1));
        let reach = match long {
            true => POWERS / B::LANES - GROUP,
            false => (POWERS - self.last_blocks() - 1) / B::LANES + 1 - group,
        };
        loop {
            let len = left.min(size - 16 * early);
            // SAFETY: so many are left.
            let mut blocks = unsafe { b.load_first(place, len) };
            blocks = b.xor(b.reverse(blocks), self.hash);
            self.hash = b.zero();
            let factor = if vectors > reach {
                power_of(b, &self.key.powers, B::LANES - early)
            } else if long {
                power_of(b, &self.key.powers, (GROUP + vectors) * B::LANES - early)
            } else {
                powers_from(b, self.key, self.last_power(group + vectors - 1) - early)
            };
            early = 0;
            sum.add(b, blocks, factor);
            if vectors > reach {
                self.hash = sum.reduced(b);
                sum = Sum::zero(b);
            }
            left -= len;
            vectors -= 1;
            if vectors == 0 {
                return sum;
            }
            place = place.wrapping_add(len);
        }
    }

    /// Encrypts blocks, and after each of the first rounds hashes one vector of the
    /// group `before`, which is encrypted: the one's instructions fill the time that the
    /// other's take.
    #[inline(always)]
    fn encrypt_and_hash<const K: usize>(
        &mut self,
        b: B,
        states: &mut [B::Vector; K],
        mut sum: Sum<B::Vector>,
        before: [B::Vector; GROUP],
    ) {
        let keys = &self.key.cipher.keys;
        each!(GROUP, |i| {
            let round_key = b.splat(&keys[1 + i]);
            each!(K, |j| states[j] = b.round(states[j], round_key));
            let mut blocks = b.reverse(before[i]);
            if i == 0 {
                blocks = b.xor(blocks, self.hash);
            }
            let power = power_of(b, &self.key.powers, (GROUP - i) * B::LANES);
            sum.add(b, blocks, power);
        });
        self.hash = sum.reduced(b);
        rounds_from(b, &self.key.cipher, GROUP + 1, states);
    }

    /// The counter blocks of the next vectors, with the first round key.
    #[inline(always)]
    fn next_counters<const K: usize>(&mut self, b: B) -> [B::Vector; K] {
        let mut states = [self.nonce; K];
        let next = self.counter.wrapping_add((K * B::LANES) as u32);
        if self.counter >> 8 == next >> 8 {
            // Only their last bytes differ.
            each!(K, |i| {
                states[i] = b.xor(self.nonce, self.counters);
                self.counters = b.count(self.counters, B::LANES as u8);
            });
        } else {
            each!(K, |i| {
                let counter = self.counter.wrapping_add((i * B::LANES) as u32);
                states[i] = b.xor(self.nonce, counters(b, &counter_blocks(counter)));
            });
            self.counters = counters(b, &counter_blocks(next));
        }
        self.counter = next;
        states
    }

    /// The counter blocks of the last group, with the first round key: the first one is
    /// behind the text's.
    #[inline(always)]
    fn last_counters<const K: usize>(&mut self, b: B) -> [B::Vector; K] {
        let mut states = self.next_counters::<K>(b);
        let first = b.xor(self.nonce, b.splat(&counter_block(1)));
        states[K - 1] = b.with_lane_of(states[K - 1], self.last_blocks(), first);
        states
    }

    /// Adds the products of groups that are not the last, and reduces.
    ///
    /// # Safety
    ///
    /// So many must be readable.
    #[inline(always)]
    unsafe fn hash_groups(
        &mut self,
        b: B,
        mut sum: Sum<B::Vector>,
        mut place: *const u8,
        groups: usize,
    ) -> Sum<B::Vector> {
        for _ in 0..groups {
            each!(GROUP, |i| {
                // SAFETY: the caller vouches for it.
                let blocks = unsafe { b.load(place.add(i * 16 * B::LANES)) };
                let mut blocks = b.reverse(blocks);
                if i == 0 {
                    blocks = b.xor(blocks, self.hash);
                }
                let power = power_of(b, &self.key.powers, (GROUP - i) * B::LANES);
                sum.add(b, blocks, power);
            });
            self.hash = sum.reduced(b);
            sum = Sum::zero(b);
            place = place.wrapping_add(GROUP * B::LANES * 16);
        }
        sum
    }

    /// Adds the products of the last group and of the block of lengths: the hash, in
    /// lanes of which it is the sum.
    #[inline(always)]
    fn hash_last<const K: usize>(
        &self,
        b: B,
        mut sum: Sum<B::Vector>,
        blocks: [B::Vector; K],
        job: &Job,
    ) -> B::Vector {
        each!(K, |i| {
            let mut blocks = b.reverse(blocks[i]);
            if i == K - 1 {
                let lengths = u128::from(job.aad_len) << 67 | u128::from(job.text_len) << 3;
                blocks = b.with_lane(blocks, self.last_blocks(), lengths);
            }
            if i == 0 {
                blocks = b.xor(blocks, self.hash);
            }
            let powers = powers_from(b, self.key, self.last_power(K - 1 - i));
            sum.add(b, blocks, powers);
        });
        sum.reduced(b)
    }

    /// How many bytes of the text are left from vector `i` of the last group on.
    #[inline(always)]
    fn len_of(&self, i: usize) -> usize {
        self.left.saturating_sub(i * 16 * B::LANES)
    }

    /// The text of the last group. Only the last vector and that before may not be full.
    ///
    /// # Safety
    ///
    /// The text must be readable, and the rest of it belong to `K` vectors.
    #[inline(always)]
    unsafe fn load_last<const K: usize>(&self, b: B) -> [B::Vector; K] {
        let mut texts = [b.zero(); K];
        each!(K, |i| {
            let place = self.text.wrapping_add(i * 16 * B::LANES);
            // SAFETY: the caller vouches for it: vectors before the last two are full.
            texts[i] = unsafe {
                match i + 2 < K {
                    true => b.load(place),
                    false => b.load_first(place, self.len_of(i)),
                }
            };
        });
        texts
    }

    /// The reverse.
    ///
    /// # Safety
    ///
    /// The same, and the text must be writable.
    #[inline(always)]
    unsafe fn store_last<const K: usize>(&self, b: B, texts: [B::Vector; K]) {
        each!(K, |i| {
            let place = self.text.wrapping_add(i * 16 * B::LANES);
            // SAFETY: as above.
            unsafe {
                match i + 2 < K {
                    true => b.store(texts[i], place),
                    false => b.store_first(texts[i], place, self.len_of(i)),
                }
            }
        });
    }

    /// The keystream for counter blocks. If there was a group before, that is hashed
    /// beside.
    #[inline(always)]
    fn next_keystream<const K: usize>(
        &mut self,
        b: B,
        states: &mut [B::Vector; K],
        sum: &mut Sum<B::Vector>,
        before: Option<[B::Vector; GROUP]>,
    ) {
        if let Some(before) = before {
            self.encrypt_and_hash(b, states, *sum, before);
            *sum = Sum::zero(b);
        } else {
            rounds_from(b, &self.key.cipher, 1, states);
        }
    }

    /// Encrypts a group that is not the last, passes it, and returns it. The group
    /// `before` is hashed only now.
    ///
    /// # Safety
    ///
    /// The text must be readable and writable.
    #[inline(always)]
    unsafe fn seal_group(
        &mut self,
        b: B,
        sum: &mut Sum<B::Vector>,
        before: Option<[B::Vector; GROUP]>,
    ) -> [B::Vector; GROUP] {
        let mut texts = self.next_counters::<GROUP>(b);
        self.next_keystream(b, &mut texts, sum, before);
        each!(GROUP, |i| {
            let place = self.text.wrapping_add(i * 16 * B::LANES);
            // SAFETY: the caller vouches for the text, which has at least one group more.
            unsafe {
                texts[i] = b.xor(texts[i], b.load(place));
                b.store(texts[i], place);
            }
        });
        self.pass(1);
        texts
    }

    /// Encrypts the last group and returns the tag. The group `before` is hashed only now.
    ///
    /// # Safety
    ///
    /// As [`store_last`](Self::store_last).
    #[inline(always)]
    unsafe fn seal_last<const K: usize>(
        &mut self,
        b: B,
        mut sum: Sum<B::Vector>,
        before: Option<[B::Vector; GROUP]>,
        job: &Job,
    ) -> u128 {
        let lane = self.last_blocks();
        let mut keystream = self.last_counters::<K>(b);
        self.next_keystream(b, &mut keystream, &mut sum, before);
        let mask = b.only_lane(keystream[K - 1], lane);
        // SAFETY: the caller vouches for the text.
        let mut texts = unsafe { self.load_last::<K>(b) };
        each!(K, |i| {
            texts[i] = b.xor(texts[i], keystream[i]);
            if i + 2 >= K {
                texts[i] = b.first(texts[i], self.len_of(i));
            }
        });
        // SAFETY: as above.
        unsafe { self.store_last::<K>(b, texts) };
        let hash = self.hash_last(b, sum, texts, job);
        b.sum(b.xor(b.reverse(hash), mask))
    }

    /// Compares the tag with that behind the group, and decrypts the group if they are
    /// equal. Returns their [`difference`], and what else of the keystream is to be
    /// masked with.
    ///
    /// # Safety
    ///
    /// As [`store_last`](Self::store_last).
    #[inline(always)]
    unsafe fn open_last<const K: usize>(
        &mut self,
        b: B,
        sum: Sum<B::Vector>,
        job: &Job,
    ) -> (u64, B::Vector) {
        let lane = self.last_blocks();
        let mut keystream = self.last_counters::<K>(b);
        rounds_from(b, &self.key.cipher, 1, &mut keystream);
        let mask = b.only_lane(keystream[K - 1], lane);
        // SAFETY: the caller vouches for the text.
        let mut texts = unsafe { self.load_last::<K>(b) };
        let hash = self.hash_last(b, sum, texts, job);
        let tag = b.sum(b.xor(b.reverse(hash), mask));
        // SAFETY: the tag follows the text, of which so many bytes are left.
        let sent = unsafe { self.text.add(self.left).cast::<u128>().read_unaligned() };
        let difference = difference(tag, sent);
        // All ones if it is 0.
        let equal = ((difference | difference.wrapping_neg()) >> 63).wrapping_sub(1);
        let equal = b.splat_number(&(u128::from(equal) << 64 | u128::from(equal)));
        each!(K, |i| texts[i] =
            b.xor(texts[i], b.and(keystream[i], equal)));
        // SAFETY: as above.
        unsafe { self.store_last::<K>(b, texts) };
        (difference, equal)
    }

    /// Goes on with the counters of the text's group number `group`.
    #[inline(always)]
    fn count_from(&mut self, b: B, group: usize) {
        self.counter = 2 + (group * GROUP * B::LANES) as u32;
        self.counters = counters(b, &counter_blocks(self.counter));
    }

    /// Passes groups that are not the last.
    #[inline(always)]
    fn pass(&mut self, groups: usize) {
        let len = groups * GROUP * B::LANES * 16;
        self.text = self.text.wrapping_add(len);
        self.left -= len;
        self.vectors -= groups * GROUP;
    }
}

/// Calls a method of the packet for the number of vectors that are left.
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

/// Seals every job.
///
/// # Safety
///
/// The jobs must lie in `bytes`, and their keys be there. What lies `detached` must be that
/// of the only job.
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
    let tag_place = detached
        .tag
        .map_or(core::ptr::null_mut(), core::ptr::from_mut);
    for job in jobs {
        // SAFETY: the caller vouches for the job: for AAD and text, and the tag behind
        // the text. A group is taken from the text only where that has so much.
        unsafe {
            let mut packet = Packet::new(b, bytes, keys, job);
            let mut sum = packet.aad(b, aads, job);
            let tag = if !B::ONE_PASS && packet.is_long() {
                let (text, groups) = (packet.text, packet.groups());
                while packet.is_long() {
                    packet.seal_group(b, &mut sum, None);
                }
                sum = packet.hash_groups(b, sum, text, groups);
                last!(packet.seal_last(b, sum, None, job))
            } else if packet.is_long() {
                let mut before = packet.seal_group(b, &mut sum, None);
                while packet.is_long() {
                    before = packet.seal_group(b, &mut sum, Some(before));
                }
                last!(packet.seal_last(b, sum, Some(before), job))
            } else {
                last!(packet.seal_last(b, sum, None, job))
            };
            let place = match tag_place.is_null() {
                true => packet.text.add(packet.left),
                false => tag_place.cast(),
            };
            place.cast::<u128>().write_unaligned(tag.to_le());
        }
    }
}

/// Opens every job whose tag is right; the [`difference`] of the tags tells.
///
/// # Safety
///
/// As [`seal_all`].
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
    for (job, place) in jobs.iter().zip(differences) {
        // SAFETY: as in `seal_all`.
        unsafe {
            let mut packet = Packet::new(b, bytes, keys, job);
            let text = packet.text;
            let groups = packet.groups();
            let mut sum = packet.aad(b, aads, job);
            sum = packet.hash_groups(b, sum, text, groups);
            if groups > 0 {
                packet.pass(groups);
                packet.count_from(b, groups);
            }
            let (difference, equal) = last!(packet.open_last(b, sum, job));
            *place = difference;
            if groups > 0 {
                packet.text = text;
                packet.count_from(b, 0);
            }
            for _ in 0..groups {
                let mut keystream = packet.next_counters::<GROUP>(b);
                rounds_from(b, &packet.key.cipher, 1, &mut keystream);
                each!(GROUP, |i| {
                    let place = packet.text.add(i * 16 * B::LANES);
                    let keystream = b.and(keystream[i], equal);
                    b.store(b.xor(keystream, b.load(place)), place);
                });
                packet.text = packet.text.add(GROUP * B::LANES * 16);
            }
        }
    }
}
