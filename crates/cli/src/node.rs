//! The Bitcoin protocol after the transport's handshake: exchanges versions, answers the peer's
//! requests, and sends what the user asked for: pings, `getheaders`, `getdata`.

use crate::peer::{Message, Peer, PeerError};
use crate::wire::{self, BlockHash, Services, Version, WireError};
use packetlane::bip324::{MessageType, Network};
use std::collections::VecDeque;
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, timeout_at};

/// Number of pings at the start, each sent when the one before was answered.
const FIRST_PINGS: usize = 3;

/// Time between the later pings.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// Number of blocks per `getdata`, the same as Bitcoin Core's.
const BLOCKS_IN_FLIGHT: usize = 16;

/// What to do with a connection.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) network: Network,
    /// Whether we opened the connection.
    pub(crate) initiator: bool,
    /// Number of blocks to fetch; with `None`, no headers either.
    pub(crate) fetch: Option<usize>,
    /// How long to stay. With `None`, an initiator leaves when pings and blocks are done, and a
    /// responder stays until the peer leaves.
    pub(crate) stay: Option<Duration>,
    /// How long to wait for the peer at each step.
    pub(crate) step_timeout: Duration,
}

/// What was observed on a connection.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// Round-trip times of our pings.
    pub(crate) pings: Vec<Duration>,
    /// `Some` if the plan asks for blocks.
    pub(crate) fetched: Option<Fetched>,
}

/// The headers and blocks that were fetched.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fetched {
    /// Number of blocks asked for.
    pub(crate) wanted: usize,
    pub(crate) headers: usize,
    /// Blocks whose hash is one that we asked for.
    pub(crate) blocks: usize,
    /// Length of the blocks' payloads, in bytes.
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
}

/// Exchanges `version` and `verack`. Returns the peer's version.
pub(crate) async fn exchange_versions(peer: &mut Peer, plan: &Plan) -> Result<Version, PeerError> {
    let deadline = Instant::now() + plan.step_timeout;
    let version = our_version(plan)?.encode();
    if plan.initiator {
        peer.send(wire::VERSION, &version).await?;
    }
    let mut theirs = None;
    let mut acknowledged = false;
    loop {
        if let (Some(version), true) = (&theirs, acknowledged) {
            return Ok(Version::clone(version));
        }
        let waited = plan.step_timeout;
        let message = match timeout_at(deadline, peer.receive()).await {
            // Checked here too: a peer that keeps sending never lets `timeout_at` expire.
            Ok(message) if Instant::now() < deadline => message,
            _ if peer.is_silent() => return Err(PeerError::SentNothing { waited }),
            _ => return Err(PeerError::VersionTimeout { waited }),
        };
        let message = message.map_err(|error| match (error, &theirs) {
            (PeerError::Closed, None) => PeerError::ClosedBeforeVersion {
                network: plan.network,
            },
            (PeerError::Closed, Some(_)) => PeerError::ClosedBeforeVerack,
            (error, _) => error,
        })?;
        match message.message_type {
            wire::VERSION if theirs.is_none() => {
                theirs = Some(Version::decode(&message.payload).map_err(malformed(&message))?);
                if !plan.initiator {
                    peer.send(wire::VERSION, &version).await?;
                }
                peer.send(wire::VERACK, &[]).await?;
            }
            wire::VERACK if theirs.is_some() => acknowledged = true,
            // The peer may offer features before `verack` (sendaddrv2, wtxidrelay, ...). We use
            // none of them.
            _ => {}
        }
    }
}

fn our_version(plan: &Plan) -> Result<Version, PeerError> {
    let mut services = Services::WITNESS.and(Services::P2P_V2);
    if !plan.initiator {
        // Nodes that connect to us disconnect without this bit. We have no blocks, and answer
        // every request for one with `notfound`.
        services = services.and(Services::NETWORK);
    }
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let time = since.map_or(0, |since| since.as_secs());
    Ok(Version {
        protocol: wire::PROTOCOL_VERSION,
        services,
        time: i64::try_from(time).unwrap_or(i64::MAX),
        nonce: random()?,
        user_agent: concat!("/packetlane:", env!("CARGO_PKG_VERSION"), "/").into(),
        start_height: 0,
        relay: true,
    })
}

fn random() -> Result<u64, PeerError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|_| packetlane::bip324::HandshakeError::NoEntropy)?;
    Ok(u64::from_le_bytes(bytes))
}

fn malformed(message: &Message) -> impl Fn(WireError) -> PeerError + use<> {
    let message_type = message.message_type;
    move |error| PeerError::Payload {
        message_type,
        error,
    }
}

