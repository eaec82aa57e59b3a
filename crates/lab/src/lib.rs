//! Measures what encrypted packets and double SHA-256 cost, beside the libraries that people
//! use today.
//!
//! An [`experiment`] is one question. [`experiments`] lists them all, each in a file of its
//! own. [`mod@run`] runs them, on the shared workloads and against rivals; [`measure`] times
//! several implementations of a case in turn, and [`record`] makes figures of the samples. A
//! [`report`] holds the figures; its JSON is for other programs. [`show`] makes text and a
//! page of it.
//!
//! ```no_run
//! use packetlane::Engine;
//! use packetlane_lab::run::{Options, run};
//! use packetlane_lab::show::text;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options {
//!     experiments: vec!["bip324.packet".to_owned()],
//!     quick: true,
//!     ..Options::default()
//! };
//! let report = run(Engine::detect()?, &options)?;
//! println!("{}", text::render(&report));
//! # Ok(())
//! # }
//! ```

pub mod compare;
pub mod experiment;
pub mod experiments;
#[cfg(feature = "cuda")]
pub mod gpu_check;
pub mod measure;
mod picture;
mod progress;
mod published;
mod quantity;
pub mod record;
pub mod report;
mod rivals;
pub mod run;
mod sentence;
pub mod show;
pub mod traffic;
mod workload;
