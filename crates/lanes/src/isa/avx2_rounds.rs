//! Double rounds of eight blocks of ChaCha20 with AVX2 (RFC 8439, section 2.3), in assembly because
//! of the instruction order.
//!
//! Quarter rounds are dependency chains, and shifts and shuffles compete for execution units, so
//! the order of instructions determines how much the CPU does in parallel. This order was found by
//! random search: starting from quarter rounds offset by one step each, instructions were swapped
//! at random, and faster orders were kept. A Zen 4 takes 47 cycles for a double round with three
//! interleaved blocks of Poly1305, and 51 with the compiler's order.
//!
//! Sixteen registers hold all words, but a rotation needs one more. Four of the words are therefore
//! in memory for part of the time.

use crate::vector::Interleave;
use core::arch::x86_64::*;
use core::mem::offset_of;

/// What does not fit into registers: the words with these numbers, and byte orders for shuffles.
#[repr(C, align(32))]
struct Memory {
    word_2: __m256i,
    word_3: __m256i,
    word_8: __m256i,
    word_12: __m256i,
    by_16: __m256i,
    by_8: __m256i,
}

/// Runs ten double rounds, each with three steps of `interleaved`. `by_16` and `by_8` hold, for
/// each byte, its source index when words are rotated left by 16 and by 8 bits.
///
/// # Safety
///
/// The CPU must have AVX2.
#[inline(always)]
pub(super) unsafe fn ten_double_rounds(
    x: &mut [__m256i; 16],
    [by_16, by_8]: [__m256i; 2],
    interleaved: &mut impl Interleave,
) {
    // SAFETY: the caller guarantees AVX2.
    unsafe {
        let mut memory = Memory {
            word_2: x[2],
            word_3: x[3],
            word_8: x[8],
            word_12: x[12],
            by_16,
            by_8,
        };
        for _ in 0..10 {
            first(x, &mut memory);
            interleaved.step();
            second(x, &mut memory);
            interleaved.step();
            third(x, &mut memory);
            interleaved.step();
            last(x, &mut memory);
        }
        x[3] = memory.word_3;
        for word in [
            &mut memory.word_2,
            &mut memory.word_3,
            &mut memory.word_8,
            &mut memory.word_12,
        ] {
            *word = _mm256_setzero_si256();
        }
        zeroize::optimization_barrier(&memory);
    }
}

