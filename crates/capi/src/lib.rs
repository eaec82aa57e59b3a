//! BIP324, QUIC packet protection and double SHA-256 over batches, for C and C++.
//!
//! `include/packetlane.h` is generated from these files. The `SAFETY` comments rely on the rules at
//! its top (written in `cbindgen.toml`): a handle was returned by this library and is not freed; no
//! other thread uses it during the call, unless all of them only read; and a pointer is valid for as
//! many bytes as its length says.
//!
//! - `status.rs`: status codes and error messages.
//! - `handle.rs`: guarantees of every call: no panic crosses it, NULL is refused, and a handle that a
//!   panic may have left inconsistent is not used again.
//! - `engine.rs`, `handshake.rs`, `session.rs`, `batch.rs`, `v1.rs`, `quic.rs`, `hash.rs`: the
//!   interface.

#![allow(unsafe_code, reason = "the boundary to C")]
#![allow(non_camel_case_types, reason = "types have their names in the header")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the header states the rules for callers once, for all functions"
)]

#[macro_use]
mod handle;

mod batch;
mod engine;
mod handshake;
mod hash;
mod quic;
mod session;
mod status;
#[cfg(test)]
mod tests;
mod v1;

pub use batch::*;
pub use engine::*;
pub use handshake::*;
pub use hash::*;
pub use quic::*;
pub use session::*;
pub use status::*;
pub use v1::*;

// Hides symbols that secp256k1-sys would otherwise export next to our functions, because its C code
// calls them. A symbol hidden in one object file is hidden in the library. `check` fails if others
// are exported. Weak, so that a missing name is not an error.
#[cfg(target_os = "linux")]
core::arch::global_asm!(
    ".irp name, context_create, context_destroy, default_error_callback_fn, \
     default_illegal_callback_fn",
    ".weak rustsecp256k1_v0_10_0_\\name",
    ".hidden rustsecp256k1_v0_10_0_\\name",
    ".endr",
);
