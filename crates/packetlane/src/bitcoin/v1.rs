//! The framing of version 1, Bitcoin's unencrypted transport, for peers that speak nothing
//! else: magic (4 bytes), type (12 bytes, padded with zeros), length of the payload (4 bytes,
//! little-endian), checksum (the first 4 bytes of its double SHA-256), payload.
//!
//! ```
//! use packetlane::bitcoin::message::MessageType;
//! use packetlane::bitcoin::{Network, v1};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (magic, verack) = (Network::Signet.magic(), MessageType::new(b"verack")?);
//! let mut wire = Vec::new();
//! v1::encode(magic, verack, b"", &mut wire);
//! assert_eq!(v1::decode(magic, &wire[..23])?, None);
//! assert_eq!(v1::decode(magic, &wire)?.map(|message| message.message_type), Some(verack));
//! assert!(v1::decode(Network::Mainnet.magic(), &wire).is_err());
//! # Ok(())
//! # }
//! ```

use super::message::{MAX_TYPE_LEN, MessageError, MessageType};
use super::network::Network;
use crate::copy::append;
use alloc::vec::Vec;
use core::fmt;
use sha2::{Digest, Sha256};

/// Length of the header in front of a payload, in bytes.
pub const HEADER_LEN: usize = 4 + MAX_TYPE_LEN + 4 + 4;

/// Longest payload of the network, in bytes.
pub const MAX_PAYLOAD_LEN: usize = 4_000_000;

/// A message at the beginning of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'b> {
    /// Its type.
    pub message_type: MessageType,
    /// Its payload.
    pub payload: &'b [u8],
}

impl Message<'_> {
    /// Its length on the wire, in bytes.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        HEADER_LEN + self.payload.len()
    }
}

/// Appends a message to `out`.
///
/// # Panics
///
/// If the payload does not fit 32 bits.
pub fn encode(magic: [u8; 4], message_type: MessageType, payload: &[u8], out: &mut Vec<u8>) {
    encode_with_checksum(magic, message_type, payload, checksum(payload), out);
}

/// As [`encode`], for a caller that has hashed the payload: `checksum` is the first four bytes of its
/// double SHA-256. Many payloads are hashed at once by [`Hasher::many`](crate::sha256d::Hasher::many).
///
/// # Panics
///
/// If the payload does not fit 32 bits.
pub fn encode_with_checksum(
    magic: [u8; 4],
    message_type: MessageType,
    payload: &[u8],
    checksum: [u8; 4],
    out: &mut Vec<u8>,
) {
    let length = u32::try_from(payload.len()).expect("payloads have less than 2^32 bytes");
    out.reserve(HEADER_LEN + payload.len());
    out.extend_from_slice(&magic);
    out.extend_from_slice(message_type.padded());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&checksum);
    append(out, payload);
}

/// The message at the beginning of `bytes`, or `None` if it has not come whole.
///
/// # Errors
///
/// See [`Error`]; of a wrong magic, type or length as soon as the header is
/// there.
pub fn decode(magic: [u8; 4], bytes: &[u8]) -> Result<Option<Message<'_>>, Error> {
    let Some((found, rest)) = bytes.split_first_chunk() else {
        return Ok(None);
    };
    if *found != magic {
        return Err(Error::Magic { found: *found });
    }
    let Some((name, rest)) = rest.split_first_chunk() else {
        return Ok(None);
    };
    let Some((&length, rest)) = rest.split_first_chunk() else {
        return Ok(None);
    };
    let message_type = MessageType::from_padded(name).map_err(Error::Type)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_PAYLOAD_LEN {
        return Err(Error::TooLong { length });
    }
    let Some((expected, rest)) = rest.split_first_chunk() else {
        return Ok(None);
    };
    let Some(payload) = rest.get(..length) else {
        return Ok(None);
    };
    if checksum(payload) != *expected {
        return Err(Error::Checksum { message_type });
    }
    Ok(Some(Message {
        message_type,
        payload,
    }))
}

/// The first four bytes of the double SHA-256.
fn checksum(payload: &[u8]) -> [u8; 4] {
    let digest = Sha256::digest(Sha256::digest(payload));
    [digest[0], digest[1], digest[2], digest[3]]
}

/// Why bytes are no message of version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// They do not begin with the network's magic.
    Magic {
        /// What they begin with.
        found: [u8; 4],
    },
    /// The type is malformed.
    Type(MessageError),
    /// The payload is longer than [`MAX_PAYLOAD_LEN`].
    TooLong {
        /// The length in the header, in bytes.
        length: usize,
    },
    /// The checksum does not belong to the payload.
    Checksum {
        /// The type of that message.
        message_type: MessageType,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic {
                found: [a, b, c, d],
            } => {
                write!(f, "the message begins with {a:02x}{b:02x}{c:02x}{d:02x}: ")?;
                match Network::from_magic([*a, *b, *c, *d]) {
                    Some(network) => write!(f, "the peer is on {}", network.name()),
                    None => f.write_str("not the magic of this network"),
                }
            }
            Self::Type(error) => error.fmt(f),
            Self::TooLong { length } => write!(
                f,
                "the peer announced a payload of {length} bytes; the limit is {MAX_PAYLOAD_LEN}"
            ),
            Self::Checksum { message_type } => {
                write!(f, "the checksum of a {message_type} message is wrong")
            }
        }
    }
}

impl core::error::Error for Error {}
