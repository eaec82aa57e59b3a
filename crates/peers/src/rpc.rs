//! The source that needs no privilege: Bitcoin Core's RPC `getpeerinfo`, looked at again and
//! again. It tells bytes by type of message, neither counts nor time per peer. The times of the
//! node's threads are added where the node's process is known.

use crate::process::{Process, Thread, stolen_ns, used};
use crate::record::{
    Connection, ConnectionType, Event, MAX_USER_AGENT, Network, Record, Time, Transport,
};
use crate::source::{Source, SourceError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use packetlane::bitcoin::message::MessageType;
use packetlane_files::Name;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufReader, Read as _};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// The longest answer that is taken, in bytes. A peer takes 3 kB of one.
pub const MAX_ANSWER: u64 = 32 << 20;

/// The longest cookie file that is taken, in bytes. The node's has 75.
const MAX_COOKIE: u64 = 1024;

/// How much of what the node says is quoted in an error, in characters.
const MAX_QUOTE: usize = 200;

/// The longest address that is taken, in bytes.
const MAX_ADDRESS: usize = 256;

/// The most peers that are taken from an answer. No node has so many.
pub const MAX_PEERS: usize = 10_000;

/// The most types of messages that are taken of a peer, for each direction. Bitcoin Core has 37.
pub const MAX_TYPES: usize = 100;

/// The most byte counts that are taken from an answer: those of 2,700 peers with all of Bitcoin
/// Core's types in both directions.
pub const MAX_COUNTS: usize = 200_000;

/// How long the node may take for an answer.
const LIMIT: Duration = Duration::from_secs(20);

/// How often it is asked whether to go on, between looks.
const POLL: Duration = Duration::from_millis(50);

const REQUEST: &str = r#"{"jsonrpc":"1.0","id":"packetlane","method":"getpeerinfo","params":[]}"#;

/// How to show the node who asks.
#[derive(Clone)]
pub enum Auth {
    /// By the file that the node writes at each start. It is read at each look.
    Cookie(PathBuf),
    /// By a user of the node's configuration.
    Password {
        /// The user.
        user: String,
        /// The password, which neither `Debug` nor an error shows.
        password: String,
    },
}

impl Auth {
    /// By the cookie in the default folder of the chain whose RPC has this port by default. For
    /// another port, by the only cookie in the default folders.
    ///
    /// # Errors
    ///
    /// [`RpcError::NoCookie`].
    pub fn default_cookie(port: u16) -> Result<Self, RpcError> {
        let Some(folder) = data_folder() else {
            return Err(RpcError::NoCookie { folder: None });
        };
        let path = |chain: &str| folder.join(chain).join(".cookie");
        if let Some((_, chain)) = CHAINS.iter().find(|(known, _)| *known == port) {
            return Ok(Self::Cookie(path(chain)));
        }
        let mut there: Vec<PathBuf> = CHAINS.iter().map(|(_, chain)| path(chain)).collect();
        there.retain(|path| path.exists());
        match there.pop() {
            Some(path) if there.is_empty() => Ok(Self::Cookie(path)),
            _ => Err(RpcError::NoCookie {
                folder: Some(folder),
            }),
        }
    }

    /// The `Authorization` header.
    fn header(&self) -> Result<String, RpcError> {
        let text = match self {
            Self::Cookie(path) => {
                let failed = |error| RpcError::Cookie {
                    path: path.clone(),
                    error,
                };
                let file = packetlane_files::open(path).map_err(failed)?;
                let mut cookie = String::new();
                let limited = &mut file.take(MAX_COOKIE);
                limited.read_to_string(&mut cookie).map_err(failed)?;
                cookie.trim().to_owned()
            }
            Self::Password { user, password } => format!("{user}:{password}"),
        };
        Ok(format!("Basic {}", BASE64.encode(text)))
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What it is, without the secret.
impl fmt::Display for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cookie(path) => write!(f, "the cookie in {}", Name(path)),
            Self::Password { user, .. } => write!(f, "the password of user {user}"),
        }
    }
}

/// The default ports of the RPC, and the chains' folders in the data folder.
const CHAINS: [(u16, &str); 5] = [
    (8332, ""),
    (18332, "testnet3"),
    (48332, "testnet4"),
    (38332, "signet"),
    (18443, "regtest"),
];

