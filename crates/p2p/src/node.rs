//! The Bitcoin protocol after the transport handshake: exchanges versions, answers the peer's
//! requests, and sends our own: pings, `getheaders`, `getdata`.

use crate::connection::Message;
use crate::message_type;
use crate::payload::{self, BlockHash, Inventory, InventoryType, PayloadError, Services, Version};
use crate::peer::{Peer, PeerError};
use packetlane::bip324::HandshakeError;
use packetlane::bitcoin::Network;
use packetlane::bitcoin::message::MessageType;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Number of pings at the start. Each is sent when the previous one was answered.
const FIRST_PINGS: usize = 3;

/// Time between the later pings.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// Number of blocks per `getdata`, the same as Bitcoin Core's.
const BLOCKS_IN_FLIGHT: usize = 16;

/// What to do with a connection.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The network of the peer.
    pub network: Network,
    /// Whether we opened the connection.
    pub initiator: bool,
    /// The blocks to fetch. With `None`, headers are not fetched either.
    pub fetch: Option<Blocks>,
    /// How long to stay connected. With `None`, an initiator disconnects when pings and blocks are
    /// done, and a responder stays until the peer disconnects.
    pub stay: Option<Duration>,
    /// Timeout of each step.
    pub step_timeout: Duration,
}

/// The blocks to fetch.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    /// The maximum number of blocks.
    pub wanted: usize,
    /// The first one.
    pub start: Start,
}

/// The first block to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The block at this height; 0 is the genesis block.
    Height(usize),
    /// The block with this hash.
    Block(BlockHash),
}

/// Who ended the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// The peer closed the connection.
    Peer,
    /// We close it.
    Us,
}

/// What was observed on a connection.
#[derive(Debug, Default)]
pub struct Observed {
    /// Round-trip times of our pings.
    pub pings: Vec<Duration>,
    /// `Some` if the plan fetches blocks.
    pub fetched: Option<Fetched>,
}

impl Observed {
    /// Whether an initiator has everything that it stays for by default.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let fetched = self.fetched.is_none_or(|fetched| fetched.is_complete);
        fetched && self.pings.len() >= FIRST_PINGS
    }
}

/// The fetched headers and blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fetched {
    /// Number of blocks requested.
    pub wanted: usize,
    /// Headers received.
    pub headers: usize,
    /// Number of received blocks whose hash we requested.
    pub blocks: usize,
    /// Length of the blocks' payloads, in bytes.
    pub bytes: u64,
    /// From the first request to the last header or block.
    pub took: Duration,
    /// Whether the peer's chain has fewer blocks than requested.
    pub chain_ended: bool,
    /// Whether nothing is pending any more.
    pub is_complete: bool,
}

/// Exchanges `version` and `verack`. Returns the peer's version.
///
/// # Errors
///
/// See [`PeerError`]. It takes at most `plan.step_timeout` in total.
pub async fn exchange_versions(peer: &mut Peer, plan: &Plan) -> Result<Version, PeerError> {
    let deadline = Instant::now() + plan.step_timeout;
    let ours = our_version(plan)?;
    let version = ours.encode();
    if plan.initiator {
        peer.send(message_type::VERSION, &version).await?;
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
            _ => {
                let has_version = theirs.is_some();
                return Err(PeerError::VersionTimeout {
                    waited,
                    has_version,
                });
            }
        };
        let message = message.map_err(|error| match (error, &theirs) {
            (PeerError::Closed, None) if !plan.initiator && peer.is_silent() => {
                PeerError::LeftWithoutAByte
            }
            (PeerError::Closed, None) => PeerError::ClosedBeforeVersion {
                network: plan.network,
            },
            (PeerError::Closed, Some(_)) => PeerError::ClosedBeforeVerack,
            (error, _) => error,
        })?;
        match message.message_type {
            message_type::VERSION if theirs.is_none() => {
                let decoded = Version::decode(&message.payload).map_err(malformed(&message))?;
                if decoded.nonce == ours.nonce {
                    return Err(PeerError::Echo);
                }
                theirs = Some(decoded);
                if !plan.initiator {
                    peer.send(message_type::VERSION, &version).await?;
                }
                peer.send(message_type::VERACK, &[]).await?;
            }
            message_type::VERACK if theirs.is_some() => acknowledged = true,
            // The peer may negotiate features before `verack` (sendaddrv2, wtxidrelay, ...). We use
            // none.
            _ => {}
        }
    }
}

