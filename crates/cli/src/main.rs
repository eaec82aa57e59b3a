//! The `packetlane` command: argument parsing and output for the library crates.
//!
//! - `blocks` verifies block files: [`blocks`].
//! - `connect` talks to a node, over BIP324 if the node supports it, and prints a report; `listen`
//!   does the same for nodes that connect: [`connect`], [`report`], [`stop`] (signals),
//!   [`terminal`].
//! - `gateway` gives a node that speaks only v1 the v2 transport.
//! - `gpu` compares an NVIDIA GPU with the CPU: [`gpu`](mod@gpu).
//! - `lab` runs benchmarks and compares their reports: [`measure`].
//! - `peers` shows what each peer of a node costs.
//! - `traffic` puts the load of many peers on a node.
//! - `completions` and `man` write shell completions and man pages: [`manual`].

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

use clap::{Args, CommandFactory, FromArgMatches as _, Parser, Subcommand};
use connect::{Accepting, TransportChoice};
use packetlane::bitcoin::Network;
use packetlane_p2p::node::{Blocks, Plan, Start};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use stop::Stop;
use terminal::complain;

/// Tools for BIP324, Bitcoin's encrypted transport: connect to nodes, run a v2 gateway, watch
/// peers, verify blocks, benchmark.
#[derive(Parser)]
#[command(name = "packetlane", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Benchmark BIP324, QUIC packet protection and double SHA-256 on this machine.
    ///
    /// Compares Packetlane with the libraries in common use. Prints tables and a summary, and
    /// writes a report as HTML with plots and as JSON. `headlines` and `compare` read the JSON
    /// reports.
    Lab(measure::Lab),
    /// Check that an NVIDIA GPU gives the same results as the CPU.
    #[cfg(feature = "cuda")]
    #[command(subcommand)]
    Gpu(gpu::Gpu),
    /// Connect to a node and report its transport, version and messages.
    ///
    /// Speaks v2 (BIP324). If the node closes without an answer, answers in v1, or stays silent for
    /// --timeout, reconnects and speaks v1 (unless --v2-only is given). Disconnects after the
    /// handshakes, three pings and all that --fetch asked for, or on SIGINT, SIGTERM or SIGHUP, and
    /// prints the report.
    ///
    /// Exit status: 0 if all of it succeeded, 1 if something failed or a signal came first, 2 for
    /// wrong arguments.
    Connect(Connect),
    /// Accept connections from nodes, over v2 or v1, and report on each.
    ///
    /// Prints the same report as `connect`. Claims to be a full node, because other nodes
    /// disconnect otherwise, but has no blocks. Runs until SIGINT, SIGTERM or SIGHUP.
    ///
    /// Exit status: 0 after a signal; with --once, 0 only if the connection succeeded; 2 for wrong
    /// arguments.
    Listen(Listen),
    /// Verify blocks in Bitcoin Core's block files, or in files of one block each.
    ///
    /// Hashes every transaction. Checks the Merkle root, coinbase, witness commitment and proof of
    /// work of each block, and reports damaged parts of files. Zeros between blocks are not damage:
    /// a node that crashed leaves them.
    ///
    /// Does not check rules that depend on the chain (required target, times, coins, scripts), nor
    /// weight and signature operations.
    ///
    /// Exit status: 0 if every block is good, 1 if there is any problem, 2 for wrong arguments.
    Blocks(blocks::Blocks),
    /// Give a node that speaks only v1 the encrypted v2 transport (BIP324).
    ///
    /// With --listen and --node, peers connect to the gateway over v2 or v1, and it relays them to
    /// the node. With --socks or --transparent, the node connects to peers through the gateway,
    /// over v2 if they support it.
    ///
    /// Runs until SIGINT. After SIGTERM, accepts no more connections and ends with the last one, or
    /// after --drain. SIGHUP reads --config again.
    ///
    /// HOST is an IPv4 address, an IPv6 address in brackets, or a name. Names are resolved at the
    /// start and at SIGHUP, to their first IPv4 address if there is one, else to their first IPv6
    /// address.
    ///
    /// Exit status: 0 after SIGINT or SIGTERM, 1 after an error, 2 for wrong arguments.
    #[cfg(feature = "gateway")]
    Gateway(Box<gateway::Command>),
    /// Give a node that speaks only v1 the encrypted v2 transport (needs a build with --features
    /// gateway)
    #[cfg(not(feature = "gateway"))]
    Gateway(Absent),
    /// Show what each peer of a node costs: CPU time, messages and bytes.
    #[cfg(feature = "peers")]
    #[command(subcommand)]
    Peers(peers::Peers),
    /// Show what each peer of a node costs (needs a build with --features peers)
    #[cfg(not(feature = "peers"))]
    Peers(Absent),
    /// Load a node of your own with many simulated peers.
    ///
    /// The rates of all messages are those of a real node, or of a recording. On regtest, makes
    /// valid transactions and blocks itself. Prints what was sent and received, by kind of peer and
    /// by message type.
    ///
    /// By default, a node on regtest checks its whole mempool after every transaction. To measure a
    /// node, start it with -checkmempool=0 -checkblockindex=0.
    ///
    /// Exit status: 0 if all peers connected and the node accepted our blocks, 1 otherwise, 2 for
    /// wrong arguments.
    #[cfg(feature = "peers")]
    Traffic(traffic::Traffic),
    /// Load a node of your own with many simulated peers (needs a build with --features peers)
    #[cfg(not(feature = "peers"))]
    Traffic(Absent),
    /// Print a completion script for a shell.
    Completions(manual::Completions),
    /// Write man pages, one per command.
    Man(manual::Man),
}

