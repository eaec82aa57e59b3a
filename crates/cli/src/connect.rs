//! `packetlane connect` and `packetlane listen`: open or accept connections and print a report on
//! each.

use crate::report::{Report, Times};
use crate::stop::{Stop, Stopped};
use crate::terminal::{Status, cannot_listen, complain, print};
use packetlane::bitcoin::{Network, v1};
use packetlane::{BackendError, Engine};
use packetlane_files::Name;
use packetlane_p2p::node::{self, EndedBy, Fetched, Observed, Plan};
use packetlane_p2p::payload::{Version, printable};
use packetlane_p2p::peer::{FellBack, Peer, PeerError};
use packetlane_p2p::record::{
    MAX_RECORDED_BYTES, MAX_RECORDED_PEERS, RecordError, Recorder, Recordings,
};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Maximum connections that `listen` serves at a time.
const MAX_CONNECTIONS: usize = 32;

/// How long `listen` waits after a failed `accept`: the process may be out of file descriptors
/// until some of its connections close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Which transport to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransportChoice {
    /// v2, or v1 if the peer does not support v2.
    Either,
    V1Only,
    V2Only,
}

/// A connection after the transport handshake and the version handshake.
struct Connected {
    peer: Peer,
    version: Version,
    remote: SocketAddr,
    /// When TCP was connected.
    begun: Instant,
    times: Times,
    fell_back: Option<FellBack>,
}

/// Connects to `address`, carries out `plan` and prints the report as JSON or text.
pub(crate) async fn connect(
    address: &str,
    choice: TransportChoice,
    record: Option<PathBuf>,
    json: bool,
    plan: Plan,
    stop: Stop,
) -> Result<(), ConnectError> {
    let engine = Engine::detect()?;
    let addresses = resolve(address, plan.network, plan.step_timeout);
    let addresses = stop.or(addresses).await??;
    // Before connecting, so that an unusable folder is reported at once.
    let recorder = record.map(Recorder::in_folder).transpose()?;
    let status = Status::new();
    let connected = reach(&addresses, choice, engine, recorder, &plan, &status);
    let connected = stop.or(connected).await??;
    talk(connected, &plan, json, &status, &stop).await
}

/// Connects to the first of `addresses` that answers, and exchanges versions.
async fn reach(
    addresses: &[SocketAddr],
    choice: TransportChoice,
    engine: Engine,
    recorder: Option<Recorder>,
    plan: &Plan,
    status: &Status,
) -> Result<Connected, ConnectError> {
    status.show("connecting");
    let (stream, remote, mut tcp) = open(addresses, plan.step_timeout).await?;
    let mut begun = Instant::now();
    let mut keys = None;
    let mut fell_back = None;
    let mut peer = if choice == TransportChoice::V1Only {
        Peer::v1(stream, plan.network, engine, plan.step_timeout)
    } else {
        status.show("exchanging keys");
        match Peer::initiate_v2(stream, plan.network, engine, plan.step_timeout).await {
            Ok(peer) => {
                keys = Some(begun.elapsed());
                peer
            }
            Err((error, may_speak_v1)) => {
                fell_back = may_speak_v1.filter(|_| choice == TransportChoice::Either);
                if fell_back.is_none() {
                    return Err(ConnectError::at(remote, error));
                }
                status.show("connecting again, with v1");
                let stream;
                (stream, _, tcp) = match open(&[remote], plan.step_timeout).await {
                    Err(ConnectError::Refused { remote }) => {
                        return Err(ConnectError::Gone { remote });
                    }
                    opened => opened?,
                };
                begun = Instant::now();
                Peer::v1(stream, plan.network, engine, plan.step_timeout)
            }
        }
    };
    peer.record(recorder);
    status.show("exchanging versions");
    let exchanged = Instant::now();
    let version = match node::exchange_versions(&mut peer, plan).await {
        // The peer closed both connections without an answer, so the transport is not the reason.
        Err(PeerError::ClosedBeforeVersion { network }) if fell_back == Some(FellBack::Closed) => {
            return Err(ConnectError::ClosedTwice { remote, network });
        }
        version => version.map_err(|error| ConnectError::at(remote, error))?,
    };
    Ok(Connected {
        peer,
        version,
        remote,
        begun,
        times: Times {
            tcp: Some(tcp),
            keys,
            version: exchanged.elapsed(),
        },
        fell_back,
    })
}

