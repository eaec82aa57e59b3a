//! ChaCha20-Poly1305 (RFC 8439) and AES-GCM (NIST SP 800-38D) over many packets at once,
//! the header masks of QUIC (RFC 9001, section 5.4), and SHA-256 (FIPS 180-4) over many
//! messages.
//!
//! The algorithms ([`chacha20`](Backend::chacha20), [`poly1305`](Backend::poly1305),
//! [`seal`](Backend::seal), [`open`](Backend::open), [`gcm_seal`](Backend::gcm_seal),
//! [`gcm_open`](Backend::gcm_open), [`sha256`](Backend::sha256)) are written once, what
//! runs in vectors generic over what an instruction set offers; a [`Backend`] is one
//! instruction set. This crate knows nothing of sessions: it gets a buffer, lists of
//! [`Secrets`] or keys and a list of [`Job`]s that say where packets lie in the buffer; or
//! a list of messages.
//!
//! Nothing here branches on a key, a keystream or a plaintext, or uses one as an index.
//! Arrays of keystream, one-time keys and powers of them are wiped before a call
//! returns; what a register leaves on the stack is not. SHA-256 is for public data: of
//! it nothing is wiped.

#![no_std]
#![allow(unsafe_code, reason = "the one crate that may")]

mod aead;
mod aes_keys;
mod backend;
mod calibrate;
mod gcm;
mod header_protection;
mod isa;
mod job;
mod kernels;
mod sha256;
mod vector;

pub use backend::Backend;
pub use isa::prefetch;
pub use job::{Block, Digest, Header, Job, Key, Nonce, Outcome, Secrets, TAG_LEN, Work};
pub use kernels::aes::key::{AesKey, GcmKey};
