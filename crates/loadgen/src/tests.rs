//! Loads on a fake node that accepts every block and requests every transaction.

use super::*;
use crate::connection::Paced;
use bitcoin::block::Header;
use bitcoin::consensus::deserialize;
use packetlane::bip324::stream::Accepted;
use packetlane::bitcoin::message::MessageType;
use packetlane_p2p::connection::{Message, TransportError, halves, respond};
use packetlane_p2p::message_type::{
    ADDR, ADDRV2, BLOCK, CMPCTBLOCK, FEEFILTER, GETADDR, GETDATA, GETHEADERS, HEADERS, INV,
    NOTFOUND, PING, PONG, SENDADDRV2, SENDCMPCT, VERACK, VERSION, WTXIDRELAY,
};
use packetlane_p2p::payload::{
    Inventory, InventoryType, Version, decode_inventory, encode_inventory,
};
use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

#[path = "../../peers/tests/core/rates.rs"]
mod of_a_node;

/// Rates of a listening node, multiplied by `factor`.
fn rates(factor: f64) -> Rates {
    let rates = of_a_node::listening(factor);
    let rates = rates.map(|(message_type, per_second, mean_payload)| {
        let rate = Rate {
            per_second,
            mean_payload,
        };
        (message_type, rate)
    });
    rates.collect()
}

/// What the fake node saw of a connection.
#[derive(Clone, Debug, Default)]
struct Seen {
    kind: String,
    v2: bool,
    relay: bool,
    /// Received messages by type.
    types: BTreeMap<String, usize>,
    /// Whether it read all of the node's flood.
    drained: bool,
    closed: bool,
}

impl Seen {
    fn count(&self, message_type: MessageType) -> usize {
        self.types.get(message_type.name()).copied().unwrap_or(0)
    }
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Vec<Seen>>,
    chain: Mutex<Vec<Header>>,
    asked: Mutex<HashSet<Inventory>>,
    /// Speaks only v1.
    v1_only: bool,
    /// Bytes that the node sends to every peer after the handshake.
    flood: usize,
}

struct FakeNode {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl FakeNode {
    async fn start(v1_only: bool, flood: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let genesis = bitcoin::constants::genesis_block(bitcoin::Network::Regtest).header;
        let shared = Arc::new(Shared {
            chain: Mutex::new(vec![genesis]),
            v1_only,
            flood,
            ..Shared::default()
        });
        let mut tasks = JoinSet::new();
        let accepting = Arc::clone(&shared);
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&accepting);
                serving.spawn(async move {
                    let index = {
                        let mut seen = shared.seen.lock().unwrap();
                        seen.push(Seen::default());
                        seen.len() - 1
                    };
                    let _ = serve(stream, &shared, index).await;
                    shared.seen.lock().unwrap()[index].closed = true;
                });
            }
        });
        Self {
            address,
            shared,
            _tasks: tasks,
        }
    }

    fn options(&self, v1: usize, v2: usize, mix: &str, seconds: f64) -> Options {
        Options {
            address: self.address,
            network: Network::Regtest,
            v1,
            v2,
            mix: mix.parse().unwrap(),
            stall: false,
            duration: Duration::from_secs_f64(seconds),
            rates: rates(40.0),
            block_every: Duration::from_secs(1),
            seed: 3,
            not_loopback: false,
            i_own_this_node: false,
        }
    }

    /// The connections of peers of this kind.
    fn of(&self, kind: Kind) -> Vec<Seen> {
        let seen = self.shared.seen.lock().unwrap();
        seen.iter()
            .filter(|seen| seen.kind == kind.name())
            .cloned()
            .collect()
    }
}

