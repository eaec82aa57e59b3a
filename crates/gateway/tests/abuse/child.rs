//! A gateway in a process of its own, so that its memory, files and CPU time can be measured.

use crate::{LIMIT, any_port, settings};
use packetlane_gateway::{Event, Gateway, Inbound, Peer};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Marks the lines of the child process, as opposed to the test harness's.
const MARK: &str = "GATEWAY ";

/// Environment variable that configures the child process.
const ORDER: &str = "GATEWAY_CHILD";

/// Numbers by name.
pub(crate) type Numbers = BTreeMap<String, u64>;

fn numbers(text: &str) -> Numbers {
    let number = |word: &str| {
        let (name, value) = word.split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    text.split_whitespace().filter_map(number).collect()
}

/// The child process. Killed on drop.
pub(crate) struct InChild {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    pub(crate) listen: SocketAddr,
    pub(crate) socks: SocketAddr,
}

impl InChild {
    /// `limits` are numbers by name: `files`, and some limits of the gateway.
    pub(crate) fn start(node: SocketAddr, limits: &str) -> Self {
        let port = node.port();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child::a_gateway", "--ignored", "--nocapture"])
            .env(ORDER, format!("node={port} {limits}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut started = Self {
            child,
            orders,
            answers,
            listen: any_port(),
            socks: any_port(),
        };
        let ports = started.answer();
        started.listen.set_port(ports["listen"] as u16);
        started.socks.set_port(ports["socks"] as u16);
        started
    }

    fn answer(&mut self) -> Numbers {
        loop {
            let mut line = String::new();
            let len = self.answers.read_line(&mut line).unwrap();
            assert_ne!(len, 0, "the gateway's process has ended");
            if let Some((_, answer)) = line.split_once(MARK) {
                return numbers(answer);
            }
        }
    }

    /// Counts of events so far, and the current number of `peers`. Events that have not happened
    /// are missing.
    pub(crate) fn told(&mut self) -> Numbers {
        self.orders.write_all(b"\n").unwrap();
        self.answer()
    }

    /// Waits until a condition holds.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Numbers) -> bool) -> Numbers {
        let until = Instant::now() + LIMIT;
        loop {
            let told = self.told();
            if is_so(&told) {
                return told;
            }
            assert!(Instant::now() < until, "timeout: {what}: {told:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn proc(&self, file: &str) -> String {
        let path = format!("/proc/{}/{file}", self.child.id());
        std::fs::read_to_string(path).unwrap()
    }

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        kib.unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Its open files.
    pub(crate) fn files(&self) -> usize {
        let path = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(path).unwrap().count()
    }

    /// Its CPU time.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = self.proc("stat");
        let fields = stat.rsplit(')').next().unwrap().split_whitespace();
        let ticks: u64 = fields
            .skip(11)
            .take(2)
            .map(|n| n.parse::<u64>().unwrap())
            .sum();
        Duration::from_secs(ticks) / rustix::param::clock_ticks_per_second() as u32
    }
}

impl Drop for InChild {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "a part of the other tests, which start it"]
fn a_gateway() {
    let Ok(order) = std::env::var(ORDER) else {
        println!("NOT RUN: a part of the other tests");
        return;
    };
    let order = numbers(&order);
    let mut settings = settings();
    settings.socks = Some(any_port());
    let mut node = any_port();
    node.set_port(order["node"] as u16);
    settings.inbound = vec![Inbound::new(any_port(), node)];
    let limits = &mut settings.limits;
    for (name, limit) in [
        ("half-open", &mut limits.half_open),
        ("half-open-address", &mut limits.half_open_of.address),
        ("half-open-group", &mut limits.half_open_of.group),
        ("memory", &mut limits.memory),
    ] {
        *limit = order.get(name).map_or(*limit, |is| *is as usize);
    }
    packetlane_files::raise_file_limit(u64::MAX);
    if let Some(files) = order.get("files") {
        let few = Rlimit {
            current: Some(*files),
            maximum: Some(*files),
        };
        setrlimit(Resource::Nofile, few).unwrap();
    }
    let told = Arc::<Mutex<Numbers>>::default();
    let telling = Arc::clone(&told);
    let gateway = Gateway::start(settings, move |_: &Peer, event: &Event| {
        let name = match event {
            Event::Closed(close) => format!("closed-{}", close.name()),
            Event::Refused(refusal) => format!("refused-{}", refusal.name()),
            Event::Connected => "connected".into(),
            _ => "fell-back".into(),
        };
        *telling.lock().unwrap().entry(name).or_default() += 1;
    });
    let gateway = gateway.unwrap();
    let settings = gateway.settings();
    let listen = settings.inbound[0].listen.port();
    let socks = settings.socks.unwrap().port();
    println!("{MARK}listen={listen} socks={socks}");
    for _ in std::io::stdin().lines() {
        let mut line = format!("peers={}", gateway.peers().len());
        for (name, number) in told.lock().unwrap().iter() {
            line += &format!(" {name}={number}");
        }
        println!("{MARK}{line}");
    }
}
