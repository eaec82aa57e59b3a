//! A program that mimics a node and measures itself.
#![allow(dead_code, reason = "each test file takes what it needs")]

use crate::machine::not_run;
use packetlane_peers::{Calls, Cost};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How distributions protect returns and calls. The probes must get along with it.
const PROTECTION: &str = match cfg!(target_arch = "aarch64") {
    true => "-mbranch-protection=standard",
    false => "-fcf-protection",
};

/// Compiles the program as a distribution would: optimized, hardened, stripped. If the variable
/// PACKETLANE_FAKE_NODE names a compiled one, copies that. Prints a NOT RUN line and returns `None`
/// without a compiler.
fn compile(test: &str, name: &str) -> Option<PathBuf> {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.d", test.replace(' ', "-")));
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join(name);
    if let Some(compiled) = std::env::var_os("PACKETLANE_FAKE_NODE") {
        std::fs::copy(compiled, &program).unwrap();
        return Some(program);
    }
    // Tests of other crates use it, too.
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers/tests/fake/fake_node.cpp");
    let compiled = Command::new("c++")
        .args([
            "-std=c++17",
            "-O2",
            "-fPIE",
            "-pie",
            PROTECTION,
            "-s",
            "-pthread",
        ])
        .args([&source, Path::new("-o"), &program])
        .status();
    match compiled {
        Ok(status) if status.success() => Some(program),
        Ok(status) => panic!("the fake node does not compile: {status}"),
        Err(error) => {
            not_run(test, &format!("no C++ compiler: {error}"));
            None
        }
    }
}

/// The running program.
pub(crate) struct Fake(Child);

impl Fake {
    /// Starts the program with a number of peers, milliseconds between wake-ups, and an amount of
    /// work in per cent. It waits for [`Fake::go`].
    pub(crate) fn start(test: &str, load: &[usize; 3]) -> Option<Self> {
        Self::start_as(test, "fake-node", load)
    }

    /// The same, with a file name for the program.
    pub(crate) fn start_as(
        test: &str,
        name: &str,
        [peers, pause, work]: &[usize; 3],
    ) -> Option<Self> {
        let mut child = Command::new(compile(test, name)?)
            .args([peers, pause, work].map(ToString::to_string))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut ready)
            .unwrap();
        assert_eq!(&ready, b"ready\n");
        Some(Self(child))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn go(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    /// Lets it do nothing until it ends.
    pub(crate) fn pause(&mut self) {
        let input = self.0.stdin.as_mut().unwrap();
        input.write_all(b"pause\n").unwrap();
    }

    /// Kills it. It stays a zombie.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
    }

    /// Ends it. Returns its own measurement of each peer: calls of both functions, messages.
    pub(crate) fn end(mut self) -> BTreeMap<i64, ([Calls; 2], u64)> {
        drop(self.0.stdin.take());
        let output = BufReader::new(self.0.stdout.take().unwrap());
        let account = output.lines().map(|line| {
            let line = line.unwrap();
            let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
            let calls = |at: usize| Calls {
                count: numbers[at],
                cost: Cost {
                    wall_ns: numbers[at + 1],
                    cpu_ns: numbers[at + 2],
                },
            };
            let peer = i64::try_from(numbers[0]).unwrap();
            (peer, ([calls(1), calls(4)], numbers[7]))
        });
        let account = account.collect();
        assert!(self.0.wait().unwrap().success());
        account
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}
