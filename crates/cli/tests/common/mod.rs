//! Runs `packetlane` and other commands with a time limit.
#![allow(dead_code, reason = "each test file uses a part of this module")]

pub(crate) mod free_address;
pub(crate) mod gateway;
#[cfg(feature = "nats")]
pub(crate) mod nats;
pub(crate) mod node;
pub(crate) mod real;
pub(crate) mod rpc;

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longer than any command of these tests takes on the slowest machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Whether its exit status was 0.
    pub(crate) success: bool,
    /// What it wrote to standard output.
    pub(crate) stdout: String,
    /// What it wrote to standard error.
    pub(crate) stderr: String,
}

impl Finished {
    /// The only line on standard error of a failed command.
    #[track_caller]
    pub(crate) fn error_line(&self) -> &str {
        assert!(!self.success, "{self:#?}");
        let line = self.stderr.strip_suffix('\n').unwrap_or(&self.stderr);
        assert!(
            line.starts_with("error: ") && !line.contains('\n'),
            "not one line: {self:#?}"
        );
        line
    }

    /// Asserts that it succeeded and printed nothing to standard error.
    #[track_caller]
    pub(crate) fn expect_success(self) -> Self {
        assert!(self.success && self.stderr.is_empty(), "{self:#?}");
        self
    }

    /// The numbers of a message type in the report: received, bytes, sent, bytes.
    #[track_caller]
    pub(crate) fn row(&self, name: &str) -> [u64; 4] {
        let row = self.find_row(name);
        row.unwrap_or_else(|| panic!("no row {name}: {}", self.stdout))
    }

    /// Like [`Finished::row`]; `None` if there is no such row.
    pub(crate) fn find_row(&self, name: &str) -> Option<[u64; 4]> {
        self.stdout.lines().find_map(|line| {
            let cells: Vec<_> = line.strip_prefix(name)?.split_whitespace().collect();
            let numbers: Result<Vec<u64>, _> = cells.iter().map(|cell| cell.parse()).collect();
            numbers.ok()?.try_into().ok()
        })
    }
}

/// A process that is killed at the end of the test.
pub(crate) struct Running {
    child: Child,
    /// Its lines, read by a thread so that a test can wait with a timeout.
    stdout: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    /// Starts `command`.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::start_with_input(command, Stdio::null())
    }

    /// Starts `command` with a standard input.
    pub(crate) fn start_with_input(command: &mut Command, input: impl Into<Stdio>) -> Self {
        let mut child = command
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut stderr = child.stderr.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            let mut line = String::new();
            while stdout.read_line(&mut line).is_ok_and(|length| length > 0) {
                // The receiver may be gone.
                let _ = sender.send(std::mem::take(&mut line));
            }
        });
        Self {
            stdout: lines,
            stderr: Some(thread::spawn(move || {
                let mut text = String::new();
                let _ = stderr.read_to_string(&mut text);
                text
            })),
            child,
        }
    }

    /// Sends it a signal: INT, TERM, HUP or KILL.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success(), "kill -s {name}");
    }

    /// The next line of its standard output; empty at the end.
    pub(crate) fn line(&mut self) -> String {
        self.stdout.recv_timeout(LIMIT).unwrap_or_default()
    }

    /// Waits for it to end.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Finished {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break Some(status);
            }
            if begun.elapsed() > LIMIT {
                let _ = self.child.kill();
                let _ = self.child.wait();
                break None;
            }
            thread::sleep(Duration::from_millis(2));
        };
        let finished = Finished {
            success: status.is_some_and(|status| status.success()),
            stdout: self.stdout.iter().collect(),
            stderr: self.stderr.take().unwrap().join().unwrap(),
        };
        assert!(status.is_some(), "still running: {finished:#?}");
        finished
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder that is removed on drop.
pub(crate) struct TempDir(pub(crate) PathBuf);

impl TempDir {
    /// Creates an empty folder with a unique name.
    pub(crate) fn new(name: &str) -> Self {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("packetlane-{name}-{id}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The names in it, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = self.0.read_dir().unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Starts `listen` on `address`, on regtest; port 0 means a free one. Returns the process and its
/// address.
pub(crate) fn listen_on(address: &str, options: &str) -> (Running, SocketAddr) {
    let mut listening = packetlane(&format!("listen {address} --network regtest{options}"));
    let line = listening.line();
    let address = line
        .strip_prefix("listening on ")
        .and_then(|line| line.strip_suffix(" (regtest)\n"));
    let Some(address) = address.map(|address| address.parse().unwrap()) else {
        panic!("{line}{:#?}", listening.finish());
    };
    (listening, address)
}

/// The `packetlane` command with these arguments, separated by spaces.
pub(crate) fn packetlane(arguments: &str) -> Running {
    Running::start(Command::new(env!("CARGO_BIN_EXE_packetlane")).args(arguments.split(' ')))
}
