//! Double SHA-256 of many messages.

use crate::batch::{ElementData, packetlane_bytes};
use crate::engine::packetlane_engine;
use crate::handle::{call, list, list_mut, place};
use crate::status::{Error, packetlane_status};
use packetlane::sha256d::{Hash, Hasher};

/// Number of messages hashed per call of the library. Their list is on the stack. Large enough to
/// fill the lanes.
const PART: usize = 256;

/// A hasher on the engine's backend.
///
/// # Safety
///
/// As [`look`].
unsafe fn hasher(engine: *const packetlane_engine) -> Result<Hasher, Error> {
    // SAFETY: the caller's promise.
    let engine = unsafe { look!(engine)? };
    Ok(Hasher::with_backend(engine.engine.backend()))
}

/// Computes the double SHA-256 of `count` messages and writes 32 bytes for each to `digests`, in the
/// byte order of SHA-256's output. (Nodes display hashes with their bytes reversed.)
///
/// Fails with PACKETLANE_WRONG_LENGTH if `count` is larger than any allocation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_sha256d_many(
    engine: *const packetlane_engine,
    messages: *const packetlane_bytes,
    count: usize,
    digests: *mut u8,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for handles.
        let hasher = unsafe { hasher(engine)? };
        // SAFETY: the header's rules for pointers: a digest for each message.
        let (messages, digests) = unsafe {
            (
                list!(messages, count)?,
                list_mut(digests.cast::<Hash>(), count, "digests")?,
            )
        };
        let mut part: [&[u8]; PART] = [&[]; PART];
        // Check all messages before any digest is written.
        let argument = "messages";
        for (index, message) in messages.iter().enumerate() {
            // SAFETY: as above.
            unsafe { message.list(ElementData { argument, index })? };
        }
        for (messages, digests) in messages.chunks(PART).zip(digests.chunks_mut(PART)) {
            for (slot, message) in part.iter_mut().zip(messages) {
                // SAFETY: as above.
                *slot = unsafe { message.checked_list() };
            }
            hasher.hash_many(&part[..messages.len()], digests);
        }
        Ok(())
    })
}

/// Computes the double SHA-256 of `count` consecutive inputs of 64 bytes, such as pairs of Merkle tree
/// nodes. Writes 32 bytes for each to `digests`.
///
/// Fails with PACKETLANE_WRONG_LENGTH if `count` is larger than any allocation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_sha256d_64(
    engine: *const packetlane_engine,
    pairs: *const u8,
    count: usize,
    digests: *mut u8,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for handles.
        let hasher = unsafe { hasher(engine)? };
        // SAFETY: the header's rules for pointers: 64 bytes and a digest for each pair.
        let (pairs, digests) = unsafe {
            (
                list(pairs.cast(), count, "pairs")?,
                list_mut(digests.cast(), count, "digests")?,
            )
        };
        hasher.hash64(pairs, digests);
        Ok(())
    })
}

/// Computes Bitcoin's Merkle root of `count` leaves of 32 bytes and writes it to the 32 bytes at
/// `root`. The root of no leaves is all zeros. `mutated`, if not NULL, is set to whether both nodes of
/// a pair are equal: the same root then also belongs to a shorter list (CVE-2012-2459).
///
/// Fails with PACKETLANE_WRONG_LENGTH if `count` is larger than any allocation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_merkle_root(
    engine: *const packetlane_engine,
    leaves: *const u8,
    count: usize,
    root: *mut u8,
    mutated: *mut bool,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for handles.
        let hasher = unsafe { hasher(engine)? };
        // SAFETY: the header's rules for pointers.
        let (leaves, root) = unsafe {
            (
                list(leaves.cast::<Hash>(), count, "leaves")?,
                place(root.cast::<Hash>(), "root")?,
            )
        };
        let found = hasher.merkle_root(leaves);
        root.write(found.root);
        if !mutated.is_null() {
            // SAFETY: not NULL, and the header's rules for outputs.
            unsafe { mutated.write(found.mutated) };
        }
        Ok(())
    })
}
