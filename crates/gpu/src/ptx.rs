//! Runs PTX, the form in which the kernels ship, on the CPU.
//!
//! What a driver would compile is what is executed here, instruction by instruction, so
//! that the very bytes that a GPU gets can be proved without one. It is far slower than
//! any device and stricter than all of them. It is an error, which names the line, to
//! reach outside of an allocation, to access a word that is not aligned, to use a register
//! or a byte of memory that nothing was written to, to shuffle when not all threads of
//! the warp are there, and for two threads of a launch to touch the same byte if one of
//! them writes. (Threads are ordered by nothing but a new launch: no kernel here has a
//! barrier in memory, and a shuffle is none.)
//!
//! Only the instructions that occur in `packetlane.ptx` are known; another one is an error
//! when the module is parsed.

mod memory;
mod parse;
mod run;

pub use memory::{AccessError, Memory};
pub use parse::{Module, ParseError};
pub use run::{Cause, Fault, Order};
