//! The `gateway` command: a v2 transport for software that speaks v1, until a signal.

#[cfg(feature = "nats")]
mod events;
mod options;
mod status;
mod table;

use crate::args::HostPort;
use crate::http::Server;
use crate::report::hex;
use crate::sync::{read, write};
use crate::terminal::complain;
use clap::{Args, Subcommand};
use events::Events;
use listenfd::ListenFd;
use options::{LogFormat, Options};
use packetlane_gateway::{Event, Gateway, Peer, Settings};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::process::{Resource, getrlimit, setrlimit};
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
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};

/// How often it is looked whether all connections have ended.
const LOOK: Duration = Duration::from_millis(100);

/// Lines of the log that wait to be written at most, some 2 MB. Those after them are lost, and
/// counted: no peer waits for who reads the log.
const MAX_BUFFERED_LINES: usize = 10_000;

/// Refusals that have a line in the log, in each second. Others are only counted: strangers can
/// have any number of them.
const MAX_REFUSAL_LINES: u64 = 10;

/// `packetlane gateway`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Command {
    #[command(subcommand)]
    ask: Option<Ask>,
    /// A TOML file with the same names as the options here, without the dashes before them
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Say whether the settings are good, and end
    #[arg(long)]
    check_config: bool,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Ask {
    /// Show the peers of a running gateway, and what each costs: live in a terminal
    Peers {
        /// Where the gateway serves (--http)
        #[arg(value_name = "HOST:PORT")]
        address: HostPort,
        /// Print what the gateway says, as JSON
        #[arg(long)]
        json: bool,
        /// What to sort by; in the table there are keys for it
        #[arg(long, value_enum, default_value_t = table::Sort::Cpu)]
        sort: table::Sort,
    },
}

/// Runs `gateway`.
pub(crate) fn run(command: &Command) -> Result<(), Box<dyn Error>> {
    if let Some(Ask::Peers {
        address,
        json,
        sort,
    }) = &command.ask
    {
        return table::show(address, *json, *sort);
    }
    let passed = passed_sockets()?;
    let source = Source {
        options: command.options.clone(),
        config: command.config.clone(),
        files: raise_files(),
    };
    let (options, settings) = source.load()?;
    let http = http_address(&options)?;
    if command.check_config {
        complain(format_args!("the settings are good"));
        return Ok(());
    }
    let (lost_lines, _writes_the_rest) = log_as(options.log());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let served = runtime.block_on(serve(source, options, settings, http, passed, lost_lines));
    // Not waiting for a name server.
    runtime.shutdown_background();
    served
}

/// Where the settings come from: the command line and the file, which are read again at SIGHUP.
#[derive(Clone)]
struct Source {
    options: Options,
    config: Option<PathBuf>,
    /// How many files the process may have open.
    files: u64,
}

impl Source {
    /// May wait for a name server.
    fn load(&self) -> Result<(Options, Settings), String> {
        let options = self.options.clone();
        let options = match &self.config {
            Some(file) => options.or(Options::read(file)?),
            None => options,
        };
        let settings = options.settings(self.files)?;
        if let Some(url) = options.nats() {
            events::check(url)?;
        }
        Ok((options, settings))
    }
}

/// Where --http is to listen: at the first address of a name, by IPv4 if it has one. Asked once, since
/// it cannot change while the gateway runs.
fn http_address(options: &Options) -> Result<Option<(HostPort, SocketAddr)>, String> {
    let Some(http) = options.http() else {
        return Ok(None);
    };
    let found = http.resolve().map_err(|error| format!("http: {error}"))?;
    Ok(Some((http.clone(), found[0])))
}

/// Sockets that systemd has opened for the program. It takes them from the environment: to be called
/// before there are threads.
fn passed_sockets() -> Result<Vec<TcpListener>, String> {
    let mut passed = ListenFd::from_env();
    let count = passed.len();
    let take = |place| {
        let taken = passed.take_tcp_listener(place);
        let taken =
            taken.map_err(|error| format!("a socket was passed that is not for TCP: {error}"));
        taken.transpose()
    };
    (0..count).filter_map(take).collect()
}

