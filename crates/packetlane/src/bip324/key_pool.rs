//! Public keys that are computed before they are needed.

use super::error::HandshakeError;
use super::keys::Keypair;
use crate::engine::Engine;
use crate::key_exchange::{ELLSWIFT_LEN, Encoded, Secret, ToEncode, encode_all};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use zeroize::Zeroizing;

/// Key pairs for the next handshakes, computed many at a time, in lanes (feature `std`). Creating the
/// key is about half of the work of a handshake; in lanes it takes less than half of its CPU time (Zen
/// 3, 64 keys at a time). A key is used once, and wiped.
///
/// After a `fork` both processes have the same keys, so the child's pool drops them.
///
/// ```
/// use packetlane::Engine;
/// use packetlane::bip324::{Connection, HandshakeConfig, KeyPool};
/// use packetlane::bitcoin::Network;
///
/// # fn main() -> Result<(), packetlane::bip324::HandshakeError> {
/// let engine = Engine::best();
/// let mut pool = KeyPool::new(engine, 64);
/// pool.fill()?;
/// let mut config = HandshakeConfig::random(Network::Mainnet.magic(), engine)?;
/// config.keypair = pool.take();
/// let connection = Connection::initiator(config)?;
/// # Ok(())
/// # }
/// ```
pub struct KeyPool {
    engine: Engine,
    keys: Vec<Keypair>,
    capacity: usize,
    /// How many [`KeyPool::take_or_compute`] computes next.
    at_once: usize,
    /// The id of the process that computed the keys.
    #[cfg(unix)]
    process: u32,
}

impl KeyPool {
    /// Creates an empty pool for at most `capacity` keys, which take about 150 bytes each.
    #[must_use]
    pub fn new(engine: Engine, capacity: usize) -> Self {
        Self {
            engine,
            keys: Vec::new(),
            capacity,
            at_once: 1,
            #[cfg(unix)]
            process: std::process::id(),
        }
    }

    /// Takes a key. `None` if the pool is empty: the handshake then computes one itself.
    #[must_use]
    pub fn take(&mut self) -> Option<Keypair> {
        self.drop_after_fork();
        self.keys.pop()
    }

    /// Takes a key. If the pool is empty, it first computes twice as many as the last time, up to its
    /// capacity: for programs that cannot fill it in idle time. One key is computed for who needs one,
    /// and at most as many are left over as were used.
    ///
    /// # Errors
    ///
    /// As for [`KeyPool::fill`].
    pub fn take_or_compute(&mut self) -> Result<Keypair, HandshakeError> {
        loop {
            if let Some(key) = self.take() {
                return Ok(key);
            }
            self.compute(self.at_once)?;
            self.at_once = self.capacity.min(2 * self.at_once).max(1);
        }
    }

    fn drop_after_fork(&mut self) {
        #[cfg(unix)]
        if self.process != std::process::id() {
            self.process = std::process::id();
            self.keys.clear();
        }
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns how many keys there is room for.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.capacity.saturating_sub(self.keys.len())
    }

    /// Whether it holds no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Computes keys until the pool is full.
    ///
    /// # Errors
    ///
    /// [`HandshakeError::NoEntropy`] if the operating system returns no random bytes.
    pub fn fill(&mut self) -> Result<(), HandshakeError> {
        self.add(self.capacity)
    }

    /// Computes up to `count` keys, as long as there is room: a few at a time, so that connections
    /// need not wait.
    ///
    /// # Errors
    ///
    /// As for [`KeyPool::fill`].
    pub fn add(&mut self, count: usize) -> Result<(), HandshakeError> {
        self.drop_after_fork();
        self.compute(count.min(self.missing()))
    }

    fn compute(&mut self, count: usize) -> Result<(), HandshakeError> {
        let random = || -> Result<Secret, HandshakeError> {
            let mut bytes = Box::new(Zeroizing::new([0; 32]));
            getrandom::fill(&mut **bytes).map_err(|_| HandshakeError::NoEntropy)?;
            Ok(bytes)
        };
        let mut made: Vec<(Secret, Secret, Encoded)> = Vec::with_capacity(count);
        while made.len() < count {
            let secret = random()?;
            if packetlane_lanes::is_secret_key(&secret) {
                made.push((secret, random()?, [0; ELLSWIFT_LEN]));
            }
        }
        let keys = made
            .iter_mut()
            .map(|(secret, auxiliary, encoded)| ToEncode {
                secret,
                auxiliary,
                encoded,
            });
        encode_all(self.engine.backend(), keys.collect());
        let keys = made.into_iter();
        self.keys
            .extend(keys.map(|(secret, _, encoded)| Keypair::computed(secret, encoded)));
        Ok(())
    }
}

impl fmt::Debug for KeyPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPool")
            .field("keys", &self.keys.len())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
