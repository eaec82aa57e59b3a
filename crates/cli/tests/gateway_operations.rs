//! Operating the gateway: handover between two gateways, sockets passed by systemd, reloads, logs,
//! metrics.

mod common;

use common::free_address::free_address;
use common::gateway::{echo, flood, get, talk, until};
use common::{Running, TempDir, packetlane};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit for every wait.
const LIMIT: Duration = Duration::from_secs(30);

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Number of sockets listening on a port, as the kernel lists them.
fn listeners(address: SocketAddr) -> usize {
    let of_it = format!(":{:04X} 00000000:0000 0A ", address.port());
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    sockets.matches(&of_it).count()
}

/// Gateways take over from each other while peers connect constantly. Peers of the old gateway stay
/// connected, including those it had not accepted yet. Each of them is served before, during and
/// after the handover.
#[test]
fn another_takes_over() {
    let (node, listen, http) = (echo(), free_address(), free_address());
    let gateway = || {
        packetlane(&format!(
            "gateway --network regtest --listen {listen} --node {node} --http {http} --workers 2 \
             --half-open-address 1000 --drain 60s"
        ))
    };
    let mut old = Some(gateway());
    until(LIMIT, "the first serves", || get(http, "/healthz").is_ok());
    let mut before: Vec<_> = (0..20).map(|_| connect(listen)).collect();
    before.iter_mut().for_each(|stream| talk(stream).unwrap());

    let (ends, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    let mut stream = connect(listen);
                    talk(&mut stream).expect("nobody is lost");
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Each takes over from the previous one.
        for _ in 0..3 {
            let new = gateway();
            // New connections reach either of them.
            until(LIMIT, "both listen", || listeners(listen) == 4);
            let ending = old.take().unwrap();
            ending.signal("STOP");
            let mut queued: Vec<_> = (0..40).map(|_| connect(listen)).collect();
            ending.signal("TERM");
            ending.signal("CONT");
            queued
                .iter_mut()
                .for_each(|stream| talk(stream).expect("who waited in a queue is served"));
            before.iter_mut().for_each(|stream| talk(stream).unwrap());
            before.truncate(0);
            drop(queued);
            let finished = ending.finish();
            assert!(finished.success, "{finished:#?}");
            assert!(finished.stderr.contains("draining"), "{finished:#?}");
            old = Some(new);
            until(LIMIT, "the new one answers", || {
                get(http, "/healthz").is_ok_and(|answer| answer.ends_with("ok\n"))
            });
            before = (0..20).map(|_| connect(listen)).collect();
            before.iter_mut().for_each(|stream| talk(stream).unwrap());
        }
        ends.store(true, Ordering::Relaxed);
    });
    let count = count.load(Ordering::Relaxed);
    assert!(count > 100, "{count} connections");
    let last = old.unwrap();
    last.signal("TERM");
    drop(before);
    let finished = last.finish();
    assert!(finished.success, "{finished:#?}");
}

/// If the log goes to a full disk, or to a pipe that nobody reads, peers are served all the same.
#[test]
fn a_log_that_cannot_be_written() {
    // More lines than the queue and a pipe hold.
    const VISITS: usize = 12_000;
    for (to, expected) in [
        ("/dev/full", false),
        (">(exec sleep 30 >/dev/null 2>&1)", true),
    ] {
        let (node, listen, http) = (echo(), free_address(), free_address());
        let socks = free_address();
        let mut command = Command::new("bash");
        let script = format!("exec \"$@\" 2> {to}");
        command.args(["-c", &script, "bash", env!("CARGO_BIN_EXE_packetlane")]);
        command.args(["gateway", "--network", "regtest", "--workers", "1"]);
        command.args(["--listen", &listen.to_string(), "--node", &node.to_string()]);
        command.args(["--http", &http.to_string(), "--socks", &socks.to_string()]);
        let running = Running::start(&mut command);
        until(LIMIT, "it serves", || get(http, "/healthz").is_ok());
        let mut before = connect(listen);
        talk(&mut before).unwrap();
        // One line each for the closed connection.
        flood(socks, VISITS);
        talk(&mut before).unwrap();
        let name = "packetlane_gateway_dropped_log_lines_total ";
        let metrics = get(http, "/metrics").unwrap();
        let lost = metrics.lines().find_map(|line| line.strip_prefix(name));
        assert_eq!(lost != Some("0"), expected, "{to}: {lost:?}");
        until(LIMIT, "others are served", || {
            talk(&mut connect(listen)).is_ok()
        });
        running.signal("TERM");
        drop(before);
        assert!(running.finish().success);
    }
}

