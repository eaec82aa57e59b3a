//! `packetlane peers watch` and `packetlane peers record`: observe a running node in windows of
//! time.

use super::acting::Acting;
use super::figures::{Interval, Sort};
use super::metrics::Metrics;
#[cfg(feature = "nats")]
use super::nats::Nats;
use super::period;
use crate::args::HostPort;
use crate::screen::{self, Screen};
use crate::stop::{EXIT_LIMIT_WITH_PROBES, Signal};
use crate::terminal::{can_print, complain, print};
use clap::Args;
use packetlane_files::Name;
use packetlane_peers::act::Rules;
use packetlane_peers::file::{Limits, WriteError, Writer};
use packetlane_peers::pace::Pace;
use packetlane_peers::rpc::{self, Auth, Described, Rpc, RpcError};
use packetlane_peers::tally::Tally;
use packetlane_peers::{Event, Process, ProcessError, Record, Source, SourceError, Time};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::error::Error;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Default number of peers listed in a pipe.
const ROWS: usize = 30;

/// How often signals and keys are checked.
const POLL: Duration = Duration::from_millis(50);

/// How often the source is read between windows.
const BETWEEN: Duration = Duration::from_secs(1);

/// How often --wait checks whether the node runs.
const WAIT: Duration = Duration::from_secs(1);

/// Default length of a window with probes.
const WINDOW: Duration = Duration::from_millis(500);

/// Environment variable with the password for --rpc-user.
const PASSWORD: &str = "PACKETLANE_RPC_PASSWORD";

/// Which node to observe, and how.
#[derive(Args, Clone)]
pub(crate) struct Node {
    /// Process id of the node [default: the process that serves --rpc on this machine, or the only
    /// node that runs here]
    #[arg(long)]
    pid: Option<u32>,
    /// Query the node's RPC at HOST:PORT instead of attaching probes. Needs no privileges, but
    /// gives only bytes by message type: no message counts, no CPU time per peer. Plain HTTP: use
    /// it on loopback or through a tunnel
    #[arg(long, value_name = "HOST:PORT")]
    rpc: Option<String>,
    /// Cookie file of the RPC [default: the one in ~/.bitcoin of the chain with this port]
    #[arg(
        long,
        value_name = "FILE",
        requires = "rpc",
        conflicts_with = "rpc_user"
    )]
    rpc_cookie: Option<PathBuf>,
    /// User of the RPC. The password comes from the environment variable PACKETLANE_RPC_PASSWORD
    #[arg(long, value_name = "USER", requires = "rpc")]
    rpc_user: Option<String>,
    /// With --rpc: attach probes, too. The RPC then adds what probes cannot see: each peer's
    /// transport (v1 or v2), and the network and age of peers that connected earlier
    #[arg(long, requires = "rpc")]
    probes: bool,
    /// Observe every SECONDS, or less often to stay within --cost
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = crate::args::seconds)]
    every: Duration,
    /// Maximum overhead of the probes, in per cent of the CPU time of the node's message thread,
    /// averaged over time
    #[arg(long, value_name = "PERCENT", default_value = "3", value_parser = per_cent)]
    cost: f64,
    /// Keep the probes attached all the time, whatever they cost. Nothing is extrapolated
    #[arg(long, conflicts_with_all = ["window", "cost"])]
    all: bool,
    /// Length of each observation, 0.5 by default. Probes are attached only during it, and the
    /// results are extrapolated
    #[arg(long, value_name = "SECONDS", value_parser = crate::args::seconds)]
    window: Option<Duration>,
    /// Wait until the node runs, and again whenever it ends
    #[arg(long, conflicts_with = "pid")]
    wait: bool,
    /// Stop after SECONDS from the start of the first observation. With --wait, wait no longer than
    /// that for a node
    #[arg(long = "for", value_name = "SECONDS", value_parser = crate::args::seconds)]
    end: Option<Duration>,
}

impl Node {
    /// Whether the time to stop has not come, if the observation began at `begun`.
    fn has_time(&self, begun: Instant) -> bool {
        self.end.is_none_or(|end| begun.elapsed() < end)
    }

    /// Whether probes are used. Only they measure CPU time per peer.
    fn has_probes(&self) -> bool {
        self.rpc.is_none() || self.probes
    }
}

