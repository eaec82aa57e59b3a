//! The gateway beside others, and under a service manager: take-over, sockets that are passed to it.

mod common;

use common::free_address::free_address;
use common::gateway::{echo, flood, get, talk, until};
use common::{Running, packetlane};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Limit for whatever is waited for.
const LIMIT: Duration = Duration::from_secs(30);

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// How many sockets listen on a port, by the kernel's own list.
fn listeners(address: SocketAddr) -> usize {
    let of_it = format!(":{:04X} 00000000:0000 0A ", address.port());
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    sockets.matches(&of_it).count()
}

/// A gateway takes over from another while peers connect without a pause. Those who have connected
/// to the old one stay, also those whom it had not accepted yet. At each of them something is said
/// before, during and after.
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
        // Each takes over from the one before.
        for _ in 0..3 {
            let new = gateway();
            // Who connects comes to one or the other.
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

/// The log goes to a full disk, or to a pipe that nobody reads: peers come and go all the same.
#[test]
fn a_log_that_cannot_be_written() {
    // More lines than may wait, and than a pipe holds.
    const VISITS: usize = 12_000;
    for (to, expected) in [
        ("/dev/full", false),
        (">(exec sleep 30 >/dev/null 2>&1)", true),
    ] {
        let (node, listen, http) = (echo(), free_address(), free_address());
        let mut command = Command::new("bash");
        let script = format!("exec \"$@\" 2> {to}");
        command.args(["-c", &script, "bash", env!("CARGO_BIN_EXE_packetlane")]);
        command.args(["gateway", "--network", "regtest", "--workers", "1"]);
        command.args(["--listen", &listen.to_string(), "--node", &node.to_string()]);
        command.args(["--http", &http.to_string(), "--half-open", "1"]);
        let running = Running::start(&mut command);
        until(LIMIT, "it serves", || get(http, "/healthz").is_ok());
        let mut before = connect(listen);
        talk(&mut before).unwrap();
        // The only one who may be silent: all others are refused, a line for each.
        let silent = connect(listen);
        until(LIMIT, "it is there", || {
            let mut refused = connect(listen);
            matches!(refused.read(&mut [0]), Ok(0) | Err(_))
        });
        flood(listen, VISITS);
        talk(&mut before).unwrap();
        drop(silent);
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

/// The command, with its standard input as file 3, and the variables by which systemd says so.
fn with_socket(socket: impl Into<Stdio>, arguments: &str) -> Running {
    let script = "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_packetlane")]);
    Running::start_with_input(command.args(arguments.split(' ')), socket)
}

/// Who connects before the gateway runs, or while another takes its place, waits and is served.
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
    // Those of the first go on.
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
fn passed_sockets_that_are_for_nothing() {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    let command = "gateway --socks 127.0.0.1:0 --http 127.0.0.1:0";
    let expected = format!("a socket was passed that listens on {address}: no setting says so");
    let finished = with_socket(OwnedFd::from(socket), command).finish();
    assert!(finished.error_line().contains(&expected), "{finished:#?}");
    let (datagrams, _other) = UnixDatagram::pair().unwrap();
    let finished = with_socket(OwnedFd::from(datagrams), command).finish();
    let expected = "a socket was passed that is not for TCP: ";
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

/// Scrapes while peers come, say something and go, or are refused. So `rate()` and `increase()` see
/// what there was: all counters are there from the first scrape, and none ever falls.
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
        ("closed", "cause=\"node-protocol\""),
        ("refused", "limit=\"outbound-connections\""),
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
                    // No SOCKS.
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
        "closed_total{cause=\"peer\"}",
        "closed_total{cause=\"socks\"}",
    ] {
        assert!(of(name) > 5.0, "{name}: {}", of(name));
    }
    running.signal("INT");
    assert!(running.finish().success);
}

/// Strangers take all files that they can get. The node connects to peers by SOCKS all the same.
#[test]
fn files_are_left_for_the_nodes_own_connections() {
    let (node, listen, socks, http) = (echo(), free_address(), free_address(), free_address());
    let mut command = Command::new("bash");
    let script = "ulimit -n 200 && exec \"$@\"";
    command.args(["-c", script, "bash", env!("CARGO_BIN_EXE_packetlane")]);
    command.args(["gateway", "--network", "regtest", "--workers", "2"]);
    command.args(["--listen", &listen.to_string(), "--node", &node.to_string()]);
    command.args(["--socks", &socks.to_string(), "--http", &http.to_string()]);
    let running = Running::start(&mut command);
    until(LIMIT, "it serves", || get(http, "/healthz").is_ok());
    // Each that is accepted takes two files: it has reached the node.
    let mut strangers: Vec<_> = (0..100).map(|_| connect(listen)).collect();
    let served = strangers
        .iter_mut()
        .filter_map(|stream| talk(stream).ok())
        .count();
    assert!((20..=40).contains(&served), "{served}");
    let refused = counters(http)["packetlane_gateway_refused_total{limit=\"connections\"}"];
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
    let _running = packetlane(&format!("gateway --socks 127.0.0.1:0 --http {http}"));
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
    let ops = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops");
    for file in ["grafana.json", "alerts.yml", "alerts_test.yml", "README.md"] {
        let text = std::fs::read_to_string(ops.join(file)).unwrap();
        let shown = metrics_in(&text);
        assert!(!shown.is_empty(), "{file}");
        for name in shown {
            assert!(there.contains(name), "{file}: {name} is not in {there:?}");
        }
    }
}
