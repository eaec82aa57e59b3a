//! The two halves of a session after its handshake.

use super::cipher::Cipher;
use super::inbound::Inbound;
use super::keys::SessionKeys;
use super::outbound::Outbound;
use super::{packet, rekey};
use crate::engine::Engine;
use crate::key_exchange::Role;
use alloc::vec::Vec;

/// An established session: the result of a [`Handshake`](super::Handshake).
///
/// After `fork`, only one of the two processes may use a session or handshake: otherwise both would
/// encrypt different packets with the same nonces. The library does not detect this.
#[derive(Debug)]
pub struct Session {
    /// The sending half.
    pub outbound: Outbound,
    /// The receiving half. It may already hold packets that followed the handshake.
    pub inbound: Inbound,
    pub(super) id: [u8; 32],
}

impl Session {
    /// Length of the encrypted length field before each packet, in bytes. It is little-endian.
    pub const LENGTH_LEN: usize = packet::LENGTH_LEN;

    /// Length of the header byte, in bytes.
    pub const HEADER_LEN: usize = packet::HEADER_LEN;

    /// How much longer a packet is than its contents, in bytes: length field, header byte and tag.
    pub const OVERHEAD: usize = packet::OVERHEAD;

    /// Maximum length of contents, in bytes: the length field has 24 bits.
    pub const MAX_CONTENTS_LEN: usize = packet::MAX_CONTENTS_LEN;

    /// Number of packets that one key protects (BIP324, "Rekeying wrappers").
    pub const REKEY_INTERVAL: u32 = rekey::REKEY_INTERVAL;

    /// Creates a session in `role` from keys that were not exchanged by a
    /// [`Handshake`](super::Handshake). The first genuine packet of each direction is still the
    /// version packet.
    #[must_use]
    pub fn from_keys(engine: Engine, keys: &SessionKeys, role: Role) -> Self {
        let [outbound, inbound] = Cipher::pair(engine, keys, role);
        Self {
            outbound: Outbound::new(outbound),
            inbound: Inbound::new(inbound, Inbound::DEFAULT_RECEIVE_LIMIT, Vec::new()),
            id: keys.session_id,
        }
    }

    /// Returns the session id, 32 bytes. Both sides have the same, unless the connection is
    /// intercepted. Users may compare it over another channel (BIP324, "Keys and session ID").
    #[must_use]
    pub fn id(&self) -> &[u8; 32] {
        &self.id
    }
}
