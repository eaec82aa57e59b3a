//! Executes PTX, the form in which the kernels ship, on the CPU, and emulates a device. For tests
//! on machines without a GPU: a dev-dependency, which is not published.
//!
//! [`Module`] executes what a driver would compile, instruction by instruction. It is far slower
//! than a GPU, and stricter. Each of these is an error that names the line:
//!
//! - an access outside of an allocation, or to a misaligned word;
//! - a read of a register or byte of memory that was never written;
//! - a shuffle that not all threads of the warp reach;
//! - two threads of a launch that access the same byte, if one of them writes. (Only a new
//!   launch orders threads: the kernels have no memory barrier, and a shuffle is not one.)
//!
//! Only the instructions in `packetlane.ptx` are supported. Any other is an error when the
//! module is parsed.
//!
//! [`StandIn`] is a device for [`Gpu::on`](packetlane_gpu::Gpu::on). It fails on demand, and counts
//! memory that was not freed or not wiped.

mod memory;
mod parse;
mod run;
mod stand_in;

pub use memory::{AccessError, Memory};
pub use parse::{Module, ParseError};
pub use run::{Cause, Fault, Order};
pub use stand_in::{Call, Held, StandIn};