async fn serve(mut stream: TcpStream, shared: &Shared, index: usize) -> Result<(), TransportError> {
    let network = Network::Regtest;
    let mut first = [0; 4];
    stream.peek(&mut first).await?;
    if shared.v1_only && first != network.magic() {
        return Ok(());
    }
    let engine = Engine::detect().unwrap();
    let accepted = respond(&mut stream, network, engine, Duration::from_secs(10)).await?;
    shared.seen.lock().unwrap()[index].v2 = matches!(accepted, Accepted::V2(_));
    let (read, write) = stream.into_split();
    let read = Paced::new(read, false);
    let (mut reader, mut writer) = halves(accepted, (read, write), network, engine);
    loop {
        let Message {
            message_type,
            payload,
            ..
        } = reader.receive().await?;
        let name = message_type.name().to_owned();
        *shared.seen.lock().unwrap()[index]
            .types
            .entry(name)
            .or_default() += 1;
        match message_type {
            VERSION => {
                let version = Version::decode(&payload).unwrap();
                let user_agent = String::from_utf8(version.user_agent).unwrap();
                let (_, kind) = user_agent.split_once('(').unwrap();
                {
                    let seen = &mut shared.seen.lock().unwrap()[index];
                    seen.kind = kind.trim_end_matches(")/").to_owned();
                    seen.relay = version.relay;
                }
                // The peer looks only at the type.
                writer.push(VERSION, &payload)?;
                writer.push(VERACK, &[])?;
            }
            VERACK => {
                writer.push(PING, &[7; 8])?;
                writer.flush().await?;
                if shared.flood > 0 {
                    const PIECE: usize = 1 << 20;
                    for _ in 0..shared.flood / PIECE {
                        writer.push(MessageType::literal("flood"), &[0; PIECE])?;
                        writer.flush().await?;
                    }
                    shared.seen.lock().unwrap()[index].drained = true;
                }
            }
            GETHEADERS => {
                let locator = payload::decode_getheaders(&payload).unwrap();
                let answer = {
                    let chain = shared.chain.lock().unwrap();
                    let known = chain
                        .iter()
                        .position(|header| header.block_hash() == locator[0]);
                    payload::headers(&chain[known.unwrap_or(0) + 1..])
                };
                writer.push(HEADERS, &answer)?;
            }
            PING => {
                writer.push(PONG, &payload)?;
            }
            BLOCK | CMPCTBLOCK => extend(shared, deserialize(&payload[..80]).unwrap()),
            HEADERS => {
                let headers = payload::decode_headers(&payload).unwrap();
                let last = headers.last().map(Header::block_hash);
                let tip = shared.chain.lock().unwrap().last().map(Header::block_hash);
                if let Some(last) = last.filter(|_| last != tip) {
                    let entry = payload::inventory(InventoryType::COMPACT_BLOCK, last);
                    writer.push(GETDATA, &encode_inventory(&[entry]))?;
                }
            }
            INV => {
                let news: Vec<_> = decode_inventory(&payload)
                    .unwrap()
                    .into_iter()
                    .filter(|entry| shared.asked.lock().unwrap().insert(*entry))
                    .collect();
                writer.push(GETDATA, &encode_inventory(&news))?;
                // Announce all of them back.
                writer.push(INV, &encode_inventory(&news))?;
            }
            _ => {}
        }
        writer.flush().await?;
    }
}

fn extend(shared: &Shared, header: Header) {
    let mut chain = shared.chain.lock().unwrap();
    if chain
        .last()
        .is_some_and(|tip| tip.block_hash() == header.prev_blockhash)
    {
        chain.push(header);
    }
}

async fn run_for(options: &Options) -> Outcome {
    let limit = options.duration + Duration::from_secs(20);
    let ran = run(options, std::future::pending(), |_| {});
    timeout(limit, ran).await.expect("it ends").unwrap()
}

/// All kinds but stalling.
const EVERY: &str = "full-relay,block-relay-only,silent,slow,churning";

