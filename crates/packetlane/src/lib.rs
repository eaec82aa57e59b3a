//! BIP324, Bitcoin's v2 encrypted transport, and QUIC packet protection, over whole
//! batches of packets; and double SHA-256 over many messages.
//!
//! The packets that one turn of an event loop holds, whichever sessions they
//! belong to, lie in the arena of one [`Batch`]; an [`Engine`] seals or opens
//! them all at once, in place, and gives a verdict for each. [`bip324`] holds the
//! handshake, the sessions and the codec of messages, all without I/O; [`v1`] the
//! framing of the old transport, for a peer that speaks nothing else; [`quic`] the same
//! idea for QUIC's packets. [`sha256d`] hashes transactions and Merkle trees, and needs
//! none of these.
//!
//! ```
//! use packetlane::bip324::{Handshake, HandshakeConfig, Network, PacketKind, Progress};
//! use packetlane::{Batch, Engine};
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
//! let mut batch = Batch::new();
//! let ping = alice.outbound.push(&mut batch, PacketKind::Genuine, b"ping")?;
//! engine.seal(&mut batch);
//! let wire = batch.wire(&ping).to_vec();
//!
//! batch.clear();
//! bob.inbound.feed(&mut batch, &wire);
//! engine.open(&mut batch);
//! let packets: Result<Vec<_>, _> = bob.inbound.packets(&batch).collect();
//! assert_eq!(packets?, [b"ping"]);
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! - `std` (default): entropy from the operating system, the environment variable
//!   `PACKETLANE_BACKEND`. Without it the crate is `no_std` and needs `alloc`.
//! - `parallel`: `Engine::with_threads`, one large batch on several threads, through
//!   rayon.
//! - `cuda`: `Engine::with_gpu`, large batches on an NVIDIA GPU, where the machine has one.
//! - `tokio`: [`bip324::stream`], reader and writer halves over async streams.
//! - `rustls`: `quic::rustls`, a provider for rustls.
//! - `quinn`: `quic::quinn`, the same for quinn, header protection included.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

#[cfg(feature = "cuda")]
mod arena;
mod batch;
pub mod bip324;
mod copy;
mod engine;
#[cfg(feature = "cuda")]
mod offload;
#[cfg(feature = "parallel")]
mod parallel;
pub mod quic;
pub mod sha256d;
pub mod v1;

pub use batch::{Batch, Slot};
pub use engine::{BACKEND_VARIABLE, BackendError, Engine};
#[cfg(feature = "cuda")]
pub use offload::Offload;
#[cfg(feature = "cuda")]
pub use packetlane_gpu as gpu;
pub use packetlane_lanes::{Backend, Block, Job, Key, Nonce, Outcome, Secrets, TAG_LEN, Work};