/// Where the node keeps its data if it is not told.
fn data_folder() -> Option<PathBuf> {
    let home = std::env::home_dir()?;
    Some(match cfg!(target_os = "macos") {
        true => home.join("Library/Application Support/Bitcoin"),
        false => home.join(".bitcoin"),
    })
}

/// Why the RPC tells nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum RpcError {
    /// The address is not one.
    Address {
        /// What was given.
        address: String,
    },
    /// It is not clear which cookie file it is.
    NoCookie {
        /// Where it was looked for.
        folder: Option<PathBuf>,
    },
    /// The cookie file cannot be read.
    Cookie {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Nobody answers, or not in time, or not in HTTP.
    NoAnswer {
        /// Whom was asked.
        address: String,
        /// Why.
        error: Box<ureq::Error>,
    },
    /// The node does not accept the cookie or the password.
    Unauthorized {
        /// Whom was asked.
        address: String,
        /// What it does not accept.
        auth: Auth,
    },
    /// The answer is longer than [`MAX_ANSWER`].
    TooLong {
        /// Who answered.
        address: String,
    },
    /// The answer is not that of `getpeerinfo`.
    Malformed {
        /// Who answered.
        address: String,
        /// The status of HTTP.
        status: u16,
        /// What is wrong with it.
        what: String,
    },
    /// The node says that it cannot answer: it starts, or this user may not ask that.
    Refused {
        /// Who answered.
        address: String,
        /// The node's number of the error.
        code: i64,
        /// What it says.
        message: String,
    },
    /// The node's process has ended.
    Ended(crate::ProcessError),
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quote = |text: &str| {
            text.chars()
                .take(MAX_QUOTE)
                .flat_map(char::escape_debug)
                .collect::<String>()
        };
        match self {
            Self::Address { address } => {
                write!(f, "{address} is no address of an RPC: HOST:PORT is")
            }
            Self::NoCookie { folder } => {
                f.write_str("no cookie file of the node is found")?;
                if let Some(folder) = folder {
                    write!(f, ", or several are, in {}", Name(folder))?;
                }
                f.write_str("; name it by --rpc-cookie, or the user by --rpc-user")
            }
            Self::Cookie { path, error } => write!(
                f,
                "cannot read the node's cookie {}: {error}; name it by --rpc-cookie, or the user \
                 by --rpc-user",
                Name(path)
            ),
            Self::NoAnswer { address, error } => {
                let error = quote(&error.to_string());
                write!(f, "the RPC at {address} does not answer: {error}")
            }
            Self::Unauthorized { address, auth } => {
                write!(f, "the RPC at {address} does not accept {auth}")
            }
            Self::TooLong { address } => write!(
                f,
                "the RPC at {address} answers with more than {} MiB",
                MAX_ANSWER >> 20
            ),
            Self::Malformed {
                address,
                status,
                what,
            } => write!(
                f,
                "the RPC at {address} does not answer getpeerinfo as a node does (HTTP {status}): \
                 {}",
                quote(what)
            ),
            Self::Refused {
                address,
                code,
                message,
            } => write!(
                f,
                "the RPC at {address} refuses getpeerinfo: {} ({code})",
                quote(message)
            ),
            Self::Ended(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RpcError {}

/// The peers of one node, by its RPC.
#[derive(Debug)]
pub struct Rpc {
    agent: ureq::Agent,
    address: String,
    auth: Auth,
    process: Option<Process>,
    last: Look,
    /// Whether the peers of the first look were given to somebody.
    told: bool,
}

/// What one look has shown.
#[derive(Debug)]
struct Look {
    time: Time,
    instant: Instant,
    peers: BTreeMap<i64, Peer>,
    threads: Vec<Thread>,
    stolen_ns: u64,
}

#[derive(Debug)]
struct Peer {
    /// None if it is of a type that this program does not know.
    connection: Option<Connection>,
    /// Its address and when it was made: another one of the same number has others.
    made: (String, u64),
    received: Bytes,
    sent: Bytes,
}

impl Peer {
    /// Whether this is the connection that was `before`, not one of a node that has restarted.
    fn continues(&self, before: &Self) -> bool {
        let grow = |now: &Bytes, before: &Bytes| {
            let mut before = before.0.iter();
            before.all(|(name, bytes)| now.0.get(name).is_some_and(|now| now >= bytes))
        };
        self.made == before.made
            && grow(&self.received, &before.received)
            && grow(&self.sent, &before.sent)
    }
}

impl Rpc {
    /// Looks at the node's peers for the first time. `address` is HOST:PORT. The times of the
    /// threads are those of `process`, which is the same node, if it runs here.
    ///
    /// # Errors
    ///
    /// See [`RpcError`].
    pub fn connect(address: &str, auth: Auth, process: Option<Process>) -> Result<Self, RpcError> {
        port(address)?;
        // Whatever the environment says of proxies: the password is for the node alone.
        let config = ureq::Agent::config_builder()
            .proxy(None)
            .max_redirects(0)
            // A connection for each look: the node closes them when it restarts.
            .max_idle_connections(0)
            .http_status_as_error(false)
            .timeout_global(Some(LIMIT));
        let agent = config.build().new_agent();
        let last = look(&agent, address, &auth, process)?;
        Ok(Self {
            agent,
            address: address.to_owned(),
            auth,
            process,
            last,
            told: false,
        })
    }

    fn look(&self) -> Result<Look, RpcError> {
        look(&self.agent, &self.address, &self.auth, self.process)
    }
}

/// The port of HOST:PORT.
///
/// # Errors
///
/// [`RpcError::Address`] if it is not that.
pub fn port(address: &str) -> Result<u16, RpcError> {
    let parts = address.rsplit_once(':');
    let host = |host: &str| !host.is_empty() && !host.contains(['/', '@', '?', '#', ' ']);
    match parts.and_then(|(name, port)| host(name).then_some(port.parse())) {
        Some(Ok(port)) => Ok(port),
        _ => Err(RpcError::Address {
            address: address.to_owned(),
        }),
    }
}

fn look(
    agent: &ureq::Agent,
    address: &str,
    auth: &Auth,
    process: Option<Process>,
) -> Result<Look, RpcError> {
    let threads = match process {
        Some(process) => process.threads().map_err(RpcError::Ended)?,
        None => Vec::new(),
    };
    let peers = ask(agent, address, auth)?;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Ok(Look {
        time: since.map_or(0, |since| since.as_micros() as u64),
        instant: Instant::now(),
        peers,
        threads,
        stolen_ns: process.map_or(0, |_| stolen_ns()),
    })
}

/// The node's answer, of which other parts are not looked at. No more of it is ever in memory than
/// is kept.
#[derive(serde::Deserialize)]
struct Answer {
    result: Option<Peers>,
    error: Option<Refusal>,
}

#[derive(serde::Deserialize)]
struct Refusal {
    code: i64,
    message: String,
}

#[derive(serde::Deserialize)]
struct PeerInfo {
    id: i64,
    addr: String,
    conntime: u64,
    /// The peer's protocol version: 0 before its `version` has come.
    version: i64,
    relaytxes: bool,
    subver: Option<String>,
    bytessent_per_msg: Bytes,
    bytesrecv_per_msg: Bytes,
    // Not in nodes before 0.21, 0.21 and 26.
    network: Option<String>,
    connection_type: Option<String>,
    transport_protocol_type: Option<String>,
}

/// The peers of an answer: up to [`MAX_PEERS`], with up to [`MAX_COUNTS`] byte counts in all.
struct Peers(BTreeMap<i64, Peer>);

impl<'de> Deserialize<'de> for Peers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = Peers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of peers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Peers, A::Error> {
                let mut peers = BTreeMap::new();
                let (mut count, mut counts) = (0, 0);
                while let Some(info) = list.next_element::<PeerInfo>()? {
                    count += 1;
                    counts += info.bytessent_per_msg.0.len() + info.bytesrecv_per_msg.0.len();
                    if count > MAX_PEERS {
                        return Err(A::Error::custom(format!("more than {MAX_PEERS} peers")));
                    }
                    if counts > MAX_COUNTS {
                        return Err(A::Error::custom(format!(
                            "more than {MAX_COUNTS} byte counts"
                        )));
                    }
                    if info.addr.len() > MAX_ADDRESS {
                        return Err(A::Error::custom(format!("peer {} has no address", info.id)));
                    }
                    peers.insert(info.id, peer(info));
                }
                Ok(Peers(peers))
            }
        }

        deserializer.deserialize_seq(List)
    }
}

