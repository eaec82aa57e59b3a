//! The unprivileged source: polls Bitcoin Core's RPC `getpeerinfo`. It reports bytes by message
//! type, but no message counts and no CPU time per peer. If the node's process is known, it adds
//! the CPU time of the node's threads.

use crate::process::{Process, Thread, stolen_ns, used};
use crate::record::{
    Connection, ConnectionType, Event, MAX_USER_AGENT, Network, PROBED_ADDRESS, Record, Time,
    Transport,
};
use crate::source::{Source, SourceError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use packetlane::bitcoin::message::MessageType;
use packetlane_files::Name;
use serde::de::{
    Deserialize, DeserializeOwned, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufReader, Read as _};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// Maximum length of an answer, in bytes. A peer takes about 3 kB.
pub const MAX_ANSWER: u64 = 32 << 20;

/// Maximum length of a cookie file, in bytes. The node's has 75.
const MAX_COOKIE: u64 = 1024;

/// Maximum length of node output quoted in an error, in characters.
const MAX_QUOTE: usize = 200;

/// Maximum length of a peer's address, in bytes.
const MAX_ADDRESS: usize = 256;

/// Maximum number of peers in an answer. No node has that many.
pub const MAX_PEERS: usize = 10_000;

/// Maximum number of message types of a peer in each direction. Bitcoin Core has 37.
pub const MAX_TYPES: usize = 100;

/// Maximum number of byte counts in an answer: 2,700 peers with all of Bitcoin Core's message types
/// in both directions.
pub const MAX_COUNTS: usize = 200_000;

/// Timeout of a request.
const LIMIT: Duration = Duration::from_secs(20);

/// How often to check between requests whether to go on.
const POLL: Duration = Duration::from_millis(50);

/// The request for the peers.
const PEERS: &str = r#"{"jsonrpc":"1.0","id":"packetlane","method":"getpeerinfo","params":[]}"#;

/// How to authenticate at the node.
#[derive(Clone)]
pub enum Auth {
    /// With the cookie file that the node writes at each start. It is read for each request.
    Cookie(PathBuf),
    /// With a user from the node's configuration.
    Password {
        /// The user.
        user: String,
        /// The password. Neither `Debug` nor an error shows it.
        password: String,
    },
}

impl Auth {
    /// The cookie in the default data folder of the chain that uses this RPC port by default. For
    /// any other port, the only cookie in the default data folders.
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

    /// The value of the `Authorization` header.
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

/// Shows the method, without the secret.
impl fmt::Display for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cookie(path) => write!(f, "the cookie in {}", Name(path)),
            Self::Password { user, .. } => write!(f, "the password of user {user}"),
        }
    }
}

/// How many polls in a row a node may leave unanswered.
const MAX_UNANSWERED: u32 = 2;

/// The chains: default RPC port, and folder within the data folder.
const CHAINS: [(u16, &str); 5] = [
    (8332, ""),
    (18332, "testnet3"),
    (48332, "testnet4"),
    (38332, "signet"),
    (18443, "regtest"),
];

/// The node's default data folder.
fn data_folder() -> Option<PathBuf> {
    let home = std::env::home_dir()?;
    Some(match cfg!(target_os = "macos") {
        true => home.join("Library/Application Support/Bitcoin"),
        false => home.join(".bitcoin"),
    })
}

