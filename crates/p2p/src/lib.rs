//! What a client of Bitcoin nodes needs: connections over v1 and v2, and the payloads of messages.
//!
//! [`initiate`](connection::initiate) or [`respond`](connection::respond) exchanges keys on a stream
//! of tokio, [`halves`](connection::halves) puts messages on it, and [`payload`] reads and writes
//! what is in them.
//!
//! A [`Peer`](peer::Peer) counts what passes a connection, and [`record`] keeps it in the format of
//! [`capture`]; [`node`] exchanges versions, measures pings and fetches blocks.
//!
//! The peer is not trusted: every length is checked against the bytes that are there and against
//! the limits of the protocol.

pub mod capture;
pub mod connection;
pub mod message_type;
mod meter;
pub mod node;
pub mod payload;
pub mod peer;
pub mod record;
