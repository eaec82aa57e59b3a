//! What a source has observed of a node and its peers: the input of the live table, the file and
//! the report.

use packetlane_p2p::payload::BlockHash;
use std::fmt;

/// Microseconds since 1970, UTC.
pub type Time = u64;

/// One observation of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// When it was seen.
    pub time: Time,
    /// What was observed.
    pub event: Event,
}

/// What was observed. `peer` is always the node's own id of the peer, which the node does not reuse
/// while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A peer has connected, was seen for the first time, or more is known about it. The last such
    /// record of a peer is complete: it replaces the earlier ones. Each part of a recording begins with
    /// the last such record of every connected peer.
    Connected {
        /// The node's id of the peer.
        peer: i64,
        /// What is known of the connection.
        connection: Connection,
    },
    /// The recorder was restarted. All peers known so far count as disconnected, and the node may have
    /// reused their ids.
    Started,
    /// A peer has disconnected.
    Disconnected {
        /// The node's id of the peer.
        peer: i64,
    },
    /// The node has processed a message from a peer.
    Received {
        /// The node's id of the peer.
        peer: i64,
        /// Its type, as in the v1 header: at most 12 bytes.
        message_type: String,
        /// Length of the payload, in bytes.
        bytes: u64,
        /// Cost of the call that processed it, if the source measures that.
        cost: Option<Cost>,
        /// Whether processing it added a transaction to the mempool or a block to the chain, if the
        /// source sees that.
        added: Option<bool>,
    },
    /// The node has handed a message for a peer to its transport.
    Sent {
        /// The node's id of the peer.
        peer: i64,
        /// Its type.
        message_type: String,
        /// Length of the payload, in bytes.
        bytes: u64,
    },
    /// A message about a block came from a peer or went to it. Of messages between windows, a
    /// sampling source sees these too. A message with several blocks gives a record for each.
    BlockMessage {
        /// The node's id of the peer.
        peer: i64,
        /// The block's hash.
        block: BlockHash,
        /// What the message does.
        step: BlockStep,
    },
    /// The node has connected a block to its chain. Also seen between windows.
    BlockConnected {
        /// The block's hash.
        block: BlockHash,
        /// Its height.
        height: u64,
        /// Its number of transactions.
        transactions: u64,
        /// How long connecting it took, without fetching it, in nanoseconds.
        took_ns: u64,
    },
    /// Bytes of all messages of one type from or to a peer since the window began. Comes from a
    /// source that does not see single messages, so their number is unknown.
    Bytes {
        /// The node's id of the peer.
        peer: i64,
        /// True if received from the peer, false if sent to it.
        received: bool,
        /// Their type.
        message_type: String,
        /// Length on the wire, in bytes: payloads and framing.
        bytes: u64,
    },
    /// What the message thread has spent on a peer since the window began, including calls that
    /// found no message. Comes at the end of a window, once for every peer that was visited.
    Calls {
        /// The node's id of the peer.
        peer: i64,
        /// Calls that look for messages from it.
        receiving: Calls,
        /// Calls that look for what to send to it.
        sending: Calls,
    },
    /// The run time of one of the node's threads since the window began.
    Thread {
        /// Its name: `b-msghand`, `b-net`, ...
        name: String,
        /// CPU time, in nanoseconds.
        cpu_ns: u64,
    },
    /// Run time of the message thread since the window began that fell into no call for a peer, as
    /// far as the source can tell: waiting for work, waking up, iterating over the peers.
    Loop {
        /// CPU time, in nanoseconds.
        cpu_ns: u64,
    },
    /// A window has ended. The source saw everything within it; a sampling source sees nothing
    /// between windows. Comes after the other records of its window.
    Window {
        /// When it began.
        start: Time,
        /// How many events were lost in it because the reader was too slow.
        lost: u64,
        /// CPU time that the source itself has cost the node's threads in it, in nanoseconds.
        probes_ns: u64,
        /// Steal time in it: how long a hypervisor withheld a CPU of this machine, in nanoseconds,
        /// averaged over all CPUs.
        stolen_ns: u64,
    },
}

/// What a message does for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockStep {
    /// The peer announces it by `inv`.
    Inv,
    /// The peer announces it by `headers`.
    Headers,
    /// The peer announces it by `cmpctblock`, or delivers that on request (BIP152).
    Compact,
    /// The node requests it, by `getdata`.
    Requested,
    /// The node requests this many transactions of it, by `getblocktxn`: those that its compact
    /// form refers to and that are in no mempool.
    RequestedMissing(u64),
    /// The peer delivers it, by `block`.
    Delivered,
    /// The peer delivers the missing transactions, by `blocktxn`.
    DeliveredMissing,
}

