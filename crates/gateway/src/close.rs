//! Why connections end.

use crate::proxy_protocol::ProxyProtocolError;
use crate::socks::{self, SocksError};
use packetlane::bip324::{ConnectionError, HandshakeError};
use packetlane::bitcoin::v1;
use std::io::{self, ErrorKind};
use strum::{IntoStaticStr, VariantNames};

/// Why a connection ended.
#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
#[non_exhaustive]
pub enum Close {
    /// The peer closed it.
    #[error("the peer closed the connection")]
    Peer,
    /// The node closed it.
    #[error("the node closed the connection")]
    Node,
    /// The PROXY protocol header is invalid.
    #[error("PROXY protocol: {0}")]
    ProxyProtocol(ProxyProtocolError),
    /// The peer violated BIP324, or closed within a packet.
    #[error("protocol error of the peer: {0}")]
    Protocol(ConnectionError),
    /// The node sent something that is not v1 of the configured network.
    #[error("protocol error of the node: {0}{hint}", hint = network_hint(.0))]
    NodeProtocol(v1::Error),
    /// The node's SOCKS request or the upstream proxy's reply is invalid, or the proxy refused.
    #[error("{0}")]
    Socks(SocksError),
    /// The name that the node asked for cannot be resolved.
    #[error("cannot resolve the peer's name: {0}")]
    Name(io::Error),
    /// A Tor RESOLVE request was answered; it needs no connection.
    #[error("a name lookup for the node was answered")]
    Resolved,
    /// The node asked for an `.onion` name, and [`Settings::tor`](crate::Settings::tor) is not set.
    #[error("an .onion name needs --tor")]
    NoTor,
    /// The v2 handshake could not be started: no random numbers.
    #[error("{0}")]
    NoHandshake(HandshakeError),
    /// The peer is unreachable, or its socket failed.
    #[error("the connection to the peer failed: {0}")]
    PeerSocket(io::Error),
    /// The node is unreachable, or its socket failed.
    #[error("the connection to the node failed: {0}")]
    NodeSocket(io::Error),
    /// The node closed an inbound peer's connection before it sent anything: it has banned the peer,
    /// is full, or does not accept its first message.
    #[error(
        "the node closed the connection before it sent anything: it has banned the peer, is full, or \
         does not accept its first message"
    )]
    NodeRefused,
    /// The peer speaks v1, and [`Settings::v2_only`](crate::Settings::v2_only) or
    /// [`Settings::outbound_v2_only`](crate::Settings::outbound_v2_only) requires v2 of it.
    #[error("the peer speaks only v1, and v2 is required")]
    V1,
    /// The settings deny the peer's address since it has connected.
    #[error("the peer's address is denied")]
    Denied,
    /// The handshake took longer than [`Limits::handshake`](crate::Limits::handshake).
    #[error("the handshake timed out")]
    Handshake,
    /// The peer sent nothing for [`Limits::idle`](crate::Limits::idle).
    #[error("the peer sent nothing for too long")]
    Idle,
    /// The peer read nothing of what is queued for it for
    /// [`Limits::stalled`](crate::Limits::stalled).
    #[error("the peer stopped reading")]
    Stalled,
    /// The connections of this direction exceeded [`Limits::memory`](crate::Limits::memory) or
    /// [`Limits::outbound_memory`](crate::Limits::outbound_memory), and this one held the most in
    /// its thread.
    #[error("the memory limit was reached, and this connection held the most")]
    Memory,
    /// The gateway stopped.
    #[error("the gateway stopped")]
    Stopped,
}

/// What a node's wrong magic may mean.
fn network_hint(error: &v1::Error) -> &'static str {
    match error {
        v1::Error::Magic { .. } => "; it may be on another network",
        _ => "",
    }
}

impl Close {
    /// The SOCKS reply for a node that still waits for one.
    pub(crate) fn reply(&self) -> Option<socks::Reply> {
        match self {
            Self::Socks(error) => error.reply(),
            Self::Name(_) | Self::NoTor => Some(socks::Reply::HOST_UNREACHABLE),
            Self::PeerSocket(error) => Some(match error.kind() {
                ErrorKind::ConnectionRefused => socks::Reply::REFUSED,
                _ => socks::Reply::HOST_UNREACHABLE,
            }),
            _ => Some(socks::Reply::FAILED),
        }
    }
}
