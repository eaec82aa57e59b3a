//! The `gateway` command: runs a gateway until a signal.

#[cfg(feature = "nats")]
mod events;
mod options;
mod status;
mod table;

use crate::args::HostPort;
use crate::http::Server;
use crate::report::hex;
use crate::sync::{read, write};
use crate::terminal::{cannot_listen, complain, print};
use clap::{Args, Subcommand};
use events::Events;
use listenfd::ListenFd;
use options::{LogFormat, Options};
use packetlane_gateway::{Direction, Event, Gateway, Inbound, Peer, Settings, Transport};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use status::Counts;
use std::error::Error;
use std::io::IsTerminal as _;
use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};

/// How often to check whether all connections have ended.
const POLL: Duration = Duration::from_millis(100);

/// Maximum log lines that are queued for writing, about 2 MB. Further lines are dropped and
/// counted, so that a blocked log delays no peer.
const MAX_BUFFERED_LINES: usize = 10_000;

/// Lines per second about strangers: inbound connections that were refused, or ended before the
/// handshake. The rest are only counted, because anyone can cause any number of them.
const MAX_STRANGER_LINES: u64 = 10;

/// `packetlane gateway`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Command {
    #[command(subcommand)]
    subcommand: Option<Subcommands>,
    /// TOML file with settings: the same names as the options, without the dashes. Options on the
    /// command line take precedence
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the settings and exit
    #[arg(long)]
    check_config: bool,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Print the commands that --spoof needs, for a root shell: `packetlane gateway setup | sudo sh`.
    /// They route the node's answers to peers back to the gateway
    Setup {
        /// Address of the node; give it twice for a node on IPv4 and IPv6
        #[arg(long, value_name = "IP:PORT", default_values = ["127.0.0.1:8334", "[::1]:8334"])]
        node: Vec<SocketAddr>,
        /// Print the commands that undo it
        #[arg(long)]
        undo: bool,
    },
    /// Show the peers of a running gateway and what each costs; live in a terminal
    Peers {
        /// HTTP address of the gateway (its --http)
        #[arg(value_name = "HOST:PORT")]
        address: HostPort,
        /// Print the gateway's answer as JSON
        #[arg(long)]
        json: bool,
        /// Initial order; keys change it in the live table
        #[arg(long, value_enum, default_value_t = table::Sort::Cpu)]
        sort: table::Sort,
    },
}

/// Runs `gateway`.
pub(crate) fn run(command: &Command) -> Result<(), Box<dyn Error>> {
    match &command.subcommand {
        Some(Subcommands::Peers {
            address,
            json,
            sort,
        }) => return table::show(address, *json, *sort),
        Some(Subcommands::Setup { node, undo }) => return print_setup(node, *undo),
        None => {}
    }
    let passed = passed_sockets()?;
    let source = Source {
        options: command.options.clone(),
        config: command.config.clone(),
        files: packetlane_files::raise_file_limit(u64::MAX),
    };
    let (options, settings, http) = source.load()?;
    let warnings = options.warnings(&settings, source.files);
    if command.check_config {
        for warning in warnings {
            complain(format_args!("warning: {warning}"));
        }
        complain(format_args!("the settings are valid"));
        return Ok(());
    }
    let (lost_lines, _writes_the_rest) = log_as(options.log(), options.log_level());
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let served = runtime.block_on(serve(source, options, settings, http, passed, lost_lines));
    // Does not wait for a name server.
    runtime.shutdown_background();
    served
}

/// The routing table that `setup` uses.
const SPOOF_TABLE: u16 = 8333;

