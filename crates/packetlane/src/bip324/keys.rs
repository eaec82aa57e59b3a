//! The key exchange: ElligatorSwift public keys, the shared secret, and the keys that HKDF
//! derives from it (BIP324, "Key exchange" and "Keys and session ID").

use super::error::HandshakeError;
use super::packet::TERMINATOR_LEN;
use crate::engine::Engine;
use crate::key_exchange::{
    ELLSWIFT_LEN, Encoded, Role, Secret, ToEncode, ToShare, encode_all, share_all,
};
use alloc::boxed::Box;
use alloc::vec;
use core::fmt;
use hkdf::Hkdf;
use packetlane_lanes::is_secret_key;
use sha2::Sha256;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// A secret key and its ElligatorSwift public key (BIP324, "ElligatorSwift encoding"). The secret
/// is wiped on drop.
#[derive(Clone)]
pub struct Keypair {
    secret: Secret,
    public: Encoded,
}

impl Keypair {
    /// Length of a public key on the wire, in bytes.
    pub const ELLSWIFT_LEN: usize = ELLSWIFT_LEN;

    /// Computes the public key of `secret`, a big-endian number.
    ///
    /// One public key has many encodings. `auxiliary`, 32 fresh random bytes, chooses one. It
    /// protects the secret and need not be kept.
    ///
    /// # Errors
    ///
    /// [`HandshakeError::SecretKey`] if `secret` is zero or not below the group order of secp256k1.
    /// For random bytes, the probability is less than 2^-127.
    pub fn new(secret: &[u8; 32], auxiliary: &[u8; 32]) -> Result<Self, HandshakeError> {
        Self::new_on(Engine::best(), secret, auxiliary)
    }

    /// The same on the backend of `engine`.
    pub(super) fn new_on(
        engine: Engine,
        secret: &[u8; 32],
        auxiliary: &[u8; 32],
    ) -> Result<Self, HandshakeError> {
        let mut keypair = Self::from_parts(secret, [0; ELLSWIFT_LEN])?;
        let key = ToEncode {
            secret: &keypair.secret,
            auxiliary,
            encoded: &mut keypair.public,
        };
        encode_all(engine.backend(), vec![key]);
        Ok(keypair)
    }

    /// Combines a secret key with a public key encoding that was computed before. Does not check
    /// that they match.
    ///
    /// # Errors
    ///
    /// As for [`Keypair::new`].
    pub fn from_parts(
        secret: &[u8; 32],
        public: [u8; ELLSWIFT_LEN],
    ) -> Result<Self, HandshakeError> {
        if !is_secret_key(secret) {
            return Err(HandshakeError::SecretKey);
        }
        let mut copy = Box::new(Zeroizing::new([0; 32]));
        copy.copy_from_slice(secret);
        Ok(Self::computed(copy, public))
    }

    /// Combines a valid secret key with its encoding.
    pub(super) fn computed(secret: Secret, public: Encoded) -> Self {
        Self { secret, public }
    }

    /// Returns the secret key.
    pub(super) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Returns the encoded public key, as sent on the wire.
    #[must_use]
    pub fn public(&self) -> &[u8; ELLSWIFT_LEN] {
        &self.public
    }

    /// Computes the secret that this key, in `role`, shares with the peer's public key `theirs`
    /// (BIP324's `v2_ecdh`). Any 64 bytes encode a public key. The result is wiped on drop, and
    /// boxed so that a move leaves no copy.
    #[must_use]
    pub fn shared_secret(
        &self,
        theirs: &[u8; ELLSWIFT_LEN],
        role: Role,
    ) -> Box<Zeroizing<[u8; 32]>> {
        self.shared_secret_on(Engine::best(), theirs, role)
    }

    /// The same on the backend of `engine`.
    pub(super) fn shared_secret_on(
        &self,
        engine: Engine,
        theirs: &[u8; ELLSWIFT_LEN],
        role: Role,
    ) -> Secret {
        let mut shared = Box::new(Zeroizing::new([0; 32]));
        let key = ToShare {
            secret: &self.secret,
            ours: &self.public,
            theirs,
            role,
            shared: &mut shared,
        };
        share_all(engine.backend(), vec![key]);
        shared
    }
}

