//! AES-128-GCM and AES-256-GCM (NIST SP 800-38D) over a list of packets that lie in
//! one buffer, and the header masks of QUIC (RFC 9001, section 5.4.3).
//!
//! A packet's blocks lie in vectors of as many as the instruction set has lanes. Its
//! vectors are worked off in groups, [`GROUP`] of them and at last what is left: enough
//! that no round of AES waits for the one before. Of the packet's first counter block,
//! which encrypts the tag, and of the block of lengths, with which GHASH ends, each takes
//! the lane behind the last of the text.
//!
//! GHASH is a sum of products of blocks and powers of the hash key. The products of a
//! group are added up before they are reduced. In a group that is not the last, all lanes
//! of a vector are multiplied by the same power, and so the lanes are hashed apart; in
//! the last, each lane by its own, which brings them together.
//!
//! Packets are sealed one after the other: none is too short to fill the lanes with its
//! own blocks, and while the CPU waits for the tag of one it is busy with the next.
//! Sealing a long text, each group is hashed while the next is encrypted, or, where there
//! are not the registers for it, after all of them are.
//!
//! Opening, the tag is checked before anything is decrypted, and no branch depends on it:
//! where it is wrong the text is exclusive-ored with zeros in place of the keystream.

use crate::aes_portable;
use crate::isa::{AesSet, Aligned};
use crate::job::{Job, Nonce, Outcome, TAG_LEN, Work, difference, verdict_of};
use crate::vector::{AesBlocks, MAX_BLOCKS};

/// A block of AES: 16 bytes.
pub(crate) type Block = [u8; 16];

/// How many vectors make a group.
const GROUP: usize = 8;

/// How many powers of the hash key a [`GcmKey`] has: as many as the blocks of a last
/// group, which may be one vector longer, and of a vector of AAD before it.
pub(crate) const POWERS: usize = 4 * (GROUP + 2);

/// The powers, and zeros: what a vector of powers may reach beyond the last. There its
/// lanes meet zeros.
pub(crate) type Powers = [u128; POWERS + 3];

/// Round keys of AES (FIPS 197, section 5.2). Wiped on drop.
#[repr(align(16))]
pub(crate) struct RoundKeys {
    /// 11 or 15 of them, and zeros.
    pub(crate) keys: [Block; 15],
    rounds: u8,
}

impl RoundKeys {
    fn new<const N: usize>(key: &[u8; N]) -> Self {
        const { assert!(N == 16 || N == 32) };
        let mut keys = Self {
            keys: [[0; 16]; 15],
            rounds: const { (N / 4 + 6) as u8 },
        };
        best().expand(key, &mut keys.keys);
        keys
    }

    /// 10 or 14.
    #[inline(always)]
    pub(crate) fn rounds(&self) -> usize {
        self.rounds.into()
    }
}

impl Drop for RoundKeys {
    fn drop(&mut self) {
        self.keys = [[0; 16]; 15];
        zeroize::optimization_barrier(&self.keys);
    }
}

/// The most capable of the tables that this CPU has.
fn best() -> AesSet {
    AesSet::first(0).1
}

/// A key of AES-GCM, prepared for any [`Backend`](crate::Backend): round keys and
/// powers of the hash key, less than 1 KiB. Wiped on drop.
pub struct GcmKey {
    pub(crate) cipher: RoundKeys,
    /// Powers [`POWERS`] to 1 of the hash key H, so that neighbours are the factors of
    /// neighbouring blocks. Each is the block as a big-endian number, in which the
    /// bits of the polynomial stand in reverse, times x: the product of two such
    /// numbers has the bit of x^0 one place too low, and that makes up for it.
    pub(crate) powers: Powers,
}

impl GcmKey {
    /// Prepares a key of AES-128-GCM.
    #[must_use]
    pub fn aes128(key: &[u8; 16]) -> Self {
        Self::new(RoundKeys::new(key))
    }

    /// Prepares a key of AES-256-GCM.
    #[must_use]
    pub fn aes256(key: &[u8; 32]) -> Self {
        Self::new(RoundKeys::new(key))
    }

    fn new(cipher: RoundKeys) -> Self {
        let mut key = Self {
            cipher,
            powers: [0; POWERS + 3],
        };
        best().powers(&key.cipher, &mut key.powers);
        key
    }
}

impl Drop for GcmKey {
    fn drop(&mut self) {
        self.powers = [0; POWERS + 3];
        zeroize::optimization_barrier(&self.powers);
    }
}

