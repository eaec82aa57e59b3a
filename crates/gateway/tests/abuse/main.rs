//! Abuse tests: connections that end anywhere, stalled peers, floods, exhausted file descriptors.
//! Both ends check every byte that passes through the gateway.
//!
//! `GATEWAY_ABUSE=full` runs everything at release length (minutes) instead of a short version.
//! `GATEWAY_SEED` selects other random connections.

mod checker;
mod child;
mod limits;
mod load;

use packetlane::Engine;
use packetlane::bitcoin::Network;
use packetlane_gateway::Settings;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longer than anything takes on the slowest machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs one test at a time, because the tests measure.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether to run at full length.
fn is_full() -> bool {
    std::env::var("GATEWAY_ABUSE").is_ok_and(|how| how == "full")
}

fn seed() -> u64 {
    let seed = std::env::var("GATEWAY_SEED").ok();
    seed.and_then(|seed| seed.parse().ok()).unwrap_or(19)
}

/// Prints to the test's output even if the harness captures it.
fn say(what: std::fmt::Arguments<'_>) {
    // In one write, because other threads print, too.
    let _ = std::io::stderr().write_all(format!("{what}\n").as_bytes());
}

/// Open files that a process needs for thousands of connections.
const FILES: u64 = 10_000;

/// Whether the system allows enough open files; prints the limit if not.
fn has_files() -> bool {
    let files = packetlane_files::raise_file_limit(u64::MAX);
    if files < FILES {
        say(format_args!(
            "NOT RUN: a process may open {files} files here, and {FILES} are needed (ulimit -Hn)"
        ));
    }
    files >= FILES
}

fn settings() -> Settings {
    Settings {
        // So that messages are relayed unchanged.
        advertise: false,
        workers: NonZero::new(2).unwrap(),
        ..Settings::new(Network::Regtest, Engine::detect().unwrap())
    }
}

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}
