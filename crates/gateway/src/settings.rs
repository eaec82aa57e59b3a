//! Settings and limits of a gateway.

use crate::socks::SocksUser;
use packetlane::bitcoin::Network;
use packetlane::{Engine, OpenBatch};
use std::net::SocketAddr;
use std::num::NonZero;
use std::time::Duration;

/// Settings of a gateway. At least one of `inbound`, `socks` and `transparent` must be set.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Accepts peers and relays them to a node.
    pub inbound: Option<Inbound>,
    /// Address of the SOCKS5 server through which the node connects to peers.
    pub socks: Option<SocketAddr>,
    /// The user and password that clients of `socks` must show. If `None`, anyone may use it, and
    /// credentials are passed on to the proxy at `tor`.
    pub socks_user: Option<SocksUser>,
    /// Address that accepts connections of the node's that a firewall redirects.
    pub transparent: Option<SocketAddr>,
    /// SOCKS5 server for `.onion` names.
    pub tor: Option<SocketAddr>,
    /// The Bitcoin network.
    pub network: Network,
    /// Sets the service bit `NODE_P2P_V2` in the node's `version` message to v2 peers.
    pub advertise: bool,
    /// Number of threads.
    pub workers: NonZero<usize>,
    /// The engine that encrypts and decrypts.
    pub engine: Engine,
    /// How sockets are read and written.
    pub io: Io,
    /// How long a thread sleeps between turns. Larger batches need less CPU time, but messages are
    /// delayed. Zero by default.
    pub turn: Duration,
    /// Limits on what peers may use.
    pub limits: Limits,
}

impl Settings {
    /// Default settings, with one thread per core and no address to listen on.
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

/// Where peers connect, and the node they are relayed to.
#[derive(Clone, Copy, Debug)]
pub struct Inbound {
    /// Address where peers connect.
    pub listen: SocketAddr,
    /// Address of the node.
    pub node: SocketAddr,
    /// Connects to the node from one address for all peers. If `false` and the node listens on an
    /// IPv4 loopback address, each peer gets a loopback address of its own.
    pub same_address: bool,
    /// Requires a PROXY protocol v2 header with the peer's address at the start of each connection.
    /// Anyone who can connect can claim any address, so let only load balancers connect.
    pub proxy_protocol: bool,
}

impl Inbound {
    /// Relays peers from one address to the other, each peer with a loopback address of its own.
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
    /// io_uring if the kernel supports and allows it, else epoll.
    #[default]
    Best,
    /// io_uring.
    IoUring,
    /// epoll (or the system's equivalent), and one system call per read and write.
    Epoll,
}

/// Limits on what peers may use. All apply to the whole gateway, not to each thread. Inbound
/// connections and the node's own have separate limits, so that strangers cannot keep the node from
/// connecting to peers of its choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the start of the connection to the end of the handshake. Bitcoin Core allows the same
    /// 60 seconds.
    pub handshake: Duration,
    /// Inbound connections whose handshake is not done.
    pub half_open: usize,
    /// The same per address, which a household or an office may share. Also limits the clients per
    /// address that have not shown the password of [`Settings::socks_user`].
    pub half_open_address: usize,
    /// The same per network group: an IPv4 /16 or an IPv6 /32.
    pub half_open_group: usize,
    /// Inbound connections. A node allows 125 by default.
    pub connections: usize,
    /// The node's own connections, through SOCKS or redirected by a firewall, including unfinished
    /// handshakes. A node has about a dozen; a crawler may have thousands.
    pub outbound_connections: usize,
    /// Bytes that may be queued for a side that does not read. Above this limit the other side is
    /// not read.
    pub queued: usize,
    /// Approximate bytes per batch. More data in a turn goes into further batches. With 1, each
    /// connection has its own batch.
    pub batch: usize,
    /// Memory for data queued in all inbound connections, in bytes. Above this limit, each thread
    /// that holds more than its equal share closes its largest connections. Checked after each turn
    /// and every second. The process uses more than this because of allocator overhead. The default
    /// lets hundreds of peers download a block at the same time.
    pub memory: usize,
    /// The same for the node's own connections.
    pub outbound_memory: usize,
    /// How long a peer may read nothing of what is queued for it. Bitcoin Core allows the same 20
    /// minutes.
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
