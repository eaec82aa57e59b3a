//! Seals, opens and hashes many small packets or messages with one call: BIP324 (Bitcoin's v2
//! encrypted transport), QUIC packet protection, and double SHA-256.
//!
//! A program collects the packets of one turn of its event loop, from any number of sessions, in
//! a [`SealBatch`] or an [`OpenBatch`]. An [`Engine`] seals or opens the whole batch in place, several
//! packets at a time in the lanes of vector registers. Each packet has its own outcome. The crate
//! does no I/O and has no unsafe code.
//!
//! - [`bip324`]: the handshake and sessions of BIP324; in an event loop, use
//!   [`Connection`](bip324::Connection).
//! - [`bitcoin`]: networks, message types, and the framing of v1, the unencrypted transport.
//! - [`quic`]: packet protection of QUIC. It has its own [`SealBatch`](quic::SealBatch) and
//!   [`OpenBatch`](quic::OpenBatch).
//! - [`sha256d`]: transaction ids, Merkle trees and blocks.
//! - [`Batch`], [`PacketLayout`], [`BatchKey`]: other protocols with ChaCha20-Poly1305.
//!
//! Two sessions in memory exchange a message:
//!
//! ```
//! use packetlane::bip324::{Handshake, HandshakeConfig, PacketKind, Progress};
//! use packetlane::bitcoin::Network;
//! use packetlane::{Engine, OpenBatch, SealBatch};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::detect()?;
//! let config = || HandshakeConfig::random(Network::Mainnet.magic(), engine);
//! let mut alice = Handshake::initiator(config()?)?;
//! let mut bob = Handshake::responder(config()?)?;
//! // In a program, sockets carry each side's output to the other side.
//! bob.receive(&alice.take_output())?;
//! let Progress::Complete(mut sender) = alice.receive(&bob.take_output())? else {
//!     panic!("the handshake needs more bytes");
//! };
//! let Progress::Complete(mut receiver) = bob.receive(&alice.take_output())? else {
//!     panic!("the handshake needs more bytes");
//! };
//! assert_eq!(sender.id(), receiver.id());
//!
//! let mut batch = SealBatch::new(); // one for all sessions of a thread
//! let slot = sender.outbound.push(&mut batch, PacketKind::Genuine, b"hello")?;
//! engine.seal(&mut batch);
//! let wire = batch.wire(&slot)?;
//!
//! let mut batch = OpenBatch::new();
//! receiver.inbound.feed(&mut batch, wire)?;
//! engine.open(&mut batch);
//! let packets = receiver.inbound.packets(&batch).collect::<Result<Vec<_>, _>>()?;
//! assert_eq!(packets, [b"hello"]);
//! # Ok(())
//! # }
//! ```
//!
//! The repository has guides for [programs](https://github.com/packetlane/packetlane/blob/main/docs/guide/library.md)
//! and [event loops](https://github.com/packetlane/packetlane/blob/main/docs/guide/event-loop.md).
//!
//! # Features
//!
//! | feature | adds | builds C |
//! |---|---|---|
//! | `std` (default) | random numbers from the operating system, the environment variable `PACKETLANE_BACKEND`, `Outbox::write` | |
//! | `bip324` (default) | the module [`bip324`] | |
//! | `libsecp256k1` (default) | key exchanges of BIP324 that are alone, twice as fast | secp256k1 (C) |
//! | `parallel` | `Engine::with_threads`: one large batch on several threads, with rayon | |
//! | `cuda` | `Engine::with_gpu`: large batches on an NVIDIA GPU, if the machine has one | |
//! | `tokio` | `bip324::stream`: sessions over async streams | |
//! | `rustls` | `quic::rustls`: a crypto provider for rustls | ring |
//! | `quinn` | `quic::quinn`: the same for quinn, with header protection in the same call | ring |
//! | `internals` | a module for the other crates of the repository, which SemVer does not cover | |
//!
//! Without `std` the crate is `no_std` and needs `alloc`.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "bip324"),
    allow(
        dead_code,
        rustdoc::broken_intra_doc_links,
        reason = "some methods serve only BIP324's sessions, and some documentation names them"
    )
)]
#![cfg_attr(docsrs, feature(doc_cfg))]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod arena;
mod batch;
#[cfg(feature = "bip324")]
#[cfg_attr(docsrs, doc(cfg(feature = "bip324")))]
pub mod bip324;
pub mod bitcoin;
mod copy;
mod engine;
#[cfg(feature = "internals")]
pub mod internals;
#[cfg(feature = "bip324")]
mod key_exchange;
mod outbox;
pub mod quic;
pub mod sha256d;

pub use arena::{BatchKey, Slot, SlotError};
pub use batch::{AddError, Batch, OpenBatch, PacketLayout, Received, SealBatch};
#[cfg(feature = "cuda")]
#[cfg_attr(docsrs, doc(cfg(feature = "cuda")))]
pub use engine::Offload;
pub use engine::{BackendError, Engine};
pub use outbox::Outbox;
#[cfg(feature = "cuda")]
#[cfg_attr(docsrs, doc(cfg(feature = "cuda")))]
pub use packetlane_gpu as gpu;
pub use packetlane_lanes::{Backend, Key, Nonce, TAG_LEN};
