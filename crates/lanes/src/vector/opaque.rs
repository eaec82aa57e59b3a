//! Values whose origin is hidden from the compiler, because it would choose slower instructions.
//! Miri has no assembly, and no instructions to choose.

/// Returns `word`, so that the compiler cannot keep it in a lane of a vector.
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

/// Returns `value`, with any bounds hidden from the compiler.
#[inline(always)]
#[cfg_attr(any(miri, not(target_arch = "x86_64")), allow(unused_mut))]
pub(crate) fn opaque_u64(mut value: u64) -> u64 {
    // SAFETY: the assembly text is only a comment, so no instruction runs.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        core::arch::asm!("/* {} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let value = core::hint::black_box(value);
    value
}

/// Returns the same pointer, unknown to the compiler, so that it reads again what it has read
/// through another pointer, instead of keeping it where registers are scarce.
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
