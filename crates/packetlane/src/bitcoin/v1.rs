//! The framing of version 1, Bitcoin's unencrypted transport, for peers that speak nothing
//! else: magic (4 bytes), type (12 bytes, padded with zeros), length of the payload (4 bytes,
//! little-endian), checksum (the first 4 bytes of its double SHA-256), payload.
//!
//! ```
//! use packetlane::bitcoin::message::MessageType;
//! use packetlane::bitcoin::{Network, v1};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (magic, name) = (Network::Signet.magic(), MessageType::new(b"verack")?);
//! let verack = v1::Message::new(name, b"");
//! let mut wire = Vec::new();
//! verack.encode(magic, &mut wire);
//! assert_eq!(v1::Message::decode(magic, &wire[..23])?, None);
//! assert_eq!(v1::Message::decode(magic, &wire)?.map(|message| message.message_type), Some(name));
//! assert!(v1::Message::decode(Network::Mainnet.magic(), &wire).is_err());
//!
//! // A peer's messages, of which a damaged one is dropped.
//! *wire.last_mut().unwrap() ^= 1;
//! verack.encode(magic, &mut wire);
//! let (mut decoder, mut received) = (v1::Decoder::new(magic), &wire[..]);
//! let message = decoder.next(&mut received)?.unwrap();
//! assert_eq!((message.message_type, received.len()), (name, 0));
//! assert_eq!(decoder.ignored().messages, 1);
//! # Ok(())
//! # }
//! ```

use super::message::{Ignored, MessageError, MessageType};
use super::network::Network;
use crate::copy::append;
use alloc::vec::Vec;
use core::fmt;
use sha2::{Digest, Sha256};

/// A message: what [`Message::encode`] writes, or what [`Message::decode`] finds at the beginning
/// of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'b> {
    /// Its type.
    pub message_type: MessageType,
    /// Its payload.
    pub payload: &'b [u8],
}

impl<'b> Message<'b> {
    /// Length of the header in front of a payload, in bytes.
    pub const HEADER_LEN: usize = 4 + MessageType::MAX_LEN + 4 + 4;

    /// Longest payload of the network, in bytes.
    pub const MAX_PAYLOAD_LEN: usize = 4_000_000;

    /// The message of this type with this payload.
    #[must_use]
    pub const fn new(message_type: MessageType, payload: &'b [u8]) -> Self {
        Self {
            message_type,
            payload,
        }
    }

    /// Its length on the wire, in bytes.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        Self::HEADER_LEN + self.payload.len()
    }

    /// Appends the message to `out`.
    ///
    /// # Panics
    ///
    /// If the payload does not fit 32 bits.
    pub fn encode(&self, magic: [u8; 4], out: &mut Vec<u8>) {
        self.encode_with_checksum(magic, checksum(self.payload), out);
    }

    /// As [`Message::encode`], for a caller that has hashed the payload: `checksum` is the first
    /// four bytes of its double SHA-256. Many payloads are hashed at once by
    /// [`Hasher::hash_many`](crate::sha256d::Hasher::hash_many).
    ///
    /// # Panics
    ///
    /// If the payload does not fit 32 bits.
    pub fn encode_with_checksum(&self, magic: [u8; 4], checksum: [u8; 4], out: &mut Vec<u8>) {
        out.reserve(self.wire_len());
        out.extend_from_slice(&self.header(magic, checksum));
        append(out, self.payload);
    }

    /// The header of the message, for a caller that sends the payload from where it lies.
    ///
    /// # Panics
    ///
    /// If the payload does not fit 32 bits.
    #[must_use]
    pub fn encode_header(&self, magic: [u8; 4]) -> [u8; Message::HEADER_LEN] {
        self.header(magic, checksum(self.payload))
    }

    fn header(&self, magic: [u8; 4], checksum: [u8; 4]) -> [u8; Message::HEADER_LEN] {
        let length = u32::try_from(self.payload.len()).expect("payloads have less than 2^32 bytes");
        let mut header = [0; Message::HEADER_LEN];
        header[..4].copy_from_slice(&magic);
        header[4..16].copy_from_slice(self.message_type.padded());
        header[16..20].copy_from_slice(&length.to_le_bytes());
        header[20..].copy_from_slice(&checksum);
        header
    }

    /// The message at the beginning of `bytes`, or `None` if it has not come whole. [`Decoder`] goes
    /// through all that a peer sends.
    ///
    /// # Errors
    ///
    /// See [`Error`]; of a wrong magic, type or length as soon as the header is
    /// there. Of several the one that ends a connection.
    pub fn decode(magic: [u8; 4], bytes: &'b [u8]) -> Result<Option<Self>, Error> {
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
        let length = u32::from_le_bytes(length) as usize;
        if length > Self::MAX_PAYLOAD_LEN {
            return Err(Error::TooLong { length });
        }
        let message_type = MessageType::from_padded(name).map_err(|error| Error::Type {
            error,
            wire_len: Self::HEADER_LEN + length,
        })?;
        let Some((expected, rest)) = rest.split_first_chunk() else {
            return Ok(None);
        };
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        if checksum(payload) != *expected {
            return Err(Error::Checksum {
                message_type,
                wire_len: Self::HEADER_LEN + length,
            });
        }
        Ok(Some(Self::new(message_type, payload)))
    }
}