/// Parses a share of 0.1 to 100 per cent.
fn per_cent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(cost) if (0.1..=100.0).contains(&cost) => Ok(cost / 100.0),
        _ => Err("expected a number from 0.1 to 100".to_owned()),
    }
}

/// The least observed time that is shown in a pipe, in seconds: less is of a window that a signal
/// ended.
const LEAST_SHOWN: f64 = 0.05;

/// Default number of peers with metrics of their own.
const PROMETHEUS_PEERS: usize = 20;

/// Parses a number of peers with metrics of their own.
fn peer_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if count <= 1000 => Ok(count),
        _ => Err("expected a number from 0 to 1000".to_owned()),
    }
}

/// Show what each peer costs: a live table in a terminal, lines in a pipe
#[derive(Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    node: Node,
    /// Sort order [default: CPU time, or bytes with --rpc]; keys change it in the live table
    #[arg(long, value_enum)]
    sort: Option<Sort>,
    /// Number of peers listed in a pipe
    #[arg(long, default_value_t = ROWS)]
    rows: usize,
    /// Serve the figures for Prometheus at http://HOST:PORT/metrics. Anyone who can connect can
    /// read the peers' addresses; 127.0.0.1:PORT limits it to this machine
    #[arg(long, value_name = "HOST:PORT")]
    prometheus: Option<HostPort>,
    /// With --prometheus: peers with metrics of their own, those that cost most since they connected.
    /// The metrics by kind of connection cover all peers. A peer has 9 series; a peer that takes the
    /// place of another makes 9 new ones, which Prometheus keeps as long as all its data
    #[arg(
        long,
        value_name = "N",
        default_value_t = PROMETHEUS_PEERS,
        value_parser = peer_count,
        requires = "prometheus"
    )]
    prometheus_peers: usize,
    /// Print each window as a line of JSON, with all peers, the stalls and the hints
    #[arg(long, conflicts_with = "rows")]
    json: bool,
    /// Disconnect inbound peers by rules: cost=US,minutes=M,per-hour=N means those that cost more than
    /// US CPU microseconds per second over M minutes (5), at most N (3) in an hour. The cost of the
    /// transactions and blocks that the node took from a peer does not count. Only says what it would do,
    /// unless --act-for-real is given
    #[arg(long, value_name = "RULES")]
    act: Option<Rules>,
    /// Disconnect the peers that --act chooses, through --rpc. Never outbound or manual peers, nor
    /// those that the node's configuration gives permissions
    #[arg(long, requires_all = ["act", "rpc"])]
    act_for_real: bool,
    /// Append what --act does, and why, to FILE, too
    #[arg(long, value_name = "FILE", requires = "act")]
    act_log: Option<PathBuf>,
    /// Publish each interval as JSON to NATS JetStream at this URL, such as nats://127.0.0.1:4222:
    /// subject packetlane.peers.NAME, stream packetlane_peers. User and password come from
    /// PACKETLANE_NATS_USER and PACKETLANE_NATS_PASSWORD
    #[arg(long, value_name = "URL")]
    nats: Option<String>,
    /// Name of this node in NATS subjects [default: the host name]
    #[arg(long, requires = "nats")]
    name: Option<String>,
}

/// Record what each peer costs, for `report` and `plan`
#[derive(Args)]
pub(crate) struct Recording {
    #[command(flatten)]
    node: Node,
    /// Folder to create for the recording, a set of Parquet files
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Continue the recording in DIR, if there is one. A folder with anything else in it is refused
    #[arg(long)]
    append: bool,
    /// Maximum size of all files together, such as 500MB or 2GB. The oldest ones are deleted before a
    /// new one would exceed it
    #[arg(long, value_name = "SIZE", value_parser = period::bytes)]
    max_size: Option<u64>,
    /// Delete files that were written longer ago than this, such as 30d or 12h. The newest one is
    /// kept
    #[arg(long, value_name = "TIME", value_parser = period::span)]
    keep: Option<Duration>,
}

impl Recording {
    /// Opens the recording, and deletes what is beyond its limits.
    fn open(&self) -> Result<Writer, WriteError> {
        let writer = match self.append {
            true => Writer::append(&self.folder)?,
            false => Writer::create(&self.folder)?,
        };
        writer.with_limits(Limits {
            max_bytes: self.max_size,
            keep: self.keep,
        })
    }
}