/// Why the RPC gives no answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum RpcError {
    /// Not a valid address.
    Address {
        /// The address given.
        address: String,
    },
    /// No cookie file was found, or several.
    NoCookie {
        /// Where they were searched.
        folder: Option<PathBuf>,
    },
    /// The cookie file cannot be read.
    Cookie {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// No answer, no answer in time, or no HTTP.
    NoAnswer {
        /// The RPC's address.
        address: String,
        /// The cause.
        error: Box<ureq::Error>,
    },
    /// The node rejects the cookie or the password.
    Unauthorized {
        /// The RPC's address.
        address: String,
        /// What it rejects.
        auth: Auth,
    },
    /// The answer is longer than [`MAX_ANSWER`].
    TooLong {
        /// The RPC's address.
        address: String,
    },
    /// The answer is not a valid answer to `getpeerinfo`.
    Malformed {
        /// The RPC's address.
        address: String,
        /// The HTTP status.
        status: u16,
        /// What is wrong with the answer.
        what: String,
    },
    /// The node returns an error: it is still starting, or this user may not call `getpeerinfo`.
    Refused {
        /// The RPC's address.
        address: String,
        /// The node's error code.
        code: i64,
        /// The node's error message.
        message: String,
    },
    /// A peer that is not disconnected.
    Kept {
        /// The node's id of the peer.
        peer: i64,
        /// Why not.
        why: &'static str,
    },
    /// The node was asked to disconnect a peer, and it is unknown whether it did.
    Asked(Box<RpcError>),
    /// The RPC belongs to another node than the one that is observed.
    AnotherNode {
        /// The RPC's address.
        address: String,
        /// An id that both nodes use for different peers.
        peer: i64,
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
                write!(
                    f,
                    "{address} is not an RPC address: expected HOST:PORT, such as 127.0.0.1:8332"
                )
            }
            Self::NoCookie { folder } => {
                match folder {
                    Some(folder) => write!(f, "no cookie file, or several, in {}", Name(folder))?,
                    None => f.write_str("no cookie file: the home folder is unknown")?,
                }
                f.write_str("; pass --rpc-cookie FILE or --rpc-user NAME")
            }
            Self::Cookie { path, error } if error.kind() == io::ErrorKind::NotFound => write!(
                f,
                "no cookie file {}: the node does not run, or it is elsewhere: pass --rpc-cookie \
                 FILE or --rpc-user NAME",
                Name(path)
            ),
            Self::Cookie { path, error } => write!(
                f,
                "cannot read the node's cookie {}: {error}; pass --rpc-cookie FILE or --rpc-user \
                 NAME",
                Name(path)
            ),
            Self::NoAnswer { address, error } => {
                let error = quote(&error.to_string());
                write!(f, "the RPC at {address} does not answer: {error}")
            }
            Self::Unauthorized { address, auth } => {
                write!(f, "the RPC at {address} rejects {auth}")
            }
            Self::TooLong { address } => write!(
                f,
                "the RPC at {address} sends an answer longer than {} MiB",
                MAX_ANSWER >> 20
            ),
            Self::Malformed {
                address,
                status,
                what,
            } => write!(
                f,
                "the RPC at {address} does not answer getpeerinfo like a Bitcoin Core node (HTTP \
                 {status}): {}",
                quote(what)
            ),
            Self::Refused {
                address,
                code,
                message,
            } => write!(
                f,
                "the RPC at {address} returns an error: {} ({code})",
                quote(message)
            ),
            Self::Kept { peer, why } => write!(f, "peer {peer} is not disconnected: {why}"),
            Self::Asked(error) => write!(f, "{error}; the node may have disconnected it"),
            Self::AnotherNode { address, peer } => write!(
                f,
                "the RPC at {address} belongs to another node than the one with the probes: peer \
                 {peer} has another address there; pass the --rpc and the --pid of one node"
            ),
            Self::Ended(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RpcError {}

/// Observes a node's peers through its RPC.
#[derive(Debug)]
pub struct Rpc {
    agent: ureq::Agent,
    address: String,
    auth: Auth,
    process: Option<Process>,
    last: Look,
    /// Whether the peers of the first poll were reported.
    told: bool,
    /// Polls in a row without an answer.
    unanswered: u32,
}

/// The result of one poll.
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
    /// `None` if its connection type is unknown to this program.
    connection: Option<Connection>,
    /// Address and connection time: they tell it from another peer with the same id.
    made: (String, u64),
    /// Whether the operator has given it permissions.
    has_permissions: bool,
    received: Bytes,
    sent: Bytes,
}

impl Peer {
    /// Whether this is the same connection as `before`, not one of a restarted node.
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
    /// Polls the node for the first time. `address` is HOST:PORT. If the same node runs on this
    /// machine, pass its `process` to add the CPU times of its threads.
    ///
    /// # Errors
    ///
    /// See [`RpcError`].
    pub fn connect(address: &str, auth: Auth, process: Option<Process>) -> Result<Self, RpcError> {
        port(address)?;
        // Ignore proxy settings of the environment: the password is for the node only.
        let config = ureq::Agent::config_builder()
            .proxy(None)
            .max_redirects(0)
            // A new connection for each poll: the node may have restarted since the last one.
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
            unanswered: 0,
        })
    }

    /// Polls the node. `None` if it does not answer: that is an error only at the third poll in a row,
    /// as a busy node may take long.
    fn look(&mut self) -> Result<Option<Look>, SourceError> {
        match look(&self.agent, &self.address, &self.auth, self.process) {
            Ok(look) => {
                self.unanswered = 0;
                Ok(Some(look))
            }
            Err(RpcError::NoAnswer { .. }) if self.unanswered < MAX_UNANSWERED => {
                self.unanswered += 1;
                Ok(None)
            }
            Err(error) => Err(SourceError::new(error)),
        }
    }

    /// Disconnects an inbound peer, which must still have this address. Never one that the operator
    /// has given a permission, such as `noban`.
    ///
    /// # Errors
    ///
    /// [`RpcError::Kept`] if it is another peer or must not be disconnected, [`RpcError::Asked`] if
    /// it may have been disconnected, else see [`RpcError`].
    pub fn disconnect(&self, peer: i64, address: &str) -> Result<(), RpcError> {
        let kept = |why| Err(RpcError::Kept { peer, why });
        let peers = peers(&self.agent, &self.address, &self.auth)?;
        match peers.get(&peer) {
            None => return kept("it has left"),
            Some(now) if now.made.0 != address => return kept("another peer has its id by now"),
            Some(now) if now.has_permissions => {
                return kept("the node's configuration gives it permissions");
            }
            Some(now) => match &now.connection {
                Some(known) if known.kind == ConnectionType::Inbound => {}
                _ => return kept("it is not inbound"),
            },
        }
        let request = format!(
            r#"{{"jsonrpc":"1.0","id":"packetlane","method":"disconnectnode","params":["",{peer}]}}"#
        );
        let asked = ask::<IgnoredAny>(&self.agent, &self.address, &self.auth, &request);
        asked.map(drop).map_err(|error| {
            let is_uncertain = match &error {
                RpcError::NoAnswer { error, .. } => {
                    !matches!(**error, ureq::Error::StatusCode(BUSY))
                }
                RpcError::Malformed { .. } | RpcError::TooLong { .. } => true,
                // The node says that it did not.
                _ => false,
            };
            match is_uncertain {
                true => RpcError::Asked(Box::new(error)),
                false => error,
            }
        })
    }
}