/// Prints commands of iproute2. Answers of the node leave with its address and port; a rule looks
/// them up in a table that delivers everything on this machine.
fn print_setup(nodes: &[SocketAddr], undo: bool) -> Result<(), Box<dyn Error>> {
    let verb = if undo { "del" } else { "add" };
    let mut commands = String::new();
    for (family, is_v4) in [("-4", true), ("-6", false)] {
        let mut nodes = nodes
            .iter()
            .filter(|node| node.is_ipv4() == is_v4)
            .peekable();
        if nodes.peek().is_none() {
            continue;
        }
        for node in nodes {
            let (ip, port) = (node.ip(), node.port());
            commands += &format!(
                "ip {family} rule {verb} from {ip} iif lo ipproto tcp sport {port} lookup \
                 {SPOOF_TABLE}\n"
            );
        }
        commands += &format!("ip {family} route {verb} local default dev lo table {SPOOF_TABLE}\n");
    }
    print(format_args!("{commands}"));
    Ok(())
}

/// Sources of the settings: the command line and the file. SIGHUP reads them again.
#[derive(Clone)]
struct Source {
    options: Options,
    config: Option<PathBuf>,
    /// Maximum open files of the process.
    files: u64,
}

/// The options, and what was made of them: settings, and the address of `--http`.
type Loaded = (Options, Settings, Option<SocketAddr>);

impl Source {
    /// May block on a name server.
    fn load(&self) -> Result<Loaded, String> {
        let options = self.options.clone();
        let options = match &self.config {
            Some(file) => options.or(Options::read(file)?),
            None => options,
        };
        let (settings, http) = options.settings(self.files)?;
        if let Some(url) = options.nats() {
            events::check(url)?;
        }
        Ok((options, settings, http))
    }
}

/// Takes the sockets that systemd has opened for this process. Changes the environment, so it must
/// be called before any thread starts.
fn passed_sockets() -> Result<Vec<TcpListener>, String> {
    let mut passed = ListenFd::from_env();
    let count = passed.len();
    let take = |place| {
        let taken = passed.take_tcp_listener(place);
        let taken =
            taken.map_err(|error| format!("systemd passed a socket that is not TCP: {error}"));
        taken.transpose()
    };
    (0..count).filter_map(take).collect()
}

/// Starts the log. A thread writes it until the guard is dropped.
fn log_as(format: LogFormat, level: LevelFilter) -> (ErrorCounter, WorkerGuard) {
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(MAX_BUFFERED_LINES)
        .finish(std::io::stderr());
    let lost_lines = writer.error_counter();
    let log = tracing_subscriber::fmt()
        .with_writer(writer)
        .with_max_level(level)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().flatten_event(true).with_target(false).init(),
    }
    (lost_lines, guard)
}