/// Runs `peers watch`.
pub(crate) fn watch(watch: &Watch) -> Result<(), Box<dyn Error>> {
    let nats = match &watch.nats {
        Some(url) => Some(Nats::connect(url, watch.name.as_deref())?),
        None => None,
    };
    let metrics = match &watch.prometheus {
        Some(address) => Some(Metrics::serve(address, watch.prometheus_peers)?),
        None => None,
    };
    if let Some(metrics) = &metrics {
        complain(format_args!(
            "metrics at http://{}/metrics",
            metrics.address()
        ));
        if !metrics.address().ip().to_canonical().is_loopback() {
            complain(format_args!(
                "warning: --prometheus is open to other machines: anyone who can connect can read \
                 the peers' addresses"
            ));
        }
    }
    let acting = match &watch.act {
        Some(_) if !watch.node.has_probes() => {
            return Err("--act needs probes to measure what a peer costs: add --probes".into());
        }
        Some(rules) => Some(Acting::open(
            *rules,
            watch.act_log.as_deref(),
            match (watch.node.rpc.clone(), watch.act_for_real) {
                (Some(address), true) => {
                    let node = watch.node.clone();
                    Some(Box::new(move || {
                        Ok(Rpc::connect(&address, auth(&node, &address)?, None)?)
                    }))
                }
                _ => None,
            },
        )?),
        None => None,
    };
    let signal = Signal::within(EXIT_LIMIT_WITH_PROBES)?;
    let opened = Watched::open(&watch.node, &|| !signal.has_arrived(), &|text| {
        complain(format_args!("{text}"));
    })?;
    let Some(mut watched) = opened else {
        nothing_observed();
        return Ok(());
    };
    let sort = watch.sort.unwrap_or(match watch.node.has_probes() {
        true => Sort::Cpu,
        false => Sort::Bytes,
    });
    let live = RefCell::new(Live {
        tally: Tally::new(),
        screen: match io::stdout().is_terminal() && !watch.json {
            true => Some(Screen::open(sort)?),
            false => None,
        },
        ended: false,
        failed: None,
        rows: watch.rows,
        json: watch.json,
        sort,
        acting,
        metrics,
        nats,
    });
    live.borrow_mut().show()?;
    let should_continue = || !signal.has_arrived() && live.borrow_mut().handle_keys();
    let ended = watched.each_window(
        &should_continue,
        &|text| live.borrow_mut().say(text),
        |records| live.borrow_mut().take(records),
    );
    // Restore the terminal before anything else is printed.
    let Live {
        tally,
        screen,
        failed,
        nats,
        ..
    } = live.into_inner();
    drop(screen);
    if let Some(nats) = nats {
        nats.finish();
    }
    ended?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    if tally.observed() < LEAST_SHOWN {
        nothing_observed();
    }
    Ok(())
}

/// The outputs of `peers watch`.
struct Live {
    tally: Tally,
    screen: Option<Screen<Sort>>,
    /// Whether a key has quit, or the terminal has failed.
    ended: bool,
    failed: Option<io::Error>,
    rows: usize,
    json: bool,
    sort: Sort,
    acting: Option<Acting>,
    metrics: Option<Metrics>,
    nats: Option<Nats>,
}

impl Live {
    /// Handles keys. Returns false to stop.
    fn handle_keys(&mut self) -> bool {
        if let Some(notice) = self.nats.as_ref().and_then(Nats::notice) {
            self.say(&notice);
        }
        let Some(screen) = &mut self.screen else {
            // Observing costs the node CPU time, so stop if nobody reads the results.
            let is_used = self.metrics.is_some() || self.nats.is_some() || self.acting.is_some();
            return can_print() || is_used;
        };
        match screen.handle_keys(&self.tally) {
            Ok(should_continue) => self.ended |= !should_continue,
            Err(error) => self.fail(error),
        }
        !self.ended
    }

