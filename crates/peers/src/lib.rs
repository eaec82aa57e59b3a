//! Measures what each peer of a Bitcoin node costs it, without patching or restarting the node.
//!
//! A source observes the node and emits [`Record`]s. The live table, the file, the report and the
//! plan of slots are all computed from these.

pub mod act;
mod block_messages;
pub mod blocks;
pub mod file;
mod format;
pub mod hints;
mod known;
pub mod machine;
pub mod pace;
mod period;
pub mod plan;
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
pub mod probes;
mod process;
pub mod published;
mod record;
pub mod report;
mod row;
pub mod rpc;
pub mod show;
mod source;
pub mod statistics;
pub mod tally;

pub use block_messages::steps;
pub use period::Period;
pub use process::{MESSAGE_THREAD, NETWORK_THREAD, Process, ProcessError, Thread, stolen_ns};
pub use record::{
    BlockStep, Calls, Connection, ConnectionType, Cost, Event, MAX_USER_AGENT, Network, Record,
    Time, Transport,
};
pub use row::PeerRow;
pub use source::{Source, SourceError};
