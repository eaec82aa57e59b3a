//! The part of `subtle` that `lanes` uses, with one difference: converting a [`Choice`] to a `bool`
//! tells valgrind that it is public.
//!
//! Whether a packet is authentic is public, because `open` returns it and decrypts accordingly.
//! Everything before that is secret, for example where two tags differ. (Cargo does not allow this
//! crate to depend on the real one, so the comparison of two words is reimplemented.)

use crabgrind::memcheck::{MemState, mark_memory};

/// The result of a comparison: 0 or 1, still secret.
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
    /// Whether the two are equal.
    fn ct_eq(&self, other: &Self) -> Choice;
}

impl ConstantTimeEq for u64 {
    fn ct_eq(&self, other: &u64) -> Choice {
        // Subtracting 1 borrows from the upper half only if the difference is 0.
        let differ = u128::from(self ^ other);
        Choice((differ.wrapping_sub(1) >> 64) as u8 & 1)
    }
}