/// Takes the messages out of what a peer sends.
///
/// A message with a wrong checksum or a malformed type is dropped and counted, and does not end
/// the connection; a wrong magic or too long a payload does. So does Bitcoin Core
/// (`V1Transport`). The types of v1 are names, so none is unknown.
#[derive(Clone, Debug)]
pub struct Decoder {
    magic: [u8; 4],
    ignored: Ignored,
}

impl Decoder {
    /// For a peer on the network with this magic.
    #[must_use]
    pub fn new(magic: [u8; 4]) -> Self {
        Self {
            magic,
            ignored: Ignored::default(),
        }
    }

    /// What was dropped.
    #[must_use]
    pub fn ignored(&self) -> Ignored {
        self.ignored
    }

    /// Takes the next message from the front of `bytes`. `None` if it has not come whole: call
    /// again with the bytes that are left and those that come later.
    ///
    /// # Errors
    ///
    /// [`Error::Magic`] and [`Error::TooLong`], which end the connection. `bytes` then begin at
    /// that message.
    pub fn next<'b>(&mut self, bytes: &mut &'b [u8]) -> Result<Option<Message<'b>>, Error> {
        loop {
            match Message::decode(self.magic, bytes) {
                Ok(Some(message)) => {
                    *bytes = &bytes[message.wire_len()..];
                    return Ok(Some(message));
                }
                Ok(None) => return Ok(None),
                Err(Error::Type { wire_len, .. } | Error::Checksum { wire_len, .. }) => {
                    let Some(rest) = bytes.get(wire_len..) else {
                        return Ok(None);
                    };
                    *bytes = rest;
                    self.ignored.count(wire_len);
                }
                Err(error) => return Err(error),
            }
        }
    }
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
    Type {
        /// What is wrong with it.
        error: MessageError,
        /// The length of that message on the wire, in bytes.
        wire_len: usize,
    },
    /// The payload is longer than [`Message::MAX_PAYLOAD_LEN`].
    TooLong {
        /// The length in the header, in bytes.
        length: usize,
    },
    /// The checksum does not belong to the payload.
    Checksum {
        /// The type of that message.
        message_type: MessageType,
        /// Its length on the wire, in bytes.
        wire_len: usize,
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
            Self::Type { error, .. } => error.fmt(f),
            Self::TooLong { length } => write!(
                f,
                "the peer announced a payload of {length} bytes; the limit is {}",
                Message::MAX_PAYLOAD_LEN
            ),
            Self::Checksum { message_type, .. } => {
                write!(f, "the checksum of a {message_type} message is wrong")
            }
        }
    }
}

impl core::error::Error for Error {}
