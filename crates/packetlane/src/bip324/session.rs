//! The two halves of a session after its handshake.

use super::cipher::Cipher;
use super::inbound::Inbound;
use super::keys::{Role, SessionKeys};
use super::outbound::Outbound;
use super::{packet, rekey};
use crate::engine::Engine;
use alloc::vec::Vec;

/// An established session: the result of a [`Handshake`](super::Handshake).
///
/// After a `fork`, no more than one of the two processes may use a session or a handshake: both
/// would encrypt different packets with the same nonces. Nothing here notices that.
#[derive(Debug)]
pub struct Session {
    /// The sending half.
    pub outbound: Outbound,
    /// The receiving half. It may already hold packets that came with the end of the handshake.
    pub inbound: Inbound,
    pub(super) id: [u8; 32],
}

impl Session {
    /// Length of the encrypted length in front of a packet, in bytes. It is little-endian.
    pub const LENGTH_LEN: usize = packet::LENGTH_LEN;

    /// Length of the header byte, in bytes.
    pub const HEADER_LEN: usize = packet::HEADER_LEN;

    /// Length of a packet beyond its contents: length, header and tag, in bytes.
    pub const OVERHEAD: usize = packet::OVERHEAD;

    /// Longest contents that the format carries, in bytes: its length has 24 bits.
    pub const MAX_CONTENTS_LEN: usize = packet::MAX_CONTENTS_LEN;

    /// How many packets one key serves (BIP324, "Rekeying wrappers").
    pub const REKEY_INTERVAL: u32 = rekey::REKEY_INTERVAL;

    /// A session in `role` with keys that were not exchanged by a
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

    /// The session id, 32 bytes. It is equal on both sides unless the connection is
    /// intercepted. Users may compare it over another channel (BIP324, "Keys and session ID").
    #[must_use]
    pub fn id(&self) -> &[u8; 32] {
        &self.id
    }
}
