//! A peer: connects, completes the handshakes, and behaves as its kind until the end.

use crate::connection::{ConnectionError, Transport, Writer, open};
use crate::kind::Kind;
use crate::load::Load;
use crate::payload::{self, ADDRESS_LEN, MAX_ADDRESSES, MAX_INVENTORY, inventory};
use crate::rates::{after, exponential};
use bitcoin::bip152::{BlockTransactions, BlockTransactionsRequest};
use bitcoin::block::Header;
use bitcoin::consensus::{deserialize, serialize};
use bitcoin::hashes::Hash;
use bitcoin::p2p::message_compact_blocks::SendCmpct;
use bitcoin::{BlockHash, Txid, Wtxid};
use packetlane::bitcoin::message::MessageType;
use packetlane_p2p::connection::Message;
use packetlane_p2p::message_type::{
    ADDR, ADDRV2, BLOCK, BLOCKTXN, CMPCTBLOCK, FEEFILTER, GETADDR, GETBLOCKTXN, GETDATA,
    GETHEADERS, HEADERS, INV, NOTFOUND, PING, PONG, SENDADDRV2, SENDCMPCT, TX, VERACK, VERSION,
    WTXIDRELAY,
};
use packetlane_p2p::payload::{
    BLOCK_HEADER_LEN, HEADERS_ENTRY_LEN, INVENTORY_ENTRY_LEN, Inventory, InventoryType,
    decode_inventory, encode_inventory,
};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// Interval between the first connections of the peers.
const CONNECT_INTERVAL: Duration = Duration::from_millis(10);

/// Mean lifetime of a churning peer and of the pause before it reconnects, in seconds. On one node,
/// half of all inbound connections lasted less than 10 seconds.
const CHURNING_LIFE: f64 = 10.0;
const CHURNING_PAUSE: f64 = 1.0;

/// Longer than any load.
const FOREVER: Duration = Duration::from_secs(1_000_000_000);

/// Pause before a peer reconnects after a failure.
const FAILED_PAUSE: Duration = Duration::from_secs(2);

/// Timeout of the version handshake.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum number of bytes queued for the node.
const MAX_QUEUED: usize = 16 << 20;

/// Mean delay from one of our blocks to a peer's announcement of it, in seconds.
const ANNOUNCED_AFTER: f64 = 0.5;

/// If a peer stalls blocks, the others announce a block at least this long after it is made, so that
/// the node requests it from the stalling peer.
const STALL_HEAD_START: Duration = Duration::from_secs(1);

/// A slow peer requests a long block this often, in seconds: faster than it can read them.
const SLOW_QUESTION: f64 = 5.0;

/// Maximum number of transactions that a peer requests for a compact block.
const MAX_MISSING: usize = 10;

/// An unsolicited action of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Inv,
    Ping,
    Addresses,
    GetHeaders,
    Headers,
    /// Requests a transaction that does not exist.
    Unknown,
    AnyBlock,
    LongestBlock,
    /// Announces our latest block. Happens once per block.
    Announce,
}

struct Timer {
    act: Act,
    /// Mean seconds between actions. `None` for a single action.
    mean: Option<f64>,
    next: Instant,
}

/// A connection after the transport handshake.
struct Session<'l> {
    load: &'l Load,
    kind: Kind,
    rng: StdRng,
    /// Whether a previous connection of this peer has completed the version handshake.
    reached: bool,
    /// Messages to send.
    queue: Vec<(MessageType, Vec<u8>)>,
    queued: usize,
    /// Whether the version handshake is complete.
    ready: bool,
    timers: Vec<Timer>,
    /// Number of the next transaction of ours to announce.
    announced: u64,
    /// Whether the node wants new blocks immediately, as compact blocks (BIP152).
    wants_blocks: bool,
    /// The latest block that the node has announced.
    node_has: Option<BlockHash>,
}