/// A command that is not in this build; accepts any arguments.
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
    /// Speak only v1
    #[arg(long, conflicts_with = "v2_only")]
    v1: bool,
    /// Fail if the node does not speak v2
    #[arg(long)]
    v2_only: bool,
    /// Fetch up to N blocks, after the headers that lead to them (2000 headers at a time)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_FETCH)))]
    fetch: Option<u32>,
    /// First block to fetch: a height (fetches all headers from the genesis block on) or the hash
    /// of a block in the node's chain
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
    /// Exit after the first connection
    #[arg(long)]
    once: bool,
    /// Speak only v1, like a node without BIP324
    #[arg(long)]
    v1: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Common {
    /// Bitcoin network of the node
    #[arg(long, default_value = Network::Mainnet.name(), value_parser = args::network_parser())]
    network: Network,
    /// Record all messages in DIR, as msgs_recv.dat and msgs_sent.dat in the format of Bitcoin
    /// Core's -capturemessages. `listen` creates a folder per peer, at most 1000 folders and 10 GB
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Stay connected for SECONDS, with a ping every 10 seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = args::seconds)]
    stay: Option<Duration>,
    /// Timeout for each step of the conversation, in seconds
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
    let status = match parse() {
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

/// The error for a command that is not in this build.
#[cfg(any(test, not(all(feature = "gateway", feature = "peers"))))]
fn absent(feature: &str) -> Box<dyn std::error::Error> {
    format!(
        "this build has no such command; build with: cargo run --release --features {feature} -- \
         ..., or cargo install with --features {feature}"
    )
    .into()
}

/// Parses the command line.
fn parse() -> Result<Cli, clap::Error> {
    let mut command = accept_negative_numbers(Cli::command());
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Takes `-5` after an option for its value, so that the error says which values are allowed.
/// By default clap takes it for an unknown option.
fn accept_negative_numbers(command: clap::Command) -> clap::Command {
    command
        .mut_args(|arg| match arg.get_action().takes_values() {
            true if !arg.is_positional() => arg.allow_negative_numbers(true),
            _ => arg,
        })
        .mut_subcommands(accept_negative_numbers)
}

/// Prints an error about the arguments on one line. Help and version are printed in full.
fn print_usage_error(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion,
    };
    if let DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand | DisplayVersion = error.kind() {
        // clap prints help to standard output, but the help for a missing subcommand to standard
        // error.
        terminal::output(|| error.print());
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    let text = error.to_string();
    let text_lines = text.lines().map(str::trim);
    let text_lines =
        text_lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let text_lines: Vec<_> = text_lines.filter(|line| !line.is_empty()).collect();
    let line = text_lines.join(" ");
    let line = plain_number_error(line);
    let line = packetlane_files::printable(&line);
    complain(format_args!("{line}; see --help"));
    ExitCode::from(2)
}

/// Rewords the errors of clap and the standard library about a number.
fn plain_number_error(line: String) -> String {
    let line = line.replace("invalid digit found in string", "expected a whole number");
    if let Some((text, range)) = line.split_once(" is not in ")
        && let (Some((text, _)), Some((from, to))) =
            (text.rsplit_once(": "), range.split_once("..="))
    {
        return format!("{text}: expected a number from {from} to {to}");
    }
    line
}

/// Runs a task on a new Tokio runtime and passes it the signals that end it.
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
    // Does not wait for a name lookup that is still running.
    runtime.shutdown_background();
    Ok(done?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_command_that_is_absent_names_its_feature() {
        let error = super::absent("gateway").to_string();
        assert!(
            error.contains("cargo install with --features gateway"),
            "{error}"
        );
    }
}
