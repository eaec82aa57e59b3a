//! The `packetlane` command: argument parsing and output for the library crates.
//!
//! - `blocks` verifies files of blocks: [`blocks`].
//! - `connect` talks to a node, over BIP324 if the node supports it, and reports what it saw:
//!   [`connect`], [`report`], [`stop`] (signals), [`terminal`].
//! - `gateway` gives software that speaks v1 a v2 transport.
//! - `gpu` checks an NVIDIA GPU: [`gpu`](mod@gpu).
//! - `lab` measures what BIP324, QUIC packet protection and double SHA-256 cost on this
//!   machine, and compares reports: [`measure`].
//! - `peers` says what each peer of a node costs it.
//! - `completions` and `man` write what shells and readers of man pages want: [`manual`].
//! - `listen` is the other side of `connect`: it accepts connections from nodes.
//! - `traffic` puts a load of many peers on a node.

mod args;
mod blocks;
mod connect;
#[cfg(feature = "gateway")]
mod gateway;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(any(feature = "gateway", feature = "peers"))]
mod http;
mod manual;
mod measure;
#[cfg(all(feature = "nats", any(feature = "gateway", feature = "peers")))]
mod nats;
#[cfg(feature = "peers")]
mod peers;
mod report;
#[cfg(any(feature = "gateway", feature = "peers"))]
mod screen;
mod stop;
mod sync;
mod terminal;
#[cfg(feature = "peers")]
mod traffic;

use clap::{Args, CommandFactory, Parser, Subcommand};
use connect::{Accepting, TransportChoice};
use packetlane::bitcoin::Network;
use packetlane_p2p::node::{Blocks, Plan, Start};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use stop::Stop;
use terminal::complain;

/// BIP324, Bitcoin's encrypted transport: measure it, and try it against real nodes.
#[derive(Parser)]
#[command(name = "packetlane", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure what BIP324, QUIC packet protection and double SHA-256 cost on this machine,
    /// compared with the libraries in common use.
    ///
    /// Prints tables and a summary. Also writes them as an HTML report with plots and as JSON.
    /// `headlines` and `compare` read such JSON.
    Lab(measure::Lab),
    /// Check that an NVIDIA GPU gives the same results as the CPU.
    #[cfg(feature = "cuda")]
    #[command(subcommand)]
    Gpu(gpu::Gpu),
    /// Connect to a node and report its transport, its version and the messages exchanged.
    ///
    /// Speaks v2 (BIP324). If the node closes before it answers, answers by v1, or sends nothing
    /// for --timeout, connects again and speaks v1 (not with --v2-only).
    /// Ends after the handshakes, three pings and everything that --fetch asked for; or after
    /// SIGINT, SIGTERM or SIGHUP, with a report on what there was. The exit status is 0 only if
    /// all of it succeeded.
    Connect(Connect),
    /// Accept connections from nodes, over v2 or v1, and print the same report for each.
    ///
    /// Claims to be a full node, because other nodes disconnect otherwise, but has no blocks.
    /// Ends after SIGINT, SIGTERM or SIGHUP.
    Listen(Listen),
    /// Verify blocks in Bitcoin Core's files, or in files of one block each.
    ///
    /// Hashes every transaction. Checks each block's Merkle root, coinbase, witness commitment
    /// and proof of work, and reports where a file is damaged. Zeros between blocks are no damage:
    /// a node that crashed leaves them. The exit status is 0 only if nothing was wrong.
    ///
    /// Does not check what depends on the chain (the target that it requires, times, coins,
    /// scripts), nor weight and signature operations.
    Blocks(blocks::Blocks),
    /// Give software that speaks v1 a v2 transport (BIP324): before it, for peers that connect
    /// (--listen and --node); and behind it, for peers that it connects to (--socks).
    ///
    /// Runs until SIGINT, or until the last connection has ended after SIGTERM. SIGHUP reads
    /// --config again.
    ///
    /// The HOST of an address is an IPv4 address, an IPv6 address in brackets or a name. A name is
    /// looked up at the start and at SIGHUP, and stands for its first address, by IPv4 if it has one.
    #[cfg(feature = "gateway")]
    Gateway(Box<gateway::Command>),
    /// Give software that speaks v1 a v2 transport (needs a build with --features gateway)
    #[cfg(not(feature = "gateway"))]
    Gateway(Absent),
    /// Say what each peer of a node costs it: CPU time, messages and bytes.
    #[cfg(feature = "peers")]
    #[command(subcommand)]
    Peers(peers::Peers),
    /// Say what each peer of a node costs it (needs a build with --features peers)
    #[cfg(not(feature = "peers"))]
    Peers(Absent),
    /// Put a load of many peers of several kinds on a node of yours.
    ///
    /// On regtest makes valid transactions and blocks itself. The rates of all messages are those
    /// of a real node, or of a recording. Prints what was sent and received by kind of peer and
    /// by message type.
    ///
    /// A node on regtest checks its whole mempool at every transaction. To measure it, start it with
    /// -checkmempool=0 -checkblockindex=0
    #[cfg(feature = "peers")]
    Traffic(traffic::Traffic),
    /// Put a load of many peers on a node of yours (needs a build with --features peers)
    #[cfg(not(feature = "peers"))]
    Traffic(Absent),
    /// Print the completions for a shell.
    Completions(manual::Completions),
    /// Write a man page for each command.
    Man(manual::Man),
}

/// A command that this build does not have, with whatever arguments.
#[cfg(not(all(feature = "gateway", feature = "peers")))]
#[derive(Args)]
#[command(disable_help_flag = true)]
struct Absent {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<std::ffi::OsString>,
}