async fn serve(
    source: Source,
    mut options: Options,
    settings: Settings,
    http: Option<SocketAddr>,
    passed: Vec<TcpListener>,
    lost_lines: ErrorCounter,
) -> Result<(), Box<dyn Error>> {
    // Before the log says that the gateway runs: its reader may send a signal at once.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;

    let counts = Arc::new(Counts::new(lost_lines));
    let counted = Arc::clone(&counts);
    let events = match options.nats() {
        Some(url) => Some(Arc::new(Events::start(url, options.name())?)),
        None => None,
    };
    let told = events.clone();
    // In the current second.
    let strangers = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&strangers);
    // Before the gateway starts, so that an address in use fails before any peer connects.
    let http = match options.http().cloned().zip(http) {
        Some((http, address)) => match listen(address) {
            Ok(listener) => Some((http, listener)),
            Err(error) => return Err(format!("--http: {}", cannot_listen(http, &error)).into()),
        },
        None => None,
    };
    let gateway = Gateway::start_with(settings, passed, move |peer, event| {
        counted.count(peer, event);
        if !is_stranger(peer, event) || seen.fetch_add(1, Ordering::Relaxed) < MAX_STRANGER_LINES {
            log(peer, event);
        }
        if let Some(events) = &told
            && !events.publish(peer, event)
        {
            counted.drop_event();
        }
    })?;
    let settings = gateway.settings().clone();
    tracing::info!(
        inbound = list(&settings.inbound, |inbound| inbound.listen),
        node = list(&settings.inbound, |inbound| inbound.node),
        socks = settings.socks.map(|address| address.to_string()),
        transparent = settings.transparent.map(|address| address.to_string()),
        network = settings.network.name(),
        workers = settings.workers,
        connections = settings.limits.connections,
        outbound_connections = settings.limits.outbound_connections,
        backend = settings.engine.backend().name(),
        "running"
    );
    warn_about_open_socks(&settings);
    let gateway = Arc::new(RwLock::new(gateway));
    let mut server = None;
    if let Some((http, listener)) = http {
        let asked = Arc::clone(&gateway);
        let page = move |path: &str| status::page(path, &asked, &counts);
        let started = Server::start(listener, http.host(), page)
            .map_err(|error| format!("cannot serve at {http}: {error}"))?;
        let address = started.address();
        tracing::info!(%address, "serving /metrics, /healthz and /peers");
        if !address.ip().to_canonical().is_loopback() {
            tracing::warn!(
                %address,
                "http is open to other machines: anyone who can connect can read the addresses and \
                 traffic of all peers. Use a loopback address, or a firewall"
            );
        }
        server = Some(started);
    }
    notify("READY=1");

    let mut drain_deadline = None;
    let mut reload: Option<JoinHandle<Result<Loaded, String>>> = None;
    let mut second = Instant::now();
    loop {
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => {
                if drain_deadline.is_some() {
                    break;
                }
                notify("STOPPING=1");
                let connections = read(&gateway).peers().len();
                let at_most = humantime::format_duration(options.drain()).to_string();
                tracing::info!(connections, at_most, "draining");
                read(&gateway).drain();
                // During a handover, the new gateway answers HTTP from now on.
                if let Some(server) = server.take() {
                    server.close();
                }
                drain_deadline = Some(Instant::now() + options.drain());
            }
            _ = hang_up.recv() => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
                let now = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
                notify(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
                // On another thread, because a name server may be slow and signals must be handled
                // meanwhile.
                let source = source.clone();
                reload = Some(spawn_blocking(move || source.load()));
            }
            loaded = async {
                match &mut reload {
                    Some(reload) => reload.await,
                    None => std::future::pending().await,
                }
            } => {
                reload = None;
                let loaded = loaded.unwrap_or_else(|error| Err(error.to_string()));
                // The address of --http cannot change while the gateway runs.
                let changed = loaded.and_then(|(new, settings, _)| {
                    let warnings = new.warnings(&settings, source.files);
                    change(&mut write(&gateway), &options, &new, settings)?;
                    let changed = options.changed(&new).join(", ");
                    options = new;
                    Ok((changed, warnings))
                });
                match changed {
                    Ok((changed, warnings)) => {
                        for warning in warnings {
                            tracing::warn!("{warning}");
                        }
                        tracing::info!(changed, "settings reloaded");
                        notify("READY=1\nSTATUS=");
                    }
                    Err(error) => {
                        tracing::error!(error, "reload failed, settings unchanged");
                        let error = error.replace('\n', " ");
                        let status = format!("reload failed, settings unchanged: {error}");
                        notify(&format!("READY=1\nSTATUS={status}"));
                    }
                }
            }
            () = tokio::time::sleep(POLL) => {
                if second.elapsed() >= Duration::from_secs(1) {
                    sum_up(&strangers);
                    second = Instant::now();
                }
                let is_overdue = drain_deadline.is_some_and(|deadline| Instant::now() >= deadline);
                if read(&gateway).has_ended() || is_overdue {
                    break;
                }
            }
        }
    }
    let ended = write(&gateway).stop();
    sum_up(&strangers);
    if let Some(events) = events.and_then(Arc::into_inner) {
        events.finish();
    }
    tracing::info!("stopped");
    Ok(ended?)
}

/// Addresses for the log, separated by commas; `None` if there are none.
fn list(inbound: &[Inbound], address: fn(&Inbound) -> SocketAddr) -> Option<String> {
    let addresses: Vec<_> = inbound.iter().map(|one| address(one).to_string()).collect();
    (!addresses.is_empty()).then(|| addresses.join(", "))
}

