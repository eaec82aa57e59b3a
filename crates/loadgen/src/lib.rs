//! A load generator: many peers on one node, to measure the node under load.
//!
//! [`run`] connects peers of several [`Kind`]s over v1 and v2. The frequencies and lengths of their
//! messages follow [`Rates`]. On regtest, the generator extends the node's chain: it makes
//! transactions and blocks that the node validates, stores and relays. On other networks, the peers
//! have no transactions and no blocks.
//!
//! Reading order: `options.rs`, `kind.rs` and `rates.rs` (the load), `chain.rs` (transactions and
//! blocks), `payload.rs` and `connection.rs` (the wire), `control.rs` (the start), `load.rs` and
//! `peer.rs` (the peers), `totals.rs` (the counts).
//!
//! The seed determines the kinds, the transactions, and what each peer sends and when. The node's
//! answers are not reproducible.

mod chain;
mod connection;
mod control;
mod kind;
mod load;
mod options;
mod payload;
mod peer;
mod rates;
#[cfg(test)]
mod tests;
mod totals;

pub use chain::ChainError;
pub use connection::{ConnectionError, Transport};
pub use kind::{Kind, Mix, MixError};
pub use options::{MAX_DURATION, MAX_PEERS, MAX_RATE, Options, TrafficError};
pub use packetlane_p2p::peer::Count;
pub use rates::{Rate, Rates};
pub use totals::{KindTotals, Totals};

use chain::Chain;
use control::Control;
use load::{Load, World};
use packetlane::Engine;
use packetlane::bitcoin::Network;
use packetlane_p2p::message_type::TX;
use packetlane_p2p::payload::unix_time;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

/// How often to check whether a block is needed.
const BLOCK_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Time until the first block of a load with a stalling peer, long enough for the peers to connect.
const FIRST_STALLED_BLOCK: Duration = Duration::from_secs(3);

/// The result of a load.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Message and connection counts.
    pub totals: Totals,
    /// How long the load ran.
    pub took: Duration,
    /// The height of the chain at the end, and whether the node has the same tip. `None` without
    /// blocks, after a stop, if no peer delivers blocks, or if the node is gone.
    pub tip: Option<(usize, bool)>,
}

/// Runs the load for its duration or until `stop` completes. Calls `progress` once a second.
///
/// # Errors
///
/// See [`TrafficError`], for the options and the first connection. Later failures are counted
/// ([`KindTotals::failed`]) and the peer reconnects.
pub async fn run(
    options: &Options,
    stop: impl Future<Output = ()>,
    mut progress: impl FnMut(&Totals),
) -> Result<Outcome, TrafficError> {
    options.check()?;
    let engine = Engine::detect()?;
    let Options {
        address,
        network,
        seed,
        ..
    } = *options;
    let makes_blocks = network == Network::Regtest;
    let mut chain = Chain::new(genesis_of(network), seed);
    let mut control = Control::open(address, network, engine).await?;
    if makes_blocks {
        control.read_chain(&mut chain).await?;
        let first = chain.start(unix_time())?;
        control.send_blocks(&first).await?;
        if !control.has(chain.tip()).await? {
            return Err(TrafficError::BlocksRejected);
        }
    }
    drop(control);

    let peers = peers_of(options);
    let count = |is: fn(Kind) -> bool| peers.iter().filter(|(kind, _)| is(*kind)).count();
    let announcing = count(Kind::announces_blocks);
    let delivering = count(Kind::delivers_blocks);
    let (announce, new_block) = watch::channel(());
    let load = Arc::new(Load {
        address,
        network,
        engine,
        seed,
        rates: options.rates.clone(),
        relaying: count(Kind::relays_transactions),
        talking: count(|kind| kind != Kind::Silent),
        stalling: count(|kind| kind == Kind::Stalling) > 0,
        makes_blocks,
        new_block,
        world: Mutex::new(World {
            chain,
            totals: Totals::default(),
        }),
    });

    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    let mut stalling = Vec::new();
    for (index, (kind, transport)) in (0..).zip(peers) {
        let task = tasks.spawn(peer::live(Arc::clone(&load), kind, transport, index));
        if kind == Kind::Stalling {
            stalling.push(task);
        }
    }
    if makes_blocks && load.relaying > 0 {
        tasks.spawn(make_transactions(Arc::clone(&load)));
    }
    if makes_blocks && announcing > 0 {
        tasks.spawn(make_blocks(
            Arc::clone(&load),
            options.block_every,
            announce,
        ));
    }

    let over = sleep_until(begun + options.duration);
    tokio::pin!(over, stop);
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let in_time = loop {
        tokio::select! {
            () = &mut over => break true,
            () = &mut stop => break false,
            _ = second.tick() => {
                let totals = load.world().totals.clone();
                progress(&totals);
            }
        }
    };
    let took = begun.elapsed();
    // Take the counts before the peers disconnect.
    let totals = load.world().totals.clone();
    // Without the stalling peers, the node gets the blocks that they stalled from the others.
    for task in stalling {
        task.abort();
    }
    // After a stop, do not wait for the node.
    let tip = match makes_blocks && in_time && (announcing == 0 || delivering > 0) {
        true => final_tip(&load).await,
        false => None,
    };
    tasks.shutdown().await;
    Ok(Outcome { totals, took, tip })
}