    /// Shows a notice, below the table if there is one.
    fn say(&mut self, text: &str) {
        let Some(screen) = &mut self.screen else {
            return complain(format_args!("{text}"));
        };
        screen.view.notice = Some(text.to_owned());
        if let Err(error) = screen.show(&self.tally) {
            self.fail(error);
        }
    }

    /// Records that the terminal has failed.
    fn fail(&mut self, error: io::Error) {
        self.ended = true;
        self.failed = Some(error);
    }

    fn take(&mut self, records: &[Record]) -> Result<(), Box<dyn Error>> {
        records.iter().for_each(|record| self.tally.add(record));
        if let Some(metrics) = &self.metrics {
            metrics.set(&self.tally);
        }
        let window = records.iter().rev().find_map(|record| match record.event {
            Event::Window { start, .. } => Some((start, record.time)),
            _ => None,
        });
        let Some(window) = window else {
            return Ok(());
        };
        if let Some(nats) = &self.nats {
            nats.publish(&self.tally, window);
        }
        if let Some(acting) = &mut self.acting {
            for text in acting.act(&self.tally, window)? {
                self.say(&text);
            }
        }
        if self.json {
            let interval = Interval::of(&self.tally, window, None, self.sort, usize::MAX);
            print(format_args!("{}\n", interval.to_json()));
            return Ok(());
        }
        Ok(self.show()?)
    }

    fn show(&mut self) -> io::Result<()> {
        match &mut self.screen {
            Some(screen) => screen.show(&self.tally),
            None => {
                if self.tally.observed() >= LEAST_SHOWN {
                    print(format_args!(
                        "{}\n",
                        screen::lines(&self.tally, self.sort, self.rows)
                    ));
                }
                Ok(())
            }
        }
    }
}

/// Replaces the publisher in a build without NATS; cannot exist.
#[cfg(not(feature = "nats"))]
enum Nats {}

#[cfg(not(feature = "nats"))]
impl Nats {
    fn connect(_url: &str, _name: Option<&str>) -> Result<Self, String> {
        Err(
            "this build has no --nats; build with: cargo run --release --features peers,nats -- \
             ..., or cargo install with --features peers,nats"
                .to_owned(),
        )
    }

    fn publish(&self, _tally: &Tally, _window: (u64, u64)) {
        match *self {}
    }

    fn notice(&self) -> Option<String> {
        match *self {}
    }

    fn finish(self) {
        match self {}
    }
}

/// Runs `peers record`.
pub(crate) fn record(recording: &Recording) -> Result<(), Box<dyn Error>> {
    let signal = Signal::within(EXIT_LIMIT_WITH_PROBES)?;
    // Before any probe is attached.
    let is_new = !recording.folder.exists();
    let mut writer = recording.open()?;
    let should_continue = &|| !signal.has_arrived();
    let say = &|text: &str| complain(format_args!("{text}"));
    let mut is_empty = true;
    let opened = Watched::open(&recording.node, should_continue, say);
    let ended = opened.and_then(|watched| {
        let Some(mut watched) = watched else {
            return Ok(());
        };
        watched.each_window(should_continue, say, |records| {
            for record in records {
                is_empty = false;
                writer.add(record)?;
            }
            let is_window = |record: &Record| matches!(record.event, Event::Window { .. });
            match records.iter().any(is_window) {
                true => writer.write_if_due()?,
                // The node has gone, and the next one may come late.
                false => writer.flush()?,
            }
            Ok(())
        })
    });
    if is_empty {
        drop(writer);
        // Only if it is empty, and ours.
        if is_new {
            let _ = std::fs::remove_dir(&recording.folder);
        }
        return ended.map(|()| nothing_observed());
    }
    // Before the probes are detached, which takes a while.
    let records = writer.finish()?;
    let place = if recording.append { "added to" } else { "in" };
    print(format_args!(
        "{records} records {place} {}\n",
        Name(&recording.folder)
    ));
    ended
}

/// Says that the command has ended before anything was seen.
fn nothing_observed() {
    complain(format_args!("nothing was observed"));
}

/// A node under observation.
struct Watched<'n> {
    node: &'n Node,
    source: Box<dyn Source>,
    window: Duration,
    /// `None` if the probes stay attached, whatever they cost.
    pace: Option<Pace>,
    connected: Connected,
}