/// Bytes by type of message: up to [`MAX_TYPES`].
#[derive(Debug, Default)]
struct Bytes(BTreeMap<MessageType, u64>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;

        impl<'de> Visitor<'de> for Map {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes by type of message")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Bytes, A::Error> {
                let mut bytes = BTreeMap::new();
                while let Some((name, count)) = map.next_entry::<String, u64>()? {
                    let Ok(message_type) = MessageType::new(name.as_bytes()) else {
                        let name: String = name.chars().take(MAX_QUOTE).collect();
                        return Err(A::Error::custom(format!("{name} is no type of message")));
                    };
                    bytes.insert(message_type, count);
                    if bytes.len() > MAX_TYPES {
                        return Err(A::Error::custom(format!(
                            "a peer with more than {MAX_TYPES} types of messages"
                        )));
                    }
                }
                Ok(Bytes(bytes))
            }
        }

        deserializer.deserialize_map(Map)
    }
}

fn ask(agent: &ureq::Agent, address: &str, auth: &Auth) -> Result<BTreeMap<i64, Peer>, RpcError> {
    let failed = |error| match error {
        ureq::Error::BodyExceedsLimit(_) => RpcError::TooLong {
            address: address.to_owned(),
        },
        error => RpcError::NoAnswer {
            address: address.to_owned(),
            error: Box::new(error),
        },
    };
    let request = agent
        .post(format!("http://{address}/"))
        .header("Authorization", auth.header()?)
        .header("Content-Type", "application/json");
    let mut answer = request.send(REQUEST).map_err(failed)?;
    let status = answer.status().as_u16();
    if matches!(status, 401 | 403) {
        return Err(RpcError::Unauthorized {
            address: address.to_owned(),
            auth: auth.clone(),
        });
    }
    let malformed = |what: String| RpcError::Malformed {
        address: address.to_owned(),
        status,
        what,
    };
    let body = answer.body_mut().with_config().limit(MAX_ANSWER).reader();
    let answer: Answer = match serde_json::from_reader(BufReader::new(body)) {
        Err(error) if error.is_io() => return Err(failed(io::Error::from(error).into())),
        answer => answer.map_err(|error| malformed(error.to_string()))?,
    };
    match answer {
        Answer {
            error: Some(Refusal { code, message }),
            ..
        } => Err(RpcError::Refused {
            address: address.to_owned(),
            code,
            message,
        }),
        Answer {
            result: Some(Peers(peers)),
            ..
        } => Ok(peers),
        _ => Err(malformed("neither a result nor an error".to_owned())),
    }
}

