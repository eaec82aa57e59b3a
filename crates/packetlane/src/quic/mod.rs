//! QUIC packet protection (RFC 9001; RFC 9369 for version 2): the keys, the AEAD and
//! the header protection of packets, of many connections at once or one at a time.
//!
//! Everything here is sans-I/O, and nothing knows of frames, acknowledgements or
//! connections: who has those asks here for sealed packets and for the contents of
//! packets that came.
//!
//! - [`Secret`]: a traffic secret, what follows from it at a key update, and the
//!   secrets of Initial packets.
//! - [`Sealer`] and [`Opener`]: one direction of one packet number space. They put
//!   packets into a [`Batch`], which seals or opens those of all connections in one
//!   call, headers included, each with a verdict of its own. The caller brings the header
//!   of a packet; a [`ShortHeader`] is written here.
//! - [`PacketKey`] and [`HeaderKey`]: one packet at a time, AEAD and header apart.
//! - [`Header`]: where a packet's parts lie; [`encode_packet_number`] and
//!   [`decode_packet_number`]; [`retry_tag`] and [`verify_retry`].
//! - `rustls` and `quinn` (features of these names): all of that below rustls's and
//!   quinn's interfaces.
//!
//! ```
//! use packetlane::Engine;
//! use packetlane::quic::{
//!     Batch, Header, Opener, Sealer, Secret, ShortHeader, Version, encode_packet_number,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::detect()?;
//! let connection_id = [1, 2, 3, 4, 5, 6, 7, 8];
//! let [client, _server] = Secret::initial(Version::V1, &connection_id);
//! let mut opener = Opener::new(client.clone());
//! let mut sealer = Sealer::new(client);
//!
//! // Packet number 5, of which the peer has acknowledged those up to 3.
//! let header = ShortHeader {
//!     destination: &connection_id,
//!     spin: false,
//!     number: encode_packet_number(5, Some(3)).expect("3 is near"),
//! };
//! let mut batch = Batch::new();
//! let (slot, payload) = sealer.reserve_short(&mut batch, &header, 6)?;
//! payload.copy_from_slice(b"frames");
//! batch.seal(&engine);
//! let wire = batch.wire(&slot).to_vec();
//!
//! batch.clear();
//! let datagram = batch.feed(&wire);
//! let header = Header::parse(&batch.bytes()[datagram.clone()], 8)?;
//! let (offset, end) = (header.pn_offset, datagram.start + header.packet_len);
//! let slot = opener.push(&mut batch, datagram.start..end, offset)?;
//! batch.open(&engine);
//! let packet = opener.take(&batch, slot)?;
//! assert_eq!((packet.number, packet.payload), (5, &b"frames"[..]));
//! # Ok(())
//! # }
//! ```

mod batch;
mod header;
mod keys;
#[cfg(feature = "quinn")]
pub mod quinn;
mod retry;
#[cfg(feature = "rustls")]
pub mod rustls;
mod session;

pub use batch::Batch;
pub use header::{
    Header, HeaderError, MAX_CONNECTION_ID_LEN, MAX_PACKET_NUMBER, PacketNumber, PacketType,
    TooShort, decode_packet_number, encode_packet_number,
};
pub use keys::{BadTag, HeaderKey, KeyLenError, PacketKey, Secret};
pub use retry::{retry_tag, verify_retry};
pub use session::{KEY_UPDATE_MARGIN, OpenError, Opener, Packet, SealError, Sealer, ShortHeader};

/// Length of the sample of ciphertext that masks a header, in bytes (RFC 9001,
/// section 5.4.2).
pub const SAMPLE_LEN: usize = 16;

/// A version of QUIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Version {
    /// Version 1 (RFC 9000, RFC 9001).
    V1,
    /// Version 2 (RFC 9369): other labels, salt, Retry key and packet types.
    V2,
}

impl Version {
    /// Every version.
    pub const ALL: [Version; 2] = [Version::V1, Version::V2];

    /// The number in the Version field of long headers.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Version::V1 => 1,
            Version::V2 => 0x6b33_43cf,
        }
    }

    /// The version with this number, if it is one of these.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| version.number() == number)
    }
}

/// The algorithms of packet protection, by their AEAD (RFC 9001, section 5.3). A TLS
/// cipher suite names them together with a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Suite {
    /// `TLS_AES_128_GCM_SHA256`; that of Initial packets, too.
    Aes128Gcm,
    /// `TLS_AES_256_GCM_SHA384`.
    Aes256Gcm,
    /// `TLS_CHACHA20_POLY1305_SHA256`.
    ChaCha20Poly1305,
}

impl Suite {
    /// Every suite.
    pub const ALL: [Suite; 3] = [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::ChaCha20Poly1305];

    /// Length of its packet protection key, and of its header protection key, in
    /// bytes.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Suite::Aes128Gcm => 16,
            Suite::Aes256Gcm | Suite::ChaCha20Poly1305 => 32,
        }
    }

    /// Length of its traffic secrets, in bytes: that of its hash.
    #[must_use]
    pub const fn secret_len(self) -> usize {
        match self {
            Suite::Aes256Gcm => 48,
            Suite::Aes128Gcm | Suite::ChaCha20Poly1305 => 32,
        }
    }

    /// How many packets may be sealed with one key (RFC 9001, section 6.6, for packets
    /// of any length). Beyond it a key update is due. For ChaCha20-Poly1305 more than
    /// there are packet numbers.
    #[must_use]
    pub const fn confidentiality_limit(self) -> u64 {
        match self {
            Suite::Aes128Gcm | Suite::Aes256Gcm => 1 << 23,
            Suite::ChaCha20Poly1305 => u64::MAX,
        }
    }

    /// How many packets of one connection may fail to open, under all of its keys
    /// together (RFC 9001, section 6.6). With one more the connection must end.
    #[must_use]
    pub const fn integrity_limit(self) -> u64 {
        match self {
            Suite::Aes128Gcm | Suite::Aes256Gcm => 1 << 52,
            Suite::ChaCha20Poly1305 => 1 << 36,
        }
    }
}
