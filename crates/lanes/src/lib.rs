//! Cryptographic kernels that work on many packets or messages at once.
//!
//! - ChaCha20-Poly1305 (RFC 8439): [`seal`](Kernels::seal), [`open`](Kernels::open), and its
//!   parts [`chacha20`](Kernels::chacha20) and [`poly1305`](Kernels::poly1305).
//! - AES-GCM (NIST SP 800-38D): [`gcm_seal`](Kernels::gcm_seal),
//!   [`gcm_open`](Kernels::gcm_open).
//! - QUIC header protection (RFC 9001, section 5.4):
//!   [`aes_mask_headers`](Kernels::aes_mask_headers),
//!   [`chacha20_mask_headers`](Kernels::chacha20_mask_headers).
//! - secp256k1, for the handshakes of BIP324: [`public_keys`](Kernels::public_keys), their
//!   [ElligatorSwift encodings](Kernels::encode_public_keys), and [`shared_x`](Kernels::shared_x).
//! - SHA-256 (FIPS 180-4): [`sha256`](Kernels::sha256), [`sha256d`](Kernels::sha256d).
//!
//! A [`Backend`] is one instruction set, and [`Backend::kernels`] are its algorithms. Each
//! algorithm is written once, generic over the vectors of an instruction set. This crate knows
//! nothing about sessions. A caller passes a buffer, a list of keys, and a list of [`Job`]s that
//! say where the packets lie in the buffer; or a list of messages to hash.
//!
//! No branch and no memory index depends on a key, on keystream or on plaintext. Arrays of ChaCha20
//! keystream, one-time keys and powers of them are wiped before a call returns, and AES keys when
//! they are dropped. Registers that the compiler spilled to the stack are not wiped. SHA-256 is for
//! public data: it wipes nothing.

#![no_std]
#![cfg_attr(
    not(target_arch = "x86_64"),
    allow(
        dead_code,
        unused_imports,
        reason = "only x86-64 vectors use some of the kernels"
    )
)]
#![allow(
    unsafe_code,
    reason = "vector instructions need it; the other crates have no unsafe CPU code"
)]

mod aead;
mod aes_keys;
mod backend;
mod calibrate;
mod gcm;
mod header_protection;
mod isa;
mod job;
mod kernels;
mod secp256k1;
mod sha256;
mod vector;
mod wipe;

pub use backend::{Backend, Kernels};
pub use isa::prefetch;
pub use job::{Block, Digest, Header, Job, Key, Nonce, Outcome, TAG_LEN, Work};
pub use kernels::aes::key::{AesKey, GcmKey};
pub use secp256k1::{MAX_KEY_LANES, PublicKey, is_secret_key};
