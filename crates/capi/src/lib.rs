//! BIP324, QUIC packet protection and double SHA-256 over whole batches, for C and C++.
//!
//! `include/packetlane.h` is made from these files. Its rules, which stand at its top
//! (`cbindgen.toml`), are what the `SAFETY` comments here rest on: a handle is one that a function
//! here gave and that has not been freed, no other thread uses it in the meantime unless all only
//! read, and a pointer to memory has as many bytes behind it as its length says.
//!
//! - `status.rs`: why a call did not do what it should, as a number and in words.
//! - `handle.rs`: what holds for every call: no panic leaves it, NULL is refused, and a handle that
//!   a panic may have left half changed is not used again.
//! - `engine.rs`, `handshake.rs`, `session.rs`, `batch.rs`, `v1.rs`, `quic.rs`, `hash.rs`: the
//!   interface.

#![allow(unsafe_code, reason = "the edge to C")]
#![allow(
    non_camel_case_types,
    reason = "types are called here as they are in the header"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the header says what callers must keep to, once and for all functions"
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

// What secp256k1-sys would export beside our functions: Rust keeps the names that its C code
// calls. A symbol that is hidden in one object file is hidden in the library. `check` fails if
// there are others. Weak, so that a name that is not there does no harm.
#[cfg(target_os = "linux")]
core::arch::global_asm!(
    ".irp name, context_create, context_destroy, default_error_callback_fn, \
     default_illegal_callback_fn",
    ".weak rustsecp256k1_v0_10_0_\\name",
    ".hidden rustsecp256k1_v0_10_0_\\name",
    ".endr",
);
