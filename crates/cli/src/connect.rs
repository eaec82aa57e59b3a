//! Opens or accepts connections: `packetlane connect` and `packetlane listen`. Both print the
//! same report.

use crate::node::{self, Observed, Plan};
use crate::peer::{Peer, PeerError, Recorder};
use crate::report::{Report, Status, Times};
use packetlane::bip324::{HandshakeError, Network};
use packetlane::{BackendError, Engine};
use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Maximum number of connections that `listen` serves at the same time.
const MAX_CONNECTIONS: usize = 32;

/// How long `listen` waits after a failed `accept`: the system may be out of file descriptors,
/// and some of ours may be closed meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// How long an interrupted `listen` waits for the last reports.
const LAST_REPORTS: Duration = Duration::from_secs(1);

/// Which transport to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransportChoice {
    /// Version 2, or version 1 if the peer does not support version 2.
    Either,
    V1Only,
    V2Only,
}

/// Connects to `address`, carries out `plan` and prints the report.
pub(crate) async fn connect(
    address: &str,
    choice: TransportChoice,
    record: Option<PathBuf>,
    plan: Plan,
) -> Result<(), ConnectError> {
    let engine = Engine::detect()?;
    let addresses = resolve(address, plan.network, plan.step_timeout).await?;
    // Created before the connection, so that the user learns of an unusable folder at once.
    let recorder = record.as_deref().map(Recorder::create).transpose()?;
    let status = Status::new();

    status.show("connecting");
    let (stream, remote, mut tcp) = open(&addresses, plan.step_timeout).await?;
    let begun = Instant::now();
    let (mut peer, keys, fell_back) = if choice == TransportChoice::V1Only {
        let peer = Peer::initiate_v1(stream, plan.network, plan.step_timeout);
        (peer, None, false)
    } else {
        status.show("exchanging keys");
        match Peer::initiate_v2(stream, plan.network, engine, plan.step_timeout).await {
            Ok(peer) => (peer, Some(begun.elapsed()), false),
            Err(PeerError::Handshake(HandshakeError::ClosedUnanswered))
                if choice == TransportChoice::Either =>
            {
                status.show("connecting again, with v1");
                let stream;
                (stream, _, tcp) = open(&[remote], plan.step_timeout).await?;
                let peer = Peer::initiate_v1(stream, plan.network, plan.step_timeout);
                (peer, None, true)
            }
            Err(error) => return Err(error.at(remote)),
        }
    };
    peer.record(recorder);
    let times = Times {
        tcp: Some(tcp),
        keys,
        version: Duration::ZERO,
    };
    after_handshake(peer, remote, &plan, times, fell_back, &status).await
}

/// Accepts connections at `address`, carries out `plan` with each and prints its report. With
/// `once` it ends after the first.
pub(crate) async fn listen(
    address: &str,
    once: bool,
    record: Option<PathBuf>,
    plan: Plan,
) -> Result<(), ConnectError> {
    let engine = Engine::detect()?;
    let addresses = resolve(address, plan.network, plan.step_timeout).await?;
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
        // Named like Bitcoin Core's folders for its peers.
        let folder = record.as_ref().map(|dir| {
            let ip = remote.ip().to_string().replace(':', ".");
            dir.join(format!("{ip}_{}", remote.port()))
        });
        async move {
            let begun = Instant::now();
            let mut peer = Peer::respond(stream, plan.network, engine, plan.step_timeout)
                .await
                .map_err(|error| error.at(remote))?;
            peer.record(folder.as_deref().map(Recorder::create).transpose()?);
            let times = Times {
                tcp: None,
                keys: peer.session_id().map(|_| begun.elapsed()),
                version: Duration::ZERO,
            };
            after_handshake(peer, remote, &plan, times, false, &Status::hidden()).await
        }
    };

    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // Every connection receives the signal too and prints its report.
            _ = tokio::signal::ctrl_c() => {
                let reports = async { while connections.join_next().await.is_some() {} };
                let _ = timeout(LAST_REPORTS, reports).await;
                return Ok(());
            }
        };
        let (stream, remote) = match accepted {
            Ok(accepted) => accepted,
            // The peer left at once, or the process has no free descriptors. Keep listening in
            // both cases.
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if once {
            return serve(stream, remote).await;
        }
        let served = serve(stream, remote);
        connections.spawn(async move {
            if let Err(error) = served.await {
                eprintln!("error: {error}");
            }
        });
        while connections.try_join_next().is_some() {}
        if connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
    }
}

