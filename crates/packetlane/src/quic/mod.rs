//! QUIC packet protection (RFC 9001; RFC 9369 for version 2): the keys, the AEAD and
//! the header protection of packets, of many connections at once or one at a time.
//!
//! Everything here is sans-I/O. Frames, acknowledgements and connections are the caller's:
//! it asks here for sealed packets, and for the contents of packets that came.
//!
//! - [`Secret`]: a traffic secret, what follows from it at a key update, and the
//!   secrets of Initial packets.
//! - [`Sealer`] and [`Opener`]: one direction of one packet number space. They put
//!   packets into a [`SealBatch`] or an [`OpenBatch`], and an [`Engine`](crate::Engine) seals or opens those of all
//!   connections in one call, headers included, each with its own outcome. The caller brings
//!   the header of a packet; a [`ShortHeader`] is written here.
//! - [`PacketKey`] and [`HeaderKey`]: one packet at a time, AEAD and header in two calls.
//! - [`Header`]: where a packet's parts lie; [`PacketNumber`]: encoded and decoded;
//!   [`Version::retry_tag`] and [`Version::verify_retry`].
//! - `rustls` (feature `rustls`) and `quinn` (feature `quinn`): the same below rustls's and
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
//! // Packet number 5, of which the peer has acknowledged those up to 3.
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
