//! The gateway beside others, and under a service manager: take-over, sockets that are passed to it.

mod common;

use common::free_address::free_address;
use common::gateway::{echo, flood, get, talk, until};
use common::{Running, packetlane};
use std::collections::BTreeSet;
use std::io::Read as _;
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
