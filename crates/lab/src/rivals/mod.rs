//! Who competes: ours, and the libraries that people use today, a file for each family.
//!
//! A rival that only one experiment measures is in that experiment's file.

pub(crate) mod aead;
pub(crate) mod bip324;
#[cfg(feature = "gateway")]
pub(crate) mod event_loop;
pub(crate) mod hashes;
pub(crate) mod ours;
#[cfg(feature = "gateway")]
pub(crate) mod proxy;
pub(crate) mod quic;

/// The rivals that this build leaves out, each with the feature that has it.
pub(crate) static ABSENT: &[(&str, &str)] = &[
    #[cfg(not(feature = "aws-lc"))]
    ("aws-lc-rs", "rivals"),
    #[cfg(not(feature = "bitcoin"))]
    ("bitcoin", "rivals"),
    #[cfg(not(feature = "bitcoin"))]
    ("bitcoin_hashes", "rivals"),
    #[cfg(not(feature = "openssl"))]
    ("openssl", "openssl"),
];