impl<'n> Watched<'n> {
    /// Returns `None` if `should_continue` turns false while it waits for the node.
    fn open(
        node: &'n Node,
        should_continue: &dyn Fn() -> bool,
        say: &dyn Fn(&str),
    ) -> Result<Option<Self>, Box<dyn Error>> {
        let window = match node.all || !node.has_probes() {
            true => node.every,
            false => node.window.unwrap_or(WINDOW.min(node.every)),
        };
        if window > node.every {
            let [window, every] = [window, node.every].map(|time| time.as_secs_f64());
            return Err(format!("--window {window} is longer than --every {every}").into());
        }
        if node.window.is_some() && !node.has_probes() {
            return Err("--window is only for probes; the RPC covers all of the time".into());
        }
        let begun = Instant::now();
        let source = attach_when_there(node, &|| should_continue() && node.has_time(begun), say)?;
        Ok(source.map(|source| Self {
            node,
            source,
            window,
            pace: (!node.all).then(|| Pace::new(node.cost)),
            connected: Connected::default(),
        }))
    }

    /// Observes the node window by window until `should_continue` turns false or the time is up,
    /// and passes the records of each window to `take`.
    fn each_window(
        &mut self,
        should_continue: &dyn Fn() -> bool,
        say: &dyn Fn(&str),
        mut take: impl FnMut(&[Record]) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let begun = Instant::now();
        let mut next = begun;
        loop {
            let mut records = Vec::new();
            let window = match self.node.end {
                // Windows that cover all of the time are long.
                Some(end) if self.node.all || !self.node.has_probes() => {
                    self.window.min(end.saturating_sub(begun.elapsed()))
                }
                _ => self.window,
            };
            let watched = self
                .source
                .watch(window, should_continue, &mut |record| records.push(record));
            if self.node.wait {
                self.connected.note(&records);
            }
            take(&records)?;
            if let Err(error) = watched {
                if !(self.node.wait && is_absent(&error)) {
                    return Err(error.into());
                }
                take(&self.connected.leave())?;
                say(&format!("{error}; waiting for it"));
                let has_time = || should_continue() && self.node.has_time(begun);
                self.source = match attach_when_there(self.node, &has_time, say)? {
                    Some(source) => source,
                    None => return Ok(()),
                };
                next = Instant::now();
                continue;
            }
            next += self.node.every;
            if let Some(pace) = &mut self.pace {
                next = next.max(Instant::now() + pace.pause(&records));
            }
            if self.node.end.is_some_and(|end| next >= begun + end) || !should_continue() {
                return Ok(());
            }
            // All records are written by now: detach the probes last.
            if self.pace.is_some() {
                self.source.rest();
            }
            while Instant::now() < next {
                if !wait_until(next.min(Instant::now() + BETWEEN), should_continue) {
                    return Ok(());
                }
                self.source.between();
            }
        }
    }
}

/// Waits until `time`. Returns false if `should_continue` turns false first.
fn wait_until(time: Instant, should_continue: &dyn Fn() -> bool) -> bool {
    while should_continue() {
        let left = time.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(POLL));
    }
    false
}

/// The connected peers, by the node's ids.
#[derive(Default)]
struct Connected {
    peers: BTreeSet<i64>,
    time: Time,
}

impl Connected {
    fn note(&mut self, records: &[Record]) {
        for Record { time, event } in records {
            self.time = *time;
            match event {
                Event::Disconnected { peer } => {
                    self.peers.remove(peer);
                }
                // Every source reports each peer with one of these.
                Event::Connected { peer, .. } | Event::Calls { peer, .. } => {
                    self.peers.insert(*peer);
                }
                _ => {}
            }
        }
    }

    /// Disconnects all of them: the node has ended, and the next one starts with peer id 0 again.
    fn leave(&mut self) -> Vec<Record> {
        let peers = std::mem::take(&mut self.peers).into_iter();
        peers
            .map(|peer| Record {
                time: self.time,
                event: Event::Disconnected { peer },
            })
            .collect()
    }
}