/// Runs a peer until it is dropped. `index` is its number.
pub(crate) async fn live(load: Arc<Load>, kind: Kind, transport: Transport, index: u32) {
    // Far apart, as the generator's seeds should be.
    let seed = load.seed ^ u64::from(index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut rng = StdRng::seed_from_u64(seed);
    sleep(CONNECT_INTERVAL * index).await;
    let mut reached = false;
    loop {
        let mut session = Session::new(&load, kind, reached, StdRng::from_rng(&mut rng));
        let life = match kind {
            Kind::Churning => after(CHURNING_LIFE, &mut rng),
            _ => FOREVER,
        };
        let end = Instant::now() + life;
        let ended = session.run(transport, end).await;
        let pause = match ended {
            Ok(()) => after(CHURNING_PAUSE, &mut rng),
            Err(_) => FAILED_PAUSE,
        };
        session.count_end(ended);
        reached |= session.ready;
        sleep(pause).await;
    }
}

impl<'l> Session<'l> {
    fn new(load: &'l Load, kind: Kind, reached: bool, rng: StdRng) -> Self {
        Self {
            load,
            kind,
            reached,
            rng,
            queue: Vec::new(),
            queued: 0,
            ready: false,
            timers: Vec::new(),
            announced: load.world().chain.made(),
            wants_blocks: false,
            node_has: None,
        }
    }

    /// Runs until `end` or until an error.
    async fn run(&mut self, transport: Transport, end: Instant) -> Result<(), ConnectionError> {
        let Load {
            address,
            network,
            engine,
            ..
        } = *self.load;
        let slow = self.kind == Kind::Slow;
        let (mut reader, mut writer) = open(address, network, transport, slow, engine).await?;
        let mut new_block = self.load.new_block.clone();
        let height = self.load.world().chain.height();
        let relay = self.kind != Kind::BlockRelayOnly;
        let version = payload::version(self.kind.name(), relay, height, &mut self.rng);
        self.send(VERSION, version);

        let give_up = Instant::now() + VERSION_TIMEOUT;
        let mut flushing = false;
        loop {
            if !flushing && !self.queue.is_empty() {
                self.push_queue(&mut writer)?;
                flushing = true;
            }
            let next = self.timers.iter().map(|timer| timer.next).min();
            let next = next.unwrap_or(end).min(end);
            let next = if self.ready { next } else { next.min(give_up) };
            tokio::select! {
                flushed = writer.flush(), if flushing => {
                    flushed?;
                    flushing = false;
                }
                message = reader.receive() => {
                    let Message { message_type, payload, wire_len } = message?;
                    self.load.world().totals.kind(self.kind).received(message_type, wire_len);
                    self.receive(message_type, payload);
                }
                Ok(()) = new_block.changed(), if self.ready && self.kind.announces_blocks() => {
                    let next = Instant::now() + self.announcement_delay();
                    self.timers.retain(|timer| timer.act != Act::Announce);
                    self.timers.push(Timer { act: Act::Announce, mean: None, next });
                }
                () = sleep_until(next) => {
                    let now = Instant::now();
                    if now >= end {
                        return Ok(());
                    }
                    if !self.ready && now >= give_up {
                        return Err(ConnectionError::NoVersion);
                    }
                    self.act(now);
                }
            }
            if self.queued > MAX_QUEUED {
                return Err(ConnectionError::NotReading);
            }
        }
    }

    /// Time from one of our blocks to this peer's announcement of it.
    fn announcement_delay(&mut self) -> Duration {
        if self.kind == Kind::Stalling {
            return Duration::ZERO;
        }
        let head_start = match self.load.stalling {
            true => STALL_HEAD_START,
            false => Duration::ZERO,
        };
        head_start + after(ANNOUNCED_AFTER, &mut self.rng)
    }

    /// Counts how the connection ended.
    fn count_end(&self, ended: Result<(), ConnectionError>) {
        let mut world = self.load.world();
        let totals = world.totals.kind(self.kind);
        totals.connected -= usize::from(self.ready);
        if let Err(error) = ended {
            totals.failed += 1;
            totals.failure = Some(error.to_string());
        }
    }

    fn send(&mut self, message_type: MessageType, payload: Vec<u8>) {
        self.queued += payload.len();
        self.queue.push((message_type, payload));
    }

    fn push_queue(&mut self, writer: &mut Writer) -> Result<(), ConnectionError> {
        let mut world = self.load.world();
        let totals = world.totals.kind(self.kind);
        for (message_type, payload) in self.queue.drain(..) {
            let bytes = writer.push(message_type, &payload)?;
            totals.sent(message_type, bytes);
        }
        self.queued = 0;
        Ok(())
    }

    /// Performs the actions that are due at `now`.
    fn act(&mut self, now: Instant) {
        let mut due = Vec::new();
        for timer in &mut self.timers {
            if timer.next > now {
                continue;
            }
            due.push(timer.act);
            if let Some(mean) = timer.mean {
                timer.next = now + after(mean, &mut self.rng);
            }
        }
        self.timers
            .retain(|timer| timer.mean.is_some() || timer.next > now);
        for act in due {
            if let Some((message_type, payload)) = self.perform(act) {
                self.send(message_type, payload);
            }
        }
    }

    /// The message for an action. `None` if there is nothing to send.
    fn perform(&mut self, act: Act) -> Option<(MessageType, Vec<u8>)> {
        let world = self.load.world();
        let chain = &world.chain;
        let rates = &self.load.rates;
        let rng = &mut self.rng;
        let mut entries = |message_type, length: usize, most: usize| {
            let payload = exponential(rates.of(message_type).mean_payload, rng);
            (payload / length as f64).round().clamp(1.0, most as f64) as usize
        };
        Some(match act {
            Act::Inv => {
                let wanted = entries(INV, INVENTORY_ENTRY_LEN, MAX_INVENTORY);
                // If far behind, drop the oldest announcements.
                let from = self
                    .announced
                    .max(chain.made().saturating_sub(MAX_INVENTORY as u64));
                let (mut announced, next) = chain.made_from(from, wanted);
                self.announced = next;
                if announced.is_empty() {
                    announced.extend((0..wanted).filter_map(|_| chain.any_made(rng)).cloned());
                }
                let announced = announced.iter();
                let announced = announced.map(|made| inventory(InventoryType::WTX, made.wtxid));
                let announced: Vec<_> = announced.collect();
                if announced.is_empty() {
                    return None;
                }
                (INV, encode_inventory(&announced))
            }
            Act::Ping => (PING, rng.next_u64().to_le_bytes().to_vec()),
            Act::Addresses => {
                let v2 = entries(ADDRV2, ADDRESS_LEN, MAX_ADDRESSES);
                (ADDRV2, payload::addresses(v2, rng))
            }
            Act::GetHeaders => (GETHEADERS, payload::getheaders(&chain.locator())),
            Act::Headers => {
                const MAX_HEADERS_SENT: usize = 20;
                let count = entries(HEADERS, HEADERS_ENTRY_LEN, MAX_HEADERS_SENT);
                (HEADERS, payload::headers(chain.last_headers(count)))
            }
            Act::Unknown => {
                let mut hash = [0; 32];
                rng.fill_bytes(&mut hash);
                let kind = InventoryType::WTX;
                (GETDATA, encode_inventory(&[Inventory { kind, hash }]))
            }
            Act::AnyBlock | Act::LongestBlock => {
                let longest = || chain.longest_block();
                let block = match act {
                    Act::LongestBlock => longest(),
                    _ => None,
                };
                let block = block.or_else(|| chain.any_block(rng))?;
                let entry = inventory(InventoryType::WITNESS_BLOCK, block);
                (GETDATA, encode_inventory(&[entry]))
            }
            Act::Announce => {
                let mined = chain.last_mined()?;
                if self.node_has == Some(mined.hash) {
                    return None;
                }
                match self.wants_blocks && self.kind.delivers_blocks() {
                    true => (CMPCTBLOCK, mined.compact.clone()),
                    // With a few previous headers, which other peers may not have announced yet.
                    false => (HEADERS, payload::headers(chain.last_headers(3))),
                }
            }
        })
    }

    fn receive(&mut self, message_type: MessageType, payload: Vec<u8>) {
        match message_type {
            VERSION if !self.ready => {
                for message_type in [WTXIDRELAY, SENDADDRV2, VERACK] {
                    self.send(message_type, Vec::new());
                }
            }
            VERACK if !self.ready => {
                self.ready = true;
                let mut world = self.load.world();
                world.totals.reached += usize::from(!self.reached);
                let totals = world.totals.kind(self.kind);
                totals.opened += 1;
                totals.connected += 1;
                drop(world);
                if self.kind != Kind::Silent {
                    self.introduce();
                }
            }
            // Sends neither requests nor answers.
            _ if !self.ready || self.kind == Kind::Silent => {}
            PING => self.send(PONG, payload),
            GETDATA => self.answer_getdata(&payload),
            GETHEADERS => {
                if let Some(locator) = payload::decode_getheaders(&payload) {
                    let world = self.load.world();
                    let after = world.chain.headers_after(&locator);
                    let answer = payload::headers(after);
                    drop(world);
                    self.send(HEADERS, answer);
                }
            }
            INV => self.answer_inv(&payload),
            HEADERS => {
                let last = payload::decode_headers(&payload).and_then(|mut last| last.pop());
                if let Some(last) = last {
                    self.node_has = Some(last.block_hash());
                }
            }
            CMPCTBLOCK => self.answer_compact_block(&payload),
            SENDCMPCT => {
                if let Ok(SendCmpct {
                    send_compact,
                    version: 2,
                }) = deserialize(&payload)
                {
                    self.wants_blocks = send_compact;
                }
            }
            GETBLOCKTXN if self.kind != Kind::Stalling => self.answer_getblocktxn(&payload),
            _ => {}
        }
    }

    /// Sends what a peer announces once after the handshake, and starts its timers.
    fn introduce(&mut self) {
        let compact = SendCmpct {
            send_compact: false,
            version: 2,
        };
        self.send(SENDCMPCT, serialize(&compact));
        if self.kind.relays_transactions() {
            self.send(FEEFILTER, 100_u64.to_le_bytes().to_vec());
            self.send(GETADDR, Vec::new());
        }

        let Load {
            rates,
            relaying,
            talking,
            ..
        } = self.load;
        let per_second = |message_type| rates.of(message_type).per_second;
        let mut acts = vec![
            (Act::Ping, per_second(PING), talking),
            (Act::GetHeaders, per_second(GETHEADERS), talking),
        ];
        if self.load.makes_blocks {
            acts.push((Act::Headers, per_second(HEADERS), talking));
            acts.push((Act::AnyBlock, per_second(BLOCK), talking));
        }
        if self.kind.relays_transactions() {
            acts.push((Act::Inv, per_second(INV), relaying));
            acts.push((
                Act::Addresses,
                per_second(ADDR) + per_second(ADDRV2),
                relaying,
            ));
            acts.push((Act::Unknown, per_second(NOTFOUND), relaying));
        }
        let mut means: Vec<_> = acts
            .into_iter()
            .filter(|(_, per_second, _)| *per_second > 0.0)
            .map(|(act, per_second, peers)| (act, *peers as f64 / per_second))
            .collect();
        if self.kind == Kind::Slow {
            means.push((Act::LongestBlock, SLOW_QUESTION));
        }
        for (act, mean) in means {
            let first = after(mean, &mut self.rng);
            let next = Instant::now() + first;
            self.timers.push(Timer {
                act,
                mean: Some(mean),
                next,
            });
        }
    }

    fn answer_getdata(&mut self, payload: &[u8]) {
        let load = self.load;
        let mut world = load.world();
        let mut unknown = Vec::new();
        let mut fetched = 0;
        let asked = decode_inventory(payload).unwrap_or_default();
        for entry in asked.into_iter().take(MAX_INVENTORY) {
            let chain = &world.chain;
            let Inventory { kind, hash } = entry;
            let made = match kind {
                InventoryType::WTX => chain.by_wtxid(&Wtxid::from_byte_array(hash)),
                InventoryType::TX | InventoryType::WITNESS_TX => {
                    chain.by_txid(&Txid::from_byte_array(hash))
                }
                _ => None,
            };
            if let Some(made) = made {
                fetched += u64::from(!made.fetched.swap(true, Ordering::Relaxed));
                self.send(TX, made.bytes.clone());
                continue;
            }
            let mined = match kind {
                InventoryType::BLOCK
                | InventoryType::WITNESS_BLOCK
                | InventoryType::COMPACT_BLOCK => chain.mined(&BlockHash::from_byte_array(hash)),
                _ => None,
            };
            match (mined, kind) {
                (Some(_), _) if self.kind == Kind::Stalling => {}
                (Some(mined), InventoryType::COMPACT_BLOCK) => {
                    self.send(CMPCTBLOCK, mined.compact.clone());
                }
                (Some(mined), _) => self.send(BLOCK, mined.bytes.clone()),
                (None, _) => unknown.push(entry),
            }
        }
        world.totals.fetched += fetched;
        drop(world);
        if !unknown.is_empty() {
            self.send(NOTFOUND, encode_inventory(&unknown));
        }
    }

    /// Requests one of n announced transactions, where n is the number of peers that announce them.
    /// So on average, each is requested once.
    fn answer_inv(&mut self, payload: &[u8]) {
        let mut world = self.load.world();
        let mut wanted = Vec::new();
        for entry in decode_inventory(payload).unwrap_or_default() {
            let hash = entry.hash;
            let made = match entry.kind {
                InventoryType::WTX => world.chain.by_wtxid(&Wtxid::from_byte_array(hash)),
                InventoryType::TX => world.chain.by_txid(&Txid::from_byte_array(hash)),
                InventoryType::BLOCK => {
                    self.node_has = Some(BlockHash::from_byte_array(hash));
                    continue;
                }
                _ => continue,
            };
            let is_news = made.is_some_and(|made| !made.relayed.swap(true, Ordering::Relaxed));
            world.totals.relayed += u64::from(is_news);
            if self.rng.random_range(0..self.load.relaying.max(1)) == 0
                && wanted.len() < MAX_INVENTORY
            {
                wanted.push(entry);
            }
        }
        drop(world);
        if !wanted.is_empty() {
            self.send(GETDATA, encode_inventory(&wanted));
        }
    }

    /// Requests some of the transactions, at the same rate as in the recorded traffic.
    fn answer_compact_block(&mut self, payload: &[u8]) {
        let Some(header) = payload.get(..BLOCK_HEADER_LEN) else {
            return;
        };
        let Ok(header) = deserialize::<Header>(header) else {
            return;
        };
        let block_hash = header.block_hash();
        self.node_has = Some(block_hash);
        let per_second = |message_type| self.load.rates.of(message_type).per_second;
        let share = per_second(GETBLOCKTXN) / per_second(CMPCTBLOCK);
        let transactions = {
            let world = self.load.world();
            let mined = world.chain.mined(&block_hash);
            mined.map_or(0, |mined| mined.block.txdata.len())
        };
        if transactions < 2 || share.is_nan() || self.rng.random_range(0.0..1.0) >= share {
            return;
        }
        let indexes = (1..transactions as u64).take(MAX_MISSING).collect();
        let question = BlockTransactionsRequest {
            block_hash,
            indexes,
        };
        self.send(GETBLOCKTXN, serialize(&question));
    }

    fn answer_getblocktxn(&mut self, payload: &[u8]) {
        let Ok(question) = deserialize::<BlockTransactionsRequest>(payload) else {
            return;
        };
        let world = self.load.world();
        let mined = world.chain.mined(&question.block_hash).cloned();
        drop(world);
        let answer =
            mined.and_then(|mined| BlockTransactions::from_request(&question, &mined.block).ok());
        if let Some(answer) = answer {
            self.send(BLOCKTXN, serialize(&answer));
        }
    }
}
