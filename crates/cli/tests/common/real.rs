//! Real nodes: btcd and Bitcoin Core, on regtest.

use super::free_address::free_address;
use super::{Finished, packetlane};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit for a node to start or to answer.
const LIMIT: Duration = Duration::from_secs(60);

/// A regtest address for mining rewards.
pub(crate) const ADDRESS: &str = "mfWxJ45yp2SFn7UciZyNpvDKrzbhyfKrY8";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Software {
    Btcd,
    BitcoinCore,
}

/// A node on regtest that is killed when the test ends.
pub(crate) struct Node {
    software: Software,
    process: Child,
    pub(crate) listening: SocketAddr,
    rpc: SocketAddr,
}

impl Node {
    /// Starts a node on a new chain, with `options`, and mines this many blocks.
    pub(crate) fn start(
        software: Software,
        program: &Path,
        dir: &Path,
        blocks: usize,
        options: &[String],
    ) -> Self {
        let listening = free_address();
        let rpc = free_address();
        let mut command = Command::new(program);
        command.env("HOME", dir);
        match software {
            Software::Btcd => {
                command
                    .args(["--regtest", "--configfile=/dev/null", "--nodnsseed"])
                    .args(["--notls", "--rpcuser=u", "--rpcpass=p"])
                    .arg(format!("--datadir={}", dir.join("data").display()))
                    .arg(format!("--logdir={}", dir.join("logs").display()))
                    .arg(format!("--listen={listening}"))
                    .arg(format!("--rpclisten={rpc}"))
                    .arg(format!("--miningaddr={ADDRESS}"));
            }
            Software::BitcoinCore => {
                command
                    .args(["-regtest", "-server", "-dnsseed=0", "-discover=0"])
                    .args(["-listenonion=0", "-rpcuser=u", "-rpcpassword=p"])
                    .args(["-rpcbind=127.0.0.1", "-rpcallowip=127.0.0.1"])
                    .arg(format!("-datadir={}", dir.display()))
                    .arg(format!("-bind={listening}"))
                    .arg(format!("-rpcport={}", rpc.port()));
            }
        }
        let process = command
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut node = Self {
            software,
            process,
            listening,
            rpc,
        };

        let begun = Instant::now();
        while let Err(error) = node.call("getblockcount", "") {
            let ended = node.process.try_wait().unwrap();
            assert!(ended.is_none(), "the node has ended: {ended:?}");
            assert!(begun.elapsed() < LIMIT, "the node does not start: {error}");
            thread::sleep(Duration::from_millis(50));
        }
        if blocks > 0 {
            let mined = match software {
                Software::Btcd => node.call("generate", &blocks.to_string()),
                Software::BitcoinCore => {
                    node.call("generatetoaddress", &format!("{blocks},\"{ADDRESS}\""))
                }
            };
            mined.unwrap();
        }
        node
    }

    /// Calls a method of the node's JSON-RPC. Fails if the answer is an error.
    pub(crate) fn call(&self, method: &str, parameters: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(self.rpc)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let body = format!(
            "{{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"{method}\",\"params\":[{parameters}]}}"
        );
        // "u:p" in base64.
        write!(
            stream,
            "POST / HTTP/1.0\r\nAuthorization: Basic dTpw\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        match answer.contains("\"error\":null") {
            true => Ok(answer),
            false => Err(io::Error::other(format!("{method}: {answer}"))),
        }
    }

    /// Runs `packetlane connect` to this node, at most as often as the node allows.
    pub(crate) fn connect(&self, options: &str) -> Finished {
        self.pause();
        let address = self.listening;
        packetlane(&format!("connect {address} {options}")).finish()
    }

    pub(crate) fn pause(&self) {
        if self.software == Software::Btcd {
            thread::sleep(Duration::from_millis(600));
        }
    }

    /// Waits as long as btcd needs between handshakes with different networks: it takes 20 a second.
    pub(crate) fn pause_between_networks(&self) {
        if self.software == Software::Btcd {
            thread::sleep(Duration::from_millis(60));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Options that make a node speak v2, or only v1.
pub(crate) fn options(software: Software, v2: bool) -> Vec<String> {
    match software {
        Software::Btcd if v2 => vec!["--v2transport".to_owned()],
        Software::Btcd => Vec::new(),
        Software::BitcoinCore => vec![format!("-v2transport={}", u8::from(v2))],
    }
}

/// Prints that a test was not run, even if the harness captures the output of passing tests.
pub(crate) fn not_run(why: &str) {
    let _ = writeln!(io::stderr(), "NOT RUN: {why}");
}

/// The path of `program`, in PATH or in Go's install folder.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let go = Command::new("go").args(["env", "GOPATH"]).output();
    if let Ok(output) = go
        && let Ok(path) = String::from_utf8(output.stdout)
        && output.status.success()
    {
        dirs.extend(std::env::split_paths(path.trim()).map(|path| path.join("bin")));
    }
    if let Some(home) = std::env::var_os("HOME") {
        dirs.push(Path::new(&home).join("go/bin"));
    }
    let mut files = dirs.into_iter().map(|dir| dir.join(program));
    files.find(|file| file.is_file())
}

/// Bitcoin Core, if the environment names it.
pub(crate) fn bitcoind() -> Option<PathBuf> {
    let program = std::env::var_os("BITCOIND_EXE");
    let program = program.filter(|program| *program != OsString::new());
    program.map(PathBuf::from)
}