/// Strangers that connect and send nothing block neither a load balancer's health check nor
/// Prometheus.
#[test]
fn idle_clients_do_not_block_health_checks() {
    let http = free_address();
    let _running = packetlane(&format!("gateway --socks 127.0.0.1:0 --http {http}"));
    until(LIMIT, "it serves", || get(http, "/healthz").is_ok());
    let _idle: Vec<_> = (0..100).map(|_| connect(http)).collect();
    let begun = Instant::now();
    for path in ["/healthz", "/metrics?x=1", "/peers"] {
        let answer = get(http, path).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{path}: {answer}");
    }
    assert!(begun.elapsed() < Duration::from_secs(2));
}

/// The values of `key=VALUE` in a log.
fn values<'l>(log: &'l str, key: &str) -> Vec<&'l str> {
    let key = format!(" {key}=");
    let found = log.split(key.as_str()).skip(1);
    let word = |rest: &'l str| rest.split_whitespace().next().unwrap_or_default();
    found.map(word).collect()
}

/// A flood of strangers does not flood the log: those without a line are counted in it.
#[test]
fn strangers_are_logged_at_a_bounded_rate() {
    const STRANGERS: usize = 500;
    let (node, listen, http) = (echo(), free_address(), free_address());
    let running = packetlane(&format!(
        "gateway --network regtest --listen {listen} --node {node} --http {http} --workers 1 \
         --half-open 1"
    ));
    until(LIMIT, "it serves", || get(http, "/healthz").is_ok());
    let silent = connect(listen);
    until(LIMIT, "it is there", || {
        get(http, "/peers").is_ok_and(|peers| peers.contains("127.0.0.1"))
    });
    let begun = Instant::now();
    flood(listen, STRANGERS);
    let seconds = begun.elapsed().as_secs() as usize + 2;
    drop(silent);
    running.signal("INT");
    let log = running.finish().stderr;
    // The silent one ends before the handshake.
    let lines = values(&log, "limit").len() + values(&log, "cause").len();
    assert!((1..=10 * seconds).contains(&lines), "{seconds} s: {log}");
    let left_out = values(&log, "left_out").into_iter();
    let left_out: usize = left_out.map(|count| count.parse::<usize>().unwrap()).sum();
    assert_eq!(lines + left_out, STRANGERS + 1, "{log}");
}

