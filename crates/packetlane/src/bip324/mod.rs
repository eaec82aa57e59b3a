//! BIP324, version 2 of Bitcoin's peer-to-peer transport: encrypted,
//! authenticated, and from the first byte on indistinguishable from noise.
//!
//! Everything here is sans-I/O: bytes come in and go out as slices, and nothing
//! knows of sockets or of time.
//!
//! - [`Handshake`]: from the first byte to two ciphers, for both sides.
//! - [`Session`] with its halves [`Outbound`] and [`Inbound`]: packets, many at a
//!   time through a [`Batch`](crate::Batch) or one at a time.
//! - [`MessageType`], [`encode_message`], [`decode_message`]: what a packet's
//!   contents mean.
//! - [`Keypair`], [`SessionKeys`]: the key exchange alone.
//! - [`stream`]: all of it over tokio's streams.

mod cipher;
mod handshake;
mod keys;
mod message;
mod session;
#[cfg(feature = "tokio")]
pub mod stream;

pub use cipher::{Cipher, Exhausted, MAX_KEYSTREAM_AHEAD, REKEY_INTERVAL};
pub use handshake::{Handshake, HandshakeConfig, HandshakeError, MAX_GARBAGE_LEN, Progress};
pub use keys::{ELLSWIFT_LEN, Keypair, Role, SecretKeyError, SessionKeys, TERMINATOR_LEN};
pub use message::{
    MAX_TYPE_LEN, MessageError, MessageType, decode_message, encode_message, encoded_len,
};
pub use session::{
    DEFAULT_RECEIVE_LIMIT, Inbound, MAX_PREALLOCATION, OpenError, Outbound, PacketKind, Packets,
    SealError, Session,
};

/// Length of the encrypted length in front of a packet, in bytes.
pub const LENGTH_LEN: usize = 3;

/// Length of the header byte, in bytes.
pub const HEADER_LEN: usize = 1;

/// Length of a packet beyond its contents: length, header and tag, in bytes.
pub const OVERHEAD: usize = LENGTH_LEN + HEADER_LEN + crate::TAG_LEN;

/// Longest contents that the format carries, in bytes: its length has 24 bits.
pub const MAX_CONTENTS_LEN: usize = (1 << 24) - 1;

/// The bit of the header byte that marks a decoy. The other bits mean nothing:
/// they are sent as 0 and ignored.
const IGNORE_BIT: u8 = 0x80;

/// A Bitcoin network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Network {
    /// The network with the money.
    Mainnet,
    /// Test network 3.
    Testnet3,
    /// Test network 4 (BIP94).
    Testnet4,
    /// The default signet (BIP325). Other signets have a magic of their own.
    Signet,
    /// A private chain for tests.
    Regtest,
}

impl Network {
    /// Every network.
    pub const ALL: [Network; 5] = [
        Network::Mainnet,
        Network::Testnet3,
        Network::Testnet4,
        Network::Signet,
        Network::Regtest,
    ];

    /// The four bytes that v1 messages start with and that BIP324 mixes into
    /// its keys, in the order of the wire.
    #[must_use]
    pub const fn magic(self) -> [u8; 4] {
        match self {
            Network::Mainnet => [0xf9, 0xbe, 0xb4, 0xd9],
            Network::Testnet3 => [0x0b, 0x11, 0x09, 0x07],
            Network::Testnet4 => [0x1c, 0x16, 0x3f, 0x28],
            Network::Signet => [0x0a, 0x03, 0xcf, 0x40],
            Network::Regtest => [0xfa, 0xbf, 0xb5, 0xda],
        }
    }

    /// The name that node software gives it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Network::Mainnet => "main",
            Network::Testnet3 => "testnet3",
            Network::Testnet4 => "testnet4",
            Network::Signet => "signet",
            Network::Regtest => "regtest",
        }
    }

    /// The network with this magic, if it is one of these.
    #[must_use]
    pub fn from_magic(magic: [u8; 4]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|network| network.magic() == magic)
    }
}