fn our_version(plan: &Plan) -> Result<Version, PeerError> {
    let mut services = Services::WITNESS.and(Services::P2P_V2);
    if !plan.initiator {
        // Nodes disconnect peers that they opened a connection to and that lack this bit. We have
        // no blocks, and answer every request for one with `notfound`.
        services = services.and(Services::NETWORK);
    }
    Ok(Version {
        protocol: payload::PROTOCOL_VERSION,
        services,
        time: payload::unix_time().into(),
        nonce: random()?,
        user_agent: concat!("/packetlane:", env!("CARGO_PKG_VERSION"), "/").into(),
        start_height: 0,
        relay: true,
    })
}

fn random() -> Result<u64, PeerError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|_| HandshakeError::NoEntropy)?;
    Ok(u64::from_le_bytes(bytes))
}

fn malformed(message: &Message) -> impl Fn(PayloadError) -> PeerError + use<> {
    let message_type = message.message_type;
    move |error| PeerError::Payload {
        message_type,
        error,
    }
}

/// Carries out the plan after [`exchange_versions`], which returned `version`. Returns who ended
/// the connection. `observed` is also filled in on error. `progress` is called after each answer
/// with headers or blocks.
///
/// # Errors
///
/// See [`PeerError`].
pub async fn run_plan(
    peer: &mut Peer,
    plan: &Plan,
    version: &Version,
    observed: &mut Observed,
    mut progress: impl FnMut(&Fetched),
) -> Result<EndedBy, PeerError> {
    let begun = Instant::now();
    let leave = plan.stay.map(|stay| begun + stay);
    let mut pings = Pings::new(begun);
    let mut fetch = match plan.fetch.zip(BlockHash::genesis(plan.network)) {
        Some((blocks, genesis)) => {
            observed.fetched = Some(Fetched {
                wanted: blocks.wanted,
                ..Fetched::default()
            });
            check_serves(version, blocks.start)?;
            let fetch = Fetch::new(blocks, genesis, begun);
            let question = payload::encode_getheaders(&[fetch.tip]);
            peer.send(message_type::GETHEADERS, &question).await?;
            Some(fetch)
        }
        None => None,
    };

    let ended = loop {
        let now = Instant::now();
        let seen = observed.is_complete();
        match leave {
            Some(leave) if now >= leave && (seen || !plan.initiator) => break EndedBy::Us,
            None if seen && plan.initiator => break EndedBy::Us,
            _ => {}
        }

        if let Some((nonce, _)) = pings.send(now, random)? {
            peer.send(message_type::PING, &nonce.to_le_bytes()).await?;
        }

        // When to wake up if nothing is received. Each of these times is in the future or has
        // already returned an error, so the loop never spins.
        let mut wake = pings.next;
        if let Some((_, sent)) = pings.waiting {
            // A pong can arrive only after the blocks requested before it.
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
            Ok(Err(PeerError::Closed)) if !plan.initiator => break EndedBy::Peer,
            Ok(Err(PeerError::Closed))
                if observed.fetched.is_some_and(|fetched| !fetched.is_complete)
                    && is_pruned(version) =>
            {
                return Err(PeerError::ClosedByPruned);
            }
            Ok(message) => message?,
        };
        match message.message_type {
            message_type::PONG => {
                let nonce = payload::decode_nonce(&message.payload);
                if let Some(took) = pings.answered(nonce.ok(), Instant::now(), observed.pings.len())
                {
                    observed.pings.push(took);
                }
            }
            message_type::HEADERS | message_type::BLOCK | message_type::NOTFOUND => {
                if let (Some(fetch), Some(fetched)) = (&mut fetch, &mut observed.fetched) {
                    let question = fetch.receive(&message, fetched)?;
                    fetched.took = fetch.last_progress - begun;
                    fetched.is_complete = fetch.is_done();
                    if let Some((message_type, payload)) = question {
                        peer.send(message_type, &payload).await?;
                    }
                    progress(fetched);
                }
            }
            _ => {
                if let Some((message_type, payload)) = answer(&message)? {
                    peer.send(message_type, payload).await?;
                }
            }
        }
    };
    match fetch.map_or(0, |fetch| fetch.missing) {
        0 => Ok(ended),
        missing => Err(PeerError::NotFound { missing }),
    }
}