/// A key of AES alone, prepared for any [`Backend`](crate::Backend). Wiped on drop.
pub struct AesKey(pub(crate) RoundKeys);

impl AesKey {
    /// Prepares a key of AES-128.
    #[must_use]
    pub fn aes128(key: &[u8; 16]) -> Self {
        Self(RoundKeys::new(key))
    }

    /// Prepares a key of AES-256.
    #[must_use]
    pub fn aes256(key: &[u8; 32]) -> Self {
        Self(RoundKeys::new(key))
    }
}

/// Where the mask of a header goes whose packet is sealed (RFC 9001, section 5.4): first
/// byte and packet number lie in the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Which bits are masked: in the lowest byte those of the first byte, in the four
    /// above those of the four bytes from the packet number on.
    pub bits: u64,
    /// Offset of the first byte in the buffer.
    pub first: u32,
    /// Offset of the packet number. The sample begins four bytes behind.
    pub number: u32,
    /// Index of the key.
    pub key: u32,
}

impl Header {
    /// The index of its key, and the offset of its sample.
    #[inline(always)]
    pub(crate) fn sample(&self) -> (u32, u32) {
        (self.key, self.number.wrapping_add(4))
    }

    /// Masks it, or takes the mask away.
    ///
    /// # Panics
    ///
    /// If it does not lie in the buffer.
    #[inline]
    pub fn mask(&self, bytes: &mut [u8], mask: u64) {
        assert!(self.is_in(bytes.len()), "a header outside its buffer");
        // SAFETY: just checked.
        unsafe { self.mask_in(bytes.as_mut_ptr(), mask) };
    }

    /// Whether first byte and packet number lie in a buffer of so many bytes.
    #[inline(always)]
    fn is_in(&self, len: usize) -> bool {
        (self.first as usize) < len && u64::from(self.number) + 4 <= len as u64
    }

    /// As [`mask`](Self::mask).
    ///
    /// # Safety
    ///
    /// It must lie in the buffer that begins at `bytes`.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "a part is meant")]
    unsafe fn mask_in(&self, bytes: *mut u8, mask: u64) {
        let mask = mask & self.bits;
        // SAFETY: the caller vouches for it.
        unsafe {
            *bytes.add(self.first as usize) ^= mask as u8;
            let number = bytes.add(self.number as usize).cast::<u32>();
            number.write_unaligned(number.read_unaligned() ^ ((mask >> 8) as u32).to_le());
        }
    }
}

/// Where AAD and tag of a single packet lie that lie elsewhere than its text, if they do.
#[derive(Default)]
pub(crate) struct Apart<'a> {
    pub(crate) aad: Option<&'a [u8]>,
    /// A tag to be written: one that is checked is behind the text.
    pub(crate) tag: Option<&'a mut Block>,
}

/// # Panics
///
/// If a job lies outside a buffer of `len` bytes or names a key that is not there.
fn check(len: usize, keys: &[&GcmKey], jobs: &[Job]) {
    let (mut text_end, mut aad_end, mut key) = (0, 0, 0);
    for job in jobs {
        text_end = text_end.max(u64::from(job.text) + u64::from(job.text_len));
        aad_end = aad_end.max(u64::from(job.aad) + u64::from(job.aad_len));
        key = key.max(job.key);
    }
    let end = aad_end.max(text_end + TAG_LEN as u64);
    let inside = jobs.is_empty() || end <= len as u64 && (key as usize) < keys.len();
    assert!(inside, "a job outside its buffer, or without its key");
}

/// See [`crate::Backend::gcm_seal`].
#[inline]
pub(crate) fn seal(set: AesSet, work: Work<'_, &[&GcmKey]>) {
    let Work {
        bytes,
        secrets: keys,
        jobs,
        outcomes,
    } = work;
    let outcomes = &mut outcomes[..jobs.len()];
    check(bytes.len(), keys, jobs);
    // SAFETY: just checked.
    unsafe { set.seal(bytes, Apart::default(), keys, jobs) };
    outcomes.fill(Outcome::Sealed);
}

/// The job of a packet that is alone, whose text begins its buffer.
///
/// # Panics
///
/// If it is longer than a job can say.
#[inline]
fn alone(nonce: &Nonce, aad: &[u8], text_len: usize) -> Job {
    let len = |len: usize| u32::try_from(len).expect("no packet is so long");
    Job {
        text_len: len(text_len),
        aad_len: len(aad.len()),
        nonce: *nonce,
        ..Job::default()
    }
}