/// The port in HOST:PORT.
///
/// # Errors
///
/// [`RpcError::Address`] if it has another form.
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
    let peers = peers(agent, address, auth)?;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Ok(Look {
        time: since.map_or(0, |since| since.as_micros() as u64),
        instant: Instant::now(),
        peers,
        threads,
        stolen_ns: process.map_or(0, |_| stolen_ns()),
    })
}

/// The parts of the node's answer that are used. Unused parts are never kept in memory.
#[derive(serde::Deserialize)]
struct Answer<T> {
    /// `None` if it is null or missing.
    result: Option<T>,
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
    /// The peer's protocol version: 0 until its `version` arrives.
    version: i64,
    relaytxes: bool,
    subver: Option<String>,
    bytessent_per_msg: Bytes,
    bytesrecv_per_msg: Bytes,
    // Missing before versions 0.21, 0.21 and 26.
    network: Option<String>,
    connection_type: Option<String>,
    transport_protocol_type: Option<String>,
    #[serde(default)]
    permissions: Option<Permissions>,
}

/// Whether a list has an element.
struct Permissions(bool);

impl<'de> Deserialize<'de> for Permissions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = Permissions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of permissions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Permissions, A::Error> {
                let mut has_any = false;
                while list.next_element::<IgnoredAny>()?.is_some() {
                    has_any = true;
                }
                Ok(Permissions(has_any))
            }
        }

        deserializer.deserialize_seq(List)
    }
}

