//! Bitcoin Core on regtest, for tests.
#![allow(dead_code, reason = "each test file uses a part of this module")]

#[path = "../../../cli/tests/common/free_address.rs"]
mod free_address;
pub(crate) mod load;
pub(crate) mod quiet_peer;
pub(crate) mod rates;

use crate::machine::not_run;
use free_address::free_address;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Timeout for the node to start or to answer.
const LIMIT: Duration = Duration::from_secs(60);

/// A node with an empty chain. Killed on drop.
pub(crate) struct Core {
    process: Child,
    pub(crate) dir: PathBuf,
    pub(crate) listening: SocketAddr,
    pub(crate) rpc: SocketAddr,
}

/// A build of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// As distributed.
    Plain,
    /// With its own clock for peers: `tools/core --patched`.
    Patched,
}

impl Core {
    /// Starts the node named by `BITCOIND_EXE`, or the patched build in the folder next to it.
    /// Prints a NOT RUN line if there is none.
    pub(crate) fn start(test: &str, build: Build) -> Option<Self> {
        let program = std::env::var_os("BITCOIND_EXE").filter(|path| *path != OsString::new());
        let Some(program) = program else {
            not_run(
                test,
                "BITCOIND_EXE names no bitcoind (tools/core builds one)",
            );
            return None;
        };
        let mut program = PathBuf::from(program);
        if build == Build::Patched {
            program = program.with_file_name("patched").join("bitcoind");
            if !program.exists() {
                not_run(test, "tools/core --patched has not built it");
                return None;
            }
        }
        static NODES: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "packetlane-node-{}-{}",
            std::process::id(),
            NODES.fetch_add(1, Ordering::Relaxed)
        );
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let (listening, rpc) = (free_address(), free_address());
        let process = Command::new(&program)
            .env("HOME", &dir)
            .args([
                "-regtest",
                "-server",
                "-dnsseed=0",
                "-discover=0",
                "-connect=0",
            ])
            .args([
                "-listen=1",
                "-listenonion=0",
                // On regtest, a node checks its whole mempool at every transaction by default.
                "-checkmempool=0",
                "-checkblockindex=0",
                // By default, the node evicts a peer for each new one beyond 114.
                "-maxconnections=500",
                "-rpcuser=u",
                "-rpcpassword=p",
            ])
            .args([
                "-rpcbind=127.0.0.1",
                "-rpcallowip=127.0.0.1",
                "-v2transport=1",
            ])
            .arg(format!("-datadir={}", dir.display()))
            .arg(format!("-bind={listening}"))
            .arg(format!("-rpcport={}", rpc.port()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut core = Self {
            process,
            dir,
            listening,
            rpc,
        };
        let begun = Instant::now();
        while let Err(error) = core.try_call("getblockcount", json!([])) {
            let ended = core.process.try_wait().unwrap();
            assert!(ended.is_none(), "the node has ended: {ended:?}");
            assert!(begun.elapsed() < LIMIT, "the node does not start: {error}");
            thread::sleep(Duration::from_millis(50));
        }
        Some(core)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Stops the node by RPC and waits until it has ended.
    pub(crate) fn stop(&mut self) {
        self.call("stop");
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    /// The result of an RPC without parameters.
    pub(crate) fn call(&self, method: &str) -> Value {
        self.call_with(method, json!([]))
    }

    /// The result of an RPC.
    pub(crate) fn call_with(&self, method: &str, parameters: Value) -> Value {
        self.try_call(method, parameters).unwrap()
    }

    fn try_call(&self, method: &str, parameters: Value) -> io::Result<Value> {
        let mut stream = TcpStream::connect(self.rpc)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let body = json!({"jsonrpc": "1.0", "id": 1, "method": method, "params": parameters});
        let body = body.to_string();
        // "u:p" in base64.
        write!(
            stream,
            "POST / HTTP/1.0\r\nAuthorization: Basic dTpw\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        let mut body: Value = serde_json::from_str(body).map_err(io::Error::other)?;
        match body["error"].is_null() {
            true => Ok(body["result"].take()),
            false => Err(io::Error::other(format!("{method}: {}", body["error"]))),
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
