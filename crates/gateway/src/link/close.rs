//! Why connections end.

use crate::proxy_protocol::ProxyProtocolError;
use crate::socks::{self, SocksError};
use packetlane::bip324::{ConnectionError, HandshakeError};
use packetlane::bitcoin::v1;
use std::fmt;
use std::io::{self, ErrorKind};

/// Why a connection ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Close {
    /// The peer closed it.
    Peer,
    /// The node closed it.
    Node,
    /// The PROXY protocol header is invalid.
    ProxyProtocol(ProxyProtocolError),
    /// The peer violated BIP324, or closed within a packet.
    Protocol(ConnectionError),
    /// The node sent something that is not v1 of the configured network.
    NodeProtocol(v1::Error),
    /// The node's SOCKS request or the upstream proxy's reply is invalid, or the proxy refused.
    Socks(SocksError),
    /// The name that the node asked for cannot be resolved.
    Name(io::Error),
    /// A Tor RESOLVE request was answered; it needs no connection.
    Resolved,
    /// The node asked for an `.onion` name, and [`Settings::tor`](crate::Settings::tor) is not set.
    NoTor,
    /// The v2 handshake could not be started: no random numbers.
    NoHandshake(HandshakeError),
    /// The peer is unreachable, or its socket failed.
    PeerSocket(io::Error),
    /// The node is unreachable, or its socket failed.
    NodeSocket(io::Error),
    /// The node closed an inbound peer's connection before it sent anything: it has banned the peer,
    /// is full, or does not accept its first message.
    NodeRefused,
    /// The peer speaks v1, and [`Settings::v2_only`](crate::Settings::v2_only) or
    /// [`Settings::outbound_v2_only`](crate::Settings::outbound_v2_only) requires v2 of it.
    V1,
    /// The settings deny the peer's address since it has connected.
    Denied,
    /// The handshake took longer than [`Limits::handshake`](crate::Limits::handshake).
    Handshake,
    /// The peer sent nothing for [`Limits::idle`](crate::Limits::idle).
    Idle,
    /// The peer read nothing of what is queued for it for
    /// [`Limits::stalled`](crate::Limits::stalled).
    Stalled,
    /// The connections of this direction exceeded [`Limits::memory`](crate::Limits::memory) or
    /// [`Limits::outbound_memory`](crate::Limits::outbound_memory), and this one held the most in
    /// its thread.
    Memory,
    /// The gateway stopped.
    Stopped,
}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer => f.write_str("the peer closed the connection"),
            Self::Node => f.write_str("the node closed the connection"),
            Self::ProxyProtocol(error) => write!(f, "PROXY protocol: {error}"),
            Self::Protocol(error) => write!(f, "protocol error of the peer: {error}"),
            Self::NodeProtocol(error @ v1::Error::Magic { .. }) => write!(
                f,
                "protocol error of the node: {error}; it may be on another network"
            ),
            Self::NodeProtocol(error) => write!(f, "protocol error of the node: {error}"),
            Self::Socks(error) => error.fmt(f),
            Self::Name(error) => write!(f, "cannot resolve the peer's name: {error}"),
            Self::Resolved => f.write_str("a name lookup for the node was answered"),
            Self::NoTor => f.write_str("an .onion name needs --tor"),
            Self::NoHandshake(error) => error.fmt(f),
            Self::PeerSocket(error) => write!(f, "the connection to the peer failed: {error}"),
            Self::NodeSocket(error) => write!(f, "the connection to the node failed: {error}"),
            Self::NodeRefused => f.write_str(
                "the node closed the connection before it sent anything: it has banned the peer, is \
                 full, or does not accept its first message",
            ),
            Self::V1 => f.write_str("the peer speaks only v1, and v2 is required"),
            Self::Denied => f.write_str("the peer's address is denied"),
            Self::Handshake => f.write_str("the handshake timed out"),
            Self::Idle => f.write_str("the peer sent nothing for too long"),
            Self::Stalled => f.write_str("the peer stopped reading"),
            Self::Memory => {
                f.write_str("the memory limit was reached, and this connection held the most")
            }
            Self::Stopped => f.write_str("the gateway stopped"),
        }
    }
}

names! {
    /// The name used in logs, metrics and JSON.
    Close {
        Self::Peer => "peer",
        Self::Node => "node",
        Self::ProxyProtocol(_) => "proxy-protocol",
        Self::Protocol(_) => "protocol",
        Self::NodeProtocol(_) => "node-protocol",
        Self::Socks(_) => "socks",
        Self::Name(_) => "name",
        Self::Resolved => "resolved",
        Self::NoTor => "no-tor",
        Self::NoHandshake(_) => "no-handshake",
        Self::PeerSocket(_) => "peer-socket",
        Self::NodeSocket(_) => "node-socket",
        Self::NodeRefused => "node-refused",
        Self::V1 => "v1",
        Self::Denied => "denied",
        Self::Handshake => "handshake",
        Self::Idle => "idle",
        Self::Stalled => "stalled",
        Self::Memory => "memory",
        Self::Stopped => "stopped",
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