/// The peers of an answer: at most [`MAX_PEERS`], with at most [`MAX_COUNTS`] byte counts.
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
                        return Err(A::Error::custom(format!(
                            "peer {} has no valid address",
                            info.id
                        )));
                    }
                    peers.insert(info.id, peer(info));
                }
                Ok(Peers(peers))
            }
        }

        deserializer.deserialize_seq(List)
    }
}

/// Bytes by message type: at most [`MAX_TYPES`] types.
#[derive(Debug, Default)]
struct Bytes(BTreeMap<MessageType, u64>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;

        impl<'de> Visitor<'de> for Map {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes by message type")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Bytes, A::Error> {
                let mut bytes = BTreeMap::new();
                while let Some((name, count)) = map.next_entry::<String, u64>()? {
                    let Ok(message_type) = MessageType::new(name.as_bytes()) else {
                        let name: String = name.chars().take(MAX_QUOTE).collect();
                        return Err(A::Error::custom(format!("{name} is not a message type")));
                    };
                    bytes.insert(message_type, count);
                    if bytes.len() > MAX_TYPES {
                        return Err(A::Error::custom(format!(
                            "a peer with more than {MAX_TYPES} message types"
                        )));
                    }
                }
                Ok(Bytes(bytes))
            }
        }

        deserializer.deserialize_map(Map)
    }
}

fn peers(agent: &ureq::Agent, address: &str, auth: &Auth) -> Result<BTreeMap<i64, Peer>, RpcError> {
    let answer: Option<Peers> = ask(agent, address, auth, PEERS)?;
    match answer {
        Some(Peers(peers)) => Ok(peers),
        None => Err(RpcError::Malformed {
            address: address.to_owned(),
            status: 200,
            what: "neither a result nor an error".to_owned(),
        }),
    }
}

/// The HTTP status if more requests wait than the node's `-rpcworkqueue` allows.
const BUSY: u16 = 503;

/// Sends a request and returns the answer's result, if it is not null.
fn ask<T: DeserializeOwned>(
    agent: &ureq::Agent,
    address: &str,
    auth: &Auth,
    request: &str,
) -> Result<Option<T>, RpcError> {
    let failed = |error| match error {
        ureq::Error::BodyExceedsLimit(_) => RpcError::TooLong {
            address: address.to_owned(),
        },
        error => RpcError::NoAnswer {
            address: address.to_owned(),
            error: Box::new(error),
        },
    };
    let post = agent
        .post(format!("http://{address}/"))
        .header("Authorization", auth.header()?)
        .header("Content-Type", "application/json");
    let mut answer = post.send(request).map_err(failed)?;
    let status = answer.status().as_u16();
    if matches!(status, 401 | 403) {
        return Err(RpcError::Unauthorized {
            address: address.to_owned(),
            auth: auth.clone(),
        });
    }
    if status == BUSY {
        return Err(failed(ureq::Error::StatusCode(status)));
    }
    let malformed = |what: String| RpcError::Malformed {
        address: address.to_owned(),
        status,
        what,
    };
    let body = answer.body_mut().with_config().limit(MAX_ANSWER).reader();
    let answer: Answer<T> = match serde_json::from_reader(BufReader::new(body)) {
        Err(error) if error.is_io() => return Err(failed(io::Error::from(error).into())),
        answer => answer.map_err(|error| malformed(error.to_string()))?,
    };
    match answer.error {
        Some(Refusal { code, message }) => Err(RpcError::Refused {
            address: address.to_owned(),
            code,
            message,
        }),
        None => Ok(answer.result),
    }
}

