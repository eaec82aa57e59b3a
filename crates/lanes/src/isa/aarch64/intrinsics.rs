//! A macro to call NEON intrinsics.

/// Evaluates NEON intrinsics.
macro_rules! on_neon {
    ($($intrinsics:tt)*) => {
        // SAFETY: NEON is a feature of every target that this folder is compiled for, and these
        // intrinsics touch no memory.
        unsafe { $($intrinsics)* }
    };
}