/// A warning for each address that other machines can reach.
#[test]
fn addresses_open_to_others_cause_warnings() {
    for (options, socks, http) in [
        ("--socks 127.0.0.1:0 --http localhost:0", false, false),
        ("--socks 0.0.0.0:0 --http 127.0.0.1:0", true, false),
        (
            "--socks 0.0.0.0:0 --socks-user n:p --http 0.0.0.0:0",
            false,
            true,
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_packetlane"));
        let notified = Notified::new(&format!("warn-{socks}-{http}"));
        command.arg("gateway").args(options.split(' '));
        let running = Running::start(command.env("NOTIFY_SOCKET", &notified.path));
        assert_eq!(notified.next(), "READY=1");
        running.signal("INT");
        let log = running.finish().stderr;
        assert_eq!(log.contains("WARN socks is open"), socks, "{log}");
        assert_eq!(log.contains("WARN http is open"), http, "{log}");
    }
}

/// Receives systemd notifications.
struct Notified {
    socket: UnixDatagram,
    path: PathBuf,
    _dir: TempDir,
}

impl Notified {
    fn new(name: &str) -> Self {
        let dir = TempDir::new(&format!("notified-{name}"));
        let path = dir.0.join("socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self {
            socket,
            path,
            _dir: dir,
        }
    }

    fn next(&self) -> String {
        let mut bytes = [0; 2000];
        let length = self.socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }
}

/// After SIGHUP each changed setting applies or is named; in the latter case nothing of the file
/// applies.
#[test]
fn what_needs_a_restart_is_named() {
    let (node, listen, http) = (echo(), free_address(), free_address());
    let notified = Notified::new("reload");
    let dir = TempDir::new("reload");
    let file = dir.0.join("gateway.toml");
    let good = format!(
        "listen = '{listen}'\nnode = '{node}'\nhttp = '{http}'\nnetwork = 'regtest'\nworkers = 1\n"
    );
    std::fs::write(&file, &good).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_packetlane"));
    command.args(["gateway", "--config"]).arg(&file);
    let running = Running::start(command.env("NOTIFY_SOCKET", &notified.path));
    assert_eq!(notified.next(), "READY=1");
    let reload = |text: &str| {
        std::fs::write(&file, text).unwrap();
        running.signal("HUP");
        let reloading = notified.next();
        let now = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        assert!(
            now.is_some_and(|now| now.parse::<u64>().is_ok()),
            "{reloading}"
        );
        notified.next()
    };
    let applied = "READY=1\nSTATUS=";
    let mut peer = connect(listen);
    talk(&mut peer).unwrap();
    for (more, expected) in [
        ("http = 'localhost:1'", "http"),
        ("log = 'json'", "log"),
        ("name = 'x'", "name"),
        ("listen = '127.0.0.1:1'", "listen"),
        ("socks = '127.0.0.1:1'", "socks"),
        ("transparent = '127.0.0.1:1'", "transparent"),
        ("network = 'signet'", "network"),
        ("workers = 2", "workers"),
        (
            "log = 'json'\nname = 'x'\nworkers = 2",
            "name, log, workers",
        ),
    ] {
        // For a name that occurs twice, the later one is from this test.
        let ours: Vec<&str> = more
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        let others = good
            .lines()
            .filter(|line| !ours.iter().any(|name| line.starts_with(name)));
        let mut text: Vec<&str> = others.chain(more.lines()).collect();
        text.push("drain = '0s'");
        let status = reload(&text.join("\n"));
        let expected = format!(
            "{applied}reload failed, settings unchanged: {expected}: cannot be changed while the \
             gateway runs; restart it"
        );
        assert_eq!(status, expected);
    }
    let refused = reload("lisen = 1");
    assert!(refused.contains("unknown field `lisen`"), "{refused}");
    assert_eq!(reload(&good), applied);
    // Nothing from the rejected files applies: it still drains for 30 seconds.
    assert_eq!(reload(&format!("{good}drain = '100ms'\n")), applied);
    talk(&mut peer).unwrap();
    let begun = Instant::now();
    running.signal("TERM");
    assert_eq!(notified.next(), "STOPPING=1");
    let finished = running.finish();
    assert!(begun.elapsed() < Duration::from_secs(15), "{finished:#?}");
    let read_again = finished.stderr.matches("INFO settings reloaded").count();
    assert_eq!(read_again, 2, "{finished:#?}");
    drop(peer);
}

/// Names work in all settings and for `gateway peers`. An invalid address is reported with the
/// expected form.
#[test]
fn names_for_addresses() {
    let port = |address: SocketAddr| format!("localhost:{}", address.port());
    let (node, listen, http) = (port(echo()), free_address(), port(free_address()));
    let _running = packetlane(&format!(
        "gateway --network regtest --listen {} --node {node} --http {http} --workers 1",
        port(listen)
    ));
    until(LIMIT, "it listens", || TcpStream::connect(listen).is_ok());
    let mut peer = connect(listen);
    talk(&mut peer).unwrap();
    let mut shown = String::new();
    until(LIMIT, "it shows its peer", || {
        let finished = packetlane(&format!("gateway peers {http}")).finish();
        shown = finished.stdout;
        shown.contains("127.0.0.1")
    });
    for (command, expected) in [
        (
            "--socks localhost",
            "expected HOST:PORT, such as 127.0.0.1:8333, ",
        ),
        (
            "--socks ::1:8333",
            "expected HOST:PORT, such as 127.0.0.1:8333, ",
        ),
        (
            "--socks no.such.name.invalid:1",
            "error: socks: cannot resolve no.such.name.invalid:1: ",
        ),
        (
            "--socks 127.0.0.1:0 --http no.such.name.invalid:1 --check-config",
            "error: http: cannot resolve no.such.name.invalid:1: ",
        ),
        (
            "peers localhost",
            "expected HOST:PORT, such as 127.0.0.1:8333, ",
        ),
        (
            "peers no.such.name.invalid:1",
            "cannot resolve no.such.name.invalid:1: ",
        ),
    ] {
        let finished = packetlane(&format!("gateway {command}")).finish();
        assert!(finished.error_line().contains(expected), "{finished:#?}");
    }
}

/// With `socks-user` in the file, only a client with the password can connect through the gateway.
#[test]
fn a_socks_user() {
    let (node, socks) = (echo(), free_address());
    let dir = TempDir::new("socks-user");
    let file = dir.0.join("gateway.toml");
    let text = format!("socks = '{socks}'\nsocks-user = 'node:a:b'\nnetwork = 'regtest'\n");
    std::fs::write(&file, text).unwrap();
    let running = packetlane(&format!("gateway --workers 1 --config {}", file.display()));
    until(LIMIT, "it listens", || TcpStream::connect(socks).is_ok());
    let port = node.port().to_be_bytes();
    let target = [&[5, 1, 0, 1, 127, 0, 0, 1][..], &port].concat();
    for (says, expected) in [
        (&[&[5, 1, 0][..], &target].concat(), &[5, 0xff][..]),
        (
            &b"\x05\x02\x00\x02\x01\x04node\x03a:c".to_vec(),
            &[5, 2, 1, 1],
        ),
    ] {
        let mut client = connect(socks);
        client.write_all(says).unwrap();
        let mut heard = Vec::new();
        // Reset, if it has sent more than was read.
        let _ = client.read_to_end(&mut heard);
        assert_eq!(heard, expected);
    }
    let mut client = connect(socks);
    let says = [&b"\x05\x02\x00\x02\x01\x04node\x03a:b"[..], &target].concat();
    client.write_all(&says).unwrap();
    let mut heard = [0; 6];
    client.read_exact(&mut heard).unwrap();
    assert_eq!(heard, [5, 2, 1, 0, 5, 0]);
    running.signal("INT");
    let log = running.finish().stderr;
    assert!(log.contains("SOCKS5: wrong user or password"), "{log}");
    assert!(!log.contains("a:b") && !log.contains("a:c"), "{log}");
}

/// Reloading the service fails for an invalid file, and core dumps are disabled.
#[test]
fn the_service_checks_its_file_and_leaves_no_core() {
    let ops = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops");
    let unit = std::fs::read_to_string(ops.join("packetlane-gateway.service")).unwrap();
    let values = |key: &str| -> Vec<&str> {
        let lines = unit.lines();
        lines.filter_map(|line| line.strip_prefix(key)).collect()
    };
    let [start] = values("ExecStart=")[..] else {
        panic!("{unit}");
    };
    // In this order: the first failure ends the reload.
    let check = start.replace(" gateway ", " gateway --check-config ");
    assert_eq!(values("ExecReload="), [&check, "kill -HUP $MAINPID"]);
    assert_eq!(values("LimitCORE="), ["0"]);
}

/// Starts the command with its standard input as file descriptor 3, and systemd's variables for it.
fn with_socket(socket: impl Into<Stdio>, arguments: &str) -> Running {
    let script = "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_packetlane")]);
    Running::start_with_input(command.args(arguments.split(' ')), socket)
}