/// As many open files as the system allows without asking. How many that are.
fn raise_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Without that it is as it was.
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Begins the log, which a thread of its own writes until the guard is dropped.
fn log_as(format: LogFormat) -> (ErrorCounter, WorkerGuard) {
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(MAX_BUFFERED_LINES)
        .finish(std::io::stderr());
    let lost_lines = writer.error_counter();
    let log = tracing_subscriber::fmt()
        .with_writer(writer)
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
    http: Option<(HostPort, SocketAddr)>,
    passed: Vec<TcpListener>,
    lost_lines: ErrorCounter,
) -> Result<(), Box<dyn Error>> {
    // Before it is said that the gateway runs: who reads that may send one.
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
    // Refusals of this second.
    let refusals = Arc::new(AtomicU64::new(0));
    let refused = Arc::clone(&refusals);
    let gateway = Gateway::start_with(settings, passed, move |peer, event| {
        counted.count(peer, event);
        let is_refused = matches!(event, Event::Refused(_));
        if !is_refused || refused.fetch_add(1, Ordering::Relaxed) < MAX_REFUSAL_LINES {
            log(peer, event);
        }
        if let Some(events) = &told
            && !events.publish(peer, event)
        {
            counted.drop_event();
        }
    })?;
    let settings = *gateway.settings();
    tracing::info!(
        inbound = settings.inbound.map(|inbound| inbound.listen.to_string()),
        node = settings.inbound.map(|inbound| inbound.node.to_string()),
        socks = settings.socks.map(|address| address.to_string()),
        transparent = settings.transparent.map(|address| address.to_string()),
        network = settings.network.name(),
        workers = settings.workers,
        connections = settings.limits.connections,
        outbound_connections = settings.limits.outbound_connections,
        backend = settings.engine.backend().name(),
        "running"
    );
    warn_of_open_socks(&settings);
    let gateway = Arc::new(RwLock::new(gateway));
    let mut server = None;
    if let Some((http, address)) = http {
        let asked = Arc::clone(&gateway);
        let page = move |path: &str| status::page(path, &asked, &counts);
        let started = listen(address)
            .and_then(|listener| Server::start(listener, http.host(), page))
            .map_err(|error| format!("cannot serve at {http}: {error}"))?;
        let address = started.address();
        tracing::info!(%address, "serving /metrics, /healthz and /peers");
        if !address.ip().to_canonical().is_loopback() {
            tracing::warn!(
                %address,
                "http can be reached from other machines: whoever reaches it can read the addresses \
                 of all peers and what they cost. Listen on a loopback address, or use a firewall"
            );
        }
        server = Some(started);
    }
    notify("READY=1");

    let mut until = None;
    let mut reload: Option<JoinHandle<Result<(Options, Settings), String>>> = None;
    let mut second = Instant::now();
    loop {
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => {
                if until.is_some() {
                    break;
                }
                notify("STOPPING=1");
                let connections = read(&gateway).peers().len();
                tracing::info!(connections, "draining");
                read(&gateway).drain();
                // A gateway that takes over answers there.
                if let Some(server) = server.take() {
                    server.close();
                }
                until = Some(Instant::now() + options.drain());
            }
            _ = hang_up.recv() => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
                let now = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
                notify(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
                // In another thread: a name server may take long, and signals are heard meanwhile.
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
                let changed = loaded.and_then(|(new, settings)| {
                    change(&mut write(&gateway), &options, &new, settings)?;
                    options = new;
                    Ok(())
                });
                match changed {
                    Ok(()) => {
                        tracing::info!("settings read again");
                        notify("READY=1\nSTATUS=");
                    }
                    Err(error) => {
                        tracing::error!(error, "the settings stay as they were");
                        let error = error.replace('\n', " ");
                        notify(&format!("READY=1\nSTATUS=the settings stay as they were: {error}"));
                    }
                }
            }
            () = tokio::time::sleep(LOOK) => {
                if second.elapsed() >= Duration::from_secs(1) {
                    log_left_out(&refusals);
                    second = Instant::now();
                }
                if read(&gateway).has_ended() || until.is_some_and(|until| Instant::now() >= until) {
                    break;
                }
            }
        }
    }
    let ended = write(&gateway).stop();
    log_left_out(&refusals);
    if let Some(events) = events.and_then(Arc::into_inner) {
        events.finish();
    }
    tracing::info!("ended");
    Ok(ended?)
}

