//! SHA-256 (FIPS 180-4).
//!
//! ```text
//! state = the initial hash value (section 5.3.3)
//! for each block of 64 bytes of the padded message (section 6.2.2):
//!     w[0..16] = the block as big-endian words
//!     w[t] = s1(w[t - 2]) + w[t - 7] + s0(w[t - 15]) + w[t - 16]      for t = 16..64
//!     (a, .., h) = state
//!     for t = 0..64:
//!         T1 = h + S1(e) + Ch(e, f, g) + K[t] + w[t]
//!         T2 = S0(a) + Maj(a, b, c)
//!         (a, .., h) = (T1 + T2, a, b, c, d + T1, e, f, g)
//!     state += (a, .., h)
//! ```
//!
//! Optimisations:
//!
//! 1. The blocks of a message depend on each other, so each lane of a vector has its own message
//!    ([`run`]).
//! 2. The schedule is computed 16 rounds ahead in place, so that `w` has 16 words.
//! 3. Messages of 32 and 64 bytes have fixed padding, whose schedule is a constant
//!    ([`PADDING_64`]). Both hashes of a double hash are computed in registers ([`hash_fixed`]).
//! 4. Sums are added in the order in which their terms become known ([`Arithmetic::opaque`]).
//! 5. [`Serial`] kernels hash one message, or two interleaved.
//!
//! For public data only: nothing is wiped.

use crate::job::Digest;
use crate::vector::{Arithmetic, MAX_LANES, Scalar, U32Lanes};

/// Length of a block, in bytes.
pub(crate) const BLOCK_LEN: usize = 64;

/// The round constants (FIPS 180-4, section 4.2.2).
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

/// The initial hash value (FIPS 180-4, section 5.3.3).
pub(crate) const INITIAL_STATE: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// Round constants plus message schedule of the second block of any 64-byte message, which is
/// all padding.
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

/// The sums of FIPS 180-4, section 4.1.2. These rotate to the left, by 32 minus the numbers
/// there.
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

/// One round. `$kw` is the sum of its round constant and message word.
macro_rules! round {
    ($v:ident, $a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident, $kw:expr) => {
        let early = $v.add($h, $kw);
        let chosen = $v.choose($e, $f, $g);
        let sum = sum!($v, $e, 26, 21, 7);
        let t = $v.opaque($v.add($v.opaque($v.add(early, chosen)), sum));
        $d = $v.add($v.opaque($v.add($v.opaque($v.add($d, early)), chosen)), sum);
        $h = $v.add(
            $v.opaque($v.add(t, $v.majority($a, $b, $c))),
            sum!($v, $a, 30, 19, 10),
        );
    };
}

/// Sixteen rounds; `$kw` returns the sum for round `$j`. Unrolled in the source, because the
/// compiler keeps arrays in memory if it learns their indices late.
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

/// Returns the state after one more block (FIPS 180-4, section 6.2.2).
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
            // The message word for 16 rounds later.
            let small = v.add(w[J], sum!(v, w[(J + 1) % 16], 25, 14, shift 3));
            let large = v.add(w[(J + 9) % 16], sum!(v, w[(J + 14) % 16], 15, 13, shift 10));
            w[J] = v.add(small, large);
            kw
        });
    }
    sixteen_rounds!(v, s, |J| v.add(w[J], v.splat(K[48 + J])));
    sum_of_states(v, s, state)
}

/// Returns the state after a block that is the same in all lanes. `kw` is its schedule plus the
/// round constants.
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
fn initial_state<A: Arithmetic>(v: A) -> [A::Word; 8] {
    let mut s = [v.splat(0); 8];
    for i in 0..8 {
        s[i] = v.splat(INITIAL_STATE[i]);
    }
    s
}

/// Returns the only block of a message that is a digest.
#[inline(always)]
fn digest_block<A: Arithmetic>(v: A, digest: [A::Word; 8]) -> [A::Word; 16] {
    let mut w = [v.splat(0); 16];
    w[..8].copy_from_slice(&digest);
    w[8] = v.splat(1 << 31);
    w[15] = v.splat(256);
    w
}

/// A message's state, and the address of its next blocks.
pub(crate) struct Stream {
    pub(crate) state: [u32; 8],
    pub(crate) next_block: *const u8,
}

/// Kernels that hash one message, or two interleaved, with one instruction set.
///
/// # Safety
///
/// The CPU must have the instructions of the kernels. The number of blocks, messages or digests
/// that an argument gives must be readable or writable at the pointers.
pub(crate) struct Serial {
    /// Hashes that many blocks of a message.
    pub(crate) one: unsafe fn(&mut Stream, usize),
    /// Hashes that many blocks of each of two messages.
    pub(crate) two: unsafe fn(&mut Stream, &mut Stream, usize),
    /// The double hash of that many messages of 64 bytes. The digests may overlap the messages
    /// if both begin at the same address.
    pub(crate) hash64: unsafe fn(*const [u8; 64], *mut Digest, usize),
    /// The hash of that many messages of 32 bytes. Digests and messages may overlap as for
    /// `hash64`.
    pub(crate) hash32: unsafe fn(*const [u8; 32], *mut Digest, usize),
}

