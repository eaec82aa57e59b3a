//! The SHA instructions of x86: one message, or two interleaved.
//!
//! Two rounds take four cycles and wait for the two rounds before them; a second message uses that
//! time. The SHA instructions have no VEX form, and such instructions are slow while the upper
//! halves of the AVX registers are in use. The kernels of the other instruction sets clear these
//! before they return (the compiler inserts `vzeroupper`).

use crate::job::Digest;
use crate::kernels::sha256::{SCALAR, Serial};
use core::arch::x86_64::*;

// SSE2, which these kernels use too, is part of x86-64.
cpufeatures::new!(sha_ni, "sha", "sse4.1", "ssse3");

/// Returns the kernels, if this CPU has the SHA instructions.
pub(crate) fn serial() -> Option<&'static Serial> {
    sha_ni::get().then_some(&SERIAL)
}

/// Returns the kernels of this CPU that hash one message, or two interleaved: those with SHA
/// instructions, otherwise plain Rust.
pub(crate) fn best_serial() -> &'static Serial {
    serial().unwrap_or(&SCALAR)
}

/// A state in the order that the instructions require: words a, b, e, f and c, d, g, h, the first
/// of each four in the highest place.
type State = [__m128i; 2];

/// The message words of a block, four to a register.
type Words = [__m128i; 4];

serial_kernels!("sha,sse4.1,ssse3");

/// Four rounds of each state. `kw` is the sum of round constants and message words.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn four_rounds<const N: usize>(states: &mut [State; N], kw: [__m128i; N]) {
    for n in 0..N {
        let [abef, cdgh] = states[n];
        states[n][1] = _mm_sha256rnds2_epu32(cdgh, abef, kw[n]);
    }
    for n in 0..N {
        let [abef, cdgh] = states[n];
        let kw = _mm_shuffle_epi32::<0x0e>(kw[n]);
        states[n][0] = _mm_sha256rnds2_epu32(abef, cdgh, kw);
    }
}

/// Returns the four words of the schedule after these sixteen (FIPS 180-4, section 6.2.2).
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn next_words([w0, w1, w2, w3]: Words) -> __m128i {
    let sum = add(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8::<4>(w3, w2));
    _mm_sha256msg2_epu32(sum, w3)
}

/// Returns the sums of four words.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn add(a: __m128i, b: __m128i) -> __m128i {
    _mm_add_epi32(a, b)
}

/// Returns words `4 i..4 i + 4`.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn four(words: &[u32; 64], i: usize) -> __m128i {
    let words = &words[4 * i..4 * i + 4];
    // SAFETY: the slice is 16 bytes; the load needs no alignment.
    unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
}

/// Builds a [`State`] from its words in order.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn load(words: &[u32; 8]) -> State {
    // SAFETY: the array is 32 bytes; loads need no alignment.
    let (dcba, hgfe) = unsafe {
        let words: *const __m128i = words.as_ptr().cast();
        (_mm_loadu_si128(words), _mm_loadu_si128(words.add(1)))
    };
    let cdab = _mm_shuffle_epi32::<0xb1>(dcba);
    let efgh = _mm_shuffle_epi32::<0x1b>(hgfe);
    [
        _mm_alignr_epi8::<8>(cdab, efgh),
        _mm_blend_epi16::<0xf0>(efgh, cdab),
    ]
}

/// Returns the words of a state in order, four to a register.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn state_words([abef, cdgh]: State) -> [__m128i; 2] {
    let feba = _mm_shuffle_epi32::<0x1b>(abef);
    let dchg = _mm_shuffle_epi32::<0xb1>(cdgh);
    [
        _mm_blend_epi16::<0xf0>(feba, dchg),
        _mm_alignr_epi8::<8>(dchg, feba),
    ]
}

/// The inverse of [`load`].
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn store(state: State, words: &mut [u32; 8]) {
    let [dcba, hgfe] = state_words(state);
    // SAFETY: the array is 32 bytes; stores need no alignment.
    unsafe {
        let words: *mut __m128i = words.as_mut_ptr().cast();
        _mm_storeu_si128(words, dcba);
        _mm_storeu_si128(words.add(1), hgfe);
    }
}

/// # Safety
///
/// `digest` must be writable.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
unsafe fn store_digest(state: State, digest: *mut Digest) {
    let [dcba, hgfe] = state_words(state);
    // SAFETY: the caller guarantees 32 writable bytes; stores need no alignment.
    unsafe {
        let digest: *mut __m128i = digest.cast();
        _mm_storeu_si128(digest, swap_bytes(dcba));
        _mm_storeu_si128(digest.add(1), swap_bytes(hgfe));
    }
}

/// Reverses the bytes of each word.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn swap_bytes(words: __m128i) -> __m128i {
    let order = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    _mm_shuffle_epi8(words, order)
}

/// Returns the message words of a 64-byte block.
///
/// # Safety
///
/// It must be readable.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
unsafe fn block(place: *const u8) -> Words {
    let mut w = [_mm_setzero_si128(); 4];
    for (i, w) in w.iter_mut().enumerate() {
        // SAFETY: the caller guarantees 64 readable bytes; loads need no alignment.
        *w = swap_bytes(unsafe { _mm_loadu_si128(place.add(16 * i).cast()) });
    }
    w
}

/// Returns the message words of the only block of a message that is a digest.
///
/// # Safety
///
/// It must be readable.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
unsafe fn half_block(digest: *const Digest) -> Words {
    let digest: *const __m128i = digest.cast();
    // SAFETY: the caller guarantees 32 readable bytes; loads need no alignment.
    digest_block(unsafe {
        [
            swap_bytes(_mm_loadu_si128(digest)),
            swap_bytes(_mm_loadu_si128(digest.add(1))),
        ]
    })
}

/// Like [`half_block`], from the digest's words.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn digest_block([dcba, hgfe]: [__m128i; 2]) -> Words {
    let end = _mm_set_epi32(0, 0, 0, i32::MIN);
    [dcba, hgfe, end, _mm_set_epi32(256, 0, 0, 0)]
}