/// Applies new options and the settings made from them. Changes nothing if one of them cannot
/// change at run time.
fn change(
    gateway: &mut Gateway,
    old: &Options,
    new: &Options,
    mut settings: Settings,
) -> Result<(), String> {
    new.keep_listening(old, &mut settings, gateway.settings());
    let changed = [
        old.restart_required(new),
        gateway.restart_required(&settings),
    ]
    .concat();
    if !changed.is_empty() {
        let names = changed.join(", ");
        return Err(format!(
            "{names}: cannot be changed while the gateway runs; restart it"
        ));
    }
    gateway
        .change(settings)
        .map_err(|error| error.to_string())?;
    warn_about_open_socks(gateway.settings());
    Ok(())
}

/// Warns about a SOCKS5 server without a password that other machines can reach.
fn warn_about_open_socks(settings: &Settings) {
    if let Some(address) = settings.socks
        && !address.ip().to_canonical().is_loopback()
        && settings.socks_user.is_none()
    {
        tracing::warn!(
            %address,
            "socks is open to other machines: anyone who can connect can reach any address through \
             this machine. Use a loopback address, or set socks-user"
        );
    }
}

/// Whether an event is about a stranger: see [`MAX_STRANGER_LINES`].
fn is_stranger(peer: &Peer, event: &Event) -> bool {
    match event {
        Event::Refused(_) => true,
        Event::Closed(_) => {
            peer.direction == Direction::Inbound && peer.transport == Transport::Unknown
        }
        _ => false,
    }
}

/// Logs how many lines of the last second were left out, and starts a new second.
fn sum_up(strangers: &AtomicU64) {
    let left_out = strangers.swap(0, Ordering::Relaxed);
    let left_out = left_out.saturating_sub(MAX_STRANGER_LINES);
    if left_out > 0 {
        tracing::warn!(
            left_out,
            "more connections were refused, or ended before the handshake"
        );
    }
}

/// Listens with SO_REUSEPORT, so that a gateway that takes over can listen, too.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    const WAITING: i32 = 128;
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, WAITING)?;
    Ok(socket.into())
}

/// Logs an event. Never logs payloads or keys.
fn log(peer: &Peer, event: &Event) {
    let Peer { id, address, .. } = peer;
    let direction = peer.direction.name();
    let transport = peer.transport.name();
    match event {
        Event::Connected => {
            let session_id = peer.session_id.map(|id| hex(&id));
            let node_address = peer.node_address.map(|address| address.to_string());
            tracing::info!(id, %address, direction, transport, node_address, session_id, "connected");
        }
        Event::FellBack => tracing::info!(id, %address, "no v2 at the peer, retrying over v1"),
        Event::Refused(refusal) => {
            tracing::warn!(%address, direction, limit = refusal.name(), "refused");
        }
        Event::Closed(close) => tracing::info!(
            id,
            %address,
            direction,
            transport,
            cause = close.name(),
            reason = close.to_string(),
            seconds = peer.age.as_secs_f64(),
            received = peer.account.received.bytes,
            sent = peer.account.sent.bytes,
            "closed"
        ),
        _ => {}
    }
}

/// Notifies systemd, if it started this process and expects notifications.
fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let bytes = path.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => UnixAddr::from_abstract_name(name),
        None => UnixAddr::from_pathname(&path),
    };
    let sent = address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, "cannot send {state} to systemd");
    }
}

/// Replaces `--nats` in a build without the feature.
#[cfg(not(feature = "nats"))]
mod events {
    use packetlane_gateway::{Event, Peer};

    /// Cannot exist.
    #[derive(Debug)]
    pub(super) enum Events {}

    impl Events {
        pub(super) fn start(_url: &str, _name: Option<&str>) -> Result<Self, String> {
            Err("this build has no --nats".to_owned())
        }

        pub(super) fn publish(&self, _peer: &Peer, _event: &Event) -> bool {
            match *self {}
        }

        pub(super) fn finish(self) {
            match self {}
        }
    }

    pub(super) fn check(_url: &str) -> Result<(), String> {
        Err(
            "this build has no --nats; build with: cargo run --release --features gateway,nats -- \
             ..., or cargo install with --features gateway,nats"
                .to_owned(),
        )
    }
}
