//! QUIC packet protection (RFC 9001; RFC 9369 for version 2): the keys, the AEAD and the header
//! protection of packets, for many connections at once or for one packet at a time.
//!
//! Everything here is sans-I/O. Frames, acknowledgements and connections belong to the caller, who
//! gets sealed packets and the contents of received packets from here.
//!
//! - [`Secret`]: a traffic secret, its successors after key updates, and the secrets of Initial
//!   packets.
//! - [`Sealer`] and [`Opener`]: one direction of one packet number space. They add packets to a
//!   [`SealBatch`] or an [`OpenBatch`], and an [`Engine`](crate::Engine) seals or opens the packets
//!   of all connections in one call, headers included, each with its own outcome. The caller
//!   supplies a packet's header; a [`ShortHeader`] is written here.
//! - [`PacketKey`] and [`HeaderKey`]: one packet at a time, with separate calls for AEAD and
//!   header.
//! - [`Header`]: parses the unprotected parts of a header. [`PacketNumber`]: encodes and decodes
//!   packet numbers. [`Version::retry_tag`] and [`Version::verify_retry`]: Retry packets.
//! - `rustls` (feature `rustls`) and `quinn` (feature `quinn`): implementations of rustls's and
//!   quinn's interfaces.
//!
//! ```
//! use packetlane::Engine;
//! use packetlane::quic::{
//!     Header, OpenBatch, Opener, PacketNumber, SealBatch, Sealer, Secret, ShortHeader, Version,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::detect()?;
//! let connection_id = [1, 2, 3, 4, 5, 6, 7, 8];
//! let [client, _server] = Secret::initial(Version::V1, &connection_id);
//! let mut opener = Opener::new(client.clone());
//! let mut sealer = Sealer::new(client);
//!
//! // Packet number 5; the peer has acknowledged numbers up to 3.
//! let header = ShortHeader {
//!     destination: &connection_id,
//!     spin: false,
//!     number: PacketNumber::encode(5, Some(3)).expect("3 is near"),
//! };
//! let mut batch = SealBatch::new();
//! let (slot, payload) = sealer.reserve_short(&mut batch, &header, 6)?;
//! payload.copy_from_slice(b"frames");
//! engine.seal(&mut batch);
//! let wire = batch.wire(&slot)?;
//!
//! let mut batch = OpenBatch::new();
//! let datagram = batch.feed(wire);
//! let header = Header::parse(&batch.bytes()[datagram.clone()], 8)?;
//! let (offset, end) = (header.pn_offset, datagram.start + header.packet_len);
//! let slot = opener.push(&mut batch, datagram.start..end, offset)?;
//! engine.open(&mut batch);
//! let packet = opener.take(&batch, slot)?;
//! assert_eq!((packet.number, packet.payload), (5, &b"frames"[..]));
//! # Ok(())
//! # }
//! ```

mod batch;
mod error;
mod header;
mod key_ring;
mod keys;
mod opener;
#[cfg(feature = "quinn")]
#[cfg_attr(docsrs, doc(cfg(feature = "quinn")))]
pub mod quinn;
mod retry;
#[cfg(feature = "rustls")]
#[cfg_attr(docsrs, doc(cfg(feature = "rustls")))]
pub mod rustls;
mod sealer;
mod suite;
mod version;
mod window;

pub use batch::{Batch, OpenBatch, SealBatch};
pub use error::{OpenError, SealError};
pub use header::{Header, HeaderError, PacketNumber, PacketType};
pub use keys::{HeaderKey, KeyLenError, PacketKey, Secret};
pub use opener::{Opener, Packet};
pub use sealer::{Sealer, ShortHeader};
pub use suite::Suite;
pub use version::Version;