/// Connections before the gateway runs, or while another takes its place, wait and are served.
#[test]
fn a_socket_is_passed() {
    let (node, http) = (echo(), free_address());
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let listen = socket.local_addr().unwrap();
    let gateway = || {
        with_socket(
            OwnedFd::from(socket.try_clone().unwrap()),
            &format!(
                "gateway --network regtest --listen {listen} --node {node} --http {http} \
                 --workers 2"
            ),
        )
    };
    let mut early = connect(listen);
    let first = gateway();
    talk(&mut early).unwrap();
    let mut more: Vec<_> = (0..20).map(|_| connect(listen)).collect();
    more.iter_mut().for_each(|stream| talk(stream).unwrap());
    first.signal("TERM");
    until(LIMIT, "the first drains", || get(http, "/healthz").is_err());
    let mut late = connect(listen);
    // Connections of the first gateway continue.
    talk(&mut early).unwrap();
    drop((early, more));
    let finished = first.finish();
    assert!(finished.success, "{finished:#?}");
    let second = gateway();
    talk(&mut late).unwrap();
    second.signal("INT");
    assert!(second.finish().success);
}

#[test]
fn unexpected_passed_sockets() {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    let command = "gateway --socks 127.0.0.1:0 --http 127.0.0.1:0";
    let expected = format!(
        "the process was given a socket that listens on {address}, but no setting has this address"
    );
    let finished = with_socket(OwnedFd::from(socket), command).finish();
    assert!(finished.error_line().contains(&expected), "{finished:#?}");
    let (datagrams, _other) = UnixDatagram::pair().unwrap();
    let finished = with_socket(OwnedFd::from(datagrams), command).finish();
    let expected = "systemd passed a socket that is not TCP: ";
    assert!(finished.error_line().contains(expected), "{finished:#?}");
}