fn peer(info: PeerInfo) -> Peer {
    let text = |text: &'_ Option<String>| text.clone().unwrap_or_default();
    let kind = ConnectionType::from_name(&text(&info.connection_type));
    let connection = kind.map(|kind| Connection {
        address: info.addr.clone(),
        kind,
        network: Network::from_name(&text(&info.network)),
        // While it is not known, this says "detecting".
        transport: Transport::from_name(&text(&info.transport_protocol_type)),
        relay: (info.version != 0).then_some(info.relaytxes),
        user_agent: info
            .subver
            .filter(|_| info.version != 0)
            .map(|name| name.chars().take(MAX_USER_AGENT).collect()),
        since: Some(info.conntime.saturating_mul(1_000_000)),
    });
    Peer {
        connection,
        made: (info.addr, info.conntime),
        received: info.bytesrecv_per_msg,
        sent: info.bytessent_per_msg,
    }
}

impl Source for Rpc {
    fn abilities(&self) -> &'static str {
        match self.process {
            Some(_) => {
                "RPC: bytes by type of message, with framing, and the run time of the node's \
                 threads; no counts, no CPU time per peer; a peer that comes and goes between two \
                 looks is not seen"
            }
            None => {
                "RPC: bytes by type of message, with framing; no counts, no CPU time; a peer that \
                 comes and goes between two looks is not seen"
            }
        }
    }

    /// The window begins with the last look, so that windows follow each other, and ends with a
    /// new look `window` later.
    fn watch(
        &mut self,
        window: Duration,
        go_on: &dyn Fn() -> bool,
        take: &mut dyn FnMut(Record),
    ) -> Result<(), SourceError> {
        let connected = |peer: i64, seen: &Peer| {
            let connection = seen.connection.clone()?;
            Some(Event::Connected { peer, connection })
        };
        let start = self.last.time;
        if !self.told {
            self.told = true;
            let peers = self.last.peers.iter();
            for event in peers.filter_map(|(number, peer)| connected(*number, peer)) {
                take(Record { time: start, event });
            }
        }
        loop {
            let left = window.saturating_sub(self.last.instant.elapsed());
            if left.is_zero() || !go_on() {
                break;
            }
            sleep(left.min(POLL));
        }
        let look = self.look().map_err(SourceError::new)?;
        let before = std::mem::replace(&mut self.last, look);
        let time = self.last.time;
        let mut give = |event| take(Record { time, event });
        for (&peer, was) in &before.peers {
            let now = self.last.peers.get(&peer);
            if !now.is_some_and(|now| now.continues(was)) {
                give(Event::Disconnected { peer });
            }
        }
        let none = Bytes::default();
        for (&peer, now) in &self.last.peers {
            let was = before.peers.get(&peer).filter(|was| now.continues(was));
            if was.is_none_or(|was| was.connection != now.connection) {
                connected(peer, now).into_iter().for_each(&mut give);
            }
            for (received, all, known) in [
                (true, &now.received, was.map_or(&none, |was| &was.received)),
                (false, &now.sent, was.map_or(&none, |was| &was.sent)),
            ] {
                for (message_type, bytes) in &all.0 {
                    let bytes = bytes - known.0.get(message_type).unwrap_or(&0);
                    if bytes > 0 {
                        give(Event::Bytes {
                            peer,
                            received,
                            message_type: message_type.name().to_owned(),
                            bytes,
                        });
                    }
                }
            }
        }
        if self.process.is_some() {
            for (name, cpu_ns) in used(&before.threads, &self.last.threads) {
                give(Event::Thread { name, cpu_ns });
            }
        }
        give(Event::Window {
            start,
            lost: 0,
            probes_ns: 0,
            stolen_ns: self.last.stolen_ns.saturating_sub(before.stolen_ns),
        });
        Ok(())
    }
}