impl ZeroizeOnDrop for Keypair {}

impl fmt::Debug for Keypair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keypair").finish_non_exhaustive()
    }
}

/// Computes the secrets that keys share with encoded public keys.
#[cfg(feature = "internals")]
pub(crate) fn shared_secrets(
    backend: packetlane_lanes::Backend,
    keys: &[(&Keypair, &Encoded, Role)],
) -> alloc::vec::Vec<Secret> {
    let mut shared: alloc::vec::Vec<Secret> = keys.iter().map(|_| Box::default()).collect();
    let to_share = keys.iter().zip(&mut shared);
    let to_share = to_share.map(|((ours, theirs, role), shared)| ToShare {
        secret: ours.secret(),
        ours: ours.public(),
        theirs,
        role: *role,
        shared,
    });
    share_all(backend, to_share.collect());
    shared
}

/// The keys that both sides derive from the shared secret (BIP324, "Keys and session ID"). Wiped on
/// drop.
pub struct SessionKeys {
    /// The FSChaCha20 key for lengths that the initiator sends.
    pub initiator_length: [u8; 32],
    /// The FSChaCha20Poly1305 key for packets that the initiator sends.
    pub initiator_packet: [u8; 32],
    /// The FSChaCha20 key for lengths that the responder sends.
    pub responder_length: [u8; 32],
    /// The FSChaCha20Poly1305 key for packets that the responder sends.
    pub responder_packet: [u8; 32],
    /// The garbage terminator that the initiator sends.
    pub initiator_terminator: [u8; TERMINATOR_LEN],
    /// The garbage terminator that the responder sends.
    pub responder_terminator: [u8; TERMINATOR_LEN],
    /// The session id. Both sides have the same, unless the connection is intercepted.
    pub session_id: [u8; 32],
}

impl SessionKeys {
    /// Length of a garbage terminator, in bytes.
    pub const TERMINATOR_LEN: usize = TERMINATOR_LEN;

    /// Derives the keys with HKDF-SHA256 for the network with this magic. They are boxed so that a
    /// move leaves no copy.
    #[must_use]
    pub fn derive(shared_secret: &[u8; 32], magic: [u8; 4]) -> Box<Self> {
        let mut salt = *b"bitcoin_v2_shared_secret....";
        salt[24..].copy_from_slice(&magic);
        let hkdf = Hkdf::<Sha256>::new(Some(&salt), shared_secret);
        // Keys are written in place, for the same reason.
        let expand = |info: &[u8], place: &mut [u8; 32]| {
            hkdf.expand(info, place)
                .expect("32 bytes are less than HKDF's 255 * 32");
        };
        let mut keys = Box::new(Self {
            initiator_length: [0; 32],
            initiator_packet: [0; 32],
            responder_length: [0; 32],
            responder_packet: [0; 32],
            initiator_terminator: [0; TERMINATOR_LEN],
            responder_terminator: [0; TERMINATOR_LEN],
            session_id: [0; 32],
        });
        expand(b"initiator_L", &mut keys.initiator_length);
        expand(b"initiator_P", &mut keys.initiator_packet);
        expand(b"responder_L", &mut keys.responder_length);
        expand(b"responder_P", &mut keys.responder_packet);
        expand(b"session_id", &mut keys.session_id);
        let mut terminators = Zeroizing::new([0; 32]);
        expand(b"garbage_terminators", &mut terminators);
        let (initiator, responder) = terminators.split_at(TERMINATOR_LEN);
        keys.initiator_terminator.copy_from_slice(initiator);
        keys.responder_terminator.copy_from_slice(responder);
        keys
    }
}

impl Drop for SessionKeys {
    fn drop(&mut self) {
        self.initiator_length.zeroize();
        self.initiator_packet.zeroize();
        self.responder_length.zeroize();
        self.responder_packet.zeroize();
        self.initiator_terminator.zeroize();
        self.responder_terminator.zeroize();
        self.session_id.zeroize();
    }
}

impl ZeroizeOnDrop for SessionKeys {}

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionKeys").finish_non_exhaustive()
    }
}