/// The samples of all counters and histograms, by name and labels.
fn counters(http: SocketAddr) -> BTreeMap<String, f64> {
    let page = get(http, "/metrics").unwrap();
    let (_, text) = page.split_once("\r\n\r\n").unwrap();
    let mut counters = BTreeMap::new();
    let mut is_counter = false;
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            is_counter = head.ends_with(" counter") || head.ends_with(" histogram");
        } else if is_counter && !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let value = value.parse().unwrap();
            assert!(counters.insert(name.to_owned(), value).is_none(), "{name}");
        }
    }
    counters
}

/// Scrapes metrics while peers connect, send and leave, or are refused. All counters exist from the
/// first scrape and none ever decreases, so `rate()` and `increase()` are correct.
#[test]
fn no_counter_falls_or_disappears() {
    let (node, listen, socks, http) = (echo(), free_address(), free_address(), free_address());
    let running = packetlane(&format!(
        "gateway --network regtest --listen {listen} --node {node} --socks {socks} --http {http} \
         --workers 4 --half-open 4"
    ));
    until(LIMIT, "it serves", || get(http, "/healthz").is_ok());
    let first = counters(http);
    for (name, labels) in [
        ("closed", "direction=\"inbound\",cause=\"node-protocol\""),
        ("refused", "direction=\"outbound\",limit=\"connections\""),
        ("connected", "direction=\"outbound\",transport=\"v2\""),
        ("messages", "direction=\"sent\",type=\"verack\""),
        ("messages", "direction=\"received\",type=\"(others)\""),
        ("cpu_seconds", "worker=\"3\""),
    ] {
        let name = format!("packetlane_gateway_{name}_total{{{labels}}}");
        assert!(first.contains_key(&name), "{name} in {first:?}");
    }
    let ends = AtomicBool::new(false);
    let last = thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    let _silent = TcpStream::connect(listen).unwrap();
                    let _ = talk(&mut connect(listen));
                    // Not SOCKS.
                    let _ = connect(socks).write_all(b"GET / HTTP/1.1\r\n\r\n");
                }
            });
        }
        let mut before = first.clone();
        let mut fallen = None;
        for scrape in 0..50 {
            let now = counters(http);
            let kept =
                |(name, value): (&String, &f64)| now.get(name).is_some_and(|now| now >= value);
            if let Some((name, value)) = before.iter().find(|&sample| !kept(sample)) {
                fallen = Some(format!(
                    "{scrape}: {name}: {value}, then {:?}",
                    now.get(name)
                ));
                break;
            }
            before = now;
            thread::sleep(Duration::from_millis(20));
        }
        ends.store(true, Ordering::Relaxed);
        assert_eq!(fallen, None);
        before
    });
    assert!(last.keys().eq(first.keys()), "{first:?} and {last:?}");
    let of = |name: &str| last[&format!("packetlane_gateway_{name}")];
    for name in [
        "messages_total{direction=\"received\",type=\"version\"}",
        "closed_total{direction=\"inbound\",cause=\"peer\"}",
        "closed_total{direction=\"outbound\",cause=\"socks\"}",
    ] {
        assert!(of(name) > 5.0, "{name}: {}", of(name));
    }
    running.signal("INT");
    assert!(running.finish().success);
}

