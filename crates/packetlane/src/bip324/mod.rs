//! BIP324, version 2 of Bitcoin's peer-to-peer transport: encrypted, authenticated, and
//! indistinguishable from random bytes from the first byte on.
//!
//! Everything here is sans-I/O: bytes come in and go out as slices, without sockets and clocks.
//!
//! - [`Connection`]: everything that one connection of an event loop needs, except its socket.
//! - [`Handshake`]: from the first byte to a session, for both sides.
//! - [`Session`] with its halves [`Outbound`] and [`Inbound`]: packets, many at a time through a
//!   [`Batch`](crate::Batch), or one at a time.
//! - For the contents of packets, see [`bitcoin::message`](crate::bitcoin::message).
//! - [`Keypair`], [`SessionKeys`]: the key exchange alone. [`Cipher`]: one direction alone.
//! - [`shape`]: which decoys to send, and when bytes leave, so that sizes and times tell less.
//! - `stream` (feature `tokio`): sessions over tokio's streams.
//!
//! ```
//! use packetlane::bip324::{Keypair, PacketKind, Role, Session, SessionKeys};
//! use packetlane::bitcoin::Network;
//! use packetlane::{Engine, OpenBatch, SealBatch};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two sides exchange keys. (Real secrets are random; Handshake does all of this.)
//! let (ours, theirs) = (Keypair::new(&[1; 32], &[2; 32])?, Keypair::new(&[3; 32], &[4; 32])?);
//! let shared = ours.shared_secret(theirs.public(), Role::Initiator);
//! assert_eq!(shared, theirs.shared_secret(ours.public(), Role::Responder));
//! let keys = SessionKeys::derive(&shared, Network::Mainnet.magic());
//!
//! let engine = Engine::detect()?;
//! let mut alice = Session::from_keys(engine, &keys, Role::Initiator);
//! let mut bob = Session::from_keys(engine, &keys, Role::Responder);
//!
//! // Two packets, of which the receiver sees one: the other is a decoy.
//! let mut batch = SealBatch::new();
//! let decoy = alice.outbound.push(&mut batch, PacketKind::Decoy, b"noise")?;
//! let hello = alice.outbound.push(&mut batch, PacketKind::Genuine, b"hello")?;
//! engine.seal(&mut batch);
//! let both = decoy.join(&hello).expect("neighbours");
//! let wire = batch.wire(&both)?;
//!
//! let mut batch = OpenBatch::new();
//! bob.inbound.feed(&mut batch, wire)?;
//! engine.open(&mut batch);
//! let packets: Result<Vec<_>, _> = bob.inbound.packets(&batch).collect();
//! assert_eq!((packets?, bob.inbound.decoys()), (vec![&b"hello"[..]], 1));
//! # Ok(())
//! # }
//! ```

mod buffer;
mod cipher;
mod connection;
mod error;
mod fs_chacha20;
mod fs_chacha20_poly1305;
mod handshake;
mod inbound;
#[cfg(feature = "std")]
mod key_pool;
mod keys;
mod opened;
mod outbound;
mod packet;
mod precomputed;
mod reception;
mod rekey;
mod session;
pub mod shape;
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub mod stream;

pub use crate::key_exchange::Role;
pub use cipher::Cipher;
pub use connection::{Connection, ConnectionError};
pub use error::{HandshakeError, OpenError, SealError};
pub use handshake::{Handshake, HandshakeConfig, Progress};
pub use inbound::Inbound;
#[cfg(feature = "std")]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
pub use key_pool::KeyPool;
#[cfg(feature = "internals")]
pub(crate) use keys::shared_secrets;
pub use keys::{Keypair, SessionKeys};
#[cfg(feature = "internals")]
pub(crate) use outbound::Draft;
pub use outbound::Outbound;
pub use packet::PacketKind;
pub use session::Session;