/// Maximum for `--fetch`: the hashes of all these blocks are kept in memory.
const MAX_FETCH: u32 = 1_000_000;

#[derive(Args)]
struct Connect {
    #[arg(value_name = "ADDR", help = args::ADDRESS_HELP)]
    address: String,
    /// Speak v1 only
    #[arg(long, conflicts_with = "v2_only")]
    v1: bool,
    /// Fail if the node does not speak v2
    #[arg(long)]
    v2_only: bool,
    /// Fetch up to N blocks, after the headers up to the last of them. Headers come 2000 at a
    /// time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_FETCH)))]
    fetch: Option<u32>,
    /// The first block to fetch: its height, for which all headers from the genesis block on are
    /// fetched; or its hash, which the node must have in its chain
    #[arg(long, value_name = "START", requires = "fetch", default_value = "1", value_parser = args::start)]
    from: Start,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Listen {
    #[arg(value_name = "ADDR", help = args::ADDRESS_HELP)]
    address: String,
    /// Exit after the first connection; the exit status is 0 only if it succeeded
    #[arg(long)]
    once: bool,
    /// Speak v1 only, like a node without BIP324
    #[arg(long)]
    v1: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Common {
    /// The network that the node is on
    #[arg(long, default_value = Network::Mainnet.name(), value_parser = args::network_parser())]
    network: Network,
    /// Record all messages in DIR in the format of Bitcoin Core's -capturemessages:
    /// msgs_recv.dat and msgs_sent.dat. `listen` creates one folder per peer, for 1000 peers and
    /// 10 GB at most
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Stay connected for SECONDS, with a ping every 10 seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = args::seconds)]
    stay: Option<Duration>,
    /// How long to wait for the peer at each step, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = args::seconds)]
    timeout: Duration,
}

impl Common {
    fn plan(&self, initiator: bool, fetch: Option<Blocks>) -> Plan {
        Plan {
            network: self.network,
            initiator,
            fetch,
            stay: self.stay,
            step_timeout: self.timeout,
        }
    }
}

fn main() -> ExitCode {
    let status = match Cli::try_parse() {
        Ok(cli) => run_command(cli.command),
        Err(error) => print_usage_error(&error),
    };
    match terminal::finish() {
        true => status,
        false => ExitCode::FAILURE,
    }
}

fn run_command(command: Command) -> ExitCode {
    let done = match command {
        Command::Lab(lab) => match measure::run(lab) {
            Ok(status) => return status,
            Err(error) => Err(error),
        },
        #[cfg(feature = "cuda")]
        Command::Gpu(command) => gpu::run(&command),
        Command::Blocks(blocks) => blocks::run(&blocks),
        Command::Completions(completions) => {
            completions.print(Cli::command());
            Ok(())
        }
        Command::Man(man) => man.write(Cli::command()),
        #[cfg(feature = "peers")]
        Command::Peers(command) => peers::run(&command),
        #[cfg(feature = "peers")]
        Command::Traffic(traffic) => run(|stop| traffic::run(traffic, stop)),
        #[cfg(not(feature = "peers"))]
        Command::Peers(_) | Command::Traffic(_) => Err(absent("peers")),
        #[cfg(feature = "gateway")]
        Command::Gateway(command) => gateway::run(&command),
        #[cfg(not(feature = "gateway"))]
        Command::Gateway(_) => Err(absent("gateway")),
        Command::Connect(connect) => {
            let Connect {
                address,
                v1,
                v2_only,
                fetch,
                from,
                json,
                common,
            } = connect;
            let choice = match (v1, v2_only) {
                (true, _) => TransportChoice::V1Only,
                (false, true) => TransportChoice::V2Only,
                (false, false) => TransportChoice::Either,
            };
            let blocks = fetch.map(|wanted| Blocks {
                wanted: wanted as usize,
                start: from,
            });
            let plan = common.plan(true, blocks);
            run(|stop| connect::connect(&address, choice, common.record, json, plan, stop))
        }
        Command::Listen(listen) => {
            let Listen {
                address,
                once,
                v1,
                common,
            } = listen;
            let plan = common.plan(false, None);
            let accepting = Accepting { once, v1 };
            run(|stop| connect::listen(&address, accepting, common.record, plan, stop))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Says how to have a command that this build does not have.
#[cfg(not(all(feature = "gateway", feature = "peers")))]
fn absent(feature: &str) -> Box<dyn std::error::Error> {
    let how = "not in this build: cargo run --release --features";
    format!("{how} {feature} -- ..., or cargo install with --features {feature}").into()
}

/// Prints an error about the arguments on one line. Help and version are printed in full.
fn print_usage_error(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion,
    };
    if let DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand | DisplayVersion = error.kind() {
        // It goes to standard output, in colour on a terminal; but the help that a missing
        // subcommand gives, to standard error.
        terminal::output(|| error.print());
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    let text = error.to_string();
    let text_lines = text.lines().map(str::trim);
    let text_lines =
        text_lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let text_lines: Vec<_> = text_lines.filter(|line| !line.is_empty()).collect();
    let line = packetlane_files::printable(&text_lines.join(" "));
    complain(format_args!("{line}; see --help"));
    ExitCode::from(2)
}

/// Runs a task to completion on a new Tokio runtime. The task is told of signals.
fn run<T, E, F>(task: impl FnOnce(Stop) -> F) -> Result<T, Box<dyn std::error::Error>>
where
    E: std::error::Error + 'static,
    F: Future<Output = Result<T, E>>,
{
    let stop = Stop::on_signals()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(task(stop));
    // Do not wait for a name lookup that is still running.
    runtime.shutdown_background();
    Ok(done?)
}
