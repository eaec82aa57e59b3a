//! Proxies between v2 peers and a v1 node: our gateway; the same loop with other sessions; and one
//! built like existing proxies, with a task for each connection and direction around the sessions
//! of the crate `bip324`.

use crate::measure::Clock;
use bip324::futures::Protocol;
use bip324::io::Payload;
use bip324::{PacketType, Role};
use packetlane::Engine;
use packetlane::bip324::Session;
use packetlane::bitcoin::Network;
use packetlane::bitcoin::message::Ignored;
use packetlane::bitcoin::v1;
use packetlane_gateway::{Gateway, Inbound, Limits, PerAddress, Settings, Turns};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Why a proxy cannot continue with a connection.
pub(crate) type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The network of all peers and nodes in the lab.
pub(crate) const NETWORK: Network = Network::Regtest;

/// A proxy in its own thread.
pub(crate) enum Proxy {
    Ours(Box<Gateway>),
    Other(Other),
}

/// How our gateway works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// One batch per turn for all connections.
    Batches,
    /// A separate batch for each connection.
    OneAtATime,
}

impl Proxy {
    pub(crate) fn ours(
        engine: Engine,
        strategy: Strategy,
        turn: Duration,
        node: SocketAddr,
    ) -> Self {
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let inbound = vec![Inbound::new(listen, node)];
        Self::Ours(Box::new(gateway(engine, strategy, turn, inbound)))
    }

    pub(crate) fn tokio(node: SocketAddr) -> Self {
        Self::other(move |listener, shown| tasks(listener, node, shown))
    }

    /// Another proxy: the function of its thread.
    pub(crate) fn other(
        run: impl FnOnce(std::net::TcpListener, &Shown) -> Result<(), Failed> + Send + 'static,
    ) -> Self {
        Self::Other(Other::start(run))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::Ours(gateway) => {
                let inbound = gateway.settings().inbound.first();
                inbound.expect("it was told to listen").listen
            }
            Self::Other(other) => other.address,
        }
    }

    /// CPU time of its thread so far; for ours, also how it was spent.
    pub(crate) fn turns(&self) -> Turns {
        match self {
            Self::Ours(gateway) => {
                let mut turns = gateway.turns();
                turns.pop().expect("it has a thread")
            }
            Self::Other(other) => Turns {
                cpu: Duration::from_nanos(other.shown.cpu.load(Ordering::Relaxed)),
                ..Turns::default()
            },
        }
    }
}

/// Our gateway with one thread.
pub(crate) fn gateway(
    engine: Engine,
    strategy: Strategy,
    turn: Duration,
    inbound: Vec<Inbound>,
) -> Gateway {
    let default = Limits::default();
    let settings = Settings {
        inbound,
        advertise: false,
        workers: NonZero::<usize>::MIN,
        turn,
        limits: Limits {
            half_open_of: PerAddress::UNLIMITED,
            connections: usize::MAX,
            batch: match strategy {
                Strategy::Batches => default.batch,
                Strategy::OneAtATime => 1,
            },
            ..default
        },
        ..Settings::new(NETWORK, engine)
    };
    Gateway::start(settings, |_, _| {}).expect("a gateway on the loopback device")
}

/// State shared with the thread of a proxy.
#[derive(Default)]
pub(crate) struct Shown {
    /// CPU time in nanoseconds.
    cpu: AtomicU64,
    stop: AtomicBool,
}

impl Shown {
    /// How often a thread reads its clock and checks whether to stop.
    pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(2);

    /// Publishes the thread's CPU time. Returns whether to continue.
    pub(crate) fn goes_on(&self) -> bool {
        let now = Clock::ThreadCpu.now().as_nanos() as u64;
        self.cpu.store(now, Ordering::Relaxed);
        !self.stop.load(Ordering::Relaxed)
    }
}

/// A proxy other than ours.
pub(crate) struct Other {
    address: SocketAddr,
    shown: Arc<Shown>,
    thread: Option<JoinHandle<()>>,
}

impl Other {
    fn start(
        run: impl FnOnce(std::net::TcpListener, &Shown) -> Result<(), Failed> + Send + 'static,
    ) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.expect("a listener on the loopback device");
        let address = listener.local_addr().expect("it listens");
        let shown = Arc::<Shown>::default();
        let shows = Arc::clone(&shown);
        let thread = std::thread::spawn(move || run(listener, &shows).expect("it carries on"));
        Self {
            address,
            shown,
            thread: Some(thread),
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.shown.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A task for each connection and direction, on tokio's single-threaded runtime.
fn tasks(listener: std::net::TcpListener, node: SocketAddr, shown: &Shown) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    listener.set_nonblocking(true)?;
    runtime.block_on(async {
        tokio::spawn(accept(TcpListener::from_std(listener)?, node));
        while shown.goes_on() {
            tokio::time::sleep(Shown::POLL_INTERVAL).await;
        }
        Ok(())
    })
}

async fn accept(listener: TcpListener, node: SocketAddr) {
    while let Ok((peer, _)) = listener.accept().await {
        // It ends with an error on one side or the other.
        tokio::spawn(async move { serve(peer, node).await.ok() });
    }
}

async fn serve(peer: TcpStream, node: SocketAddr) -> Result<(), Failed> {
    peer.set_nodelay(true)?;
    let (reader, writer) = peer.into_split();
    let reader = BufReader::new(reader);
    let magic = NETWORK.magic();
    let peer = Protocol::new(magic, Role::Responder, None, None, reader, writer).await?;
    let node = TcpStream::connect(node).await?;
    node.set_nodelay(true)?;
    let (from_node, to_node) = node.into_split();
    let (from_peer, to_peer) = peer.into_split();
    tokio::spawn(async move { carry_in(from_peer, to_node).await.ok() });
    carry_out(BufReader::new(from_node), to_peer).await
}

async fn carry_in(
    mut from: bip324::futures::ProtocolReader<BufReader<OwnedReadHalf>>,
    mut to: OwnedWriteHalf,
) -> Result<(), Failed> {
    let mut wire = Vec::new();
    let mut ignored = Ignored::default();
    loop {
        let packet = from.read().await?;
        if packet.packet_type() == PacketType::Decoy {
            continue;
        }
        let contents = packet.contents();
        let message = ignored.decode(contents, contents.len() + Session::OVERHEAD);
        let Some((message_type, payload)) = message else {
            continue;
        };
        wire.clear();
        v1::Message::new(message_type, payload).encode(NETWORK.magic(), &mut wire);
        to.write_all(&wire).await?;
    }
}

async fn carry_out(
    mut from: BufReader<OwnedReadHalf>,
    mut to: bip324::futures::ProtocolWriter<OwnedWriteHalf>,
) -> Result<(), Failed> {
    let mut wire = vec![0; v1::Message::HEADER_LEN];
    loop {
        wire.resize(v1::Message::HEADER_LEN, 0);
        from.read_exact(&mut wire).await?;
        let len = u32::from_le_bytes(wire[16..20].try_into()?) as usize;
        if len > v1::Message::MAX_PAYLOAD_LEN {
            return Err("too long".into());
        }
        wire.resize(v1::Message::HEADER_LEN + len, 0);
        from.read_exact(&mut wire[v1::Message::HEADER_LEN..])
            .await?;
        // This also verifies the checksum.
        let message = v1::Message::decode(NETWORK.magic(), &wire)?.ok_or("incomplete")?;
        let mut contents = Vec::new();
        message.message_type.encode(message.payload, &mut contents);
        to.write(&Payload::genuine(contents)).await?;
    }
}
