//! Runs the `packetlane` command, and other commands, for a limited time.
#![allow(dead_code, reason = "each test file uses a part of this module")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// More than any command of these tests takes on the slowest machine.
const LIMIT: Duration = Duration::from_secs(60);

/// How a command ended.
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
    /// The one line that it wrote to standard error, if it failed with one.
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
        let row = self.stdout.lines().find_map(|line| {
            let cells: Vec<_> = line.strip_prefix(name)?.split_whitespace().collect();
            let numbers: Result<Vec<u64>, _> = cells.iter().map(|cell| cell.parse()).collect();
            numbers.ok()?.try_into().ok()
        });
        row.unwrap_or_else(|| panic!("no row {name}: {}", self.stdout))
    }
}

/// A process that is killed when the test ends.
pub(crate) struct Running {
    child: Child,
    /// Its lines. A thread reads them, so that a test can wait with a timeout.
    stdout: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    /// Starts `command`.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
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

    /// The next line of its standard output; empty at the end.
    pub(crate) fn line(&mut self) -> String {
        self.stdout.recv_timeout(LIMIT).unwrap_or_default()
    }

    /// Waits for its end.
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

/// The `packetlane` command with these arguments, separated by spaces.
pub(crate) fn packetlane(arguments: &str) -> Running {
    Running::start(Command::new(env!("CARGO_BIN_EXE_packetlane")).args(arguments.split(' ')))
}
