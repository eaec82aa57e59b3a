//! What the gateway tells about its peers.

use crate::account::Account;
use crate::budget::{Direction, Refusal};
use crate::close::Close;
use crate::socks::Target;
use std::net::SocketAddr;
use std::time::Duration;
use strum::{IntoStaticStr, VariantNames};

/// A snapshot of a peer.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Unique among all peers of this gateway, past and present. 0 for a connection that was
    /// refused.
    pub id: u64,
    /// The address that connected, or the target that the node asked for.
    pub address: Target,
    /// The address that the node sees for an inbound peer, once the node has accepted.
    pub node_address: Option<SocketAddr>,
    /// Which side opened the connection.
    pub direction: Direction,
    /// The transport that the peer speaks.
    pub transport: Transport,
    /// The BIP324 session id of a v2 peer.
    pub session_id: Option<[u8; 32]>,
    /// Decoy packets received from a v2 peer.
    pub decoys: u64,
    /// How long the connection has existed.
    pub age: Duration,
    /// Traffic and CPU time.
    pub account: Account,
}

impl Peer {
    /// A peer of which nothing more is known.
    pub(crate) fn new(id: u64, address: Target, direction: Direction) -> Self {
        Self {
            id,
            address,
            node_address: None,
            direction,
            transport: Transport::Unknown,
            session_id: None,
            decoys: 0,
            age: Duration::ZERO,
            account: Account::default(),
        }
    }
}

/// The transport that a peer speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Transport {
    /// Not known yet.
    Unknown,
    /// Version 1.
    V1,
    /// Version 2 (BIP324).
    V2,
    /// The node speaks v2 with the peer itself; bytes are relayed unchanged.
    NodeV2,
}

/// Something that happened to a peer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is done, and the node has accepted the connection. Messages are relayed from
    /// now on.
    Connected,
    /// The peer did not answer over v2 (it closed, answered in v1, or stayed silent) and is retried
    /// over v1.
    FellBack,
    /// A limit refused the connection.
    Refused(Refusal),
    /// The connection has ended.
    Closed(Close),
}

/// Receives every event of every peer.
pub(crate) type EventSink = Box<dyn FnMut(&Peer, &Event) + Send>;

/// Whether the node accepted the last connection to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum NodeState {
    /// There was none yet.
    #[default]
    Unknown,
    /// It did.
    Up,
    /// It could not be reached, or reset the connection at once.
    Down,
}
