//! Building blocks for clients of Bitcoin nodes: connections over v1 and v2, and message payloads.
//!
//! [`initiate`](connection::initiate) or [`respond`](connection::respond) performs the handshake on
//! a tokio stream, [`halves`](connection::halves) sends and receives messages on it, and
//! [`payload`] encodes and decodes their contents. [`address`] has addresses of nodes, and changes
//! what is announced of them.
//!
//! A [`Peer`](peer::Peer) counts the traffic of a connection, and [`record`] writes it to files in
//! the format of [`capture`]. [`node`] exchanges versions, measures pings and fetches blocks.
//!
//! Without the default feature `tokio` there are no connections, only messages and recordings.
//!
//! The peer is not trusted: every length is checked against the bytes received and against the
//! limits of the protocol.

pub mod address;
pub mod capture;
#[cfg(feature = "tokio")]
pub mod connection;
pub mod message_type;
#[cfg(feature = "tokio")]
mod meter;
#[cfg(feature = "tokio")]
pub mod node;
pub mod payload;
#[cfg(feature = "tokio")]
pub mod peer;
pub mod record;