/// Reports that the recording limit is reached.
fn report_full(folder: &Path) {
    complain(format_args!(
        "{}: recording stopped at the limit of {MAX_RECORDED_PEERS} peers or \
         {MAX_RECORDED_BYTES} bytes",
        Name(folder)
    ));
}

/// Options of `listen`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepting {
    /// Exit after the first connection.
    pub(crate) once: bool,
    /// Speak only v1.
    pub(crate) v1: bool,
}

/// Accepts connections at `address`, carries out `plan` with each and prints its report.
pub(crate) async fn listen(
    address: &str,
    accepting: Accepting,
    record: Option<PathBuf>,
    plan: Plan,
    stop: Stop,
) -> Result<(), ConnectError> {
    let engine = Engine::detect()?;
    let recordings = record.map(|folder| Recordings::in_folder(folder, report_full));
    let recordings = recordings.transpose()?.map(Arc::new);
    let addresses = resolve(address, plan.network, plan.step_timeout);
    let addresses = stop.or(addresses).await??;
    let cannot_listen = |error| ConnectError::Listen {
        address: address.to_owned(),
        error,
    };
    let listener = TcpListener::bind(&addresses[..])
        .await
        .map_err(cannot_listen)?;
    let local = listener.local_addr().map_err(cannot_listen)?;
    let network = plan.network.name();
    print(format_args!("listening on {local} ({network})\n"));

    let serve = |stream: TcpStream, remote: SocketAddr| {
        let plan = plan.clone();
        let stop = stop.clone();
        // A dual-stack socket reports IPv4 addresses as IPv6; convert them back.
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        let recordings = recordings.as_ref();
        let recorder = recordings.map(|recordings| Recorder::of_peer(recordings, remote));
        async move {
            let connected = respond(stream, remote, engine, accepting, recorder, &plan);
            let connected = stop
                .or(connected)
                .await?
                .map_err(|error| ConnectError::at(remote, error))?;
            print(format_args!("{connected}\n"));
            talk(connected, &plan, false, &Status::hidden(), &stop).await
        }
    };

    let mut connections = JoinSet::new();
    loop {
        let has_room = connections.len() < MAX_CONNECTIONS;
        let accepted = tokio::select! {
            signal = stop.signalled() => match accepting.once {
                true => return Err(Stopped { signal }.into()),
                false => break,
            },
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept(), if has_room => accepted,
        };
        match accepted {
            Ok((stream, remote)) if accepting.once => return serve(stream, remote).await,
            Ok((stream, remote)) => {
                let served = serve(stream, remote);
                connections.spawn(async move {
                    match served.await {
                        // The user knows about the signal.
                        Ok(()) | Err(ConnectError::Stopped(_)) => {}
                        Err(error) => complain(format_args!("error: {error}")),
                    }
                });
            }
            // The peer left at once, or the process is out of file descriptors. Keep listening in
            // both cases.
            Err(_) => {
                let _ = stop.or(tokio::time::sleep(ACCEPT_PAUSE)).await;
            }
        }
    }
    // Every connection receives the signal, too, and prints its report.
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// Answers a peer that has connected, and exchanges versions.
async fn respond(
    stream: TcpStream,
    remote: SocketAddr,
    engine: Engine,
    accepting: Accepting,
    recorder: Option<Recorder>,
    plan: &Plan,
) -> Result<Connected, PeerError> {
    let begun = Instant::now();
    no_delay(&stream)?;
    let mut peer = match accepting.v1 {
        true => Peer::v1(stream, plan.network, engine, plan.step_timeout),
        false => Peer::respond(stream, plan.network, engine, plan.step_timeout).await?,
    };
    peer.record(recorder);
    let keys = peer.session_id().map(|_| begun.elapsed());
    let exchanged = Instant::now();
    let version = match node::exchange_versions(&mut peer, plan).await {
        Err(PeerError::V1(v1::Error::Magic { found }))
            if accepting.v1 && Network::from_magic(found).is_none() =>
        {
            return Err(PeerError::NotV1);
        }
        version => version?,
    };
    Ok(Connected {
        peer,
        version,
        remote,
        begun,
        times: Times {
            tcp: None,
            keys,
            version: exchanged.elapsed(),
        },
        fell_back: None,
    })
}

impl fmt::Display for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.peer.session_id() {
            Some(_) => "v2",
            None => "v1",
        };
        let user_agent = printable(&self.version.user_agent);
        write!(
            f,
            "{} has connected: {transport}, {user_agent}",
            self.remote
        )
    }
}

