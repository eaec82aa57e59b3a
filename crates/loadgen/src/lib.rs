//! Many peers against one node: a load to measure the node with.
//!
//! [`run`] connects peers of several [`Kind`]s over v1 and v2. Their messages are as frequent and
//! as long as [`Rates`] says. On regtest the generator builds on the node's chain: it makes
//! transactions and blocks which the node checks, stores and relays. Elsewhere the peers have
//! no transactions and no blocks.
//!
//! In the order in which to read: `options.rs`, `kind.rs` and `rates.rs` (who and how often),
//! `chain.rs` (transactions and blocks), `payload.rs` and `connection.rs` (the wire), `control.rs`
//! (the start), `load.rs` and `peer.rs` (what a peer does), `totals.rs` (what is counted).
//!
//! The seed decides kinds, transactions, and what each peer sends and when. What the node answers
//! and when is not in its hands.

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

/// How often the need for a block is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// What there was.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The counts.
    pub totals: Totals,
    /// How long the peers were there.
    pub took: Duration,
    /// The height of the chain at the end, and whether the node has the same latest block.
    /// `None` where no blocks are made, after a stop, or if the node is gone.
    pub tip: Option<(usize, bool)>,
}

/// Runs the load until its time is over or `stop` completes. Calls `progress` once a second.
///
/// # Errors
///
/// See [`TrafficError`]: of the options, and of the first connection. Later failures are counted
/// ([`KindTotals::failed`]), and the peer connects again.
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
        if !control.has(chain.tip().block_hash()).await? {
            return Err(TrafficError::BlocksRefused);
        }
    }
    drop(control);

    let v1 = options.mix.deal(options.v1).into_iter();
    let v2 = options.mix.deal(options.v2).into_iter();
    let peers: Vec<_> = v1
        .map(|kind| (kind, Transport::V1))
        .chain(v2.map(|kind| (kind, Transport::V2)))
        .collect();
    let count = |is: fn(Kind) -> bool| peers.iter().filter(|(kind, _)| is(*kind)).count();
    let announcing = count(Kind::announces_blocks);
    let (announce, new_block) = watch::channel(());
    let load = Arc::new(Load {
        address,
        network,
        engine,
        seed,
        rates: options.rates.clone(),
        relaying: count(Kind::relays_transactions),
        talking: count(|kind| kind != Kind::Silent),
        makes_blocks,
        new_block,
        world: Mutex::new(World {
            chain,
            totals: Totals::default(),
        }),
    });

    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for (index, (kind, transport)) in (0..).zip(peers) {
        tasks.spawn(peer::live(Arc::clone(&load), kind, transport, index));
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
    // The counts of now: nobody leaves before they are taken.
    let totals = load.world().totals.clone();
    // Who stops it does not wait for the node.
    let tip = match makes_blocks && in_time {
        true => final_tip(&load).await,
        false => None,
    };
    tasks.shutdown().await;
    Ok(Outcome { totals, took, tip })
}

/// Whether the node has our chain, a few seconds after its last block at the latest.
async fn final_tip(load: &Load) -> Option<(usize, bool)> {
    const TRIES: usize = 10;
    let mut control = Control::open(load.address, load.network, load.engine)
        .await
        .ok()?;
    for attempt in 1..=TRIES {
        // Blocks are made meanwhile, but a lock is not held while the node answers.
        let (height, tip) = {
            let world = load.world();
            (world.chain.height(), world.chain.tip().block_hash())
        };
        let agrees = control.has(tip).await.ok()?;
        if agrees || attempt == TRIES {
            return Some((height, agrees));
        }
        sleep(LOOK).await;
    }
    None
}

/// Makes transactions as often as they are sent to the node.
async fn make_transactions(load: Arc<Load>) {
    let rate = load.rates.of(TX);
    if rate.per_second <= 0.0 {
        return;
    }
    let mut rng = StdRng::seed_from_u64(load.seed);
    let mut next = Instant::now();
    loop {
        // From the last one's time, not from now: a late wake-up makes nothing rarer.
        next += rates::after(1.0 / rate.per_second, &mut rng);
        sleep_until(next).await;
        let mut world = load.world();
        let made = world.chain.transact_around(rate.mean_payload);
        world.totals.made += u64::from(made.is_some());
    }
}

/// Makes blocks, `every` so often on average, and when coins run out.
async fn make_blocks(load: Arc<Load>, every: Duration, announce: watch::Sender<()>) {
    // Not the numbers of the transactions.
    let mut rng = StdRng::seed_from_u64(!load.seed);
    loop {
        let next = Instant::now() + rates::after(every.as_secs_f64(), &mut rng);
        while Instant::now() < next && !load.world().chain.needs_block() {
            sleep_until(next.min(Instant::now() + LOOK)).await;
        }
        {
            let mut world = load.world();
            world.chain.mine(unix_time());
            world.totals.mined += 1;
        }
        let _ = announce.send(());
    }
}

/// The network whose genesis block is ours.
fn genesis_of(network: Network) -> bitcoin::Network {
    match network {
        Network::Testnet3 => bitcoin::Network::Testnet,
        Network::Testnet4 => bitcoin::Network::Testnet4,
        Network::Signet => bitcoin::Network::Signet,
        Network::Regtest => bitcoin::Network::Regtest,
        _ => bitcoin::Network::Bitcoin,
    }
}
