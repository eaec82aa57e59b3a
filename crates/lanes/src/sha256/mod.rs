//! SHA-256 over lists of messages: chooses the kernel for each message.
//!
//! - [`threshold`]: the number of messages for which lanes are faster, measured once per process.
//! - [`mod@many`]: messages of any lengths. [`message`]: the unhashed part of one.
//! - [`fixed`]: messages of exactly 32 or 64 bytes.

pub(crate) mod fixed;
pub(crate) mod many;
mod message;
pub(crate) mod threshold;

pub(crate) use fixed::{many_64, many_twice, pairs};
pub(crate) use many::many;
pub(crate) use threshold::LaneThreshold;

#[cfg(test)]
mod tests;
