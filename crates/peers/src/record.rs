//! What a source has seen of a node and its peers. A live table, a file and a report all read
//! this, and nothing else.

use std::fmt;

/// Microseconds since 1970.
pub type Time = u64;

/// One thing that a source has seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// When it was seen.
    pub time: Time,
    /// What it is.
    pub event: Event,
}

/// What was seen. A peer is named by the node's own number of it, which is never used again
/// while the node runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A peer has connected, or is seen for the first time, or more is known of it now: the last
    /// such record of a peer has all that is known.
    Connected {
        /// The node's number of the peer.
        peer: i64,
        /// What is known of the connection.
        connection: Connection,
    },
    /// A peer has gone.
    Disconnected {
        /// The node's number of the peer.
        peer: i64,
    },
    /// The node has processed a message from a peer.
    Received {
        /// The node's number of the peer.
        peer: i64,
        /// Its type, as in the v1 header: at most 12 bytes.
        message_type: String,
        /// Length of the payload, in bytes.
        bytes: u64,
        /// What the call in which it was processed took, if the source can tell.
        cost: Option<Cost>,
    },
    /// The node has handed a message for a peer to its transport.
    Sent {
        /// The node's number of the peer.
        peer: i64,
        /// Its type.
        message_type: String,
        /// Length of the payload, in bytes.
        bytes: u64,
    },
    /// Bytes of all messages of one type from or to a peer since the window began, from a source
    /// that does not see messages one by one: how many they were is not known.
    Bytes {
        /// The node's number of the peer.
        peer: i64,
        /// Whether they came from the peer, not went to it.
        received: bool,
        /// Their type.
        message_type: String,
        /// Their length on the wire, in bytes: payloads and what frames them.
        bytes: u64,
    },
    /// What the message thread has spent on a peer since the window began, in calls with and
    /// without a message. Comes at the end of a window, for every peer that was visited.
    Calls {
        /// The node's number of the peer.
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
    /// The run time of the message thread since the window began that was in no call for a peer, as
    /// far as the source sees it: waiting for work, waking up, going through the list of peers.
    Loop {
        /// CPU time, in nanoseconds.
        cpu_ns: u64,
    },
    /// A window has ended. In it the source saw everything; between windows it saw nothing, for
    /// sampling. Comes behind the other records of its window.
    Window {
        /// When it began.
        start: Time,
        /// How many events were lost in it, because nobody took them in time.
        lost: u64,
        /// CPU time that the source itself has cost the node's threads in it, in nanoseconds.
        probes_ns: u64,
        /// For how much of it, in nanoseconds, a host took away a CPU of this machine: the mean of
        /// all CPUs.
        stolen_ns: u64,
    },
}

/// The longest name of a peer's software, in characters; the network's limit is 256 bytes.
pub const MAX_USER_AGENT: usize = 79;

/// What is known of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The peer's address, as the node prints it.
    pub address: String,
    /// Its type.
    pub kind: ConnectionType,
    /// The network that it came through.
    pub network: Option<Network>,
    /// v1 or v2.
    pub transport: Option<Transport>,
    /// The `relay` flag of the peer's `version`: whether it wants transactions.
    pub relay: Option<bool>,
    /// The peer's software as its `version` names it, shortened to [`MAX_USER_AGENT`] characters.
    pub user_agent: Option<String>,
    /// When it was made, if that is known.
    pub since: Option<Time>,
}

/// The type of a connection, with the names of `getpeerinfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnectionType {
    /// The peer has connected.
    Inbound,
    /// An automatic connection for everything.
    OutboundFullRelay,
    /// An automatic connection for blocks alone.
    BlockRelayOnly,
    /// By `addnode`.
    Manual,
    /// A short connection that tests an address.
    Feeler,
    /// A short connection that asks for addresses.
    AddrFetch,
    /// A short connection that broadcasts a transaction of this node.
    PrivateBroadcast,
}

impl ConnectionType {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Inbound,
        Self::OutboundFullRelay,
        Self::BlockRelayOnly,
        Self::Manual,
        Self::Feeler,
        Self::AddrFetch,
        Self::PrivateBroadcast,
    ];

    /// Its name in `getpeerinfo` and the node's tracepoints.
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