fn peer(info: PeerInfo) -> Peer {
    let text = |text: &'_ Option<String>| text.clone().unwrap_or_default();
    let kind = ConnectionType::from_name(&text(&info.connection_type));
    let connection = kind.map(|kind| Connection {
        address: info.addr.clone(),
        kind,
        network: Network::from_name(&text(&info.network)),
        // Until it is known, this is "detecting".
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
        has_permissions: info.permissions.is_some_and(|any| any.0),
        received: info.bytesrecv_per_msg,
        sent: info.bytessent_per_msg,
    }
}

impl Source for Rpc {
    fn abilities(&self) -> &'static str {
        match self.process {
            Some(_) => {
                "RPC: bytes by message type, including framing, and CPU time of the node's \
                 threads; no message counts, no CPU time per peer; misses peers that connect and \
                 disconnect between two polls"
            }
            None => {
                "RPC: bytes by message type, including framing; no message counts, no CPU time; \
                 misses peers that connect and disconnect between two polls"
            }
        }
    }

    /// The window begins at the previous poll and ends with a new poll `window` later, so there are
    /// no gaps between windows.
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
        let Some(look) = self.look()? else {
            // The next window is the longer.
            return Ok(());
        };
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

/// Combines another source with the RPC of the same node. The RPC provides v1 or v2, network, age
/// and relay flag, also of peers that connected before the source was attached.
pub struct Described {
    source: Box<dyn Source>,
    rpc: Rpc,
    known: BTreeMap<i64, Connection>,
}

impl Described {
    /// Adds to `source` what `rpc` knows about each connection.
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
        "probes: CPU and wall time of every call for every peer, all messages; with the RPC: v1 \
         or v2, network and relay flag of every peer"
    }

    fn watch(
        &mut self,
        window: Duration,
        go_on: &dyn Fn() -> bool,
        take: &mut dyn FnMut(Record),
    ) -> Result<(), SourceError> {
        let (mut before, mut last) = (BTreeMap::new(), 0);
        if let Some(look) = self.rpc.look()? {
            last = look.time;
            let connections = look.peers.into_iter();
            let connections: BTreeMap<i64, Connection> = connections
                .filter_map(|(number, peer)| Some((number, peer.connection?)))
                .collect();
            for (&peer, connection) in &connections {
                if self.known.get(&peer) != Some(connection) {
                    let connection = connection.clone();
                    let event = Event::Connected { peer, connection };
                    take(Record { time: last, event });
                }
            }
            before = std::mem::replace(&mut self.known, connections);
        }
        let known = &self.known;
        let mut differs = None;
        let watched = self.source.watch(window, go_on, &mut |mut record| {
            last = last.max(record.time);
            if let Event::Connected { peer, connection } = &mut record.event
                && let Some(more) = known.get(peer)
            {
                let is_cut = connection.address.len() >= PROBED_ADDRESS;
                if is_cut && more.address.starts_with(&connection.address) {
                    connection.address.clone_from(&more.address);
                }
                if more.address != connection.address {
                    // A node never uses an id twice.
                    differs = Some(*peer);
                    return;
                }
                connection.network = connection.network.or(more.network);
                connection.transport = connection.transport.or(more.transport);
                connection.relay = connection.relay.or(more.relay);
                if connection.user_agent.is_none() {
                    connection.user_agent.clone_from(&more.user_agent);
                }
                connection.since = connection.since.or(more.since);
            }
            take(record);
        });
        // Peers that had disconnected before the window, unless the other source has said so: after
        // what it has seen of them.
        for peer in before.into_keys().filter(|peer| !known.contains_key(peer)) {
            take(Record {
                time: last,
                event: Event::Disconnected { peer },
            });
        }
        watched?;
        differs.map_or(Ok(()), |peer| {
            Err(SourceError::new(RpcError::AnotherNode {
                address: self.rpc.address.clone(),
                peer,
            }))
        })
    }

    fn between(&mut self) {
        self.source.between();
    }

    fn rest(&mut self) {
        self.source.rest();
    }
}