/// Has the gateway go on with `new` options, whose settings these are. Nothing changes if one of them
/// cannot change while it runs.
fn change(
    gateway: &mut Gateway,
    old: &Options,
    new: &Options,
    mut settings: Settings,
) -> Result<(), String> {
    new.keep_listening(old, &mut settings, gateway.settings());
    let fixed = [old.fixed(new), gateway.fixed(&settings)].concat();
    if !fixed.is_empty() {
        let names = fixed.join(", ");
        return Err(format!(
            "{names}: cannot be changed while the gateway runs, start it again"
        ));
    }
    gateway
        .change(settings)
        .map_err(|error| error.to_string())?;
    warn_of_open_socks(gateway.settings());
    Ok(())
}

/// Warns of a SOCKS5 server that anybody may use from elsewhere.
fn warn_of_open_socks(settings: &Settings) {
    if let Some(address) = settings.socks
        && !address.ip().to_canonical().is_loopback()
        && settings.socks_user.is_none()
    {
        tracing::warn!(
            %address,
            "socks can be reached from other machines: whoever reaches it can connect to any address \
             through this one. Listen on a loopback address, or set socks-user"
        );
    }
}

/// Begins another second of refusals: logs how many of the last one had no line of their own.
fn log_left_out(refusals: &AtomicU64) {
    let refused = refusals.swap(0, Ordering::Relaxed);
    let left_out = refused.saturating_sub(MAX_REFUSAL_LINES);
    if left_out > 0 {
        tracing::warn!(left_out, "more were refused");
    }
}

/// Listens where a gateway that takes over may listen, too.
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

/// A line in the log. Never a payload or a key.
fn log(peer: &Peer, event: &Event) {
    let Peer { id, address, .. } = peer;
    let direction = peer.direction.name();
    let transport = peer.transport.name();
    match event {
        Event::Connected => {
            let session_id = peer.session_id.map(|id| hex(&id));
            tracing::info!(id, %address, direction, transport, session_id, "connected");
        }
        Event::FellBack => tracing::info!(id, %address, "no answer by v2, is tried by v1"),
        Event::Refused(refusal) => {
            tracing::warn!(%address, direction, limit = refusal.name(), "refused");
        }
        Event::Closed(close) => tracing::info!(
            id,
            %address,
            direction,
            transport,
            cause = close.name(),
            reason = %close,
            seconds = peer.age.as_secs_f64(),
            received = peer.account.received.bytes,
            sent = peer.account.sent.bytes,
            "closed"
        ),
        _ => {}
    }
}

/// Tells systemd, if it has started the program and asks for that.
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
        tracing::warn!(%error, "cannot tell systemd {state}");
    }
}

/// `--nats` in a build without it.
#[cfg(not(feature = "nats"))]
mod events {
    use packetlane_gateway::{Event, Peer};

    /// There are none.
    #[derive(Debug)]
    pub(super) enum Events {}

    impl Events {
        pub(super) fn start(_url: &str, _name: Option<&str>) -> Result<Self, String> {
            Err("--nats is not in this build".to_owned())
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
            "--nats is not in this build: cargo run --release --features gateway,nats -- ..., or \
             cargo install with --features gateway,nats"
                .to_owned(),
        )
    }
}