/// Number of latest blocks that a pruned node serves (BIP159).
const LIMITED_BLOCKS: usize = 288;

/// Whether a node serves only its latest blocks.
fn is_pruned(version: &Version) -> bool {
    !version.services.has(Services::NETWORK) && version.services.has(Services::NETWORK_LIMITED)
}

/// Rejects requests for blocks that a node does not serve: it would disconnect.
fn check_serves(version: &Version, start: Start) -> Result<(), PeerError> {
    let services = version.services;
    if services.has(Services::NETWORK) {
        return Ok(());
    }
    if !services.has(Services::NETWORK_LIMITED) {
        return Err(PeerError::NoBlocks { services });
    }
    let tip = usize::try_from(version.start_height).unwrap_or(0);
    let oldest = (tip + 1).saturating_sub(LIMITED_BLOCKS);
    match start {
        Start::Height(start) if start < oldest => Err(PeerError::Pruned { start, oldest }),
        _ => Ok(()),
    }
}

/// Our answer to a request, as a node without a chain. `None` for other messages.
fn answer(message: &Message) -> Result<Option<(MessageType, &[u8])>, PeerError> {
    let payload = &message.payload[..];
    Ok(match message.message_type {
        // Before BIP31 a ping had no nonce and got no answer.
        message_type::PING if payload.len() >= 8 => Some((message_type::PONG, &payload[..8])),
        // No headers.
        message_type::GETHEADERS => Some((message_type::HEADERS, &[0])),
        // We have none of the entries, so the answer repeats them all.
        message_type::GETDATA => {
            let asked = payload::decode_inventory(payload).map_err(malformed(message))?;
            (!asked.is_empty()).then_some((message_type::NOTFOUND, payload))
        }
        _ => None,
    })
}

/// Sends pings and matches the answers. At most one ping is in flight.
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

    /// Returns the ping to send now, if one is due.
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

/// Fetches headers, then their blocks.
struct Fetch {
    blocks: Blocks,
    /// The block that the headers follow: the genesis block, unless a hash was given.
    base: BlockHash,
    /// The last header so far. The next one must build on it.
    tip: BlockHash,
    /// Number of headers between the base and the first block to fetch.
    skipped: usize,
    headers_done: bool,
    /// Blocks not requested yet. `in_flight` are those requested.
    queue: VecDeque<BlockHash>,
    in_flight: Vec<BlockHash>,
    /// Number of blocks that the peer reports as missing.
    missing: usize,
    /// When the last requested header or block arrived.
    last_progress: Instant,
}

impl Fetch {
    fn new(blocks: Blocks, genesis: BlockHash, now: Instant) -> Self {
        let base = match blocks.start {
            Start::Height(_) => genesis,
            Start::Block(hash) => hash,
        };
        // Whether the first block is the base itself.
        let (skipped, with_base) = match blocks.start {
            Start::Height(0) | Start::Block(_) => (0, true),
            Start::Height(height) => (height - 1, false),
        };
        let mut queue = VecDeque::new();
        if with_base && blocks.wanted > 0 {
            queue.push_back(base);
        }
        Self {
            blocks,
            base,
            tip: base,
            skipped,
            headers_done: false,
            queue,
            in_flight: Vec::new(),
            missing: 0,
            last_progress: now,
        }
    }

