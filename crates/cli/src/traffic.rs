//! `packetlane traffic`: puts the load of many peers on a node.

use crate::args;
use crate::connect::{ConnectError, resolve};
use crate::stop::Stop;
use crate::terminal::{Status, print};
use clap::Args;
use packetlane::bitcoin::Network;
use packetlane_files::Name;
use packetlane_lab::traffic::Profile;
use packetlane_loadgen::{self as loadgen, Mix, Options, Outcome, Rate, Rates, TrafficError};
use packetlane_p2p::capture::{self, CaptureError};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout for resolving a host name.
const LOOKUP: Duration = Duration::from_secs(20);

/// Average time between blocks on the real network.
const BLOCK_EVERY: f64 = 600.0;

#[derive(Args)]
pub(crate) struct Traffic {
    #[arg(value_name = "ADDR", help = args::ADDRESS_HELP)]
    address: String,
    /// Bitcoin network of the node
    #[arg(long, default_value = Network::Regtest.name(), value_parser = args::network_parser())]
    network: Network,
    /// Number of peers that speak v1; at most 500 together with --v2
    #[arg(long, value_name = "N", default_value_t = 0)]
    v1: usize,
    /// Number of peers that speak v2
    #[arg(long, value_name = "N", default_value_t = 0)]
    v2: usize,
    /// Kinds of peers and their weights: full-relay, block-relay-only, silent, slow, churning,
    /// stalling
    #[arg(
        long,
        value_name = "KIND=WEIGHT,...",
        default_value = "full-relay=4,block-relay-only=3,silent=1,slow=1,churning=1"
    )]
    kinds: Mix,
    /// Make one of the peers stall: it announces each new block first and never delivers it, so the
    /// node waits for it (regtest)
    #[arg(long)]
    stall: bool,
    /// Duration in seconds, at most a day
    #[arg(long = "for", value_name = "SECONDS", default_value = "60", value_parser = args::seconds)]
    duration: Duration,
    /// Recorded node whose message rates and lengths all peers together reproduce
    #[arg(long, value_name = "NAME", default_value = "listening", value_parser = Profile::NODES)]
    profile: String,
    /// Use the rates and lengths of the recording in DIR (Bitcoin Core's -capturemessages or
    /// `connect --record`)
    #[arg(long, value_name = "DIR", conflicts_with = "profile")]
    capture: Option<PathBuf>,
    /// Multiply all rates by FACTOR
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    factor: f64,
    /// Transactions per second, independent of the other rates
    #[arg(long, value_name = "PER_SECOND", value_parser = factor)]
    transactions: Option<f64>,
    /// Mean time between blocks on regtest [default: 600 divided by --factor]
    #[arg(long, value_name = "SECONDS", value_parser = args::seconds)]
    block_every: Option<Duration>,
    /// Seed; the same seed sends the same messages
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Allow an address other than this machine's; requires --i-own-this-node
    #[arg(long)]
    not_loopback: bool,
    /// Confirm that you own the node; requires --not-loopback
    #[arg(long)]
    i_own_this_node: bool,
}

/// Parses a factor from 0.001 to 10000.
fn factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (0.001..=10_000.0).contains(&factor) => Ok(factor),
        _ => Err("expected a number from 0.001 to 10000".to_owned()),
    }
}

/// The rates of a recorded node. Its counts cover both directions; half of each is attributed to
/// the peers.
fn profile(name: &str) -> Rates {
    const DAY: f64 = 86_400.0;
    let rows = Profile::node(name).messages_per_day().into_iter();
    rows.map(|(message_type, per_day, mean_payload)| {
        let per_second = per_day / DAY / 2.0;
        let rate = Rate {
            per_second,
            mean_payload,
        };
        (message_type, rate)
    })
    .collect()
}

/// The rates that the node recorded in `folder` received from all its peers.
fn recorded(folder: &Path) -> Result<Rates, CommandError> {
    let recording = capture::read_dir(folder).map_err(CommandError::Capture)?;
    let conversations = recording.conversations.iter();
    let received = conversations.flat_map(|conversation| &conversation.received);
    let messages = received.map(|record| (record.time, record.message_type, record.payload.len()));
    Rates::of_messages(messages).ok_or_else(|| CommandError::Short {
        folder: folder.to_owned(),
    })
}