/// Carries out `plan` and prints the report.
async fn talk(
    connected: Connected,
    plan: &Plan,
    json: bool,
    status: &Status,
    stop: &Stop,
) -> Result<(), ConnectError> {
    let Connected {
        mut peer,
        version,
        remote,
        begun,
        times,
        fell_back,
    } = connected;
    status.show("talking");
    let mut observed = Observed::default();
    let progress = |fetched: &Fetched| {
        let Fetched {
            wanted,
            headers,
            blocks,
            ..
        } = fetched;
        status.show(&format!("{headers} headers, {blocks} of {wanted} blocks"));
    };
    let talk = node::run_plan(&mut peer, plan, &version, &mut observed, progress);
    let (the_peer, us) = ("the peer", "us");
    // After a signal, still print the report.
    let (ended, failure) = match stop.or(talk).await {
        Ok(Ok(EndedBy::Peer)) => (the_peer, None),
        Ok(Ok(EndedBy::Us)) => (us, None),
        Ok(Err(error)) => {
            let ended = match error.is_close() {
                true => the_peer,
                false => us,
            };
            (ended, Some(ConnectError::at(remote, error)))
        }
        Err(stopped) => {
            let failure = (plan.initiator && !observed.is_complete()).then(|| stopped.into());
            (stopped.signal, failure)
        }
    };
    status.clear();
    let report = Report {
        remote,
        network: plan.network,
        fell_back,
        times,
        stayed: begun.elapsed(),
        ended,
        version: &version,
        observed: &observed,
        peer: &peer,
    };
    match json {
        true => {
            let failure = failure.as_ref().map(ToString::to_string);
            print(format_args!("{:#}\n", report.to_json(failure.as_deref())));
        }
        // `listen` separates its reports by an empty line.
        false if plan.initiator => print(format_args!("{report}")),
        false => print(format_args!("\n{report}")),
    }
    failure.map_or(Ok(()), Err)
}

/// Disables Nagle's algorithm, which delays a small message by 40 ms while the peer waits for it.
fn no_delay(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)
}

/// Connects to the first of `addresses` that answers. Also returns how long that took.
async fn open(
    addresses: &[SocketAddr],
    step_timeout: Duration,
) -> Result<(TcpStream, SocketAddr, Duration), ConnectError> {
    let mut failure = None;
    for &remote in addresses {
        let begun = Instant::now();
        match timeout(step_timeout, TcpStream::connect(remote)).await {
            Ok(Ok(stream)) => {
                let took = begun.elapsed();
                no_delay(&stream).map_err(|error| ConnectError::Unreachable { remote, error })?;
                return Ok((stream, remote, took));
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                failure.get_or_insert(ConnectError::Refused { remote });
            }
            Ok(Err(error)) => {
                failure.get_or_insert(ConnectError::Unreachable { remote, error });
            }
            Err(_) => {
                failure.get_or_insert(ConnectError::NoAnswer {
                    remote,
                    waited: step_timeout,
                });
            }
        }
    }
    // Unreachable in practice: `resolve` returns at least one address.
    Err(failure.unwrap_or(ConnectError::NoAddress {
        host: String::new(),
    }))
}

/// Resolves a host name or an IP address, with or without a port.
pub(crate) async fn resolve(
    address: &str,
    network: Network,
    step_timeout: Duration,
) -> Result<Vec<SocketAddr>, ConnectError> {
    let (host, port) = split(address, default_port(network)).ok_or(ConnectError::Address {
        address: address.to_owned(),
    })?;
    let found: Vec<_> = match timeout(step_timeout, lookup_host((host, port))).await {
        Ok(Ok(found)) => found.collect(),
        failed => {
            let host = host.to_owned();
            let error = match failed {
                Ok(Err(error)) => error,
                _ => io::ErrorKind::TimedOut.into(),
            };
            return Err(ConnectError::Resolve { host, error });
        }
    };
    match found.is_empty() {
        true => Err(ConnectError::NoAddress {
            host: host.to_owned(),
        }),
        false => Ok(found),
    }
}

/// Splits `host`, `host:port`, `[v6]`, `[v6]:port` or `v6` into host and port.
fn split(address: &str, default_port: u16) -> Option<(&str, u16)> {
    let (host, port) = if let Some(rest) = address.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        match rest {
            "" => (host, None),
            _ => (host, Some(rest.strip_prefix(':')?)),
        }
    } else {
        match address.split_once(':') {
            // An IPv6 address without brackets has no port.
            Some((_, rest)) if rest.contains(':') => (address, None),
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        }
    };
    if host.is_empty() {
        return None;
    }
    match port {
        Some(port) => Some((host, port.parse().ok()?)),
        None => Some((host, default_port)),
    }
}

