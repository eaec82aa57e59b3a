//! The `packetlane` command, a thin door to the crates behind it.
//!
//! - `blocks` verifies files of blocks: [`blocks`].
//! - `connect` speaks to a node, over BIP324 if the node can, and tells what it
//!   saw: [`connect`], [`peer`] (framing), [`node`] (the protocol), [`wire`]
//!   (payloads), [`report`].
//! - `gpu` checks an NVIDIA GPU: [`gpu`](mod@gpu).
//! - `lab` measures what BIP324, QUIC packet protection and double SHA-256 cost here:
//!   [`measure`].
//! - `listen` is the other side: it waits for nodes.

mod args;
mod blocks;
mod connect;
#[cfg(feature = "cuda")]
mod gpu;
mod measure;
mod node;
mod peer;
mod report;
mod wire;

use clap::{Args, Parser, Subcommand};
use connect::Choice;
use node::Plan;
use packetlane::bitcoin::Network;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// BIP324, Bitcoin's encrypted transport: measure it, and try it against real
/// nodes.
#[derive(Parser)]
#[command(name = "packetlane", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure what BIP324, QUIC packet protection and double SHA-256 cost on this
    /// machine, beside the libraries that people use today.
    ///
    /// Prints the answers and tables, and writes them with pictures and for
    /// programs.
    Lab(measure::Lab),
    /// Check that an NVIDIA GPU does what the CPU does.
    #[cfg(feature = "cuda")]
    #[command(subcommand)]
    Gpu(gpu::Gpu),
    /// Connect to a node and tell which transport it speaks, who it is and what
    /// passed.
    ///
    /// Speaks v2 (BIP324) and, if the node closes before it answers, connects
    /// again and speaks v1. Ends when the handshakes, three pings and what is to
    /// be fetched are done. The exit status is 0 only if all of that succeeded.
    Connect(Connect),
    /// Wait for nodes that connect, over v2 or v1, and tell the same of each.
    ///
    /// It claims to be a full node (others would not stay) but has no block.
    Listen(Listen),
    /// Verify blocks in Bitcoin Core's files, or in files of one block each.
    ///
    /// Hashes every transaction and says of each block whether its Merkle root, its
    /// witnesses' commitment and its proof of work are right, and of each file where
    /// it is damaged. The exit status is 0 only if nothing was wrong.
    Blocks(blocks::Blocks),
}

const ADDRESS_HELP: &str = "HOST, HOST:PORT or [IPV6]:PORT; the port is the network's unless given";

/// Most blocks that `--fetch` takes: their hashes are kept.
const MAX_FETCH: u32 = 1_000_000;

#[derive(Args)]
struct Connect {
    #[arg(value_name = "ADDR", help = ADDRESS_HELP)]
    address: String,
    /// Speak v1 only
    #[arg(long, conflicts_with = "v2_only")]
    v1: bool,
    /// Fail if the node does not speak v2
    #[arg(long)]
    v2_only: bool,
    /// Fetch the headers of up to N blocks from the genesis block on (2000 come
    /// at once), then those blocks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_FETCH)))]
    fetch: Option<u32>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Listen {
    #[arg(value_name = "ADDR", help = ADDRESS_HELP)]
    address: String,
    /// End after the first connection; the exit status is 0 only if it succeeded
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Common {
    /// The network of the node
    #[arg(long, default_value = Network::Mainnet.name(), value_parser = args::network_parser())]
    network: Network,
    /// Record what passes in DIR, as Bitcoin Core's -capturemessages does:
    /// msgs_recv.dat and msgs_sent.dat (`listen` makes a folder for each peer)
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Stay for so long, with a ping every 10 seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = args::seconds)]
    stay: Option<Duration>,
    /// How long to wait for the peer at each step
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = args::seconds)]
    timeout: Duration,
}

impl Common {
    fn plan(&self, initiator: bool, fetch: Option<usize>) -> Plan {
        Plan {
            network: self.network,
            initiator,
            fetch,
            stay: self.stay,
            patience: self.timeout,
        }
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let done = match cli.command {
        Command::Lab(lab) => measure::run(lab),
        #[cfg(feature = "cuda")]
        Command::Gpu(command) => gpu::run(&command),
        Command::Blocks(blocks) => blocks::run(&blocks),
        Command::Connect(connect) => {
            let Connect {
                address,
                v1,
                v2_only,
                fetch,
                common,
            } = connect;
            let choice = match (v1, v2_only) {
                (true, _) => Choice::V1Only,
                (false, true) => Choice::V2Only,
                (false, false) => Choice::Either,
            };
            let plan = common.plan(true, fetch.map(|count| count as usize));
            run(connect::connect(&address, choice, common.record, plan))
        }
        Command::Listen(listen) => {
            let plan = listen.common.plan(false, None);
            let record = listen.common.record;
            run(connect::listen(&listen.address, listen.once, record, plan))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Says in one line what is wrong with the arguments; help comes whole.
fn refuse(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion,
    };
    if let DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand | DisplayVersion = error.kind() {
        error.exit();
    }
    let text = error.to_string();
    let said = text.lines().map(str::trim);
    let said = said.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let said: Vec<_> = said.filter(|line| !line.is_empty()).collect();
    eprintln!("{}; see --help", said.join(" "));
    ExitCode::from(2)
}

/// Runs to the end what waits for sockets.
fn run<T>(
    task: impl Future<Output = Result<T, connect::ConnectError>>,
) -> Result<T, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(task);
    // A name server that does not answer must not keep us.
    runtime.shutdown_background();
    Ok(done?)
}
