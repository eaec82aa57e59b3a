//! Settings and limits of a gateway.

use crate::address::AddressSet;
use crate::socks::Credentials;
use packetlane::bip324::shape::Shape;
use packetlane::bitcoin::Network;
use packetlane::{Engine, OpenBatch};
use packetlane_p2p::address::NodeAddress;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

/// Settings of a gateway. At least one of `inbound`, `socks` and `transparent` must be set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where peers connect, and the node of each place. At most [`Settings::MAX_INBOUND`].
    pub inbound: Vec<Inbound>,
    /// Address of the SOCKS5 server through which the node connects to peers.
    pub socks: Option<SocketAddr>,
    /// The user and password that clients of `socks` must show. If `None`, anyone may use it, and
    /// credentials are passed on to the upstream proxy.
    pub socks_user: Option<Credentials>,
    /// Address that accepts connections of the node's that a firewall redirects.
    pub transparent: Option<SocketAddr>,
    /// Which inbound peers must speak v2. If `None`, none must.
    pub v2_only: Option<V2Only>,
    /// Which peers that the node connects to must speak v2.
    pub outbound_v2_only: Option<V2Only>,
    /// SOCKS5 server through which all peers are reached. It also resolves names.
    pub proxy: Option<SocketAddr>,
    /// User and password for `proxy`. If `None`, those that the node sends are passed on.
    pub proxy_user: Option<Credentials>,
    /// SOCKS5 server for `.onion` names, instead of `proxy`.
    pub tor: Option<SocketAddr>,
    /// The Bitcoin network.
    pub network: Network,
    /// Sets the service bit `NODE_P2P_V2` in the node's `version` message, and in `addr` and `addrv2`
    /// entries that are the node's own address, so that others connect over v2. Own addresses are
    /// those of `external`, and, in messages to a peer, the IP address at which this peer sees the
    /// node.
    pub advertise: bool,
    /// The addresses under which others know the node.
    pub external: Vec<NodeAddress>,
    /// Number of threads.
    pub workers: NonZero<usize>,
    /// The engine that encrypts and decrypts.
    pub engine: Engine,
    /// How long a thread sleeps between turns. Larger batches need less CPU time, but messages are
    /// delayed. Zero by default.
    pub turn: Duration,
    /// How traffic towards v2 peers is shaped. Applies to connections that begin after it is set.
    pub shape: Shape,
    /// Inbound peers that may connect. If `None`, all may but those in `denied`.
    pub allowed: Option<Arc<AddressSet>>,
    /// Inbound peers that may not connect. Those that are connected are closed.
    pub denied: Arc<AddressSet>,
    /// Limits on what peers may use.
    pub limits: Limits,
}

impl Settings {
    /// Maximum number of [`Settings::inbound`].
    pub const MAX_INBOUND: usize = 16;

    /// Default settings, with one thread per core and no address to listen on.
    #[must_use]
    pub fn new(network: Network, engine: Engine) -> Self {
        let cores = std::thread::available_parallelism();
        Self {
            inbound: Vec::new(),
            socks: None,
            socks_user: None,
            transparent: None,
            v2_only: None,
            outbound_v2_only: None,
            proxy: None,
            proxy_user: None,
            tor: None,
            network,
            advertise: true,
            external: Vec::new(),
            workers: cores.unwrap_or(NonZero::<usize>::MIN),
            engine,
            turn: Duration::ZERO,
            shape: Shape::NONE,
            allowed: None,
            denied: Arc::default(),
            limits: Limits::default(),
        }
    }

    /// Whether an inbound peer may connect from this address.
    pub(crate) fn admits(&self, ip: IpAddr) -> bool {
        let is_allowed = |allowed: &Arc<AddressSet>| allowed.contains(ip);
        self.allowed.as_ref().is_none_or(is_allowed) && !self.denied.contains(ip)
    }
}

/// Which peers must speak v2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum V2Only {
    /// All but those that Tor encrypts: onion services that the node connects to, and inbound peers
    /// from a loopback address, where Tor delivers the peers of an onion service.
    Clearnet,
    /// All.
    All,
}

/// Where peers connect, and the node they are relayed to. A node has several, for example, if it
/// expects the peers of its onion service at another address.
#[derive(Clone, Copy, Debug)]
pub struct Inbound {
    /// Address where peers connect.
    pub listen: SocketAddr,
    /// Address of the node.
    pub node: SocketAddr,
    /// The same node at an IPv6 address, which IPv6 peers need with [`PeerSource::Real`].
    pub node_v6: Option<SocketAddr>,
    /// Which address the node sees for a peer.
    pub source: PeerSource,
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
            node_v6: None,
            source: PeerSource::default(),
            proxy_protocol: false,
        }
    }
}

/// Which address the node sees for a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerSource {
    /// A loopback address of the peer's own, 127.x.y.z, if the node listens on an IPv4 loopback
    /// address; otherwise the gateway's address.
    #[default]
    Loopback,
    /// The gateway's address for all peers.
    Gateway,
    /// The gateway's address, and a PROXY protocol v2 header with the peer's address at the start of
    /// each connection.
    ProxyProtocol,
    /// The peer's own address and port (`IP_TRANSPARENT`), so that the node's limits, bans and
    /// evictions work as without a gateway. Needs `CAP_NET_ADMIN`, a node on this machine, and routes
    /// by which the node's answers come back here. A peer whose IP version the node does not listen
    /// on is shown as with `Loopback`.
    Real,
}

/// Limits on what peers may use. All apply to the whole gateway, not to each thread. Inbound
/// connections and the node's own have separate limits, so that strangers cannot keep the node from
/// connecting to peers of its choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the start of the connection to the end of the handshake. Bitcoin Core allows the same
    /// 60 seconds.
    pub handshake: Duration,
    /// How long connecting may take, to the node, a peer or a proxy.
    pub connect: Duration,
    /// Inbound connections whose handshake is not done. Clients that have not shown the password of
    /// [`Settings::socks_user`] have this limit and the next, with counts of their own.
    pub half_open: usize,
    /// The same per address, which a household or an office may share, and per network group. Also for
    /// loopback addresses.
    pub half_open_of: PerAddress,
    /// Inbound connections. A node allows 125 by default.
    pub connections: usize,
    /// The same per address and per network group, by default any number. This and the two rates do
    /// not apply to loopback addresses, from which Tor delivers the peers of an onion service.
    pub connections_of: PerAddress,
    /// Inbound connections that may begin within a minute, by default any number.
    pub connection_rate: PerAddress,
    /// Bytes a second from and to inbound peers. Data beyond it waits. By default any number. Applies
    /// to connections that begin after it is set.
    pub byte_rate: PerAddress,
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

/// A limit per address, and one per network group: an IPv4 /16 or an IPv6 /32. The addresses of an
/// IPv6 /64 are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerAddress {
    /// For each address.
    pub address: usize,
    /// For each network group.
    pub group: usize,
}

impl PerAddress {
    /// No limit.
    pub const UNLIMITED: Self = Self {
        address: usize::MAX,
        group: usize::MAX,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(60),
            connect: Duration::from_secs(20),
            half_open: 10_000,
            half_open_of: PerAddress {
                address: 64,
                group: 2_000,
            },
            connections: 20_000,
            connections_of: PerAddress::UNLIMITED,
            connection_rate: PerAddress::UNLIMITED,
            byte_rate: PerAddress::UNLIMITED,
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
