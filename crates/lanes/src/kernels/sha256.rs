//! SHA-256 (FIPS 180-4): one message per lane, or one by one.
//!
//! ```text
//! for each block of 64 bytes:
//!     w[0..16] = the block as big-endian words, w[16..64] = the message schedule
//!     64 rounds over the state a..h with w[t] + K[t]
//!     state += a..h
//! ```
//!
//! A message's blocks depend on each other, so each lane has a message of its own
//! ([`run`]). [`hash_fixed`] is for messages of 32 or 64 bytes; [`Serial`] for one message
//! or two by themselves.
//!
//! This is for public data: nothing is wiped.

use crate::job::Digest;
use crate::vector::{Arithmetic, MAX_LANES, Scalar, U32Lanes};

/// Length of a block, in bytes.
pub(crate) const BLOCK_LEN: usize = 64;

/// The round constants (section 4.2.2).
pub(crate) const K: [u32; 64] = [
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
    0x2431_85be,
    0x550c_7dc3,
    0x72be_5d74,
    0x80de_b1fe,
    0x9bdc_06a7,
    0xc19b_f174,
    0xe49b_69c1,
    0xefbe_4786,
    0x0fc1_9dc6,
    0x240c_a1cc,
    0x2de9_2c6f,
    0x4a74_84aa,
    0x5cb0_a9dc,
    0x76f9_88da,
    0x983e_5152,
    0xa831_c66d,
    0xb003_27c8,
    0xbf59_7fc7,
    0xc6e0_0bf3,
    0xd5a7_9147,
    0x06ca_6351,
    0x1429_2967,
    0x27b7_0a85,
    0x2e1b_2138,
    0x4d2c_6dfc,
    0x5338_0d13,
    0x650a_7354,
    0x766a_0abb,
    0x81c2_c92e,
    0x9272_2c85,
    0xa2bf_e8a1,
    0xa81a_664b,
    0xc24b_8b70,
    0xc76c_51a3,
    0xd192_e819,
    0xd699_0624,
    0xf40e_3585,
    0x106a_a070,
    0x19a4_c116,
    0x1e37_6c08,
    0x2748_774c,
    0x34b0_bcb5,
    0x391c_0cb3,
    0x4ed8_aa4a,
    0x5b9c_ca4f,
    0x682e_6ff3,
    0x748f_82ee,
    0x78a5_636f,
    0x84c8_7814,
    0x8cc7_0208,
    0x90be_fffa,
    0xa450_6ceb,
    0xbef9_a3f7,
    0xc671_78f2,
];

/// The first state (section 5.3.3).
pub(crate) const START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// What the rounds of the second block of a message of 64 bytes add: round constants
/// and message schedule. That block is the same for all: padding.
pub(crate) const PADDING_64: [u32; 64] = {
    let mut w = [0_u32; 64];
    w[0] = 1 << 31;
    w[15] = 512;
    let mut t = 16;
    while t < 64 {
        let (a, b) = (w[t - 15], w[t - 2]);
        w[t] = w[t - 16]
            .wrapping_add(a.rotate_right(7) ^ a.rotate_right(18) ^ a >> 3)
            .wrapping_add(w[t - 7])
            .wrapping_add(b.rotate_right(17) ^ b.rotate_right(19) ^ b >> 10);
        t += 1;
    }
    t = 0;
    while t < 64 {
        w[t] = w[t].wrapping_add(K[t]);
        t += 1;
    }
    w
};

/// The sums of section 4.1.2. (Rotations to the left; 32 - n of its numbers.)
macro_rules! sum {
    ($v:ident, $x:expr, $a:literal, $b:literal, $c:literal) => {{
        let x = $x;
        $v.xor(
            $v.xor($v.rotate_left::<$a>(x), $v.rotate_left::<$b>(x)),
            $v.rotate_left::<$c>(x),
        )
    }};
    ($v:ident, $x:expr, $a:literal, $b:literal, shift $c:literal) => {{
        let x = $x;
        $v.xor(
            $v.xor($v.rotate_left::<$a>(x), $v.rotate_left::<$b>(x)),
            $v.shift_right::<$c>(x),
        )
    }};
}

