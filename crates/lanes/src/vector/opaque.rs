//! Values whose origin the compiler must not see, because it would choose slower instructions.
//! Miri has no assembly, and no instructions to choose.

/// Returns `word`. The compiler cannot keep it in a lane of a vector.
#[inline(always)]
#[cfg_attr(any(miri, not(target_arch = "x86_64")), allow(unused_mut))]
pub(crate) fn scalar_u32(mut word: u32) -> u32 {
    // SAFETY: the assembly text is only a comment, so no instruction runs.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        core::arch::asm!("/* {:e} */", inout(reg) word, options(pure, nomem, nostack, preserves_flags));
    }
    word
}

/// Returns `value`. The compiler does not know any bound of it.
#[inline(always)]
#[cfg_attr(any(miri, not(target_arch = "x86_64")), allow(unused_mut))]
pub(crate) fn opaque_u64(mut value: u64) -> u64 {
    // SAFETY: the assembly text is only a comment, so no instruction runs.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        core::arch::asm!("/* {} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags));
    }
    value
}

/// The same pointer. The compiler does not know that, and reads again what it has read through another,
/// instead of keeping it where registers are short.
#[inline(always)]
#[cfg_attr(any(miri, not(target_arch = "x86_64")), allow(unused_mut))]
#[allow(
    clippy::pointers_in_nomem_asm_block,
    reason = "nothing is read through it"
)]
pub(crate) fn opaque_pointer(mut pointer: *const u8) -> *const u8 {
    // SAFETY: the assembly text is only a comment, so no instruction runs.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        core::arch::asm!("/* {} */", inout(reg) pointer, options(pure, nomem, nostack, preserves_flags));
    }
    pointer
}
