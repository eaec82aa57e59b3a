//! The versions of QUIC.

/// A version of QUIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Version {
    /// Version 1 (RFC 9000, RFC 9001).
    V1,
    /// Version 2 (RFC 9369): different labels, salt, Retry key and packet types.
    V2,
}

impl Version {
    /// All versions.
    pub const ALL: [Version; 2] = [Version::V1, Version::V2];

    /// Returns the number in the Version field of long headers.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Version::V1 => 1,
            Version::V2 => 0x6b33_43cf,
        }
    }

    /// Returns the version with this number, if it is one of these.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| version.number() == number)
    }
}
