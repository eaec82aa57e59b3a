//! How the files of this folder call intrinsics of NEON.

/// Evaluates intrinsics of NEON.
macro_rules! on_neon {
    ($($intrinsics:tt)*) => {
        // SAFETY: NEON is a feature of every target that this folder is compiled for, and these
        // intrinsics touch no memory.
        unsafe { $($intrinsics)* }
    };
}