#[tokio::test]
async fn each_kind_behaves_as_documented() {
    let node = FakeNode::start(false, 0).await;
    let outcome = run_for(&node.options(10, 10, EVERY, 8.0)).await;
    assert_eq!(outcome.totals.reached, 20, "{}", outcome.totals);
    let totals = &outcome.totals;
    let sent = |kind, message_type| totals.kinds[&kind].types[&message_type][0].messages;

    for kind in Kind::ALL {
        let seen = node.of(kind);
        if kind == Kind::Stalling {
            assert!(seen.is_empty());
            continue;
        }
        let open = seen.iter().filter(|seen| !seen.closed);
        assert!(
            open.count() <= 4 && seen.len() >= 4,
            "{kind}: {}",
            seen.len()
        );
        let v2 = seen.iter().filter(|seen| seen.v2).count();
        assert!(
            v2 >= 2 && seen.len() - v2 >= 2,
            "{kind}: {v2} of {} over v2",
            seen.len()
        );
        for one in &seen {
            assert_eq!(one.relay, kind != Kind::BlockRelayOnly, "{kind}");
        }
        // The peers and the node count the same, except for what is in transit at the end.
        let count = seen.iter().map(|seen| seen.count(VERSION)).sum::<usize>() as u64;
        let missing = count.abs_diff(sent(kind, VERSION));
        let most = u64::from(kind == Kind::Churning) * 4;
        assert!(missing <= most, "{kind}: {missing} of {count}");
    }

    let introduction = [VERSION, WTXIDRELAY, SENDADDRV2, VERACK].map(|one| one.name().to_owned());
    for silent in node.of(Kind::Silent) {
        let types: HashSet<_> = silent.types.into_keys().collect();
        assert_eq!(types, HashSet::from(introduction.clone()));
    }
    let of_transactions = [INV, ADDRV2, GETADDR, FEEFILTER, TX];
    for relay in node.of(Kind::BlockRelayOnly) {
        for message_type in of_transactions {
            assert_eq!(relay.count(message_type), 0, "{message_type}");
        }
        assert!(
            relay.count(PONG) == 1 && relay.count(SENDCMPCT) == 1,
            "{relay:?}"
        );
    }
    for kind in [Kind::FullRelay, Kind::Slow] {
        let seen = node.of(kind);
        for message_type in of_transactions.into_iter().chain([PING, GETDATA, NOTFOUND]) {
            let count: usize = seen.iter().map(|seen| seen.count(message_type)).sum();
            // The node requests only what exists, so no peer sends `notfound`.
            assert_eq!(
                count > 0,
                message_type != NOTFOUND,
                "{kind}: {message_type}"
            );
        }
        assert!(
            seen.iter()
                .all(|seen| seen.count(PONG) == 1 && !seen.closed),
            "{kind}"
        );
    }
    let churning = node.of(Kind::Churning);
    assert!(
        churning.len() > 4,
        "nobody left within 8 s: {}",
        churning.len()
    );
    assert!(churning.iter().any(|seen| seen.closed));

    // Transactions and blocks came from the peers that relay them, and the node has all blocks.
    assert!(
        totals.fetched > 100 && totals.fetched <= totals.made,
        "{totals}"
    );
    assert!(
        totals.relayed > 100 && totals.relayed <= totals.fetched,
        "{totals}"
    );
    assert!(totals.mined > 0);
    assert_eq!(sent(Kind::Slow, SENDCMPCT), 4);
    let served = [Kind::FullRelay, Kind::BlockRelayOnly, Kind::Churning];
    let served = served.map(|kind| totals.kinds[&kind].types.get(&CMPCTBLOCK));
    assert!(served.iter().flatten().any(|count| count[0].messages > 0));
    assert!(!totals.kinds[&Kind::Slow].types.contains_key(&CMPCTBLOCK));
    let height = node.shared.chain.lock().unwrap().len() - 1;
    assert_eq!(outcome.tip, Some((height, true)));
}

/// Only a slow peer leaves the node's messages unread.
#[tokio::test]
async fn a_slow_peer_reads_little() {
    let node = FakeNode::start(false, 12 << 20).await;
    let mut options = node.options(2, 2, "full-relay,slow", 5.0);
    options.rates = Rates::default();
    run_for(&options).await;
    for (kind, drained) in [(Kind::FullRelay, true), (Kind::Slow, false)] {
        let seen = node.of(kind);
        assert_eq!(seen.len(), 2);
        assert!(
            seen.iter().all(|seen| seen.drained == drained),
            "{kind}: {seen:?}"
        );
    }
}

/// The fake node requests a block from every peer that announces it.
#[tokio::test]
async fn a_stalling_peer_delivers_no_blocks() {
    let node = FakeNode::start(false, 0).await;
    let mut options = node.options(2, 1, "full-relay", 8.0);
    options.stall = true;
    options.block_every = Duration::from_secs(2);
    let outcome = run_for(&options).await;
    let types = |kind| outcome.totals.kinds[&kind].types.clone();
    let [stalling, others] = [Kind::Stalling, Kind::FullRelay].map(types);
    assert_eq!(
        [Kind::Stalling, Kind::FullRelay].map(|kind| node.of(kind).len()),
        [1, 2]
    );
    let sent = |types: &BTreeMap<MessageType, [Count; 2]>, message_type| {
        let count = types.get(&message_type);
        count.map_or(0, |[sent, _]| sent.messages)
    };
    assert!(outcome.totals.mined > 0);
    assert!(sent(&stalling, HEADERS) > 0 && stalling[&GETDATA][1].messages > 0);
    assert!(sent(&stalling, TX) > 0 && sent(&stalling, PONG) == 1);
    for message_type in [BLOCK, CMPCTBLOCK, NOTFOUND] {
        assert_eq!(sent(&stalling, message_type), 0, "{message_type}");
    }
    assert!(sent(&others, CMPCTBLOCK) > 0 && outcome.tip.is_some());

    // Nobody delivers.
    (options.v1, options.v2) = (0, 1);
    options.duration = Duration::from_secs(1);
    assert_eq!(run_for(&options).await.tip, None);
}