/// See [`crate::Backend::gcm_seal_detached`].
#[inline]
pub(crate) fn seal_detached(
    set: AesSet,
    key: &GcmKey,
    nonce: &Nonce,
    aad: &[u8],
    text: &mut [u8],
) -> Block {
    let job = alone(nonce, aad, text.len());
    let mut tag = [0; 16];
    let apart = Apart {
        aad: Some(aad),
        tag: Some(&mut tag),
    };
    // SAFETY: the job is all of the text and of the AAD.
    unsafe { set.seal(text, apart, &[key], &[job]) };
    tag
}

/// See [`crate::Backend::gcm_open_detached`].
#[inline]
pub(crate) fn open_detached(
    set: AesSet,
    key: &GcmKey,
    nonce: &Nonce,
    aad: &[u8],
    text_and_tag: &mut [u8],
) -> Outcome {
    let Some(text_len) = text_and_tag.len().checked_sub(TAG_LEN) else {
        return Outcome::BadTag;
    };
    let job = alone(nonce, aad, text_len);
    let apart = Apart {
        aad: Some(aad),
        tag: None,
    };
    let mut difference = [0];
    // SAFETY: the job is all of the text with the tag behind it, and of the AAD.
    unsafe { set.open(text_and_tag, apart, &[key], &[job], &mut difference) };
    verdict_of(difference[0])
}

/// See [`crate::Backend::gcm_open`].
#[inline]
pub(crate) fn open(set: AesSet, work: Work<'_, &[&GcmKey]>) {
    /// How many are opened at a time.
    const SOME: usize = 64;
    let Work {
        bytes,
        secrets: keys,
        jobs,
        outcomes,
    } = work;
    let outcomes = &mut outcomes[..jobs.len()];
    check(bytes.len(), keys, jobs);
    for (jobs, outcomes) in jobs.chunks(SOME).zip(outcomes.chunks_mut(SOME)) {
        let differences = &mut [0; SOME][..jobs.len()];
        // SAFETY: just checked.
        unsafe { set.open(bytes, Apart::default(), keys, jobs, differences) };
        // All at once, as they nearly always are.
        let any = differences
            .iter()
            .fold(0, |any, difference| any | *difference);
        if verdict_of(any) == Outcome::Authentic {
            outcomes.fill(Outcome::Authentic);
            continue;
        }
        for (outcome, difference) in outcomes.iter_mut().zip(differences) {
            *outcome = verdict_of(*difference);
        }
    }
}

/// Does something for each `i` from 0 to below `$n`, a constant of at most nine: nine
/// times written out, as the compiler would leave arrays in memory for a loop that it
/// does not unroll in time.
macro_rules! each {
    ($n:expr, |$i:ident| $body:expr) => {
        each!(@ $n, $i, $body, 0 1 2 3 4 5 6 7 8)
    };
    (@ $n:expr, $i:ident, $body:expr, $($number:literal)*) => {
        $(if $number < $n {
            #[allow(unused_variables, reason = "not every body counts")]
            let $i: usize = $number;
            $body;
        })*
    };
}

/// Encrypts blocks in place (FIPS 197, section 5.1): those of `K` vectors under one key.
#[inline(always)]
fn encrypt<B: AesBlocks, const K: usize>(b: B, key: &RoundKeys, states: &mut [B::Vector; K]) {
    let round_key = b.splat(&key.keys[0]);
    each!(K, |i| states[i] = b.xor(states[i], round_key));
    rounds_from(b, key, 1, states);
}

/// The rounds of AES from `first` on.
#[inline(always)]
fn rounds_from<B: AesBlocks, const K: usize>(
    b: B,
    key: &RoundKeys,
    first: usize,
    states: &mut [B::Vector; K],
) {
    // Written out: a loop is had sooner only by who knows how often it runs.
    macro_rules! rounds {
        ($($round:literal)*) => {
            $(if $round >= first {
                let round_key = b.splat(&key.keys[$round]);
                each!(K, |i| states[i] = b.round(states[i], round_key));
            })*
        };
    }
    rounds!(1 2 3 4 5 6 7 8 9);
    let mut last = &key.keys[10];
    if key.rounds() == 14 {
        rounds!(10 11 12 13);
        last = &key.keys[14];
    }
    let round_key = b.splat(last);
    each!(K, |i| states[i] = b.last_round(states[i], round_key));
}

