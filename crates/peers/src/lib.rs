//! What each peer of a Bitcoin node costs it, on a node as it was installed.
//!
//! A source sees the node and makes [`Record`]s of it; everything else is made of these: a live
//! table, a file, a report, a plan of slots.

pub mod file;
pub mod pace;
pub mod plan;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod probes;
mod process;
pub mod published;
mod record;
pub mod report;
pub mod rpc;
pub mod show;
mod source;
pub mod statistics;
pub mod tally;

pub use process::{MESSAGE_THREAD, NETWORK_THREAD, Process, ProcessError, Thread, stolen_ns};
pub use record::{
    Calls, Connection, ConnectionType, Cost, Event, MAX_USER_AGENT, Network, Record, Time,
    Transport,
};
pub use source::{Source, SourceError};
