//! The competitors: ours and widely used libraries, a file for each family.
//!
//! A competitor that only one experiment measures is in the file of that experiment.

pub(crate) mod aead;
pub(crate) mod bip324;
#[cfg(feature = "rivals")]
pub(crate) mod event_loop;
pub(crate) mod hashes;
pub(crate) mod ours;
#[cfg(feature = "rivals")]
pub(crate) mod proxy;
pub(crate) mod quic;

/// The competitors that this build leaves out, each with the feature that adds it.
pub(crate) static ABSENT: &[(&str, &str)] = &[
    #[cfg(not(feature = "rivals"))]
    ("aws-lc-rs", "rivals"),
    #[cfg(not(feature = "rivals"))]
    ("bitcoin", "rivals"),
    #[cfg(not(feature = "rivals"))]
    ("bitcoin_hashes", "rivals"),
    #[cfg(not(feature = "openssl"))]
    ("openssl", "openssl"),
];