/// Carries out the plan after [`exchange_versions`]. `observed` holds what was seen so far,
/// also after an error. `progress` is called with a line for the user.
pub(crate) async fn run_plan(
    peer: &mut Peer,
    plan: &Plan,
    observed: &mut Observed,
    mut progress: impl FnMut(&str),
) -> Result<(), PeerError> {
    let begun = Instant::now();
    let leave = plan.stay.map(|stay| begun + stay);
    let mut pings = Pings::new(begun);
    let mut fetch = match plan.fetch.zip(BlockHash::genesis(plan.network)) {
        Some((wanted, genesis)) => {
            observed.fetched = Some(Fetched {
                wanted,
                ..Fetched::default()
            });
            peer.send(wire::GETHEADERS, &wire::encode_getheaders(genesis))
                .await?;
            Some(Fetch::new(wanted, genesis, begun))
        }
        None => None,
    };

    loop {
        let now = Instant::now();
        let fetched = fetch.as_ref().is_none_or(Fetch::is_done);
        let seen = fetched && observed.pings.len() >= FIRST_PINGS;
        match leave {
            Some(leave) if now >= leave && (seen || !plan.initiator) => break,
            None if seen && plan.initiator => break,
            _ => {}
        }

        if let Some((nonce, _)) = pings.send(now, random)? {
            peer.send(wire::PING, &nonce.to_le_bytes()).await?;
        }

        // When to continue if nothing is received. Each of these times is in the future or has
        // already returned an error, so this loop never spins.
        let mut wake = pings.next;
        if let Some((_, sent)) = pings.waiting {
            // A pong can come only after the blocks that were asked for before it.
            let since = fetch
                .as_ref()
                .map_or(sent, |fetch| sent.max(fetch.last_progress));
            wake = since + plan.step_timeout;
            if now >= wake {
                let waited = plan.step_timeout;
                return Err(PeerError::NoPong { waited });
            }
        }
        if let Some(fetch) = fetch.as_ref().filter(|fetch| !fetch.is_done()) {
            let give_up = fetch.last_progress + plan.step_timeout;
            if now >= give_up {
                let waited = plan.step_timeout;
                let what = fetch.awaited();
                return Err(PeerError::NotFetched { what, waited });
            }
            wake = wake.min(give_up);
        }
        if let Some(leave) = leave.filter(|&leave| leave > now) {
            wake = wake.min(leave);
        }

        let message = match timeout_at(wake, peer.receive()).await {
            Err(_) => continue,
            Ok(Err(PeerError::Closed)) if !plan.initiator => break,
            Ok(message) => message?,
        };
        match message.message_type {
            wire::PONG => {
                let nonce = wire::decode_nonce(&message.payload);
                if let Some(took) = pings.answered(nonce.ok(), Instant::now(), observed.pings.len())
                {
                    observed.pings.push(took);
                }
            }
            wire::HEADERS | wire::BLOCK | wire::NOTFOUND => {
                if let (Some(fetch), Some(fetched)) = (&mut fetch, &mut observed.fetched) {
                    let question = fetch.receive(&message, fetched)?;
                    fetched.took = fetch.last_progress - begun;
                    if let Some((message_type, payload)) = question {
                        peer.send(message_type, &payload).await?;
                    }
                    let Fetched {
                        wanted,
                        headers,
                        blocks,
                        ..
                    } = fetched;
                    progress(&format!("{headers} headers, {blocks} of {wanted} blocks"));
                }
            }
            _ => {
                if let Some((message_type, payload)) = answer(&message)? {
                    peer.send(message_type, payload).await?;
                }
            }
        }
    }
    match fetch.map_or(0, |fetch| fetch.missing) {
        0 => Ok(()),
        missing => Err(PeerError::NotFound { missing }),
    }
}

/// The answer to a request, from a node without a chain; `None` for other messages.
fn answer(message: &Message) -> Result<Option<(MessageType, &[u8])>, PeerError> {
    let payload = &message.payload[..];
    Ok(match message.message_type {
        // Before BIP31 a ping had no nonce and got no answer.
        wire::PING if payload.len() >= 8 => Some((wire::PONG, &payload[..8])),
        // No headers.
        wire::GETHEADERS => Some((wire::HEADERS, &[0])),
        // We have none of the entries, so the answer repeats all of them.
        wire::GETDATA => {
            let asked = wire::decode_inventory(payload).map_err(malformed(message))?;
            (!asked.is_empty()).then_some((wire::NOTFOUND, payload))
        }
        _ => None,
    })
}

/// Sends pings and matches their answers; one ping is in flight at a time.
struct Pings {
    /// When to send the next ping, if none is in flight.
    next: Instant,
    /// The nonce of the ping in flight, and when it was sent.
    waiting: Option<(u64, Instant)>,
}