impl BlockStep {
    /// The type of the message.
    #[must_use]
    pub fn message_type(self) -> &'static str {
        match self {
            Self::Inv => "inv",
            Self::Headers => "headers",
            Self::Compact => "cmpctblock",
            Self::Requested => "getdata",
            Self::RequestedMissing(_) => "getblocktxn",
            Self::Delivered => "block",
            Self::DeliveredMissing => "blocktxn",
        }
    }

    /// Whether the peer announces the block.
    #[must_use]
    pub fn announces(self) -> bool {
        matches!(self, Self::Inv | Self::Headers | Self::Compact)
    }
}

/// Maximum length of a peer's user agent here, in characters. The protocol's limit is 256 bytes.
pub const MAX_USER_AGENT: usize = 79;

/// How many bytes of a peer's address probes see. Longer is only the name of a peer that was added by
/// one.
pub(crate) const PROBED_ADDRESS: usize = 79;

/// What is known of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The peer's address, as the node prints it.
    pub address: String,
    /// Its type.
    pub kind: ConnectionType,
    /// The network it uses.
    pub network: Option<Network>,
    /// v1 or v2.
    pub transport: Option<Transport>,
    /// The `relay` flag of the peer's `version`: whether it wants transactions.
    pub relay: Option<bool>,
    /// The user agent in the peer's `version`, cut to [`MAX_USER_AGENT`] characters.
    pub user_agent: Option<String>,
    /// When the connection was made, if known.
    pub since: Option<Time>,
}

/// The type of a connection. The names are those of `getpeerinfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnectionType {
    /// Opened by the peer.
    Inbound,
    /// Automatic, relays transactions, addresses and blocks.
    OutboundFullRelay,
    /// Automatic, relays blocks only.
    BlockRelayOnly,
    /// Requested by the operator, with `addnode`.
    Manual,
    /// Short-lived: tests an address.
    Feeler,
    /// Short-lived: asks for addresses.
    AddrFetch,
    /// Short-lived: broadcasts one of this node's own transactions.
    PrivateBroadcast,
}

impl ConnectionType {
    /// All types.
    pub const ALL: [Self; 7] = [
        Self::Inbound,
        Self::OutboundFullRelay,
        Self::BlockRelayOnly,
        Self::Manual,
        Self::Feeler,
        Self::AddrFetch,
        Self::PrivateBroadcast,
    ];

    /// The name in `getpeerinfo` and in the node's tracepoints.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inbound => "inbound",
            Self::OutboundFullRelay => "outbound-full-relay",
            Self::BlockRelayOnly => "block-relay-only",
            Self::Manual => "manual",
            Self::Feeler => "feeler",
            Self::AddrFetch => "addr-fetch",
            Self::PrivateBroadcast => "private-broadcast",
        }
    }

    /// The type with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for ConnectionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The network that a connection came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Network {
    /// An address that is not routed: loopback, or a local network.
    Unroutable,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// Tor.
    Onion,
    /// I2P.
    I2p,
    /// CJDNS.
    Cjdns,
}

impl Network {
    /// In the order of the numbers that the node's tracepoints have for them.
    pub const ALL: [Self; 6] = [
        Self::Unroutable,
        Self::Ipv4,
        Self::Ipv6,
        Self::Onion,
        Self::I2p,
        Self::Cjdns,
    ];

    /// Its name in `getpeerinfo`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unroutable => "not_publicly_routable",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Onion => "onion",
            Self::I2p => "i2p",
            Self::Cjdns => "cjdns",
        }
    }

    /// Whether its peers have no IP address of their own: they come through a proxy on this machine,
    /// or by made-up addresses.
    #[must_use]
    pub fn hides_addresses(self) -> bool {
        matches!(self, Self::Onion | Self::I2p | Self::Cjdns)
    }

    /// The network with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|network| network.name() == name)
    }

    /// The network with this number in the node's tracepoints.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        usize::try_from(number)
            .ok()
            .and_then(|number| Self::ALL.get(number).copied())
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a connection is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// Not encrypted.
    V1,
    /// BIP324.
    V2,
}

impl Transport {
    /// Its name in `getpeerinfo`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }

    /// The transport with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::V1, Self::V2]
            .into_iter()
            .find(|transport| transport.name() == name)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a call took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Time from entry to return, in nanoseconds.
    pub wall_ns: u64,
    /// CPU time of the thread in between, in nanoseconds. Less than the other where it waited.
    pub cpu_ns: u64,
}

/// A number of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// How many.
    pub count: u64,
    /// What they took together.
    pub cost: Cost,
}
