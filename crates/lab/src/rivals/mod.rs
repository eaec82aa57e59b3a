//! Who competes: ours, and the libraries that people use today, a file for each family.
//!
//! A rival that only one experiment measures is in that experiment's file.

pub(crate) mod aead;
pub(crate) mod bip324;
pub(crate) mod event_loop;
pub(crate) mod hashes;
pub(crate) mod ours;
pub(crate) mod proxy;
pub(crate) mod quic;
