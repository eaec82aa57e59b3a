//! ChaCha20-Poly1305 over whole batches of packets on an NVIDIA GPU: the same jobs as `lanes` runs
//! on a CPU, with the same bytes and the same verdicts.
//!
//! [`Gpu::detect`] looks for a device at run time: building this crate requires no CUDA toolkit,
//! and without a device or a driver it returns an error. [`Gpu::seal`] and [`Gpu::open`] run a
//! batch. If the device fails in the middle of one, packets that it has finished are done and the
//! rest is unchanged, so the CPU can continue.
//!
//! ```no_run
//! use packetlane_gpu::Gpu;
//! use packetlane_lanes::{Job, Key, Outcome, Work};
//!
//! # fn main() -> Result<(), packetlane_gpu::GpuError> {
//! let gpu = Gpu::detect()?;
//! let keys: [Key; 1] = [[7; 32]];
//! // A text of 5 bytes, with room for its tag.
//! let mut bytes = [0; 5 + 16];
//! let jobs = [Job { text_len: 5, ..Job::default() }];
//! let mut outcomes = [Outcome::Pending];
//! gpu.seal(Work {
//!     bytes: &mut bytes,
//!     keys: &keys[..],
//!     jobs: &jobs,
//!     outcomes: &mut outcomes,
//! })?;
//! assert_eq!(outcomes, [Outcome::Sealed]);
//! # Ok(())
//! # }
//! ```
//!
//! From the bottom up:
//!
//! - [`driver`]: the interface to a device; `cuda` implements it with CUDA.
//! - `kernels`: which kernel for which length, and how to launch it. Source and PTX are in
//!   `kernels/`.
//! - `piece`: packets sorted and laid out for transfer. `transfer`: a stream and its buffers,
//!   through which pieces are transferred. `pipeline`: the pieces of a batch in several concurrent
//!   transfers.
//! - `gpu`: [`Gpu`], which owns all of these. [`Pinned`]: an arena that the device reads and writes
//!   directly.
//! - `crossover`, `resident`, `copies`: measurements.
//!
//! Keys, keystream and plaintext are wiped from device memory and staging when a piece is done,
//! after any failure, and on drop.

#![allow(unsafe_code, reason = "calls the driver's C API")]

mod copies;
mod crossover;
mod cuda;
pub mod driver;
mod error;
mod gpu;
mod kernels;
mod piece;
mod pinned;
mod pipeline;
mod resident;
mod timings;
mod transfer;
mod wipe;
mod work;

pub use copies::{Copies, CopyDirection};
pub use cuda::{Cuda, device_name};
pub use error::{GPU_VARIABLE, GpuError};
pub use gpu::Gpu;
pub use kernels::{Op, PTX};
pub use pinned::Pinned;
pub use pipeline::PipelineConfig;
pub use resident::Resident;
pub use timings::Timings;
pub use work::{Bytes, DeviceWork, Help, Helper, RunOptions, pending};
