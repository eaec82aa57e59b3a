//! The SHA-256 instructions of ARM: one message, or two interleaved.
//!
//! Four rounds are two instructions. The second needs the state before the first, and the next four
//! rounds wait for both; a second message uses that time.

use crate::job::Digest;
use crate::kernels::sha256::{SCALAR, Serial};
use core::arch::aarch64::*;

cpufeatures::new!(sha2, "sha2");

/// Returns the kernels of this CPU that hash one message, or two interleaved: those with SHA-256
/// instructions, otherwise plain Rust.
pub(super) fn best_serial() -> &'static Serial {
    if sha2::get() { &SERIAL } else { &SCALAR }
}

/// A state: words a to d and e to h.
type State = [uint32x4_t; 2];

/// The message words of a block, four to a register.
type Words = [uint32x4_t; 4];

serial_kernels!("sha2");

/// Four rounds of each state. `kw` is the sum of round constants and message words.
#[target_feature(enable = "sha2")]
#[inline]
fn four_rounds<const N: usize>(states: &mut [State; N], kw: [uint32x4_t; N]) {
    for (state, kw) in states.iter_mut().zip(kw) {
        let [abcd, efgh] = *state;
        *state = [
            vsha256hq_u32(abcd, efgh, kw),
            vsha256h2q_u32(efgh, abcd, kw),
        ];
    }
}

/// Returns the four words of the schedule after these sixteen (FIPS 180-4, section 6.2.2).
#[target_feature(enable = "sha2")]
#[inline]
fn next_words([w0, w1, w2, w3]: Words) -> uint32x4_t {
    vsha256su1q_u32(vsha256su0q_u32(w0, w1), w2, w3)
}

/// Returns the sums of four words.
#[target_feature(enable = "sha2")]
#[inline]
fn add(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
    vaddq_u32(a, b)
}

/// Returns words `4 i..4 i + 4`.
#[target_feature(enable = "sha2")]
#[inline]
fn four(words: &[u32; 64], i: usize) -> uint32x4_t {
    let words = &words[4 * i..4 * i + 4];
    // SAFETY: the slice is 16 bytes, and its words are aligned.
    unsafe { vld1q_u32(words.as_ptr()) }
}

#[target_feature(enable = "sha2")]
#[inline]
fn load(words: &[u32; 8]) -> State {
    // SAFETY: the array is 32 bytes, and its words are aligned.
    unsafe { [vld1q_u32(words.as_ptr()), vld1q_u32(words.as_ptr().add(4))] }
}

/// Returns the words of a state in order, four to a register.
#[target_feature(enable = "sha2")]
#[inline]
fn state_words(state: State) -> [uint32x4_t; 2] {
    state
}

/// The inverse of [`load`].
#[target_feature(enable = "sha2")]
#[inline]
fn store([abcd, efgh]: State, words: &mut [u32; 8]) {
    // SAFETY: the array is 32 bytes, and its words are aligned.
    unsafe {
        vst1q_u32(words.as_mut_ptr(), abcd);
        vst1q_u32(words.as_mut_ptr().add(4), efgh);
    }
}

/// # Safety
///
/// `digest` must be writable.
#[target_feature(enable = "sha2")]
#[inline]
unsafe fn store_digest([abcd, efgh]: State, digest: *mut Digest) {
    // SAFETY: the caller guarantees 32 writable bytes; bytes need no alignment.
    unsafe {
        vst1q_u8(digest.cast(), vrev32q_u8(vreinterpretq_u8_u32(abcd)));
        vst1q_u8(
            digest.cast::<u8>().add(16),
            vrev32q_u8(vreinterpretq_u8_u32(efgh)),
        );
    }
}

/// Returns four big-endian words.
///
/// # Safety
///
/// 16 bytes must be readable at `place`.
#[target_feature(enable = "sha2")]
#[inline]
unsafe fn big_endian(place: *const u8) -> uint32x4_t {
    // SAFETY: the caller guarantees 16 readable bytes; bytes need no alignment.
    vreinterpretq_u32_u8(vrev32q_u8(unsafe { vld1q_u8(place) }))
}

/// Returns the message words of a 64-byte block.
///
/// # Safety
///
/// It must be readable.
#[target_feature(enable = "sha2")]
#[inline]
unsafe fn block(place: *const u8) -> Words {
    // SAFETY: the caller guarantees 64 readable bytes.
    unsafe {
        [
            big_endian(place),
            big_endian(place.add(16)),
            big_endian(place.add(32)),
            big_endian(place.add(48)),
        ]
    }
}

/// Returns the message words of the only block of a message that is a digest.
///
/// # Safety
///
/// It must be readable.
#[target_feature(enable = "sha2")]
#[inline]
unsafe fn half_block(digest: *const Digest) -> Words {
    let digest: *const u8 = digest.cast();
    // SAFETY: the caller guarantees 32 readable bytes.
    digest_block(unsafe { [big_endian(digest), big_endian(digest.add(16))] })
}

/// Like [`half_block`], from the digest's words.
#[target_feature(enable = "sha2")]
#[inline]
fn digest_block([abcd, efgh]: [uint32x4_t; 2]) -> Words {
    let zero = vdupq_n_u32(0);
    let [end, length] = [
        vsetq_lane_u32::<0>(1 << 31, zero),
        vsetq_lane_u32::<3>(256, zero),
    ];
    [abcd, efgh, end, length]
}