/// The default port of a network's nodes.
fn default_port(network: Network) -> u16 {
    match network {
        Network::Testnet3 => 18333,
        Network::Testnet4 => 48333,
        Network::Signet => 38333,
        Network::Regtest => 18444,
        _ => 8333,
    }
}

/// Why a connection could not be made, or failed.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// `PACKETLANE_BACKEND` names no available backend.
    Backend(BackendError),
    /// The address is malformed.
    Address { address: String },
    /// The host name cannot be resolved.
    Resolve { host: String, error: io::Error },
    /// The host has no address.
    NoAddress { host: String },
    /// Nothing listens at the address.
    Refused { remote: SocketAddr },
    /// There is no route to the host.
    Unreachable {
        remote: SocketAddr,
        error: io::Error,
    },
    /// The host does not answer.
    NoAnswer {
        remote: SocketAddr,
        waited: Duration,
    },
    /// The system does not let us listen at the address.
    Listen { address: String, error: io::Error },
    /// The peer closed the v2 connection without an answer, and then nothing listened any more.
    Gone { remote: SocketAddr },
    /// The peer closed both the v2 and the v1 connection without an answer.
    ClosedTwice {
        remote: SocketAddr,
        network: Network,
    },
    /// A signal came before the work was done.
    Stopped(Stopped),
    /// The recording folder cannot be used.
    Record(RecordError),
    /// The connection failed.
    Peer {
        remote: SocketAddr,
        error: PeerError,
    },
}

impl ConnectError {
    /// Wraps an error of the connection with `remote`.
    fn at(remote: SocketAddr, error: PeerError) -> Self {
        Self::Peer { remote, error }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backend(error) => error.fmt(f),
            Self::Address { address } => write!(
                f,
                "{address}: not an address; expected HOST, HOST:PORT or [IPV6]:PORT"
            ),
            Self::Resolve { host, error } => write!(f, "{host}: cannot resolve this host: {error}"),
            Self::NoAddress { host } => write!(f, "{host}: this host has no address"),
            Self::Refused { remote } => {
                write!(f, "{remote}: connection refused: nothing listens there")
            }
            Self::Unreachable { remote, error } => write!(f, "{remote}: unreachable: {error}"),
            Self::NoAnswer { remote, waited } => {
                write!(f, "{remote}: unreachable: no answer within {waited:?}")
            }
            Self::Listen { address, error } => f.write_str(&cannot_listen(address, error)),
            Self::ClosedTwice { remote, network } => write!(
                f,
                "{remote}: the peer closed the connection before it answered, with v2 and with \
                 v1: it refuses us, is not on {}, or is not a Bitcoin node",
                network.name()
            ),
            Self::Gone { remote } => write!(
                f,
                "{remote}: the peer closed the connection before it answered, and nothing listens \
                 there any more: the node has stopped"
            ),
            Self::Stopped(Stopped { signal }) => {
                write!(f, "interrupted by {signal} before everything was done")
            }
            Self::Record(error) => error.fmt(f),
            Self::Peer { remote, error } => write!(f, "{remote}: {error}"),
        }
    }
}

impl std::error::Error for ConnectError {}

impl From<BackendError> for ConnectError {
    fn from(error: BackendError) -> Self {
        Self::Backend(error)
    }
}

impl From<RecordError> for ConnectError {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

impl From<Stopped> for ConnectError {
    fn from(stopped: Stopped) -> Self {
        Self::Stopped(stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_perhaps_a_port() {
        for (address, expected) in [
            ("example.org", Some(("example.org", 8333))),
            ("example.org:1", Some(("example.org", 1))),
            ("127.0.0.1:65535", Some(("127.0.0.1", 65535))),
            ("[::1]", Some(("::1", 8333))),
            ("[::1]:18444", Some(("::1", 18444))),
            ("::1", Some(("::1", 8333))),
            ("", None),
            (":8333", None),
            ("host:", None),
            ("host:65536", None),
            ("host:http", None),
            ("[::1", None),
            ("[::1]18444", None),
            ("[]:1", None),
        ] {
            assert_eq!(split(address, 8333), expected, "{address}");
        }
    }
}