/// Another source, of the same node, with what the RPC knows of each connection filled in: v1 or
/// v2, network, age and relay flag of the peers that were there before.
pub struct Described {
    source: Box<dyn Source>,
    rpc: Rpc,
    known: BTreeMap<i64, Connection>,
}

impl Described {
    /// `source`, with what `rpc` knows.
    #[must_use]
    pub fn new(source: Box<dyn Source>, rpc: Rpc) -> Self {
        Self {
            source,
            rpc,
            known: BTreeMap::new(),
        }
    }
}

impl Source for Described {
    fn abilities(&self) -> &'static str {
        "probes: CPU and wall time of every call for every peer, messages both ways; and by RPC, \
         v1 or v2 and the network of each"
    }

    fn watch(
        &mut self,
        window: Duration,
        go_on: &dyn Fn() -> bool,
        take: &mut dyn FnMut(Record),
    ) -> Result<(), SourceError> {
        let look = self.rpc.look().map_err(SourceError::new)?;
        let connections = look.peers.into_iter();
        let connections: BTreeMap<i64, Connection> = connections
            .filter_map(|(number, peer)| Some((number, peer.connection?)))
            .collect();
        for (&peer, connection) in &connections {
            if self.known.get(&peer) != Some(connection) {
                let connection = connection.clone();
                let event = Event::Connected { peer, connection };
                take(Record {
                    time: look.time,
                    event,
                });
            }
        }
        // Those that went while the other source did not look.
        for &peer in self.known.keys() {
            if !connections.contains_key(&peer) {
                take(Record {
                    time: look.time,
                    event: Event::Disconnected { peer },
                });
            }
        }
        self.known = connections;
        let known = &self.known;
        self.source.watch(window, go_on, &mut |mut record| {
            if let Event::Connected { peer, connection } = &mut record.event
                && let Some(more) = known.get(peer)
                && more.address == connection.address
            {
                connection.network = connection.network.or(more.network);
                connection.transport = connection.transport.or(more.transport);
                connection.relay = connection.relay.or(more.relay);
                if connection.user_agent.is_none() {
                    connection.user_agent.clone_from(&more.user_agent);
                }
                connection.since = connection.since.or(more.since);
            }
            take(record);
        })
    }

    fn rest(&mut self) {
        self.source.rest();
    }
}
