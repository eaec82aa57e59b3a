//! A gateway with more connections than one process may have open files: it runs as several processes
//! that share their ports. Its idle peers are in as many others, each of which also acts as the node
//! for its peers. A process is this program again, with its task in an environment variable.

use crate::rivals::proxy::{Strategy, gateway};
use crate::workload::relay::{Peers, connect};
use packetlane::Engine;
use packetlane_gateway::Inbound;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use std::{env, fs, io};

/// The variable with the task: a word, and its arguments.
const TASK: &str = "PACKETLANE_LAB_TASK";

/// A process, which is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    fn start(task: &str, stdin: Stdio) -> Self {
        let program = env::current_exe().expect("this program's path");
        let mut command = Command::new(program);
        // The experiment that calls `do_task`.
        let command = command.args(["lab", "gateway.scale"]).env(TASK, task);
        let child = command.stdin(stdin).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("a process");
        let stdout = child.stdout.take().expect("it is piped");
        Self {
            child,
            stdout: BufReader::new(stdout),
        }
    }

    /// Waits for a line of its output.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a pipe");
        assert!(line.ends_with('\n'), "a process of the lab has ended");
        line
    }

    /// Starts a gateway in so many processes. Returns where it listens for each node.
    pub(crate) fn gateway(processes: usize, nodes: &[TcpListener]) -> (Vec<Self>, Vec<SocketAddr>) {
        // The first process chooses the ports.
        let mut listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); nodes.len()];
        let start = |_| {
            let mut task = "gateway".to_owned();
            for (listen, node) in listen.iter().zip(nodes) {
                let node = node.local_addr().expect("a listener");
                task += &format!(" {listen}={node}");
            }
            let mut process = Self::start(&task, Stdio::piped());
            let line = process.line();
            let found = line.split_whitespace();
            listen = found.map(|at| at.parse().expect("an address")).collect();
            process
        };
        let started = (0..processes).map(start).collect();
        (started, listen)
    }

    /// Starts a process with idle peers, whose connections come from one address through the gateway
    /// to `node`. Returns when all are connected.
    pub(crate) fn peers(
        (from, number): (Ipv4Addr, usize),
        gateway: SocketAddr,
        node: TcpListener,
    ) -> Self {
        let stdin = Stdio::from(OwnedFd::from(node));
        let mut process = Self::start(&format!("peers {from} {number} {gateway}"), stdin);
        process.line();
        process
    }

    /// CPU time of all its threads, in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let threads = threads.expect("the process runs").flatten();
        let nanoseconds = |thread: fs::DirEntry| {
            let path = thread.path().join("schedstat");
            number(&path.display().to_string(), "").expect("the kernel counts CPU time")
        };
        threads.map(nanoseconds).sum::<u64>() as f64 / 1e9
    }

    /// Memory in user space that it has written to and not given back, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        1024 * number(&path, "RssAnon:").expect("the process runs")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number after a label in a file of /proc, if both exist.
fn number(path: &str, label: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let (_, rest) = text.split_once(label)?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Why the machine cannot have so many connections between peers, gateway and node, whatever a
/// process may open.
pub(crate) fn machine_limit(connections: usize) -> Option<String> {
    let connections = connections as u64;
    [
        ("/proc/sys/fs/file-max", "", 4 * connections),
        (
            "/proc/sys/net/netfilter/nf_conntrack_max",
            "",
            2 * connections,
        ),
        // Mostly the kernel's, for four sockets.
        ("/proc/meminfo", "MemAvailable:", 40 * connections),
    ]
    .into_iter()
    .find_map(|(path, label, wanted)| {
        let have = number(path, label).filter(|have| *have < wanted)?;
        Some(format!("{path} {label} is {have}, and {wanted} are needed"))
    })
}

/// In a process that [`Process`] started, does its task and ends the process. In others, does
/// nothing.
pub(crate) fn do_task(engine: Engine) {
    let Ok(task) = env::var(TASK) else {
        return;
    };
    let words: Vec<&str> = task.split_whitespace().collect();
    match words[..] {
        ["gateway", ref routes @ ..] => {
            let inbound = routes.iter().map(|route| {
                let (listen, node) = route.split_once('=').expect("two addresses");
                let [listen, node] = [listen, node].map(|text| text.parse().expect("an address"));
                Inbound::new(listen, node)
            });
            let inbound = inbound.collect();
            let gateway = gateway(engine, Strategy::Batches, Duration::ZERO, inbound);
            let inbound = gateway.settings().inbound.iter();
            let listen: Vec<_> = inbound.map(|inbound| inbound.listen.to_string()).collect();
            println!("{}", listen.join(" "));
            // Until the lab ends, however it does.
            let _ = io::stdin().read_to_end(&mut Vec::new());
        }
        ["peers", from, number, gateway] => {
            let node = io::stdin().as_fd().try_clone_to_owned();
            let node = TcpListener::from(node.expect("the listener of the node"));
            let from = from.parse().expect("an address");
            let gateway = gateway.parse().expect("an address");
            let number = number.parse().expect("a number");
            let connect = |number| {
                let pair = connect(engine, Peers::V2, (from, gateway), &node, number);
                pair.map(|(socket, _)| socket)
            };
            let mut idle: Vec<_> = (0..number).map(connect).collect();
            println!("connected");
            // Until the gateway ends.
            if let Some([peer, _]) = idle.first_mut() {
                peer.set_read_timeout(None).expect("a socket");
                let _ = peer.read(&mut [0]);
            }
        }
        _ => panic!("{TASK} is no task of the lab: {task}"),
    }
    std::process::exit(0)
}
