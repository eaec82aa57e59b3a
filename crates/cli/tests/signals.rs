//! SIGINT, SIGTERM and SIGHUP at random moments: the command ends within a second, and its
//! recordings can be replayed.
#![cfg(unix)]

mod common;

use common::node::{LIMIT, Node, version};
use common::{Running, TempDir, listen_on, packetlane};
use packetlane_p2p::capture;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time limit for the command to end.
const SECOND: Duration = Duration::from_secs(1);

/// Number of moments per command and number of peers.
const MOMENTS: usize = 10;

/// Latest moment of a signal, in milliseconds after the start.
const LATEST: u64 = 500;

const SEED: u64 = 0x5161_4e41;

/// Behavior of a peer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Talks all the time.
    Talks,
    /// Talks, in messages of 300 KB.
    TalksMuch,
    /// Sends nothing.
    IsSilent,
    /// Stops within a v2 handshake.
    StopsWithinKeys,
}

/// Plays a peer until the connection ends. `opens` if the peer opened the connection.
fn play(stream: TcpStream, manner: Manner, opens: bool) {
    let _ = stream.set_read_timeout(Some(LIMIT));
    let _ = stream.set_write_timeout(Some(LIMIT));
    // Fails when the command ends.
    let _ = try_to_play(stream, manner, opens);
}

fn try_to_play(mut stream: TcpStream, manner: Manner, opens: bool) -> io::Result<()> {
    let length = match manner {
        Manner::Talks => 30,
        Manner::TalksMuch => 300_000,
        Manner::StopsWithinKeys => {
            stream.write_all(&[0xa5; 30])?;
            return stream.read_to_end(&mut Vec::new()).map(|_| ());
        }
        Manner::IsSilent => return stream.read_to_end(&mut Vec::new()).map(|_| ()),
    };
    let reader = stream.try_clone()?;
    let mut node = Node::new(stream);
    if opens {
        node.send("version", &version(b"/peer:1.0/"))?;
        node.expect("verack")?;
        node.send("verack", &[])?;
    } else {
        node.introduce()?;
    }
    // So that the command never waits for us to read.
    thread::spawn(move || io::copy(&mut &reader, &mut io::sink()));
    loop {
        node.send("inv", &vec![1; length])?;
        thread::sleep(Duration::from_millis(5));
    }
}

/// Total delay so far of a thread that only wakes up every few milliseconds: the time that the
/// machine was busy or stalled.
fn late() -> Duration {
    static LATE: OnceLock<&'static AtomicU64> = OnceLock::new();
    let late = LATE.get_or_init(|| {
        let late: &'static AtomicU64 = Box::leak(Box::default());
        thread::spawn(move || {
            let nap = Duration::from_millis(5);
            loop {
                let begun = Instant::now();
                thread::sleep(nap);
                let over = begun.elapsed().saturating_sub(nap);
                late.fetch_add(over.as_nanos() as u64, Ordering::Relaxed);
            }
        });
        late
    });
    Duration::from_nanos(late.load(Ordering::Relaxed))
}

/// Runs `end` and asserts that it takes no longer than a second, minus the delay of any thread of
/// this machine.
#[track_caller]
fn within_a_second<T>(what: &str, end: impl FnOnce() -> T) -> T {
    let (begun, before) = (Instant::now(), late());
    let ended = end();
    let took = begun.elapsed();
    if took >= SECOND {
        // After a stall, wait until the other thread has woken up, too.
        thread::sleep(Duration::from_millis(100));
    }
    let late = late() - before;
    assert!(took < SECOND + late, "{what}: {took:?}, {late:?} late");
    ended
}

/// Sends the signal after `pause` and waits for the end.
#[track_caller]
fn stop(running: Running, signal: &str, pause: Duration, what: &str) -> common::Finished {
    thread::sleep(pause);
    running.signal(signal);
    let what = format!("{what}: SIG{signal} at {pause:?}");
    within_a_second(&what, || running.finish())
}

/// Reports the end of something, even after a panic.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asserts that all records in a folder are complete. Returns their number.
#[track_caller]
fn assert_whole(dir: &Path, what: &str) -> usize {
    match capture::read_dir(dir) {
        Ok(recording) => {
            assert!(
                recording.damaged.is_empty(),
                "{what}: {:?}",
                recording.damaged
            );
            let conversations = recording.conversations.iter();
            conversations
                .map(|both| both.received.len() + both.sent.len())
                .sum()
        }
        Err(capture::CaptureError::Nothing { .. }) => 0,
        Err(error) => panic!("{what}: {error}"),
    }
}

const SIGNALS: [&str; 3] = ["INT", "TERM", "HUP"];