/// The kinds and transports of the peers.
fn peers_of(options: &Options) -> Vec<(Kind, Transport)> {
    let Options { v1, v2, mix, .. } = *options;
    let (stall_v1, stall_v2) = match options.stall {
        true if v1 > 0 => (1, 0),
        true => (0, v2.min(1)),
        false => (0, 0),
    };
    let of = |transport, count: usize, stalling: usize| {
        let stalled = std::iter::repeat_n(Kind::Stalling, stalling);
        let kinds = stalled.chain(mix.deal(count - stalling));
        kinds.map(move |kind| (kind, transport))
    };
    let v1 = of(Transport::V1, v1, stall_v1);
    v1.chain(of(Transport::V2, v2, stall_v2)).collect()
}

/// Checks whether the node has our tip, for a few seconds after the last block.
async fn final_tip(load: &Load) -> Option<(usize, bool)> {
    const TRIES: usize = 10;
    let mut control = Control::open(load.address, load.network, load.engine)
        .await
        .ok()?;
    for attempt in 1..=TRIES {
        // Do not hold the lock while waiting for the node: blocks are still being made.
        let (height, tip) = {
            let world = load.world();
            (world.chain.height(), *world.chain.tip())
        };
        let agrees = control.has(&tip).await.ok()?;
        if agrees || attempt == TRIES {
            return Some((height, agrees));
        }
        sleep(BLOCK_CHECK_INTERVAL).await;
    }
    None
}

/// Makes transactions at the rate at which they are sent to the node.
async fn make_transactions(load: Arc<Load>) {
    let rate = load.rates.of(TX);
    if rate.per_second <= 0.0 {
        return;
    }
    let mut rng = StdRng::seed_from_u64(load.seed);
    let mut next = Instant::now();
    loop {
        // Relative to the last due time, not to now: a late wake-up must not lower the rate.
        next += rates::after(1.0 / rate.per_second, &mut rng);
        sleep_until(next).await;
        let mut world = load.world();
        let made = world.chain.transact_around(rate.mean_payload);
        world.totals.made += u64::from(made.is_some());
    }
}

/// Makes a block on average once per `every`, and whenever coins run out. If a peer stalls blocks,
/// the first comes early, so that the node waits for most of the load.
async fn make_blocks(load: Arc<Load>, every: Duration, announce: watch::Sender<()>) {
    // A random stream of its own, not that of the transactions.
    let mut rng = StdRng::seed_from_u64(!load.seed);
    let mut first = load.stalling.then_some(FIRST_STALLED_BLOCK);
    loop {
        let random = rates::after(every.as_secs_f64(), &mut rng);
        let next = Instant::now() + first.take().map_or(random, |first| first.min(random));
        while Instant::now() < next && !load.world().chain.needs_block() {
            sleep_until(next.min(Instant::now() + BLOCK_CHECK_INTERVAL)).await;
        }
        {
            let mut world = load.world();
            world.chain.mine(unix_time());
            world.totals.mined += 1;
        }
        let _ = announce.send(());
    }
}

/// The rust-bitcoin network with our network's genesis block.
fn genesis_of(network: Network) -> bitcoin::Network {
    match network {
        Network::Testnet3 => bitcoin::Network::Testnet,
        Network::Testnet4 => bitcoin::Network::Testnet4,
        Network::Signet => bitcoin::Network::Signet,
        Network::Regtest => bitcoin::Network::Regtest,
        _ => bitcoin::Network::Bitcoin,
    }
}