/// [`Serial`] in plain Rust.
pub(crate) static SCALAR: Serial = {
    unsafe fn one(stream: &mut Stream, blocks: usize) {
        for _ in 0..blocks {
            // SAFETY: the caller guarantees `blocks` readable blocks.
            let w = unsafe { words(stream.next_block) };
            stream.state = compress(Scalar, stream.state, w);
            stream.next_block = stream.next_block.wrapping_add(BLOCK_LEN);
        }
    }

    unsafe fn two(a: &mut Stream, b: &mut Stream, blocks: usize) {
        // SAFETY: the caller guarantees `blocks` readable blocks of each message.
        unsafe {
            one(a, blocks);
            one(b, blocks);
        }
    }

    unsafe fn hash64(messages: *const [u8; 64], digests: *mut Digest, count: usize) {
        for i in 0..count {
            // SAFETY: the caller guarantees `count` readable messages and writable digests, and
            // `i` is below `count`. The message is read before the digest is written.
            unsafe {
                let w = words(messages.add(i).cast());
                let s = compress(Scalar, INITIAL_STATE, w);
                let s = compress_constant(Scalar, s, &PADDING_64);
                let s = compress(Scalar, INITIAL_STATE, digest_block(Scalar, s));
                digests.add(i).write(digest(s));
            }
        }
    }

    unsafe fn hash32(messages: *const [u8; 32], digests: *mut Digest, count: usize) {
        for i in 0..count {
            // SAFETY: the caller guarantees `count` readable messages and writable digests, and
            // `i` is below `count`. The message is read before the digest is written.
            unsafe {
                let mut w = [0; 8];
                for (word, bytes) in w.iter_mut().zip((*messages.add(i)).as_chunks().0) {
                    *word = u32::from_be_bytes(*bytes);
                }
                let s = compress(Scalar, INITIAL_STATE, digest_block(Scalar, w));
                digests.add(i).write(digest(s));
            }
        }
    }

    /// # Safety
    ///
    /// The 64 bytes of the block must be readable.
    unsafe fn words(block: *const u8) -> [u32; 16] {
        // SAFETY: the caller guarantees 64 readable bytes, and bytes need no alignment.
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

/// Returns a state as a digest: big-endian words.
pub(crate) fn digest(state: [u32; 8]) -> Digest {
    let mut digest = [0; 32];
    for (bytes, word) in digest.as_chunks_mut().0.iter_mut().zip(state) {
        *bytes = word.to_be_bytes();
    }
    digest
}

/// One [`Stream`] per lane: lane `l` of `state[i]` is word `i` of its state, and `left[l]`
/// blocks lie at `next_blocks[l]`.
#[repr(align(64))]
pub(crate) struct Lanes {
    state: [[u32; MAX_LANES]; 8],
    pub(crate) next_blocks: [*const u8; MAX_LANES],
    pub(crate) left: [usize; MAX_LANES],
}

impl Lanes {
    /// Returns streams with the same `blocks` blocks at `next_block` in every lane.
    pub(crate) fn all(next_block: *const u8, blocks: usize) -> Self {
        Self {
            state: INITIAL_STATE.map(|word| [word; MAX_LANES]),
            next_blocks: [next_block; MAX_LANES],
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

    /// Copies the stream of lane `from` to lane `to`.
    pub(crate) fn copy(&mut self, from: usize, to: usize) {
        self.set_state(to, self.state(from));
        self.next_blocks[to] = self.next_blocks[from];
        self.left[to] = self.left[from];
    }
}

/// Hashes blocks in each of the first `width` lanes until a lane has none left. Returns the lanes
/// that have none left, one bit each. `width` is the number of lanes of `v` or of `half`.
///
/// # Safety
///
/// In each of the first `width` lanes, `left` blocks must be readable at `next_blocks`.
#[inline(always)]
pub(crate) unsafe fn run<V: U32Lanes, H: U32Lanes>(
    v: V,
    half: H,
    lanes: &mut Lanes,
    width: usize,
) -> u32 {
    // SAFETY: the caller guarantees the blocks of `width` lanes.
    unsafe {
        if is_half::<V, H>(width) {
            run_lanes(half, lanes)
        } else {
            run_lanes(v, lanes)
        }
    }
}

/// Whether `width` is the number of lanes of `H`, and these are fewer than those of `V`.
#[inline(always)]
fn is_half<V: U32Lanes, H: U32Lanes>(width: usize) -> bool {
    H::LANES < V::LANES && width == H::LANES
}

/// [`run`] in all lanes of `v`.
///
/// # Safety
///
/// In each of the first `LANES` lanes, `left` blocks must be readable at `next_blocks`.
#[inline(always)]
unsafe fn run_lanes<V: U32Lanes>(v: V, lanes: &mut Lanes) -> u32 {
    let mut blocks = usize::MAX;
    for &left in &lanes.left[..V::LANES] {
        blocks = blocks.min(left);
    }
    let mut s = [v.splat(0); 8];
    for (s, state) in s.iter_mut().zip(&lanes.state) {
        *s = v.load(state);
    }
    for i in 0..blocks {
        // SAFETY: `blocks` is the least `left` of all lanes, the caller guarantees `left` readable
        // blocks, and `i` is below `blocks`.
        let w = unsafe { block(v, &lanes.next_blocks[..V::LANES], BLOCK_LEN * i) };
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
    for next_block in &mut lanes.next_blocks[..V::LANES] {
        *next_block = next_block.wrapping_add(BLOCK_LEN * blocks);
    }
    ended
}

/// Returns the message words of the blocks at `offset` bytes after each of `sources`.
///
/// # Safety
///
/// A block of 64 bytes must be readable there.
#[inline(always)]
unsafe fn block<V: U32Lanes>(v: V, sources: &[*const u8], offset: usize) -> [V::Word; 16] {
    let mut w = [v.splat(0); 16];
    // SAFETY: the caller guarantees 64 readable bytes at `offset`, and the four loads of 16
    // bytes lie in these.
    unsafe {
        w[..4].copy_from_slice(&v.load_big_endian(sources, offset));
        w[4..8].copy_from_slice(&v.load_big_endian(sources, offset + 16));
        w[8..12].copy_from_slice(&v.load_big_endian(sources, offset + 32));
        w[12..].copy_from_slice(&v.load_big_endian(sources, offset + 48));
    }
    w
}

/// Writes the digests of all lanes, one after the other.
///
/// # Safety
///
/// `LANES` digests must be writable.
#[inline(always)]
unsafe fn store_digests<V: U32Lanes>(v: V, state: [V::Word; 8], digests: *mut Digest) {
    let [a, b, c, d, e, f, g, h] = state;
    let destination: *mut u8 = digests.cast();
    // SAFETY: the caller guarantees `LANES` digests of 32 bytes, and each store writes one half
    // of each.
    unsafe {
        v.store_big_endian([a, b, c, d], destination, 32);
        v.store_big_endian([e, f, g, h], destination.add(16), 32);
    }
}

/// Computes the hash of 32-byte messages, or the double hash of 64-byte messages. Messages and
/// digests may overlap as for [`Serial::hash64`].
///
/// # Safety
///
/// `count` messages must be readable and `count` digests writable; `count` must be a multiple
/// of `width`, which is the number of lanes of `v` or of `half`.
#[inline(always)]
pub(crate) unsafe fn hash_fixed<const LEN: usize, V: U32Lanes, H: U32Lanes>(
    v: V,
    half: H,
    messages: *const [u8; LEN],
    digests: *mut Digest,
    count: usize,
    width: usize,
) {
    // SAFETY: the caller guarantees messages and digests, and that they fill the lanes.
    unsafe {
        if is_half::<V, H>(width) {
            hash_lanes(half, messages, digests, count);
        } else {
            hash_lanes(v, messages, digests, count);
        }
    }
}

/// [`hash_fixed`] in all lanes of `v`.
///
/// # Safety
///
/// `count` messages must be readable and `count` digests writable; `count` must be a multiple
/// of `LANES`.
#[inline(always)]
unsafe fn hash_lanes<const LEN: usize, V: U32Lanes>(
    v: V,
    messages: *const [u8; LEN],
    digests: *mut Digest,
    count: usize,
) {
    for first in (0..count).step_by(V::LANES) {
        let mut sources = [messages.cast::<u8>(); MAX_LANES];
        for (l, source) in sources[..V::LANES].iter_mut().enumerate() {
            *source = messages.wrapping_add(first + l).cast();
        }
        let sources = &sources[..V::LANES];
        // SAFETY: the caller guarantees `count` readable messages and writable digests, and
        // `first + LANES` is at most `count`. The digests of these lanes are written after
        // their messages have been read.
        unsafe {
            const { assert!(LEN == BLOCK_LEN || LEN == 32) };
            let mut w = if LEN == BLOCK_LEN {
                block(v, sources, 0)
            } else {
                let mut half = [v.splat(0); 8];
                half[..4].copy_from_slice(&v.load_big_endian(sources, 0));
                half[4..].copy_from_slice(&v.load_big_endian(sources, 16));
                digest_block(v, half)
            };
            // A loop, so that the code for a block exists only once and takes less of the
            // instruction cache.
            let mut again = LEN == BLOCK_LEN;
            let state = loop {
                let state = compress(v, initial_state(v), w);
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