/// Runs the load and prints the totals.
pub(crate) async fn run(arguments: Traffic, stop: Stop) -> Result<(), CommandError> {
    let rates = match &arguments.capture {
        Some(folder) => recorded(folder)?,
        None => profile(&arguments.profile),
    };
    let rates = rates.times(arguments.factor);
    let rates = match arguments.transactions {
        Some(per_second) => rates.with_transactions(per_second),
        None => rates,
    };
    let addresses = resolve(&arguments.address, arguments.network, LOOKUP);
    let addresses = stop.or(addresses).await.map_err(ConnectError::from)??;
    let block_every = arguments.block_every;
    let options = Options {
        address: addresses[0],
        network: arguments.network,
        v1: arguments.v1,
        v2: arguments.v2,
        mix: arguments.kinds,
        stall: arguments.stall,
        duration: arguments.duration,
        rates,
        block_every: block_every.unwrap_or(Duration::from_secs_f64(BLOCK_EVERY / arguments.factor)),
        seed: arguments.seed,
        not_loopback: arguments.not_loopback,
        i_own_this_node: arguments.i_own_this_node,
    };

    let status = Status::new();
    status.show("connecting");
    let mut before = [0, 0];
    let stopped = async {
        stop.signalled().await;
    };
    let outcome = loadgen::run(&options, stopped, |totals| {
        let [sent, received] = totals.all().map(|count| count.messages);
        let [sent_before, received_before] = std::mem::replace(&mut before, [sent, received]);
        status.show(&format!(
            "{} peers, {} messages/s sent, {} received, {} transactions, {} blocks",
            totals.connected(),
            sent - sent_before,
            received - received_before,
            totals.made,
            totals.mined,
        ));
    });
    let outcome = outcome.await?;
    status.clear();
    report(&options, &outcome);
    let peers = options.v1 + options.v2;
    let reached = outcome.totals.reached;
    match outcome.tip {
        _ if reached < peers => Err(CommandError::NotAll { peers, reached }),
        Some((height, false)) => Err(CommandError::OtherChain { height }),
        _ => Ok(()),
    }
}

fn report(options: &Options, outcome: &Outcome) {
    let Outcome { totals, took, tip } = outcome;
    print(format_args!(
        "{} for {:.1} s: {} peers over v1, {} over v2, seed {}\n\n{totals}",
        options.address,
        took.as_secs_f64(),
        options.v1,
        options.v2,
        options.seed
    ));
    if let Some((height, true)) = tip {
        print(format_args!(
            "the node has our latest block, at height {height}\n"
        ));
    }
}

/// Why the command failed.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// The name has no address, or a signal came while resolving it.
    Address(ConnectError),
    /// The recording cannot be read.
    Capture(CaptureError),
    /// The messages of the recording span less than a second.
    Short { folder: PathBuf },
    /// The load could not start.
    Traffic(TrafficError),
    /// Some peers never exchanged versions.
    NotAll { peers: usize, reached: usize },
    /// The node's latest block is not ours.
    OtherChain { height: usize },
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) => error.fmt(f),
            Self::Capture(error) => error.fmt(f),
            Self::Short { folder } => write!(
                f,
                "{}: the recorded messages span less than a second; record for longer",
                Name(folder)
            ),
            Self::Traffic(error) => error.fmt(f),
            Self::NotAll { peers, reached } => write!(
                f,
                "the node accepted only {reached} of {peers} peers; see \"failed\" above"
            ),
            Self::OtherChain { height } => write!(
                f,
                "the node's latest block is not the one that we made at height {height}"
            ),
        }
    }
}

impl std::error::Error for CommandError {}

impl From<ConnectError> for CommandError {
    fn from(error: ConnectError) -> Self {
        Self::Address(error)
    }
}

impl From<TrafficError> for CommandError {
    fn from(error: TrafficError) -> Self {
        Self::Traffic(error)
    }
}
