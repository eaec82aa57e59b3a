//! What a gateway is to do, and its limits.

use crate::socks::SocksUser;
use packetlane::bitcoin::Network;
use packetlane::{Engine, OpenBatch};
use std::net::SocketAddr;
use std::num::NonZero;
use std::time::Duration;

/// What a gateway is to do.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Peers that connect are carried to the node.
    pub inbound: Option<Inbound>,
    /// Where it is a SOCKS5 server, by which the node connects to peers.
    pub socks: Option<SocketAddr>,
    /// Who may use that server: whoever shows this user and password. Without one everybody may,
    /// and what a node shows is passed on to the server at `tor`.
    pub socks_user: Option<SocksUser>,
    /// Where it accepts connections of the node's to peers that a firewall has redirected.
    pub transparent: Option<SocketAddr>,
    /// The SOCKS5 server that reaches `.onion` names.
    pub tor: Option<SocketAddr>,
    /// The network in each thread.
    pub network: Network,
    /// Whether the node's `version` says to v2 peers that it speaks v2 (`NODE_P2P_V2`).
    pub advertise: bool,
    /// How many threads.
    pub workers: NonZero<usize>,
    /// What encrypts.
    pub engine: Engine,
    /// How sockets are read and written.
    pub io: Io,
    /// How long a thread sleeps between turns, so that more is done in each. None by default.
    pub turn: Duration,
    /// Bounds on what peers may take.
    pub limits: Limits,
}

impl Settings {
    /// A gateway that listens nowhere yet: a thread for each core, and all else by default.
    #[must_use]
    pub fn new(network: Network, engine: Engine) -> Self {
        let cores = std::thread::available_parallelism();
        Self {
            inbound: None,
            socks: None,
            socks_user: None,
            transparent: None,
            tor: None,
            network,
            advertise: true,
            workers: cores.unwrap_or(NonZero::<usize>::MIN),
            engine,
            io: Io::Best,
            turn: Duration::ZERO,
            limits: Limits::default(),
        }
    }
}

/// Where peers connect, and where to.
#[derive(Clone, Copy, Debug)]
pub struct Inbound {
    /// Where the gateway accepts peers.
    pub listen: SocketAddr,
    /// Where the node listens.
    pub node: SocketAddr,
    /// Whether all peers reach the node from one address: otherwise each has a loopback address of
    /// its own, if the node listens on one.
    pub same_address: bool,
    /// Whether each connection begins with a PROXY protocol v2 header, which says who the peer is.
    /// Whoever can connect then says what it likes: only balancers may.
    pub proxy_protocol: bool,
}

impl Inbound {
    /// From one address to the other, each peer with a loopback address of its own.
    #[must_use]
    pub fn new(listen: SocketAddr, node: SocketAddr) -> Self {
        Self {
            listen,
            node,
            same_address: false,
            proxy_protocol: false,
        }
    }
}

/// How sockets are read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// By io_uring where the kernel has it and allows it, otherwise by epoll.
    #[default]
    Best,
    /// By io_uring.
    IoUring,
    /// By epoll (or what the system has in its place), and a system call for each socket.
    Epoll,
}

/// Bounds on what peers may take. All numbers are of the whole gateway, whatever the number of its
/// threads. Inbound connections and the node's own have separate budgets, so that strangers cannot
/// keep the node from connecting to peers of its choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the connection to the end of the handshake: as long as nodes give it.
    pub handshake: Duration,
    /// Inbound connections that have not shaken hands.
    pub half_open: usize,
    /// Of these, from one address. A household, or an office, may share one. Also of the clients that
    /// have not shown the password of [`Settings::socks_user`].
    pub half_open_address: usize,
    /// Of these, from one network group (65,536 IPv4 addresses, or an IPv6 /32).
    pub half_open_group: usize,
    /// Inbound connections at a time. A node has 125 unless told otherwise.
    pub connections: usize,
    /// Connections of the node's own at a time, by SOCKS or redirected by a firewall, those that have
    /// not shaken hands among them. A node has a dozen; a crawler may have thousands.
    pub outbound_connections: usize,
    /// Bytes that may wait for a side that does not read them. Then the other side is not read.
    pub queued: usize,
    /// Bytes that one batch of a turn takes, or a little more; what is above goes into the next
    /// batch of the turn. With 1 each connection has a batch of its own.
    pub batch: usize,
    /// Memory of what waits in all inbound connections, in bytes. While there is more, each thread
    /// that has more than its equal share closes those of its connections that hold the most. A
    /// thread looks after each turn, and every second. The process takes more, by what its allocator
    /// needs. Hundreds of peers may each be sent a block at a time.
    pub memory: usize,
    /// The same of the node's own connections.
    pub outbound_memory: usize,
    /// How long a peer may take nothing of what waits for it: as long as nodes give it.
    pub stalled: Duration,
    /// How long a peer may send nothing. Nodes ping every two minutes, and give up after twenty.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(60),
            half_open: 10_000,
            half_open_address: 64,
            half_open_group: 2_000,
            connections: 20_000,
            outbound_connections: 5_000,
            queued: 1 << 20,
            batch: OpenBatch::ENOUGH_BYTES,
            memory: 1 << 30,
            outbound_memory: 1 << 28,
            stalled: Duration::from_secs(20 * 60),
            idle: Duration::from_secs(25 * 60),
        }
    }
}
