//! SHA-256 (FIPS 180-4) of many messages, one per lane, and of messages one by one.
//!
//! A message's blocks depend on each other, so a lane takes a message, and the next
//! one when that ends: messages of any lengths keep the lanes busy. The blocks are
//! read where they lie; only those that hold a message's end, or lie across two of
//! its pieces, are put together first. A second hash is made when all the first ones
//! are known: then every message is 32 bytes long.
//!
//! When few messages are left, most lanes would compute nothing, and [`Serial`]
//! kernels finish them: the SHA instructions on x86, which take one message or two,
//! else plain Rust. How few is measured once in a process ([`Plan`]): it takes
//! anything from two messages to more than there are lanes, as CPUs go.
//!
//! This is for public data: nothing is wiped.

use crate::isa::{Aligned, Scalar, Set};
use crate::measure::best_time;
use crate::vector::{Arithmetic, MAX_LANES, Words};
use arrayvec::ArrayVec;
use core::mem::MaybeUninit;

/// A digest of SHA-256: 32 bytes, in the order in which FIPS 180-4 gives them.
pub type Digest = [u8; 32];

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
        let t = $v.in_order($v.add($v.in_order($v.add(early, chosen)), sum));
        $d = $v.add(
            $v.in_order($v.add($v.in_order($v.add($d, early)), chosen)),
            sum,
        );
        $h = $v.add(
            $v.in_order($v.add(t, $v.majority($a, $b, $c))),
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
fn digest(state: [u32; 8]) -> Digest {
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
    places: [*const u8; MAX_LANES],
    left: [usize; MAX_LANES],
}

impl Lanes {
    /// As many blocks in every lane, behind `place`.
    fn all(place: *const u8, blocks: usize) -> Self {
        Self {
            state: START.map(|word| [word; MAX_LANES]),
            places: [place; MAX_LANES],
            left: [blocks; MAX_LANES],
        }
    }

    fn state(&self, lane: usize) -> [u32; 8] {
        let mut state = [0; 8];
        for (word, words) in state.iter_mut().zip(&self.state) {
            *word = words[lane];
        }
        state
    }

    fn set_state(&mut self, lane: usize, state: [u32; 8]) {
        for (words, word) in self.state.iter_mut().zip(state) {
            words[lane] = word;
        }
    }

    /// Makes a lane do what another one does.
    fn copy(&mut self, from: usize, to: usize) {
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
pub(crate) unsafe fn run<V: Words>(v: V, lanes: &mut Lanes) -> u32 {
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
unsafe fn block<V: Words>(v: V, places: &[*const u8], offset: usize) -> [V::Word; 16] {
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
unsafe fn store_digests<V: Words>(v: V, state: [V::Word; 8], digests: *mut Digest) {
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
pub(crate) unsafe fn hash_fixed<const LEN: usize, V: Words>(
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

/// How messages are hashed: which kernels there are, and from how many messages on
/// lanes pay.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    set: Set,
    serial: &'static Serial,
    /// From how many messages on the lanes of a vector are faster than one by one; more
    /// than there are if never.
    pays_from: usize,
}

impl Plan {
    /// The plan for a set, by what has been measured in this process.
    #[inline]
    pub(crate) fn of(set: Set) -> Self {
        let serial = set.serial();
        Self {
            set,
            serial,
            pays_from: set.measured().get(|| measure(set, serial)),
        }
    }

    /// Sets what would be measured of a set.
    pub(crate) fn pin(set: Set, pays_from: usize) {
        set.measured().pin(pays_from);
    }

    pub(crate) fn pays_from(&self) -> usize {
        self.pays_from
    }

    /// How many of so many messages to hash in the lanes of a vector, the others one
    /// by one. (Where lanes pay, it keeps a full vector.)
    #[inline]
    fn in_lanes(&self, messages: usize) -> usize {
        let now = messages.min(self.set.hash_lanes());
        if now >= self.pays_from { now } else { 0 }
    }
}

/// Hashes the same blocks in each way, for some thirty microseconds in all: from how
/// many messages on is a vector faster? By an eighth at least, for what it costs
/// besides to keep the lanes busy.
#[cold]
fn measure(set: Set, serial: &Serial) -> usize {
    const BLOCKS: usize = 4;
    let text = [0_u8; BLOCKS * BLOCK_LEN];
    let stream = || Stream {
        state: START,
        place: text.as_ptr(),
    };
    // SAFETY: the text is so many blocks; the set vouches for the CPU.
    let (vector, one, two) = unsafe {
        (
            best_time(
                || Lanes::all(text.as_ptr(), BLOCKS),
                |lanes| _ = set.hash_run(lanes),
            ),
            best_time(stream, |a| (serial.one)(a, BLOCKS)),
            best_time(|| (stream(), stream()), |(a, b)| (serial.two)(a, b, BLOCKS)),
        )
    };
    let one_by_one = |n: usize| (n / 2) as u64 * two + (n % 2) as u64 * one;
    let longer = |&n: &usize| one_by_one(n) > vector + vector / 8;
    let lanes = set.hash_lanes();
    (1..=lanes).find(longer).unwrap_or(lanes + 1)
}

/// A place for a block, or two with the padding.
type Staged = MaybeUninit<[u8; 2 * BLOCK_LEN]>;

/// What of a message is yet to be hashed.
#[derive(Clone, Copy)]
struct Rest<'a, const N: usize> {
    /// Which message it is.
    index: usize,
    pieces: [&'a [u8]; N],
    /// How many bytes the pieces have.
    len: usize,
    /// How many bytes the message had.
    message_len: usize,
    /// Whether its padding has come.
    ended: bool,
}

impl<'a, const N: usize> Rest<'a, N> {
    #[inline(always)]
    fn new(messages: &[[&'a [u8]; N]], index: usize) -> Self {
        let pieces = messages[index];
        let mut len = 0;
        for piece in pieces {
            len += piece.len();
        }
        Self {
            index,
            pieces,
            len,
            message_len: len,
            ended: false,
        }
    }

    /// The next blocks of the message, padded as section 5.1.1 has it, and their
    /// number: those that lie one behind the other, or what has been put together in
    /// `staged`. None behind its end.
    #[inline(always)]
    fn next(&mut self, staged: &mut Staged) -> Option<(*const u8, usize)> {
        if self.len < BLOCK_LEN {
            return self.end(staged);
        }
        for piece in &mut self.pieces {
            if piece.len() >= BLOCK_LEN {
                let blocks = piece.len() / BLOCK_LEN;
                let (run, rest) = piece.split_at(BLOCK_LEN * blocks);
                *piece = rest;
                self.len -= run.len();
                return Some((run.as_ptr(), blocks));
            }
            if !piece.is_empty() {
                break;
            }
        }
        let staged = staged.write([0; _]);
        self.take(&mut staged[..BLOCK_LEN]);
        Some((staged.as_ptr(), 1))
    }

    /// The message's end, less than a block, and the padding.
    #[inline(always)]
    fn end(&mut self, staged: &mut Staged) -> Option<(*const u8, usize)> {
        if self.ended {
            return None;
        }
        self.ended = true;
        let len = self.len;
        let bits = 8 * self.message_len as u64;
        let blocks = if len < BLOCK_LEN - 8 { 1 } else { 2 };
        let staged = staged.write([0; _]);
        self.take(&mut staged[..len]);
        staged[len] = 0x80;
        staged[BLOCK_LEN * blocks - 8..BLOCK_LEN * blocks].copy_from_slice(&bits.to_be_bytes());
        Some((staged.as_ptr(), blocks))
    }

    /// Moves the next bytes of the message to `place`; there are as many.
    #[inline(always)]
    fn take(&mut self, mut place: &mut [u8]) {
        self.len -= place.len();
        for piece in &mut self.pieces {
            let (now, later) = piece.split_at(piece.len().min(place.len()));
            let (filled, free) = place.split_at_mut(now.len());
            filled.copy_from_slice(now);
            (*piece, place) = (later, free);
        }
    }
}

/// The hash of each of `messages`, each of which is the pieces of an array in turn.
///
/// # Panics
///
/// Unless there are as many `digests`.
pub(crate) fn many<const N: usize>(plan: Plan, messages: &[[&[u8]; N]], digests: &mut [Digest]) {
    assert_eq!(messages.len(), digests.len(), "a digest for each message");
    if plan.in_lanes(messages.len()) > 0 {
        return many_in_lanes(plan, messages, digests);
    }
    let mut fresh = 0..messages.len();
    one_by_one(plan, digests, |staged| {
        let mut rest = Rest::new(messages, fresh.next()?);
        let (place, blocks) = rest.next(staged)?;
        let state = START;
        Some((Stream { state, place }, blocks, rest))
    });
}

/// [`many`], in lanes as long as they pay.
fn many_in_lanes<const N: usize>(plan: Plan, messages: &[[&[u8]; N]], digests: &mut [Digest]) {
    let mut lanes = Lanes::all(core::ptr::null(), 0);
    let mut staged = Aligned([const { MaybeUninit::uninit() }; MAX_LANES]);
    let mut active = plan.in_lanes(messages.len());
    let mut rests = ArrayVec::<_, MAX_LANES>::new();
    for index in 0..active {
        rests.push(Rest::new(messages, index));
    }
    let mut fresh = active..messages.len();
    // Lanes whose blocks have been hashed, a bit each.
    let mut ended = u32::MAX >> (MAX_LANES - active);
    loop {
        while ended != 0 {
            let l = ended.trailing_zeros() as usize;
            if let Some(run) = rests[l].next(&mut staged.0[l]) {
                (lanes.places[l], lanes.left[l]) = run;
                ended &= ended - 1;
                continue;
            }
            digests[rests[l].index] = digest(lanes.state(l));
            if let Some(index) = fresh.next() {
                rests[l] = Rest::new(messages, index);
                lanes.set_state(l, START);
            } else {
                // The last message moves here, ended or not. (If its next block has been
                // put together, that stays where it is: no other will be there.)
                active -= 1;
                rests[l] = rests[active];
                lanes.copy(active, l);
                if ended >> active == 0 {
                    ended &= ended - 1;
                }
                ended &= !(1 << active);
            }
        }
        let keep = plan.in_lanes(active);
        if keep < active {
            let mut others = keep..active;
            one_by_one(plan, digests, |_| {
                let l = others.next()?;
                let (state, place) = (lanes.state(l), lanes.places[l]);
                Some((Stream { state, place }, lanes.left[l], rests[l]))
            });
            active = keep;
        }
        if active == 0 {
            return;
        }
        // The vector's other lanes do what the first one does.
        for l in active..plan.set.hash_lanes() {
            (lanes.places[l], lanes.left[l]) = (lanes.places[0], lanes.left[0]);
        }
        // SAFETY: in the lanes of the vector there are as many blocks as `left` says, in
        // a message or in `staged`.
        ended = unsafe { plan.set.hash_run(&mut lanes) };
        ended &= u32::MAX >> (MAX_LANES - active);
    }
}

/// A message on its way: its stream, how many blocks that has, and the rest.
type Message<'a, const N: usize> = (Stream, usize, Rest<'a, N>);

/// Finishes messages two at a time, and the last one by itself. `next` gives one; it
/// may put the first blocks together in what it is given.
#[inline(always)]
fn one_by_one<'a, const N: usize>(
    plan: Plan,
    digests: &mut [Digest],
    mut next: impl FnMut(&mut Staged) -> Option<Message<'a, N>>,
) {
    let Serial { one, two, .. } = plan.serial;
    let (mut staged_a, mut staged_b) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let mut a = next(&mut staged_a);
    let mut b = next(&mut staged_b);
    loop {
        // SAFETY: there are as many blocks, in a message or in `staged`; the plan has
        // the kernels of this CPU.
        unsafe {
            match (&mut a, &mut b) {
                (Some((a, a_blocks, _)), Some((b, b_blocks, _))) => {
                    let blocks = (*a_blocks).min(*b_blocks);
                    two(a, b, blocks);
                    *a_blocks -= blocks;
                    *b_blocks -= blocks;
                }
                (Some((stream, blocks, _)), None) | (None, Some((stream, blocks, _))) => {
                    one(stream, *blocks);
                    *blocks = 0;
                }
                (None, None) => return,
            }
        }
        // What has been put together is not touched as long as a stream reads it.
        if matches!(a, Some((_, 0, _))) {
            proceed(&mut a, &mut staged_a, digests, &mut next);
        }
        if matches!(b, Some((_, 0, _))) {
            proceed(&mut b, &mut staged_b, digests, &mut next);
        }
    }
}

/// Goes on to a message's next blocks or, behind its end, to the next message.
#[inline(always)]
fn proceed<'a, const N: usize>(
    message: &mut Option<Message<'a, N>>,
    staged: &mut Staged,
    digests: &mut [Digest],
    next: impl FnOnce(&mut Staged) -> Option<Message<'a, N>>,
) {
    if let Some((stream, blocks, rest)) = message {
        if let Some(run) = rest.next(staged) {
            (stream.place, *blocks) = run;
        } else {
            digests[rest.index] = digest(stream.state);
            *message = next(staged);
        }
    }
}

/// The double hash of each of `messages`, as [`many`].
pub(crate) fn many_twice<const N: usize>(
    plan: Plan,
    messages: &[[&[u8]; N]],
    digests: &mut [Digest],
) {
    many(plan, messages, digests);
    let count = digests.len();
    let digests = digests.as_mut_ptr();
    // SAFETY: as many digests, of 32 bytes.
    unsafe {
        fixed(
            plan,
            plan.set.hash32(),
            plan.serial.hash32,
            digests,
            digests,
            count,
        )
    }
}

/// The double hash of each of `messages`.
///
/// # Panics
///
/// Unless there are as many `digests`.
pub(crate) fn many_64(plan: Plan, messages: &[[u8; 64]], digests: &mut [Digest]) {
    assert_eq!(messages.len(), digests.len(), "a digest for each message");
    let (from, to) = (messages.as_ptr(), digests.as_mut_ptr());
    // SAFETY: as many messages and digests, which lie apart.
    unsafe {
        fixed(
            plan,
            plan.set.hash64(),
            plan.serial.hash64,
            from,
            to,
            messages.len(),
        )
    }
}

/// Replaces the first half of `nodes` by the double hashes of pairs: `nodes[i]`
/// becomes that of `nodes[2 * i]` and `nodes[2 * i + 1]`, 64 bytes. If there is an odd
/// one, it is not touched, or not read.
pub(crate) fn pairs(plan: Plan, nodes: &mut [Digest]) {
    let count = nodes.len() / 2;
    let to = nodes.as_mut_ptr();
    // SAFETY: as many pairs of 64 bytes; each digest is written where a pair lay that
    // comes before its own, or in the first half of its own.
    unsafe {
        fixed(
            plan,
            plan.set.hash64(),
            plan.serial.hash64,
            to.cast(),
            to,
            count,
        )
    }
}

/// Hashes of messages of one length, in lanes as long as they pay. The digests may be
/// written where the messages lie, the first where the first one begins.
///
/// # Safety
///
/// There must be `count` messages and digests, and the kernels must be those for them.
unsafe fn fixed<const LEN: usize>(
    plan: Plan,
    in_lanes: unsafe fn(*const [u8; LEN], *mut Digest, usize),
    one_by_one: unsafe fn(*const [u8; LEN], *mut Digest, usize),
    messages: *const [u8; LEN],
    digests: *mut Digest,
    count: usize,
) {
    let mut done = 0;
    while done < count {
        let (from, to) = (messages.wrapping_add(done), digests.wrapping_add(done));
        let left = count - done;
        let now = plan.in_lanes(left);
        let lanes = plan.set.hash_lanes();
        // SAFETY: so many messages and digests are left.
        unsafe {
            done += if now == 0 {
                one_by_one(from, to, left);
                left
            } else if now == lanes {
                let now = left - left % lanes;
                in_lanes(from, to, now);
                now
            } else {
                // The other lanes hash zeros.
                let mut some = [[0; LEN]; MAX_LANES];
                let mut hashes = [[0; 32]; MAX_LANES];
                core::ptr::copy_nonoverlapping(from, some.as_mut_ptr(), now);
                in_lanes(some.as_ptr(), hashes.as_mut_ptr(), lanes);
                core::ptr::copy_nonoverlapping(hashes.as_ptr(), to, now);
                now
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backend;
    use sha2::Digest as _;

    extern crate std;
    use std::vec::Vec;

    fn twice(message: &[u8]) -> Digest {
        sha2::Sha256::digest(sha2::Sha256::digest(message)).into()
    }

    /// Every plan that could come of measuring: every set with the SHA instructions and
    /// without, lanes from any number on.
    fn plans() -> Vec<Plan> {
        let mut plans = Vec::new();
        let mut sets: Vec<_> = Backend::ALL
            .iter()
            .filter(|backend| backend.is_available())
            .map(|backend| backend.set())
            .collect();
        // SAFETY: every CPU has it.
        sets.push(unsafe { Set::assume(&crate::isa::portable::KERNELS) });
        for set in sets {
            for serial in [set.serial(), &SCALAR] {
                for pays_from in 1..=set.hash_lanes() + 1 {
                    plans.push(Plan {
                        set,
                        serial,
                        pays_from,
                    });
                }
            }
        }
        plans
    }

    #[test]
    fn every_plan() {
        let text: Vec<u8> = (0..4000_u32).map(|i| (i * i / 7) as u8).collect();
        for plan in plans() {
            for count in (0..40).chain([47, 48, 49, 63, 64, 65, 100]) {
                let messages: Vec<[&[u8]; 2]> = (0..count)
                    .map(|i| [&text[i..i + i * 5 % 70], &text[i..i + i * 131 % 500]])
                    .collect();
                let mut digests = std::vec![[0; 32]; count];
                many_twice(plan, &messages, &mut digests);
                for (message, digest) in messages.iter().zip(&digests) {
                    assert_eq!(*digest, twice(&message.concat()));
                }
                let (messages, _) = text[..64 * count.min(60)].as_chunks();
                many_64(plan, messages, &mut digests[..messages.len()]);
                let mut nodes = text.as_chunks::<32>().0[..2 * messages.len()].to_vec();
                pairs(plan, &mut nodes);
                for (i, message) in messages.iter().enumerate() {
                    assert_eq!([digests[i], nodes[i]], [twice(message); 2]);
                }
            }
        }
    }

    /// What is measured is kept.
    #[test]
    fn measured_once() {
        for backend in Backend::ALL.iter().filter(|b| b.is_available()) {
            let set = backend.set();
            let pays_from = Plan::of(set).pays_from;
            assert!((1..=set.hash_lanes() + 1).contains(&pays_from));
            assert_eq!(Plan::of(set).pays_from, pays_from);
        }
    }
}