/// Everything after the transport's handshake: exchanges versions, carries out `plan` and
/// prints the report.
async fn after_handshake(
    mut peer: Peer,
    remote: SocketAddr,
    plan: &Plan,
    mut times: Times,
    fell_back: bool,
    status: &Status,
) -> Result<(), ConnectError> {
    status.show("exchanging versions");
    let begun = Instant::now();
    let version = match node::exchange_versions(&mut peer, plan).await {
        // The peer closed both connections without an answer, so the transport is not the
        // cause.
        Err(PeerError::ClosedBeforeVersion { network }) if fell_back => {
            return Err(ConnectError::ClosedTwice { remote, network });
        }
        version => version.map_err(|error| error.at(remote))?,
    };
    times.version = begun.elapsed();

    status.show("talking");
    let mut observed = Observed::default();
    let talk = node::run_plan(&mut peer, plan, &mut observed, |text| status.show(text));
    let ended = tokio::select! {
        ended = talk => ended,
        // After Ctrl-C the user still wants the report.
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    let recorded = peer.finish_recording();
    status.clear();
    let report = Report {
        remote,
        network: plan.network,
        fell_back,
        times,
        version: &version,
        observed: &observed,
        peer: &peer,
    };
    // The reports of `listen` are separated by an empty line.
    let gap = if plan.initiator { "" } else { "\n" };
    print(format_args!("{gap}{report}"));
    ended.and(recorded).map_err(|error| error.at(remote))
}

/// Prints to standard output. A reader that has closed the pipe is not an error.
fn print(text: fmt::Arguments<'_>) {
    let _ = io::stdout().write_fmt(text);
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
                // Otherwise the system would delay small messages to merge them (Nagle).
                stream
                    .set_nodelay(true)
                    .map_err(|error| ConnectError::Unreachable { remote, error })?;
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
    // `resolve` returns at least one address.
    Err(failure.unwrap_or(ConnectError::NoAddress {
        host: String::new(),
    }))
}

/// The socket addresses of `address`: a host name or an IP address, with or without a port.
async fn resolve(
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

/// The port on which nodes of a network listen by default.
fn default_port(network: Network) -> u16 {
    match network {
        Network::Testnet3 => 18333,
        Network::Testnet4 => 48333,
        Network::Signet => 38333,
        Network::Regtest => 18444,
        _ => 8333,
    }
}

/// Why there is no connection, or why it failed.
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
    /// The peer closed both the v2 and the v1 connection without an answer.
    ClosedTwice {
        remote: SocketAddr,
        network: Network,
    },
    /// The connection failed.
    Peer {
        /// `None` if the error came before the connection.
        remote: Option<SocketAddr>,
        error: PeerError,
    },
}

impl PeerError {
    /// Adds the address of the connection that failed.
    fn at(self, remote: SocketAddr) -> ConnectError {
        ConnectError::Peer {
            remote: Some(remote),
            error: self,
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backend(error) => error.fmt(f),
            Self::Address { address } => write!(
                f,
                "{address}: not an address; give HOST, HOST:PORT or [IPV6]:PORT"
            ),
            Self::Resolve { host, error } => write!(f, "{host}: cannot find this host: {error}"),
            Self::NoAddress { host } => write!(f, "{host}: this host has no address"),
            Self::Refused { remote } => {
                write!(f, "{remote}: connection refused: nothing listens there")
            }
            Self::Unreachable { remote, error } => write!(f, "{remote}: unreachable: {error}"),
            Self::NoAnswer { remote, waited } => {
                write!(f, "{remote}: unreachable: no answer within {waited:?}")
            }
            Self::Listen { address, error } => {
                write!(f, "cannot listen on {address}: {error}")
            }
            Self::ClosedTwice { remote, network } => write!(
                f,
                "{remote}: the peer closed the connection before it answered, with v2 and with \
                 v1: it refuses us, is not on {}, or is not a Bitcoin node",
                network.name()
            ),
            Self::Peer {
                remote: Some(remote),
                error,
            } => write!(f, "{remote}: {error}"),
            Self::Peer {
                remote: None,
                error,
            } => error.fmt(f),
        }
    }
}

impl std::error::Error for ConnectError {}

impl From<BackendError> for ConnectError {
    fn from(error: BackendError) -> Self {
        Self::Backend(error)
    }
}

impl From<PeerError> for ConnectError {
    fn from(error: PeerError) -> Self {
        Self::Peer {
            remote: None,
            error,
        }
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
