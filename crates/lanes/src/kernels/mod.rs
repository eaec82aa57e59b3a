//! All algorithms, generic over the vectors of [`crate::vector`]. This module contains no
//! instruction sets and no dispatch.

pub(crate) mod aes;
pub(crate) mod chacha20;
pub(crate) mod chacha20poly1305;
pub(crate) mod poly1305;
pub(crate) mod secp256k1;
pub(crate) mod sha256;
pub(crate) mod stitched_lanes;