impl Pings {
    fn new(now: Instant) -> Self {
        Self {
            next: now,
            waiting: None,
        }
    }

    /// Returns the ping to send now, if it is time.
    fn send(
        &mut self,
        now: Instant,
        nonce: impl FnOnce() -> Result<u64, PeerError>,
    ) -> Result<Option<(u64, Instant)>, PeerError> {
        if self.waiting.is_some() || now < self.next {
            return Ok(None);
        }
        self.waiting = Some((nonce()?, now));
        Ok(self.waiting)
    }

    /// The round-trip time, if `nonce` is that of the ping in flight. `before` is the number of
    /// pings answered so far.
    fn answered(&mut self, nonce: Option<u64>, now: Instant, before: usize) -> Option<Duration> {
        let (_, sent) = self
            .waiting
            .take_if(|(waiting, _)| nonce == Some(*waiting))?;
        self.next = match before + 1 < FIRST_PINGS {
            true => now,
            false => now + PING_INTERVAL,
        };
        Some(now - sent)
    }
}

/// Fetches headers starting at the genesis block, then their blocks.
struct Fetch {
    wanted: usize,
    /// The last header so far. The next one must build on it.
    tip: BlockHash,
    headers_done: bool,
    /// Blocks that we have not asked for yet; `in_flight` are those we have.
    blocks: VecDeque<BlockHash>,
    in_flight: Vec<BlockHash>,
    /// Number of blocks that the peer says it does not have.
    missing: usize,
    /// When the last header or block that we asked for arrived.
    last_progress: Instant,
}

impl Fetch {
    fn new(wanted: usize, genesis: BlockHash, now: Instant) -> Self {
        Self {
            wanted,
            tip: genesis,
            headers_done: false,
            blocks: VecDeque::new(),
            in_flight: Vec::new(),
            missing: 0,
            last_progress: now,
        }
    }

    fn is_done(&self) -> bool {
        self.headers_done && self.in_flight.is_empty() && self.blocks.is_empty()
    }

    fn awaited(&self) -> &'static str {
        match self.headers_done {
            true => "blocks",
            false => "headers",
        }
    }

    /// Takes a `headers`, `block` or `notfound` message. Returns the next request, if any.
    fn receive(
        &mut self,
        message: &Message,
        fetched: &mut Fetched,
    ) -> Result<Option<(MessageType, Vec<u8>)>, PeerError> {
        let payload = &message.payload[..];
        match message.message_type {
            wire::HEADERS if !self.headers_done => {
                let headers = wire::decode_headers(payload).map_err(malformed(message))?;
                for header in &headers {
                    fetched.headers += 1;
                    if header.previous != self.tip {
                        let height = fetched.headers;
                        return Err(PeerError::UnconnectedHeader { height });
                    }
                    self.tip = header.hash;
                    if fetched.headers <= self.wanted {
                        self.blocks.push_back(header.hash);
                    }
                }
                self.last_progress = Instant::now();
                if fetched.headers < self.wanted && headers.len() == wire::MAX_HEADERS {
                    let question = wire::encode_getheaders(self.tip);
                    return Ok(Some((wire::GETHEADERS, question)));
                }
                self.headers_done = true;
            }
            wire::BLOCK => {
                let hash = wire::block_hash(payload).map_err(malformed(message))?;
                if !self.arrived(hash) {
                    let hash = hash.to_string();
                    return Err(PeerError::WrongBlock { hash });
                }
                fetched.blocks += 1;
                fetched.bytes += payload.len() as u64;
            }
            wire::NOTFOUND => {
                for hash in wire::decode_inventory(payload).map_err(malformed(message))? {
                    if self.arrived(hash) {
                        self.missing += 1;
                    }
                }
            }
            // Unsolicited headers, which announce new blocks.
            _ => return Ok(None),
        }
        // One request at a time: the next follows when all blocks of this one are here.
        if !self.in_flight.is_empty() || self.blocks.is_empty() {
            return Ok(None);
        }
        let count = self.blocks.len().min(BLOCKS_IN_FLIGHT);
        self.in_flight.extend(self.blocks.drain(..count));
        Ok(Some((wire::GETDATA, wire::encode_getdata(&self.in_flight))))
    }

    /// Removes a block from those in flight. Returns whether it was one of them.
    fn arrived(&mut self, hash: BlockHash) -> bool {
        let Some(index) = self.in_flight.iter().position(|asked| *asked == hash) else {
            return false;
        };
        self.in_flight.swap_remove(index);
        self.last_progress = Instant::now();
        true
    }
}
