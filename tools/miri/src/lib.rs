//! Few and short packets and messages, for Miri, which is some thousand times slower than the
//! CPU. The fuzz target over the kernels is one of the tests.
#![cfg(test)]

#[path = "../../../fuzz/src/input.rs"]
#[allow(dead_code, reason = "other fuzz targets use the rest")]
mod input;
mod kernels;
#[path = "../../../fuzz/src/lanes.rs"]
mod lanes;
mod library;
