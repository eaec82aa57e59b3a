//! Measures what encrypted packets and double SHA-256 cost, beside the libraries people
//! use today.
//!
//! [`measure`] times implementations of one case in turn, [`report`] holds the
//! figures (and is the JSON that other programs read), [`published`] adds what
//! others have published, [`text`] and [`html`] show it all. [`summary`] is
//! what the last two share: the answers, the tables and the format of numbers.

pub mod capture;
pub mod crowd;
pub mod experiments;
#[cfg(feature = "cuda")]
pub mod gpu;
#[cfg(feature = "cuda")]
pub mod gpu_check;
mod hashes;
pub mod html;
pub mod measure;
pub mod plot;
pub mod progress;
pub mod published;
mod quic;
pub mod report;
pub mod rivals;
mod send_path;
pub mod summary;
pub mod text;
pub mod traffic;