/// Strangers take all the file descriptors they can get. The node can still connect to peers
/// through SOCKS.
#[test]
fn descriptors_are_reserved_for_the_nodes_own_connections() {
    let (node, listen, socks, http) = (echo(), free_address(), free_address(), free_address());
    let mut command = Command::new("bash");
    let script = "ulimit -n 264 && exec \"$@\"";
    command.args(["-c", script, "bash", env!("CARGO_BIN_EXE_packetlane")]);
    command.args(["gateway", "--network", "regtest", "--workers", "2"]);
    command.args(["--listen", &listen.to_string(), "--node", &node.to_string()]);
    command.args(["--socks", &socks.to_string(), "--http", &http.to_string()]);
    let running = Running::start(&mut command);
    until(LIMIT, "it serves", || get(http, "/healthz").is_ok());
    // Each accepted one takes two descriptors, because it has reached the node.
    let mut strangers: Vec<_> = (0..100).map(|_| connect(listen)).collect();
    let served = strangers
        .iter_mut()
        .filter_map(|stream| talk(stream).ok())
        .count();
    assert!((20..=40).contains(&served), "{served}");
    let refused = counters(http)["packetlane_gateway_refused_total{direction=\"inbound\",limit=\"connections\"}"];
    assert_eq!(refused, (100 - served) as f64);
    let peers = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let own = (0..20).map(|_| {
        let mut stream = connect(socks);
        stream.write_all(&[5, 1, 0]).unwrap();
        stream.read_exact(&mut [0; 2]).unwrap();
        let port = peers.local_addr().unwrap().port().to_be_bytes();
        let request = [&[5, 1, 0, 1, 127, 0, 0, 1], &port[..]].concat();
        stream.write_all(&request).unwrap();
        let mut reply = [0; 10];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[1], 0, "it succeeds");
        stream
    });
    let _own: Vec<_> = own.collect();
    running.signal("INT");
    assert!(running.finish().success);
}

/// The names of metrics in a text.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let prefix = "packetlane_gateway_";
    let found = text.match_indices(prefix).map(|(at, _)| {
        let name = &text[at..];
        let is_of_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        &name[..name
            .find(|letter| !is_of_name(letter))
            .unwrap_or(name.len())]
    });
    found.collect()
}

/// The board and the alerts ask for metrics that there are.
#[test]
fn dashboards_show_what_there_is() {
    let http = free_address();
    let _running = packetlane(&format!(
        "gateway --listen 127.0.0.1:0 --node 127.0.0.1:1 --http {http}"
    ));
    until(LIMIT, "the gateway serves", || {
        get(http, "/healthz").is_ok()
    });
    let page = get(http, "/metrics").unwrap();
    let mut there = BTreeSet::new();
    for line in page.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, kind) = head.split_once(' ').unwrap();
            match kind {
                "histogram" => {
                    there.extend(["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")));
                }
                _ => drop(there.insert(name.to_owned())),
            }
        }
    }
    assert!(there.len() > 10, "{there:?}");
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in [
        "ops/grafana.json",
        "ops/alerts.yml",
        "ops/alerts_test.yml",
        "docs/guide/gateway-operations.md",
    ] {
        let text = std::fs::read_to_string(repository.join(file)).unwrap();
        let shown = metrics_in(&text);
        assert!(!shown.is_empty(), "{file}");
        for name in shown {
            assert!(there.contains(name), "{file}: {name} is not in {there:?}");
        }
    }
}
