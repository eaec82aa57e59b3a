//! Abuse: connections that end anywhere, peers that stall, floods, no more files. A checker on both
//! sides of the gateway knows of each byte what it must be.
//!
//! `GATEWAY_ABUSE=full` gives all of it the length that a release wants (minutes), otherwise it is
//! short. `GATEWAY_SEED` gives other connections than the usual ones.

mod checker;
mod child;
mod limits;
mod load;

use packetlane::Engine;
use packetlane::bitcoin::Network;
use packetlane_gateway::{Gateway, Io, Settings};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// More than anything takes on the slowest machine.
const LIMIT: Duration = Duration::from_secs(60);

/// One test at a time: they measure.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether it is to take its time.
fn is_full() -> bool {
    std::env::var("GATEWAY_ABUSE").is_ok_and(|how| how == "full")
}

fn seed() -> u64 {
    let seed = std::env::var("GATEWAY_SEED").ok();
    seed.and_then(|seed| seed.parse().ok()).unwrap_or(19)
}

/// Says something in the test's output, whether or not it is captured.
fn say(what: std::fmt::Arguments<'_>) {
    // At once: others write there, too.
    let _ = std::io::stderr().write_all(format!("{what}\n").as_bytes());
}

/// Files that a process must be allowed to open, for thousands of connections.
const FILES: u64 = 10_000;

/// Whether this system has what the tests need. Says what it lacks.
fn has(io: Io) -> bool {
    let files = raise_files();
    if files < FILES {
        say(format_args!(
            "NOT RUN: a process may open {files} files here, and {FILES} are needed (ulimit -Hn)"
        ));
        return false;
    }
    match io {
        Io::IoUring => match Gateway::has_io_uring() {
            Ok(()) => true,
            Err(error) => {
                say(format_args!("NOT RUN: io_uring: {error}"));
                false
            }
        },
        Io::Epoll | Io::Best => true,
    }
}

/// As many open files as the system allows. How many that are.
fn raise_files() -> u64 {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn settings(io: Io) -> Settings {
    Settings {
        io,
        // So that the messages pass unchanged.
        advertise: false,
        workers: NonZero::new(2).unwrap(),
        ..Settings::new(Network::Regtest, Engine::detect().unwrap())
    }
}

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}
