//! FSChaCha20 for the lengths of packets (BIP324, "Rekeying wrappers").
//!
//! Each length is masked with the next three bytes of a ChaCha20 keystream, whose nonce is the
//! epoch. After 224 lengths, the next 32 bytes of the same keystream become the next key.
//! [`FsChaCha20`] holds a key's whole keystream, 11 blocks, which one call computes.

use super::error::Exhausted;
use super::packet::LENGTH_LEN;
use super::rekey::{REKEY_INTERVAL, nonce};
use crate::arena::index;
use crate::engine::cpu::Cpu;
use packetlane_lanes::Key;
use zeroize::{Zeroize, Zeroizing};

/// Length of the masks of one key's packets, in bytes.
const MASKS_LEN: usize = LENGTH_LEN * REKEY_INTERVAL as usize;

/// Length of the keystream of one key, in bytes: the masks, then the next key. Exactly 11 blocks.
const STREAM_LEN: usize = MASKS_LEN + 32;

/// The length cipher of one direction. Encryption and decryption are the same operation.
#[repr(C)]
pub(super) struct FsChaCha20 {
    epoch: u64,
    stream: [u8; STREAM_LEN],
}

impl FsChaCha20 {
    /// Creates the cipher without keystream.
    pub(super) fn new(epoch: u64) -> Self {
        Self {
            epoch,
            stream: [0; STREAM_LEN],
        }
    }

    /// Computes the keystream of `key`.
    pub(super) fn set_key(&mut self, cpu: Cpu, key: &Key) {
        cpu.keystream(key, nonce(0, self.epoch), 0, &mut self.stream);
    }

    /// Encrypts or decrypts the next length, of [`LENGTH_LEN`] bytes. `used` counts the lengths
    /// that the key has masked.
    #[inline]
    pub(super) fn crypt(
        &mut self,
        cpu: Cpu,
        used: &mut u32,
        length: u32,
    ) -> Result<u32, Exhausted> {
        let number = self.next(cpu, used)?;
        *used = number + 1;
        let at = LENGTH_LEN * number as usize;
        // Reading four bytes is faster than reading three. The fourth always exists: the next key
        // follows.
        let mut mask = [0; 4];
        mask.copy_from_slice(&self.stream[at..at + 4]);
        Ok(length ^ u32::from_le_bytes(mask) & 0xff_ffff)
    }

    /// Returns the masks of the next `count` lengths, or of those left before the rekey if fewer,
    /// and adds them to `used`, the number of lengths that the key has masked.
    #[inline]
    pub(super) fn masks(
        &mut self,
        cpu: Cpu,
        used: &mut u32,
        count: usize,
    ) -> Result<&[[u8; LENGTH_LEN]], Exhausted> {
        let number = self.next(cpu, used)? as usize;
        let (masks, _) = self.stream[..MASKS_LEN].as_chunks();
        let masks = &masks[number..][..count.min(masks.len() - number)];
        *used += index(masks.len());
        Ok(masks)
    }

    /// Returns the index of the next length since the last rekey. Rekeys first if due.
    #[inline]
    fn next(&mut self, cpu: Cpu, used: &mut u32) -> Result<u32, Exhausted> {
        if *used >= REKEY_INTERVAL {
            self.rekey(cpu)?;
            *used = 0;
        }
        Ok(*used)
    }

    /// Prefetches the mask of length number `used`.
    #[inline]
    pub(super) fn prefetch(&self, used: u32) {
        let at = LENGTH_LEN * used.min(REKEY_INTERVAL) as usize;
        packetlane_lanes::prefetch(&self.stream[at]);
    }

    #[cold]
    fn rekey(&mut self, cpu: Cpu) -> Result<(), Exhausted> {
        self.epoch = self.epoch.checked_add(1).ok_or(Exhausted)?;
        let mut key = Zeroizing::new([0; 32]);
        key.copy_from_slice(&self.stream[MASKS_LEN..]);
        self.set_key(cpu, &key);
        Ok(())
    }

    pub(super) fn wipe(&mut self) {
        self.stream.zeroize();
    }
}
