//! Measures the cost of encrypted packets and of double SHA-256, compared with widely used
//! libraries.
//!
//! An [`experiment`] answers one question. [`experiments`] lists them all, each in its own file.
//! [`mod@run`] runs them on shared workloads, against competitors. [`measure`] times several
//! implementations of a case alternately, and [`record`] turns the samples into figures. A
//! [`report`] holds the figures and can be stored as JSON. [`show`] renders it as text or HTML.
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
mod observer;
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
