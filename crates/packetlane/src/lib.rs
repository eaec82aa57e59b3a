//! BIP324, Bitcoin's v2 encrypted transport, and QUIC packet protection, over whole
//! batches of packets; and double SHA-256 over many messages.
//!
//! The packets of one turn of an event loop, whichever sessions they belong to, lie in the
//! arena of one batch: a [`SealBatch`] or an [`OpenBatch`]. An [`Engine`] seals or opens them
//! all at once, in place, and each packet has its own outcome.
//!
//! - [`bip324`]: handshake and sessions of BIP324, without I/O.
//! - [`bitcoin`]: networks, messages and the framing of version 1, the old transport.
//! - [`quic`]: packet protection of QUIC, without I/O. It has its own
//!   [`SealBatch`](quic::SealBatch) and [`OpenBatch`](quic::OpenBatch).
//! - [`sha256d`]: transaction ids, Merkle trees and blocks. It needs none of the others.
//! - [`Batch`], [`PacketLayout`], [`BatchKey`]: any other protocol with ChaCha20-Poly1305.
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
//! // What a socket would do: carry each side's output to the other.
//! let (mut alice, mut bob) = {
//!     bob.receive(&alice.take_output())?;
//!     let Progress::Complete(alice_session) = alice.receive(&bob.take_output())? else { panic!() };
//!     let Progress::Complete(bob_session) = bob.receive(&alice.take_output())? else { panic!() };
//!     (alice_session, bob_session)
//! };
//! assert_eq!(alice.id(), bob.id());
//!
//! let mut batch = SealBatch::new();
//! let ping = alice.outbound.push(&mut batch, PacketKind::Genuine, b"ping")?;
//! engine.seal(&mut batch);
//! let wire = batch.wire(&ping)?;
//!
//! let mut batch = OpenBatch::new();
//! bob.inbound.feed(&mut batch, wire)?;
//! engine.open(&mut batch);
//! let packets: Result<Vec<_>, _> = bob.inbound.packets(&batch).collect();
//! assert_eq!(packets?, [b"ping"]);
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! - `bip324` (default): the module [`bip324`]. It needs a C compiler, for secp256k1; everything
//!   else but `rustls` and `quinn`, which bring ring, is built from Rust alone.
//! - `std` (default): entropy from the operating system, the environment variable
//!   `PACKETLANE_BACKEND`. Without it the crate is `no_std` and needs `alloc`.
//! - `parallel`: `Engine::with_threads`, one large batch on several threads, through rayon.
//! - `cuda`: `Engine::with_gpu`, large batches on an NVIDIA GPU, if the machine has one.
//! - `tokio`: `bip324::stream`, sessions over async streams.
//! - `rustls`: `quic::rustls`, a provider for rustls.
//! - `quinn`: `quic::quinn`, the same for quinn, header protection included.
//! - `internals`: a module for the other crates of the repository, which the promise of the version
//!   does not cover.

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