/// A quarter of a double round: its instructions; the words that are in registers before and after
/// it, the words that it moves to memory and those that it loads back; scratch registers for a
/// rotation; and what it uses of [`Memory`].
macro_rules! quarter {
    (
        $(#[$doc:meta])* $name:ident: $($instruction:literal)*;
        in registers: $($word:ident[$number:literal])*;
        to memory: $($saved:ident[$saved_number:literal])*;
        from memory: $($loaded:ident[$loaded_number:literal])*;
        scratch: $($scratch:ident)*;
        memory: $($field:ident)*;
    ) => {
        $(#[$doc])*
        #[inline]
        #[target_feature(enable = "avx2")]
        fn $name(x: &mut [__m256i; 16], memory: &mut Memory) {
            // SAFETY: only fields of `memory` are read and written. The function has AVX2 enabled.
            unsafe {
                core::arch::asm!(
                    $($instruction,)*
                    $($word = inout(ymm_reg) x[$number],)*
                    $($saved = inout(ymm_reg) x[$saved_number] => _,)*
                    $($loaded = out(ymm_reg) x[$loaded_number],)*
                    $($scratch = out(ymm_reg) _,)*
                    memory = in(reg) &raw mut *memory,
                    $($field = const offset_of!(Memory, $field),)*
                    options(nostack, preserves_flags)
                );
            }
        }
    };
}

quarter! {
    /// The first quarter of a double round. Before it word 3 is in memory and not in `x`, after it word 2.
    first:
    "vpaddd {x0}, {x0}, {x4}"
    "vpxor {x12}, {x12}, {x0}"
    "vpaddd {x1}, {x1}, {x5}"
    "vpaddd {x2}, {x2}, {x6}"
    "vpxor {x13}, {x13}, {x1}"
    "vpshufb {x12}, {x12}, [{memory} + {by_16}]"
    "vpxor {x14}, {x14}, {x2}"
    "vpshufb {x13}, {x13}, [{memory} + {by_16}]"
    "vpaddd {x8}, {x8}, {x12}"
    "vpaddd {x3}, {x7}, [{memory} + {word_3}]"
    "vpxor {x4}, {x4}, {x8}"
    "vmovdqa [{memory} + {word_2}], {x2}"
    "vpsrld {x2}, {x4}, 20"
    "vpaddd {x9}, {x9}, {x13}"
    "vpslld {x4}, {x4}, 12"
    "vpor {x4}, {x4}, {x2}"
    "vpxor {x15}, {x15}, {x3}"
    "vpshufb {x14}, {x14}, [{memory} + {by_16}]"
    "vpxor {x5}, {x5}, {x9}"
    "vpaddd {x10}, {x10}, {x14}"
    "vpsrld {x2}, {x5}, 20"
    "vpxor {x6}, {x6}, {x10}"
    "vpaddd {x0}, {x0}, {x4}"
    "vpxor {x12}, {x12}, {x0}"
    "vpshufb {x15}, {x15}, [{memory} + {by_16}]"
    "vpslld {x5}, {x5}, 12"
    "vpaddd {x11}, {x11}, {x15}"
    "vpor {x5}, {x5}, {x2}"
    "vpsrld {x2}, {x6}, 20"
    "vpslld {x6}, {x6}, 12"
    "vpaddd {x1}, {x1}, {x5}"
    "vpshufb {x12}, {x12}, [{memory} + {by_8}]"
    "vpor {x6}, {x6}, {x2}"
    ;
    in registers: x0[0] x1[1] x4[4] x5[5] x6[6] x7[7] x8[8]
        x9[9] x10[10] x11[11] x12[12] x13[13] x14[14] x15[15];
    to memory: x2[2];
    from memory: x3[3];
    scratch:;
    memory: word_2 word_3 by_16 by_8;
}

quarter! {
    /// The second quarter. After it words 8 and 12 are in memory.
    second:
    "vpxor {x13}, {x13}, {x1}"
    "vpaddd {x8}, {x8}, {x12}"
    "vpxor {x7}, {x7}, {x11}"
    "vmovdqa [{memory} + {word_12}], {x12}"
    "vpsrld {x12}, {x7}, 20"
    "vpxor {x4}, {x4}, {x8}"
    "vmovdqa [{memory} + {word_8}], {x8}"
    "vpsrld {x8}, {x4}, 25"
    "vpslld {x7}, {x7}, 12"
    "vpaddd {x2}, {x6}, [{memory} + {word_2}]"
    "vpslld {x4}, {x4}, 7"
    "vpshufb {x13}, {x13}, [{memory} + {by_8}]"
    "vpxor {x14}, {x14}, {x2}"
    "vpshufb {x14}, {x14}, [{memory} + {by_8}]"
    "vpaddd {x9}, {x9}, {x13}"
    "vpor {x7}, {x7}, {x12}"
    "vpaddd {x3}, {x3}, {x7}"
    "vpaddd {x10}, {x10}, {x14}"
    "vpxor {x5}, {x5}, {x9}"
    "vpsrld {x12}, {x5}, 25"
    "vpxor {x15}, {x15}, {x3}"
    "vpor {x4}, {x4}, {x8}"
    "vpslld {x5}, {x5}, 7"
    "vpshufb {x15}, {x15}, [{memory} + {by_8}]"
    "vpor {x5}, {x5}, {x12}"
    "vpaddd {x11}, {x11}, {x15}"
    "vpxor {x6}, {x6}, {x10}"
    "vpsrld {x8}, {x6}, 25"
    "vpslld {x6}, {x6}, 7"
    "vpxor {x7}, {x7}, {x11}"
    "vpor {x6}, {x6}, {x8}"
    "vpsrld {x8}, {x7}, 25"
    "vpslld {x7}, {x7}, 7"
    "vpor {x7}, {x7}, {x8}"
    ;
    in registers: x1[1] x3[3] x4[4] x5[5] x6[6] x7[7]
        x9[9] x10[10] x11[11] x13[13] x14[14] x15[15];
    to memory: x8[8] x12[12];
    from memory: x2[2];
    scratch:;
    memory: word_2 word_8 word_12 by_8;
}

quarter! {
    /// The third quarter. After it word 3 is in memory.
    third:
    "vpaddd {x3}, {x3}, {x4}"
    "vpxor {x14}, {x14}, {x3}"
    "vpaddd {x1}, {x1}, {x6}"
    "vpshufb {x14}, {x14}, [{memory} + {by_16}]"
    "vpaddd {x0}, {x0}, {x5}"
    "vpxor {x15}, {x15}, {x0}"
    "vpaddd {x9}, {x9}, {x14}"
    "vpxor {x4}, {x4}, {x9}"
    "vpshufb {x15}, {x15}, [{memory} + {by_16}]"
    "vpsrld {x8}, {x4}, 20"
    "vpaddd {x10}, {x10}, {x15}"
    "vpxor {x12}, {x1}, [{memory} + {word_12}]"
    "vpslld {x4}, {x4}, 12"
    "vpshufb {x12}, {x12}, [{memory} + {by_16}]"
    "vpor {x4}, {x4}, {x8}"
    "vpxor {x5}, {x5}, {x10}"
    "vpaddd {x2}, {x2}, {x7}"
    "vpxor {x13}, {x13}, {x2}"
    "vpaddd {x11}, {x11}, {x12}"
    "vpaddd {x3}, {x3}, {x4}"
    "vpxor {x6}, {x6}, {x11}"
    "vpsrld {x8}, {x5}, 20"
    "vpslld {x5}, {x5}, 12"
    "vpshufb {x13}, {x13}, [{memory} + {by_16}]"
    "vpxor {x14}, {x14}, {x3}"
    "vpor {x5}, {x5}, {x8}"
    "vmovdqa [{memory} + {word_3}], {x3}"
    "vpsrld {x3}, {x6}, 20"
    "vpslld {x6}, {x6}, 12"
    "vpaddd {x8}, {x13}, [{memory} + {word_8}]"
    "vpshufb {x14}, {x14}, [{memory} + {by_8}]"
    "vpxor {x7}, {x7}, {x8}"
    "vpor {x6}, {x6}, {x3}"
    ;
    in registers: x0[0] x1[1] x2[2] x4[4] x5[5] x6[6]
        x7[7] x9[9] x10[10] x11[11] x13[13] x14[14] x15[15];
    to memory: x3[3];
    from memory: x8[8] x12[12];
    scratch:;
    memory: word_3 word_8 word_12 by_16 by_8;
}

quarter! {
    /// The last quarter. After it word 3 is in memory.
    last:
    "vpsrld {x3}, {x7}, 20"
    "vpslld {x7}, {x7}, 12"
    "vpaddd {x9}, {x9}, {x14}"
    "vpaddd {x1}, {x1}, {x6}"
    "vpaddd {x0}, {x0}, {x5}"
    "vpor {x7}, {x7}, {x3}"
    "vpaddd {x2}, {x2}, {x7}"
    "vpxor {x15}, {x15}, {x0}"
    "vpxor {x4}, {x4}, {x9}"
    "vpshufb {x15}, {x15}, [{memory} + {by_8}]"
    "vpxor {x13}, {x13}, {x2}"
    "vpsrld {x3}, {x4}, 25"
    "vpaddd {x10}, {x10}, {x15}"
    "vpxor {x12}, {x12}, {x1}"
    "vpslld {x4}, {x4}, 7"
    "vpshufb {x12}, {x12}, [{memory} + {by_8}]"
    "vpor {x4}, {x4}, {x3}"
    "vpxor {x5}, {x5}, {x10}"
    "vpsrld {x3}, {x5}, 25"
    "vpslld {x5}, {x5}, 7"
    "vpaddd {x11}, {x11}, {x12}"
    "vpshufb {x13}, {x13}, [{memory} + {by_8}]"
    "vpxor {x6}, {x6}, {x11}"
    "vpor {x5}, {x5}, {x3}"
    "vpsrld {x3}, {x6}, 25"
    "vpslld {x6}, {x6}, 7"
    "vpaddd {x8}, {x8}, {x13}"
    "vpor {x6}, {x6}, {x3}"
    "vpxor {x7}, {x7}, {x8}"
    "vpsrld {x3}, {x7}, 25"
    "vpslld {x7}, {x7}, 7"
    "vpor {x7}, {x7}, {x3}"
    ;
    in registers: x0[0] x1[1] x2[2] x4[4] x5[5] x6[6] x7[7]
        x8[8] x9[9] x10[10] x11[11] x12[12] x13[13] x14[14] x15[15];
    to memory:;
    from memory:;
    scratch: x3;
    memory: by_8;
}