/// A sum of products that are not reduced: in each lane a polynomial of 256 bits, as the
/// products of the low halves, of the high ones, and of one's low with the other's high; or
/// in Karatsuba's way, with one multiplication less, of the sums of halves instead of these.
#[derive(Clone, Copy)]
struct Sum<V> {
    low: V,
    high: V,
    middle: V,
}

impl<V: Copy> Sum<V> {
    #[inline(always)]
    fn zero<B: AesBlocks<Vector = V>>(b: B) -> Self {
        Self {
            low: b.zero(),
            high: b.zero(),
            middle: b.zero(),
        }
    }

    /// Adds the product of blocks, their bytes in reverse, and powers.
    #[inline(always)]
    fn add<B: AesBlocks<Vector = V>>(&mut self, b: B, blocks: V, powers: V) {
        self.low = b.xor(self.low, b.carry_less::<0x00>(blocks, powers));
        self.high = b.xor(self.high, b.carry_less::<0x11>(blocks, powers));
        if B::KARATSUBA {
            let halves = b.xor(blocks, b.swap(blocks));
            let factors = b.xor(powers, b.swap(powers));
            self.middle = b.xor(self.middle, b.carry_less::<0x00>(halves, factors));
            return;
        }
        let low_high = b.carry_less::<0x01>(blocks, powers);
        let high_low = b.carry_less::<0x10>(blocks, powers);
        self.middle = b.xor(self.middle, b.xor(low_high, high_low));
    }

    /// The blocks, their bytes in reverse, that are equal to the sum in the field (SP
    /// 800-38D, section 6.3).
    #[inline(always)]
    fn reduced<B: AesBlocks<Vector = V>>(self, b: B) -> V {
        /// x^63 + x^62 + x^57: the upper half of the field's polynomial, its bits in
        /// reverse; its lower half is 1.
        const FOLD: u128 = 0xc200_0000_0000_0000;
        // Adds multiples of the polynomial that clear the lowest 64 bits, and the next.
        let fold = b.splat_number(&FOLD);
        let folded = b.xor(b.swap(self.low), b.carry_less::<0x00>(self.low, fold));
        // What lies half over the low and half over the high part.
        let mut middle = b.xor(self.middle, folded);
        if B::KARATSUBA {
            middle = b.xor(middle, b.xor(self.low, self.high));
        }
        let folded = b.xor(b.swap(middle), b.carry_less::<0x00>(middle, fold));
        b.xor(self.high, folded)
    }
}

/// Power `n` of the hash key in the first lane, and those below in the next.
#[inline(always)]
fn powers_from<B: AesBlocks>(b: B, key: &GcmKey, n: usize) -> B::Vector {
    b.numbers(&key.powers[POWERS - n..][..B::LANES])
}

/// Power `n` of the hash key in all lanes.
#[inline(always)]
fn power_of<B: AesBlocks>(b: B, powers: &Powers, n: usize) -> B::Vector {
    b.splat_number(&powers[POWERS - n])
}

/// A counter as it stands in its block, behind the nonce (SP 800-38D, section 7.1).
#[inline(always)]
const fn counter_block(counter: u32) -> Block {
    (counter as u128).to_be_bytes()
}

/// As many as any vector has, from `counter` on.
#[inline(always)]
const fn counter_blocks(counter: u32) -> [Block; MAX_BLOCKS] {
    let mut blocks = [[0; 16]; MAX_BLOCKS];
    let mut lane = 0;
    while lane < MAX_BLOCKS {
        blocks[lane] = counter_block(counter.wrapping_add(lane as u32));
        lane += 1;
    }
    blocks
}