/// One round: from constant and message word, of which `kw` is the sum.
macro_rules! round {
    ($v:ident, $a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident, $kw:expr) => {
        let early = $v.add($h, $kw);
        let chosen = $v.choose($e, $f, $g);
        let sum = sum!($v, $e, 26, 21, 7);
        let t = $v.hidden($v.add($v.hidden($v.add(early, chosen)), sum));
        $d = $v.add($v.hidden($v.add($v.hidden($v.add($d, early)), chosen)), sum);
        $h = $v.add(
            $v.hidden($v.add(t, $v.majority($a, $b, $c))),
            sum!($v, $a, 30, 19, 10),
        );
    };
}

/// Sixteen rounds, each with what `$kw` makes of its number. (Written out, since the
/// compiler leaves arrays in memory whose index it learns late.)
macro_rules! sixteen_rounds {
    ($v:ident, $s:ident, |$j:ident| $kw:expr) => {{
        macro_rules! kw {
            ($n:expr) => {{
                const $j: usize = $n;
                $kw
            }};
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = $s;
        round!($v, a b c d e f g h, kw!(0));
        round!($v, h a b c d e f g, kw!(1));
        round!($v, g h a b c d e f, kw!(2));
        round!($v, f g h a b c d e, kw!(3));
        round!($v, e f g h a b c d, kw!(4));
        round!($v, d e f g h a b c, kw!(5));
        round!($v, c d e f g h a b, kw!(6));
        round!($v, b c d e f g h a, kw!(7));
        round!($v, a b c d e f g h, kw!(8));
        round!($v, h a b c d e f g, kw!(9));
        round!($v, g h a b c d e f, kw!(10));
        round!($v, f g h a b c d e, kw!(11));
        round!($v, e f g h a b c d, kw!(12));
        round!($v, d e f g h a b c, kw!(13));
        round!($v, c d e f g h a b, kw!(14));
        round!($v, b c d e f g h a, kw!(15));
        $s = [a, b, c, d, e, f, g, h];
    }};
}

/// The state after one more block (section 6.2.2).
#[inline(always)]
pub(crate) fn compress<A: Arithmetic>(
    v: A,
    state: [A::Word; 8],
    mut w: [A::Word; 16],
) -> [A::Word; 8] {
    let mut s = state;
    for k in K.as_chunks::<16>().0.iter().take(3) {
        sixteen_rounds!(v, s, |J| {
            let kw = v.add(w[J], v.splat(k[J]));
            // The message word of sixteen rounds later.
            let small = v.add(w[J], sum!(v, w[(J + 1) % 16], 25, 14, shift 3));
            let large = v.add(w[(J + 9) % 16], sum!(v, w[(J + 14) % 16], 15, 13, shift 10));
            w[J] = v.add(small, large);
            kw
        });
    }
    sixteen_rounds!(v, s, |J| v.add(w[J], v.splat(K[48 + J])));
    sum_of_states(v, s, state)
}

/// The state after a block that is the same in all lanes: `kw` is its schedule and
/// the round constants.
#[inline(always)]
fn compress_constant<A: Arithmetic>(v: A, state: [A::Word; 8], kw: &[u32; 64]) -> [A::Word; 8] {
    let mut s = state;
    for kw in kw.as_chunks::<16>().0 {
        sixteen_rounds!(v, s, |J| v.splat(kw[J]));
    }
    sum_of_states(v, s, state)
}

#[inline(always)]
fn sum_of_states<A: Arithmetic>(v: A, mut s: [A::Word; 8], t: [A::Word; 8]) -> [A::Word; 8] {
    for i in 0..8 {
        s[i] = v.add(s[i], t[i]);
    }
    s
}

#[inline(always)]
fn start<A: Arithmetic>(v: A) -> [A::Word; 8] {
    let mut s = [v.splat(0); 8];
    for i in 0..8 {
        s[i] = v.splat(START[i]);
    }
    s
}

/// The block that a digest, padded, is.
#[inline(always)]
fn digest_block<A: Arithmetic>(v: A, digest: [A::Word; 8]) -> [A::Word; 16] {
    let mut w = [v.splat(0); 16];
    w[..8].copy_from_slice(&digest);
    w[8] = v.splat(1 << 31);
    w[15] = v.splat(256);
    w
}

/// A message's state, and where its next blocks lie.
pub(crate) struct Stream {
    pub(crate) state: [u32; 8],
    pub(crate) place: *const u8,
}

/// Kernels that take messages one by one.
///
/// They must only be called where the CPU has their instructions. Of what they are
/// given pointers to, as many blocks, messages and digests as they are told must be
/// there.
pub(crate) struct Serial {
    /// Hashes as many blocks of a message.
    pub(crate) one: unsafe fn(&mut Stream, usize),
    /// Hashes as many blocks of each of two messages.
    pub(crate) two: unsafe fn(&mut Stream, &mut Stream, usize),
    /// The double hash of as many messages of 64 bytes. The digests may be written
    /// where the messages lie, the first where the first one begins.
    pub(crate) hash64: unsafe fn(*const [u8; 64], *mut Digest, usize),
    /// The hash of as many messages of 32 bytes, likewise.
    pub(crate) hash32: unsafe fn(*const [u8; 32], *mut Digest, usize),
}

/// In plain Rust.
pub(crate) static SCALAR: Serial = {
    unsafe fn one(stream: &mut Stream, blocks: usize) {
        for _ in 0..blocks {
            // SAFETY: the caller vouches for the block.
            let w = unsafe { words(stream.place) };
            stream.state = compress(Scalar, stream.state, w);
            stream.place = stream.place.wrapping_add(BLOCK_LEN);
        }
    }

    unsafe fn two(a: &mut Stream, b: &mut Stream, blocks: usize) {
        // SAFETY: the caller vouches for the blocks.
        unsafe {
            one(a, blocks);
            one(b, blocks);
        }
    }

    unsafe fn hash64(messages: *const [u8; 64], digests: *mut Digest, count: usize) {
        for i in 0..count {
            // SAFETY: the caller vouches for the message and the digest.
            unsafe {
                let w = words(messages.add(i).cast());
                let s = compress(Scalar, START, w);
                let s = compress_constant(Scalar, s, &PADDING_64);
                let s = compress(Scalar, START, digest_block(Scalar, s));
                digests.add(i).write(digest(s));
            }
        }
    }

    unsafe fn hash32(messages: *const [u8; 32], digests: *mut Digest, count: usize) {
        for i in 0..count {
            // SAFETY: the caller vouches for the message and the digest.
            unsafe {
                let mut w = [0; 8];
                for (word, bytes) in w.iter_mut().zip((*messages.add(i)).as_chunks().0) {
                    *word = u32::from_be_bytes(*bytes);
                }
                let s = compress(Scalar, START, digest_block(Scalar, w));
                digests.add(i).write(digest(s));
            }
        }
    }

    /// # Safety
    ///
    /// The block must be readable.
    unsafe fn words(block: *const u8) -> [u32; 16] {
        // SAFETY: the caller vouches for it; bytes need no alignment.
        let block = unsafe { &*block.cast::<[u8; BLOCK_LEN]>() };
        let mut w = [0; 16];
        for (word, bytes) in w.iter_mut().zip(block.as_chunks().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        w
    }

    Serial {
        one,
        two,
        hash64,
        hash32,
    }
};

/// The bytes of a state.
pub(crate) fn digest(state: [u32; 8]) -> Digest {
    let mut digest = [0; 32];
    for (bytes, word) in digest.as_chunks_mut().0.iter_mut().zip(state) {
        *bytes = word.to_be_bytes();
    }
    digest
}

/// [`Stream`]s, one for each lane: lane `l` of `state[i]` is word `i` of its state,
/// `left[l]` says how many blocks there are from `places[l]` on.
#[repr(align(64))]
pub(crate) struct Lanes {
    state: [[u32; MAX_LANES]; 8],
    pub(crate) places: [*const u8; MAX_LANES],
    pub(crate) left: [usize; MAX_LANES],
}

impl Lanes {
    /// As many blocks in every lane, behind `place`.
    pub(crate) fn all(place: *const u8, blocks: usize) -> Self {
        Self {
            state: START.map(|word| [word; MAX_LANES]),
            places: [place; MAX_LANES],
            left: [blocks; MAX_LANES],
        }
    }

    pub(crate) fn state(&self, lane: usize) -> [u32; 8] {
        let mut state = [0; 8];
        for (word, words) in state.iter_mut().zip(&self.state) {
            *word = words[lane];
        }
        state
    }

    pub(crate) fn set_state(&mut self, lane: usize, state: [u32; 8]) {
        for (words, word) in self.state.iter_mut().zip(state) {
            words[lane] = word;
        }
    }

    /// Makes a lane do what another one does.
    pub(crate) fn copy(&mut self, from: usize, to: usize) {
        self.set_state(to, self.state(from));
        self.places[to] = self.places[from];
        self.left[to] = self.left[from];
    }
}

/// Hashes blocks of the message in each lane, until of one there are none left: says
/// of which, a bit each.
///
/// # Safety
///
/// As many blocks as `left` says must be readable at each of `places`.
#[inline(always)]
pub(crate) unsafe fn run<V: U32Lanes>(v: V, lanes: &mut Lanes) -> u32 {
    let mut blocks = usize::MAX;
    for &left in &lanes.left[..V::LANES] {
        blocks = blocks.min(left);
    }
    let mut s = [v.splat(0); 8];
    for (s, state) in s.iter_mut().zip(&lanes.state) {
        *s = v.load(state);
    }
    for i in 0..blocks {
        // SAFETY: the caller vouches for the blocks.
        let w = unsafe { block(v, &lanes.places[..V::LANES], BLOCK_LEN * i) };
        s = compress(v, s, w);
    }
    for (s, state) in s.into_iter().zip(&mut lanes.state) {
        v.store(s, state);
    }
    let mut ended = 0;
    for (l, left) in lanes.left[..V::LANES].iter_mut().enumerate() {
        *left -= blocks;
        ended |= u32::from(*left == 0) << l;
    }
    for place in &mut lanes.places[..V::LANES] {
        *place = place.wrapping_add(BLOCK_LEN * blocks);
    }
    ended
}

/// The message words of the blocks `offset` bytes behind `places`.
///
/// # Safety
///
/// They must be readable.
#[inline(always)]
unsafe fn block<V: U32Lanes>(v: V, places: &[*const u8], offset: usize) -> [V::Word; 16] {
    let mut w = [v.splat(0); 16];
    // SAFETY: a block is four times 16 bytes.
    unsafe {
        w[..4].copy_from_slice(&v.load_big_endian(places, offset));
        w[4..8].copy_from_slice(&v.load_big_endian(places, offset + 16));
        w[8..12].copy_from_slice(&v.load_big_endian(places, offset + 32));
        w[12..].copy_from_slice(&v.load_big_endian(places, offset + 48));
    }
    w
}

/// Writes the digests of all lanes one behind the other.
///
/// # Safety
///
/// There must be place for them.
#[inline(always)]
unsafe fn store_digests<V: U32Lanes>(v: V, state: [V::Word; 8], digests: *mut Digest) {
    let [a, b, c, d, e, f, g, h] = state;
    let place: *mut u8 = digests.cast();
    // SAFETY: the caller vouches for the place.
    unsafe {
        v.store_big_endian([a, b, c, d], place, 32);
        v.store_big_endian([e, f, g, h], place.add(16), 32);
    }
}

/// Hashes messages of `LEN` bytes, 64 twice or 32 once. Digests and messages may lie
/// as [`Serial::hash64`] has it.
///
/// # Safety
///
/// There must be `count` messages and digests, a multiple of the lanes.
#[inline(always)]
pub(crate) unsafe fn hash_fixed<const LEN: usize, V: U32Lanes>(
    v: V,
    messages: *const [u8; LEN],
    digests: *mut Digest,
    count: usize,
) {
    for first in (0..count).step_by(V::LANES) {
        let mut places = [messages.cast::<u8>(); MAX_LANES];
        for (l, place) in places[..V::LANES].iter_mut().enumerate() {
            *place = messages.wrapping_add(first + l).cast();
        }
        let places = &places[..V::LANES];
        // SAFETY: the caller vouches for the messages and the digests. These are
        // written when the messages of these lanes have been read.
        unsafe {
            const { assert!(LEN == BLOCK_LEN || LEN == 32) };
            let mut w = if LEN == BLOCK_LEN {
                block(v, places, 0)
            } else {
                let mut half = [v.splat(0); 8];
                half[..4].copy_from_slice(&v.load_big_endian(places, 0));
                half[4..].copy_from_slice(&v.load_big_endian(places, 16));
                digest_block(v, half)
            };
            // The code of a block is there once for both hashes, which leaves more of
            // the cache of instructions to whoever shares it.
            let mut again = LEN == BLOCK_LEN;
            let state = loop {
                let state = compress(v, start(v), w);
                if !again {
                    break state;
                }
                again = false;
                w = digest_block(v, compress_constant(v, state, &PADDING_64));
            };
            store_digests(v, state, digests.add(first));
        }
    }
}