/// Whether an error means that the node is not running, or not ready yet.
fn is_absent(error: &(dyn Error + 'static)) -> bool {
    let error = error
        .downcast_ref::<SourceError>()
        .map_or(error, SourceError::cause);
    let process = error.downcast_ref::<ProcessError>();
    let rpc = error.downcast_ref::<RpcError>();
    process.is_some_and(|error| {
        matches!(
            error,
            ProcessError::None | ProcessError::NotThere { .. } | ProcessError::Ended { .. }
        )
    }) || rpc.is_some_and(|error| {
        matches!(
            error,
            RpcError::NoAnswer { .. }
                | RpcError::Cookie { .. }
                | RpcError::NoCookie { .. }
                | RpcError::Refused { .. }
                | RpcError::Ended(_)
        )
    })
}

/// Attaches to the node; with --wait, as soon as it runs. Returns `None` if `should_continue` turns false
/// first. Reports which node it is, and what the source can measure.
fn attach_when_there(
    node: &Node,
    should_continue: &dyn Fn() -> bool,
    say: &dyn Fn(&str),
) -> Result<Option<Box<dyn Source>>, Box<dyn Error>> {
    let mut said = String::new();
    loop {
        let error = match attach(node, say) {
            Ok(source) => return Ok(Some(source)),
            Err(error) => error,
        };
        if !(node.wait && is_absent(&*error)) {
            return Err(error);
        }
        // Print each reason once.
        let error = error.to_string();
        if error != said {
            say(&format!("{error}; waiting for it"));
            said = error;
        }
        if !wait_until(Instant::now() + WAIT, should_continue) {
            return Ok(None);
        }
    }
}

fn attach(node: &Node, say: &dyn Fn(&str)) -> Result<Box<dyn Source>, Box<dyn Error>> {
    let (source, process): (Box<dyn Source>, _) = match &node.rpc {
        None => {
            let process = process(node)?;
            (probes(process)?, Some(process))
        }
        Some(address) if node.probes => {
            let process = process(node)?;
            let source = probes(process)?;
            let rpc = Rpc::connect(address, auth(node, address)?, None)?;
            (Box::new(Described::new(source, rpc)), Some(process))
        }
        Some(address) => {
            let process = match node.pid {
                Some(_) => Some(process(node)?),
                // With a remote RPC, a node on this machine may be a different one.
                None if is_here(address) => Process::listening_on(rpc::port(address)?),
                None => None,
            };
            let rpc = Rpc::connect(address, auth(node, address)?, process)?;
            (Box::new(rpc), process)
        }
    };
    let which = match (node.pid, process) {
        (None, Some(process)) => format!("the node is {}; ", process.describe()),
        _ => String::new(),
    };
    say(&format!("{which}{}", source.abilities()));
    Ok(source)
}

fn process(node: &Node) -> Result<Process, Box<dyn Error>> {
    let serves = match &node.rpc {
        Some(address) if is_here(address) => Process::listening_on(rpc::port(address)?),
        _ => None,
    };
    Ok(match (node.pid, serves) {
        (Some(pid), Some(process)) if pid != process.pid() => {
            let address = node.rpc.as_deref().unwrap_or_default();
            return Err(format!(
                "{} serves the RPC at {address}, not --pid {pid}",
                process.describe()
            )
            .into());
        }
        (Some(pid), _) => Process::with_pid(pid)?,
        (None, Some(process)) => process,
        (None, None) => Process::find()?,
    })
}

fn auth(node: &Node, address: &str) -> Result<Auth, Box<dyn Error>> {
    Ok(match (&node.rpc_cookie, &node.rpc_user) {
        (Some(path), _) => Auth::Cookie(path.clone()),
        (None, Some(user)) => Auth::Password {
            user: user.clone(),
            password: std::env::var(PASSWORD).map_err(|_| {
                format!("--rpc-user needs the password in the environment variable {PASSWORD}")
            })?,
        },
        (None, None) => Auth::default_cookie(rpc::port(address)?)?,
    })
}

/// Whether an address is on this machine.
fn is_here(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse();
    host == "localhost" || ip.is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
fn probes(process: Process) -> Result<Box<dyn Source>, Box<dyn Error>> {
    Ok(Box::new(packetlane_peers::probes::Probes::attach(process)?))
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
fn probes(_process: Process) -> Result<Box<dyn Source>, Box<dyn Error>> {
    Err("probes need Linux on x86-64 or 64-bit ARM; use --rpc".into())
}