/// Runs `one` at random moments with each signal. Each run gets its own folder and returns how many
/// messages it recorded. Unless nothing can be recorded, each signal must leave some messages.
fn at_random_moments(
    name: &str,
    records: bool,
    one: impl Fn(&Path, &str, Duration) -> usize + Sync,
) {
    println!("{name}: seed {SEED:#x}");
    let mut rng = StdRng::seed_from_u64(SEED);
    let dir = TempDir::new(name);
    let mut recorded = [0; SIGNALS.len()];
    for moment in 0..MOMENTS {
        let pause = Duration::from_millis(rng.random_range(0..LATEST));
        let counts = thread::scope(|scope| {
            let runs = SIGNALS.map(|signal| {
                let folder = dir.0.join(format!("{signal}{moment}"));
                let one = &one;
                scope.spawn(move || one(&folder, signal, pause))
            });
            runs.map(|run| run.join().unwrap())
        });
        for (recorded, count) in recorded.iter_mut().zip(counts) {
            *recorded += count;
        }
    }
    assert!(
        recorded.iter().all(|&count| (count > 0) == records),
        "{name}: after {SIGNALS:?}, {recorded:?} messages were recorded"
    );
}

/// `connect --record` to one peer.
fn connect(name: &str, manner: Manner) {
    at_random_moments(name, manner == Manner::Talks, |folder, signal, pause| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let _ended = Ended(&ended);
            scope.spawn(|| {
                // A signal may come before the connection.
                while !ended.load(Ordering::Relaxed) {
                    match listener.accept() {
                        Ok((stream, _)) => {
                            stream.set_nonblocking(false).unwrap();
                            play(stream, manner, false);
                        }
                        Err(_) => thread::sleep(Duration::from_millis(2)),
                    }
                }
            });
            let v1 = if manner == Manner::Talks { " --v1" } else { "" };
            let options = format!(
                "--network regtest{v1} --for 60 --record {}",
                folder.display()
            );
            let running = packetlane(&format!("connect {address} {options}"));
            stop(running, signal, pause, name);
        });
        assert_whole(folder, name)
    });
}

/// `listen --record` with this number of peers.
fn listen(name: &str, options: &str, peers: usize) {
    at_random_moments(name, peers > 0, |folder, signal, pause| {
        let options = format!("{options} --record {}", folder.display());
        let (running, address) = listen_on("127.0.0.1:0", &options);
        let peers: Vec<JoinHandle<()>> = (0..peers)
            .map(|number| {
                let manner = [
                    Manner::Talks,
                    Manner::TalksMuch,
                    Manner::IsSilent,
                    Manner::StopsWithinKeys,
                ][number % 4];
                thread::spawn(move || {
                    if let Ok(stream) = TcpStream::connect(address) {
                        play(stream, manner, true);
                    }
                })
            })
            .collect();
        let finished = stop(running, signal, pause, name);
        assert!(
            finished.success || !options.is_empty(),
            "{name}: {finished:#?}"
        );
        for peer in peers {
            peer.join().unwrap();
        }
        assert_whole(folder, name)
    });
}

#[test]
fn connect_to_a_silent_peer() {
    connect("connect-silent", Manner::IsSilent);
}

#[test]
fn connect_to_a_peer_that_talks() {
    connect("connect-talks", Manner::Talks);
}

#[test]
fn listen_without_peers() {
    listen("listen-0", "", 0);
}

#[test]
fn listen_with_a_peer() {
    listen("listen-1", "", 1);
}

/// More than are served at a time.
#[test]
fn listen_with_40_peers() {
    listen("listen-40", "", 40);
}

#[test]
fn once_without_peers() {
    listen("once-0", " --once", 0);
}

#[test]
fn once_with_a_peer() {
    listen("once-1", " --once", 1);
}

#[test]
fn once_with_40_peers() {
    listen("once-40", " --once", 40);
}

/// Its standard output is a full pipe that nobody reads.
#[test]
fn listen_whose_reports_nobody_reads() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_packetlane"))
        .args(["listen", "127.0.0.1:0", "--network", "regtest"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::with_capacity(1, child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let address: SocketAddr = line.split(' ').nth(2).unwrap().parse().unwrap();
    // A pipe holds 64 KiB, and a report has more than 500 bytes.
    let mut left = 0;
    for _ in 0..200 {
        let stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        let mut node = Node::new(stream);
        let greeted = node
            .send("version", &version(b"/peer:1.0/"))
            .and_then(|()| node.expect("verack"))
            .and_then(|_| node.send("verack", &[]));
        if greeted.is_err() {
            left += 1;
            break;
        }
    }
    assert_eq!(left, 1, "it does not wait for the pipe");
    let pid = child.id().to_string();
    let ended = within_a_second("a full pipe", || {
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
        let begun = Instant::now();
        loop {
            match child.try_wait().unwrap() {
                None if begun.elapsed() < LIMIT => thread::sleep(Duration::from_millis(5)),
                ended => break ended,
            }
        }
    });
    let _ = child.kill();
    let _ = child.wait();
    assert!(ended.is_some(), "still running");
}