/// The same as a vector.
#[inline(always)]
fn counters<B: AesBlocks>(b: B, blocks: &[Block; MAX_BLOCKS]) -> B::Vector {
    // SAFETY: these are as many blocks as any vector has.
    unsafe { b.load(blocks.as_ptr().cast()) }
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
/// The jobs must lie in `bytes`, and their keys be there. What lies `apart` must be that
/// of the only job.
#[inline(always)]
pub(crate) unsafe fn seal_all<B: AesBlocks>(
    b: B,
    bytes: &mut [u8],
    apart: Apart<'_>,
    keys: &[&GcmKey],
    jobs: &[Job],
) {
    let bytes = bytes.as_mut_ptr();
    let aads = apart.aad.map_or(bytes.cast_const(), <[u8]>::as_ptr);
    let tag_place = apart.tag.map_or(core::ptr::null_mut(), core::ptr::from_mut);
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

/// See [`crate::Backend::aes_mask_headers`].
#[inline(always)]
pub(crate) fn mask_all<B: AesBlocks>(b: B, bytes: &mut [u8], keys: &[&AesKey], headers: &[Header]) {
    // The sample is the last of what is touched, and the first byte before it.
    let sample_end = 4 + size_of::<Block>() as u64;
    let len = bytes.len() as u64;
    let is_inside = |header: &Header| {
        header.first <= header.number && u64::from(header.number) + sample_end <= len
    };
    let place = bytes.as_mut_ptr();
    // SAFETY: header and sample are looked after.
    let mask_in = |_, header: &Header, mask| unsafe { header.mask_in(place, mask) };
    // SAFETY: as above.
    unsafe { each_mask(b, place, keys, headers, is_inside, Header::sample, mask_in) };
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
    apart: Apart<'_>,
    keys: &[&GcmKey],
    jobs: &[Job],
    differences: &mut [u64],
) {
    let bytes = bytes.as_mut_ptr();
    let aads = apart.aad.map_or(bytes.cast_const(), <[u8]>::as_ptr);
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

/// See [`crate::Backend::aes_masks`]; `masks` are as many as the samples.
#[inline(always)]
pub(crate) fn all_masks<B: AesBlocks>(
    b: B,
    bytes: &[u8],
    keys: &[&AesKey],
    samples: &[(u32, u32)],
    masks: &mut [u64],
) {
    let len = bytes.len() as u64;
    let is_inside = |sample: &(u32, u32)| u64::from(sample.1) + size_of::<Block>() as u64 <= len;
    let write = |place: usize, _: &_, mask| masks[place] = mask;
    // SAFETY: the samples are looked after.
    unsafe {
        each_mask(
            b,
            bytes.as_ptr(),
            keys,
            samples,
            is_inside,
            |sample| *sample,
            write,
        )
    };
}

/// Calls `then` with the place of each in the list, itself, and its mask; `sample` gives
/// the index of its key and the offset of its sample. Neighbours' samples are read before.
///
/// # Panics
///
/// If a key is not there, or a sample not inside.
///
/// # Safety
///
/// A sample must be readable if it `is_inside`.
#[inline(always)]
unsafe fn each_mask<B: AesBlocks, S>(
    b: B,
    bytes: *const u8,
    keys: &[&AesKey],
    list: &[S],
    is_inside: impl Fn(&S) -> bool,
    sample: impl Fn(&S) -> (u32, u32),
    mut then: impl FnMut(usize, &S, u64),
) {
    let mut place = 0;
    // SAFETY: the caller vouches for the samples.
    unsafe {
        while let Some(some) = list[place..].get(..MAX_BLOCKS) {
            let some = (place, some);
            match B::LANES {
                4 => some_masks::<_, _, 1>(b, bytes, keys, some, &is_inside, &sample, &mut then),
                2 => some_masks::<_, _, 2>(b, bytes, keys, some, &is_inside, &sample, &mut then),
                _ => some_masks::<_, _, 4>(b, bytes, keys, some, &is_inside, &sample, &mut then),
            }
            place += MAX_BLOCKS;
        }
        while let Some(one) = list[place..].get(..1) {
            let one = (place, one);
            some_masks::<_, _, 1>(b, bytes, keys, one, &is_inside, &sample, &mut then);
            place += 1;
        }
    }
}

/// The same for some: as many as `K` vectors have lanes are beside each other where they
/// have one key.
///
/// # Safety
///
/// As [`each_mask`].
#[inline(always)]
unsafe fn some_masks<B: AesBlocks, S, const K: usize>(
    b: B,
    bytes: *const u8,
    keys: &[&AesKey],
    (place, list): (usize, &[S]),
    is_inside: impl Fn(&S) -> bool,
    sample: impl Fn(&S) -> (u32, u32),
    mut then: impl FnMut(usize, &S, u64),
) {
    const { assert!(B::LANES <= MAX_BLOCKS) };
    let mut inside = true;
    let mut differ = 0;
    for one in list {
        inside &= is_inside(one);
        differ |= sample(one).0 ^ sample(&list[0]).0;
    }
    assert!(inside, "a header or its sample outside the buffer");
    // SAFETY: it is 16 bytes, which need no alignment, and the caller vouches for them.
    let block = |one: &S| unsafe { &*bytes.add(sample(one).1 as usize).cast::<Block>() };
    let mut encrypted = Aligned([[0_u64; 2]; MAX_BLOCKS]);
    if list.len() == K * B::LANES && differ == 0 {
        let mut states = [b.zero(); K];
        for (state, list) in states.iter_mut().zip(list.chunks_exact(B::LANES)) {
            let mut blocks = [block(&list[0]); MAX_BLOCKS];
            for (place, one) in blocks.iter_mut().zip(list) {
                *place = block(one);
            }
            *state = b.gather(&blocks, 0);
        }
        encrypt(b, &keys[sample(&list[0]).0 as usize].0, &mut states);
        for (state, place) in states.iter().zip(encrypted.0.chunks_exact_mut(B::LANES)) {
            // SAFETY: the array has room for a vector.
            unsafe { b.store(*state, place.as_mut_ptr().cast()) };
        }
        for (i, (one, block)) in list.iter().zip(&encrypted.0).enumerate() {
            then(place + i, one, u64::from_le(block[0]));
        }
        return;
    }
    // A vector for each takes no longer than to gather the lanes' round keys.
    for (i, one) in list.iter().enumerate() {
        let mut states = [b.splat(block(one))];
        encrypt(b, &keys[sample(one).0 as usize].0, &mut states);
        // SAFETY: as above.
        unsafe { b.store(states[0], encrypted.0.as_mut_ptr().cast()) };
        then(place + i, one, u64::from_le(encrypted.0[0][0]));
    }
}

/// The powers of the hash key in the form of [`GcmKey`].
#[inline(always)]
pub(crate) fn powers<B: AesBlocks>(b: B, keys: &RoundKeys, powers: &mut Powers) {
    const { assert!(POWERS.is_multiple_of(B::LANES)) };
    let mut states = [b.zero()];
    encrypt(b, keys, &mut states);
    let hash_key = b.sum(b.only_lane(states[0], 0)).swap_bytes();
    // The last vector one by one, and each before from that behind it.
    powers[POWERS - 1] = aes_portable::first_power(hash_key);
    let mut factor = b.splat_number(&powers[POWERS - 1]);
    for n in 2..=B::LANES {
        let power = product(b, b.splat_number(&powers[POWERS - n + 1]), factor);
        powers[POWERS - n] = b.sum(b.only_lane(power, 0));
    }
    factor = power_of(b, powers, B::LANES);
    let mut vector = b.numbers(&powers[POWERS - B::LANES..]);
    let (vectors, _) = powers.split_at_mut(POWERS - B::LANES);
    for place in vectors.rchunks_exact_mut(B::LANES) {
        vector = product(b, vector, factor);
        // SAFETY: as many numbers as a vector has.
        unsafe { b.store(vector, place.as_mut_ptr().cast()) };
    }
}

#[inline(always)]
fn product<B: AesBlocks>(b: B, blocks: B::Vector, powers: B::Vector) -> B::Vector {
    let mut sum = Sum::zero(b);
    sum.add(b, blocks, powers);
    sum.reduced(b)
}

/// What [`expand`] asks of an instruction set.
pub(crate) trait SubWord: Copy {
    /// The S-box (FIPS 197, section 5.1.1) of four bytes.
    fn sub_word(self, word: u32) -> u32;
}

/// A last round leaves columns that are alike where they are, as it exchanges only bytes
/// of one row.
impl<B: AesBlocks> SubWord for B {
    #[inline(always)]
    fn sub_word(self, word: u32) -> u32 {
        let columns = self.splat_number(&(u128::from(word) * 0x1_0000_0001_0000_0001_0000_0001));
        self.sum(self.only_lane(self.last_round(columns, self.zero()), 0)) as u32
    }
}

/// Expands a key of 16 or 32 bytes to 11 or 15 round keys (FIPS 197, section 5.2).
#[inline(always)]
pub(crate) fn expand<S: SubWord>(s: S, key: &[u8], keys: &mut [Block; 15]) {
    let (words, _) = keys.as_flattened_mut().as_chunks_mut::<4>();
    let given = key.len() / 4;
    words[..given].copy_from_slice(key.as_chunks().0);
    let mut last = u32::from_le_bytes(words[given - 1]);
    let mut constant = 1_u8;
    for i in given..4 * (given + 7) {
        if i % given == 0 {
            last = s.sub_word(last.rotate_right(8)) ^ u32::from(constant);
            // Not secret: 1, 2, 4, ..., 0x80, 0x1b, 0x36.
            constant = (constant << 1) ^ ((constant >> 7) * 0x1b);
        } else if i % given == 4 {
            last = s.sub_word(last);
        }
        last ^= u32::from_le_bytes(words[i - given]);
        words[i] = last.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the text begins: room for AAD longer than there are powers for.
    const TEXT: usize = 1000;

    const SIZE: usize = TEXT + 1800;

    /// A packet of every length in either direction, masks and keys, by the instructions
    /// of each table: those that no backend takes on this CPU are run nowhere else.
    #[test]
    fn every_table_does_what_the_portable_one_does() {
        let (_, portable) = AesSet::first(AesSet::PORTABLE);
        let sets = (0..AesSet::ALL.len()).filter_map(|place| {
            let (found, set) = AesSet::first(place);
            (found == place).then_some(set)
        });
        for set in sets {
            let raw: [u8; 32] = core::array::from_fn(|i| (i * 29) as u8);
            let (short, long) = (GcmKey::aes128(&[9; 16]), GcmKey::aes256(&raw));
            for key in [&short, &long] {
                for set in [set, portable] {
                    let mut keys = [[0; 16]; 15];
                    let raw = if key.cipher.rounds() == 10 {
                        &[9; 16][..]
                    } else {
                        &raw
                    };
                    set.expand(raw, &mut keys);
                    assert_eq!(keys, key.cipher.keys);
                    let mut powers = [0; POWERS + 3];
                    set.powers(&key.cipher, &mut powers);
                    assert_eq!(powers, key.powers);
                }
            }
            for len in 0..1700_usize {
                let job = Job {
                    text: TEXT as u32,
                    text_len: len as u32,
                    aad: 1,
                    aad_len: len as u32 * 7 % 999,
                    key: len as u32 % 2,
                    nonce: [len as u8; 12],
                    ..Job::default()
                };
                let plain: [u8; SIZE] = core::array::from_fn(|i| (i * i / 7 + len) as u8);
                let (mut ours, mut theirs) = (plain, plain);
                let outcome = &mut [Outcome::Pending];
                seal(
                    set,
                    Work {
                        bytes: &mut ours,
                        secrets: &[&short, &long],
                        jobs: &[job],
                        outcomes: outcome,
                    },
                );
                seal(
                    portable,
                    Work {
                        bytes: &mut theirs,
                        secrets: &[&short, &long],
                        jobs: &[job],
                        outcomes: outcome,
                    },
                );
                assert_eq!(ours, theirs, "{len}");
                let sealed = ours;
                open(
                    set,
                    Work {
                        bytes: &mut ours,
                        secrets: &[&short, &long],
                        jobs: &[job],
                        outcomes: outcome,
                    },
                );
                assert_eq!(outcome, &[Outcome::Authentic]);
                assert_eq!(ours[..TEXT + len], plain[..TEXT + len], "{len}");
                ours = sealed;
                ours[TEXT + len + len % 16] ^= 0x10;
                open(
                    set,
                    Work {
                        bytes: &mut ours,
                        secrets: &[&short, &long],
                        jobs: &[job],
                        outcomes: outcome,
                    },
                );
                assert_eq!(outcome, &[Outcome::BadTag]);
                assert_eq!(ours[..TEXT + len], sealed[..TEXT + len], "{len}");
            }
            let keys = [
                AesKey::aes128(&[3; 16]),
                AesKey::aes128(&[4; 16]),
                AesKey::aes256(&raw),
            ];
            let keys = [&keys[0], &keys[1], &keys[2]];
            for count in 0..70 {
                for some in 1..=3 {
                    let bytes: [u8; 100] = core::array::from_fn(|i| i as u8);
                    let samples: [_; 70] =
                        core::array::from_fn(|i| (i as u32 / 5 % some, i as u32 * 6 / 5));
                    let (mut ours, mut theirs) = ([0; 70], [0; 70]);
                    set.masks(&bytes, &keys, &samples[..count], &mut ours);
                    portable.masks(&bytes, &keys, &samples[..count], &mut theirs);
                    assert_eq!(ours, theirs);
                }
            }
        }
    }
}