#[tokio::test]
async fn rates_are_kept() {
    let node = FakeNode::start(false, 0).await;
    let options = node.options(8, 8, "full-relay", 6.0);
    let outcome = run_for(&options).await;
    let full = &outcome.totals.kinds[&Kind::FullRelay];
    let sent = |message_type| full.types[&message_type][0].messages as f64;
    let seconds = outcome.took.as_secs_f64();
    for (message_type, per_second) in [
        (INV, options.rates.of(INV).per_second),
        (PING, options.rates.of(PING).per_second),
        (
            ADDRV2,
            options.rates.of(ADDRV2).per_second + options.rates.of(ADDR).per_second,
        ),
    ] {
        let expected = per_second * seconds;
        let error = (sent(message_type) - expected) / expected.sqrt();
        // Four standard deviations, and the time until all are connected, which is long on a busy
        // machine.
        assert!(
            (-4.0 - 0.4 * expected.sqrt()..4.0).contains(&error),
            "{message_type}: {} for {expected:.0}",
            sent(message_type)
        );
    }
    let made = outcome.totals.made as f64;
    let expected = options.rates.of(TX).per_second * seconds;
    assert!(
        (made - expected).abs() < 4.0 * expected.sqrt() + 0.4 * expected,
        "{made}"
    );
}

#[tokio::test]
async fn a_node_without_v2_is_reported() {
    let node = FakeNode::start(true, 0).await;
    let outcome = run_for(&node.options(2, 1, "full-relay", 1.0)).await;
    let full = &outcome.totals.kinds[&Kind::FullRelay];
    assert_eq!(
        (outcome.totals.reached, full.connected, full.opened),
        (2, 2, 2)
    );
    assert!(full.failed >= 1);
    let failure = full.failure.as_ref().unwrap();
    assert!(failure.contains("v2"), "{failure}");
}

#[tokio::test]
async fn it_stops_on_request_and_is_repeatable() {
    let node = FakeNode::start(false, 0).await;
    let mut options = node.options(1, 0, "full-relay", 3600.0);
    let begun = Instant::now();
    let mut seconds = 0;
    let stop = sleep(Duration::from_millis(2500));
    let outcome = run(&options, stop, |_| seconds += 1).await.unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "{:?}",
        begun.elapsed()
    );
    assert!((1..=3).contains(&seconds) && outcome.tip.is_none());
    assert!(outcome.took >= Duration::from_secs(1));

    // The second load extends the chain of the first.
    let height = node.shared.chain.lock().unwrap().len() - 1;
    options.duration = Duration::from_millis(500);
    let outcome = run_for(&options).await;
    let (end, agrees) = outcome.tip.unwrap();
    assert!(end > height && agrees);
}

#[tokio::test]
async fn options_out_of_bounds_are_rejected() {
    let node = FakeNode::start(false, 0).await;
    let good = node.options(1, 1, EVERY, 1.0);
    assert!(good.check().is_ok());
    let refused = |change: &dyn Fn(&mut Options)| {
        let mut options = good.clone();
        change(&mut options);
        options.check().map_err(|error| error.to_string())
    };
    for (change, expected) in [
        (
            &(|options: &mut Options| options.v1 = 500) as &dyn Fn(&mut Options),
            "501 peers",
        ),
        (
            &|options| (options.v1, options.v2) = (usize::MAX, 1),
            "peers: the maximum is 500",
        ),
        (&|options| (options.v1, options.v2) = (0, 0), "no peers"),
        (
            &|options| options.duration = MAX_DURATION + Duration::from_secs(1),
            "too long",
        ),
        (
            &|options| options.rates = options.rates.clone().times(1e6),
            "too many",
        ),
        (
            &|options| options.rates = options.rates.clone().times(f64::NAN),
            "too many",
        ),
    ] {
        let error = refused(change).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    // Another machine's address needs both consents. Nothing is sent before.
    let elsewhere = "192.0.2.1:18444".parse().unwrap();
    for consents in [[false, false], [true, false], [false, true], [true, true]] {
        let result = refused(&|options| {
            options.address = elsewhere;
            [options.not_loopback, options.i_own_this_node] = consents;
        });
        assert_eq!(result.is_ok(), consents == [true, true], "{result:?}");
    }
    let mut options = good.clone();
    options.address = elsewhere;
    let begun = Instant::now();
    let error = run(&options, std::future::pending(), |_| {})
        .await
        .unwrap_err();
    assert!(matches!(error, TrafficError::NotLoopback { .. }));
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert!(node.shared.seen.lock().unwrap().is_empty());
}
