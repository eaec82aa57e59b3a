//! The framing of version 1, Bitcoin's unencrypted transport, for peers that support nothing else:
//! magic (4 bytes), type (12 bytes, padded with zeros), payload length (4 bytes, little-endian),
//! checksum (the first 4 bytes of the payload's double SHA-256), payload.
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
//! // A peer's messages. The damaged one is dropped.
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

/// A message: [`Message::encode`] writes it, [`Message::decode`] finds it at the start of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'b> {
    /// The message's type.
    pub message_type: MessageType,
    /// The message's payload.
    pub payload: &'b [u8],
}

impl<'b> Message<'b> {
    /// Length of the header before a payload, in bytes.
    pub const HEADER_LEN: usize = 4 + MessageType::MAX_LEN + 4 + 4;

    /// Maximum length of a payload on the network, in bytes.
    pub const MAX_PAYLOAD_LEN: usize = 4_000_000;

    /// Creates a message with this type and payload.
    #[must_use]
    pub const fn new(message_type: MessageType, payload: &'b [u8]) -> Self {
        Self {
            message_type,
            payload,
        }
    }

    /// Returns the length of the message on the wire, in bytes.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        Self::HEADER_LEN + self.payload.len()
    }

    /// Appends the message to `out`.
    ///
    /// # Panics
    ///
    /// If the payload is 2^32 bytes or longer.
    pub fn encode(&self, magic: [u8; 4], out: &mut Vec<u8>) {
        self.encode_with_checksum(magic, checksum(self.payload), out);
    }

    /// Like [`Message::encode`], for a caller that has hashed the payload: `checksum` is the first
    /// four bytes of its double SHA-256. [`Hasher::hash_many`](crate::sha256d::Hasher::hash_many)
    /// hashes many payloads at once.
    ///
    /// # Panics
    ///
    /// If the payload is 2^32 bytes or longer.
    pub fn encode_with_checksum(&self, magic: [u8; 4], checksum: [u8; 4], out: &mut Vec<u8>) {
        out.reserve(self.wire_len());
        out.extend_from_slice(&self.header(magic, checksum));
        append(out, self.payload);
    }

    /// Returns the header of the message, for a caller that sends the payload without copying it.
    ///
    /// # Panics
    ///
    /// If the payload is 2^32 bytes or longer.
    #[must_use]
    pub fn encode_header(&self, magic: [u8; 4]) -> [u8; Message::HEADER_LEN] {
        self.header(magic, checksum(self.payload))
    }

    fn header(&self, magic: [u8; 4], checksum: [u8; 4]) -> [u8; Message::HEADER_LEN] {
        let length =
            u32::try_from(self.payload.len()).expect("payloads are shorter than 2^32 bytes");
        let mut header = [0; Message::HEADER_LEN];
        header[..4].copy_from_slice(&magic);
        header[4..16].copy_from_slice(self.message_type.padded());
        header[16..20].copy_from_slice(&length.to_le_bytes());
        header[20..].copy_from_slice(&checksum);
        header
    }

    /// Returns the message at the start of `bytes`, or `None` if it is incomplete. To read a stream
    /// of messages, use [`Decoder`].
    ///
    /// # Errors
    ///
    /// See [`Error`]. A wrong magic, type or length is reported as soon as the header is complete.
    /// If there are several errors, reports the one that ends a connection.
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

/// Extracts messages from the bytes that a peer sends.
///
/// A message with a wrong checksum or a malformed type is dropped and counted; the connection
/// continues. A wrong magic or too long a payload ends it. Bitcoin Core does the same
/// (`V1Transport`). v1 spells types out, so no type is unknown.
#[derive(Clone, Debug)]
pub struct Decoder {
    magic: [u8; 4],
    ignored: Ignored,
}

impl Decoder {
    /// Creates a decoder for a peer on the network with this magic.
    #[must_use]
    pub fn new(magic: [u8; 4]) -> Self {
        Self {
            magic,
            ignored: Ignored::default(),
        }
    }

    /// Returns what was dropped.
    #[must_use]
    pub fn ignored(&self) -> Ignored {
        self.ignored
    }

    /// Returns the next message and removes it from the front of `bytes`. Returns `None` if the
    /// message is incomplete: call again with the remaining bytes followed by those that arrive
    /// later.
    ///
    /// # Errors
    ///
    /// [`Error::Magic`] and [`Error::TooLong`], which end the connection. `bytes` then begins at
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

/// Returns the first four bytes of the double SHA-256.
fn checksum(payload: &[u8]) -> [u8; 4] {
    let digest = Sha256::digest(Sha256::digest(payload));
    [digest[0], digest[1], digest[2], digest[3]]
}

/// Why bytes are not a version 1 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The message does not begin with the network's magic.
    Magic {
        /// The bytes found in its place.
        found: [u8; 4],
    },
    /// The type is malformed.
    Type {
        /// The error in the type.
        error: MessageError,
        /// Length of that message on the wire, in bytes.
        wire_len: usize,
    },
    /// The payload is longer than [`Message::MAX_PAYLOAD_LEN`].
    TooLong {
        /// The length in the header, in bytes.
        length: usize,
    },
    /// The checksum does not match the payload.
    Checksum {
        /// The message's type.
        message_type: MessageType,
        /// Length of the message on the wire, in bytes.
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