    fn is_done(&self) -> bool {
        self.headers_done && self.in_flight.is_empty() && self.queue.is_empty()
    }

    fn awaited(&self) -> &'static str {
        match self.headers_done {
            true => "blocks",
            false => "headers",
        }
    }

    /// Handles a `headers`, `block` or `notfound` message. Returns the next request, if any.
    fn receive(
        &mut self,
        message: &Message,
        fetched: &mut Fetched,
    ) -> Result<Option<(MessageType, Vec<u8>)>, PeerError> {
        let payload = &message.payload[..];
        match message.message_type {
            message_type::HEADERS if !self.headers_done => {
                let headers = payload::decode_headers(payload).map_err(malformed(message))?;
                for header in &headers {
                    fetched.headers += 1;
                    if header.previous() != self.tip {
                        return Err(self.unconnected(fetched.headers));
                    }
                    self.tip = header.hash();
                    if fetched.headers > self.skipped && self.queue.len() < self.blocks.wanted {
                        self.queue.push_back(self.tip);
                    }
                }
                self.last_progress = Instant::now();
                let is_short = self.queue.len() < self.blocks.wanted;
                if is_short && headers.len() == payload::MAX_HEADERS {
                    let question = payload::encode_getheaders(&[self.tip]);
                    return Ok(Some((message_type::GETHEADERS, question)));
                }
                self.headers_done = true;
                fetched.chain_ended = is_short;
                if let Start::Height(start) = self.blocks.start
                    && start > fetched.headers + 1
                {
                    let height = fetched.headers;
                    return Err(PeerError::ShortChain { height, start });
                }
            }
            message_type::BLOCK => {
                let hash = payload::block_hash(payload).map_err(malformed(message))?;
                if !self.arrived(hash) {
                    return Err(PeerError::WrongBlock { hash });
                }
                fetched.blocks += 1;
                fetched.bytes += payload.len() as u64;
            }
            message_type::NOTFOUND => {
                for entry in payload::decode_inventory(payload).map_err(malformed(message))? {
                    if self.arrived(BlockHash(entry.hash)) {
                        self.missing += 1;
                    }
                }
            }
            // Unsolicited headers: an announcement of new blocks.
            _ => return Ok(None),
        }
        // One request at a time: the next one follows when all blocks have arrived.
        if !self.headers_done || !self.in_flight.is_empty() || self.queue.is_empty() {
            return Ok(None);
        }
        let count = self.queue.len().min(BLOCKS_IN_FLIGHT);
        self.in_flight.extend(self.queue.drain(..count));
        let blocks = self.in_flight.iter().map(|block| Inventory {
            kind: InventoryType::WITNESS_BLOCK,
            hash: block.0,
        });
        let question = payload::encode_inventory(&blocks.collect::<Vec<_>>());
        Ok(Some((message_type::GETDATA, question)))
    }

    /// The error for header `number` after the base, which builds on another block.
    fn unconnected(&self, number: usize) -> PeerError {
        let start = self.base;
        match self.blocks.start {
            // A node that does not know a block continues from one that it knows.
            Start::Block(_) if number == 1 => PeerError::UnknownStart { start },
            _ => PeerError::UnconnectedHeader { start, number },
        }
    }

    /// Removes a block from those in flight. Returns false if it was not one of them.
    fn arrived(&mut self, hash: BlockHash) -> bool {
        let Some(index) = self.in_flight.iter().position(|asked| *asked == hash) else {
            return false;
        };
        self.in_flight.swap_remove(index);
        self.last_progress = Instant::now();
        true
    }
}
