//! Bitcoin's peer-to-peer messages, independent of the transport: networks, message types, and the
//! framing of version 1.
//!
//! - [`Network`]: the networks and their magic.
//! - [`message`]: a message's type and payload in the contents of a BIP324 packet.
//! - [`v1`]: a message in the unencrypted transport of version 1.
//!
//! ```
//! use packetlane::bitcoin::message::MessageType;
//! use packetlane::bitcoin::{Network, v1};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ping = MessageType::new(b"ping")?;
//! let nonce = 7_u64.to_le_bytes();
//!
//! // Version 2 encodes the type of a `ping` in one byte.
//! let mut contents = Vec::new();
//! ping.encode(&nonce, &mut contents);
//! assert_eq!(contents.len(), 1 + 8);
//! assert_eq!(MessageType::decode(&contents)?, (ping, &nonce[..]));
//!
//! // Version 1 has a header of 24 bytes.
//! let magic = Network::Mainnet.magic();
//! let mut wire = Vec::new();
//! v1::Message::new(ping, &nonce).encode(magic, &mut wire);
//! assert_eq!(wire.len(), 24 + 8);
//! let message = v1::Message::decode(magic, &wire)?.expect("it is whole");
//! assert_eq!((message.message_type, message.payload), (ping, &nonce[..]));
//! # Ok(())
//! # }
//! ```

pub mod message;
mod network;
pub mod v1;

pub use network::Network;
