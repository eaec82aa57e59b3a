//! The part of `subtle` that `lanes` uses, with one difference: where a [`Choice`]
//! is made a `bool`, valgrind is told that it is public.
//!
//! Whether a packet is authentic is public as soon as it is known: it is the
//! answer of `open`, which then decrypts or does not. Everything before, such as
//! where two tags differ, is not. (Cargo does not let this crate call the real
//! one, so the comparison of two words is written anew below.)

use crabgrind::memcheck::{MemState, mark_memory};

/// Whether something is so: 0 or 1, still secret.
#[derive(Clone, Copy)]
pub struct Choice(u8);

impl From<Choice> for bool {
    fn from(choice: Choice) -> bool {
        let verdict = choice.0;
        mark_memory((&raw const verdict).cast(), 1, MemState::Defined)
            .expect("running under valgrind");
        // Read it again: a copy in a register would still count as secret.
        std::hint::black_box(verdict) != 0
    }
}

/// Comparison in constant time.
pub trait ConstantTimeEq {
    /// Whether they are equal.
    fn ct_eq(&self, other: &Self) -> Choice;
}

impl ConstantTimeEq for u64 {
    fn ct_eq(&self, other: &u64) -> Choice {
        // Only 0 borrows from above when 1 is taken away.
        let differ = u128::from(self ^ other);
        Choice((differ.wrapping_sub(1) >> 64) as u8 & 1)
    }
}
