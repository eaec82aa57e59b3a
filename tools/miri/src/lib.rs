//! Tests for Miri with few and short packets and messages, because Miri is about a thousand times
//! slower than the CPU. Includes the fuzz target for the kernels.
#![cfg(test)]

#[path = "../../../fuzz/src/input.rs"]
#[allow(dead_code, reason = "other fuzz targets use the rest")]
mod input;
mod kernels;
#[path = "../../../fuzz/src/lanes.rs"]
mod lanes;
mod library;
