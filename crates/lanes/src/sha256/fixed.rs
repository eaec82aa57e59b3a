//! Messages of one fixed length: 64 bytes twice, 32 bytes once.

use super::many::many;
use super::threshold::LaneThreshold;
use crate::job::Digest;
use crate::vector::MAX_LANES;

/// The double hash of each of `messages`, as [`many`].
pub(crate) fn many_twice<const N: usize>(
    threshold: LaneThreshold,
    messages: &[[&[u8]; N]],
    digests: &mut [Digest],
) {
    many(threshold, messages, digests);
    let count = digests.len();
    let digests = digests.as_mut_ptr();
    // SAFETY: as many digests, of 32 bytes.
    unsafe {
        fixed(
            threshold,
            |from, to, count| threshold.set.hash32(from, to, count),
            threshold.serial.hash32,
            digests,
            digests,
            count,
        )
    }
}

/// The double hash of each of `messages`.
///
/// # Panics
///
/// Unless there are as many `digests`.
pub(crate) fn many_64(threshold: LaneThreshold, messages: &[[u8; 64]], digests: &mut [Digest]) {
    assert_eq!(messages.len(), digests.len(), "a digest for each message");
    let (from, to) = (messages.as_ptr(), digests.as_mut_ptr());
    // SAFETY: as many messages and digests, which lie apart.
    unsafe {
        fixed(
            threshold,
            |from, to, count| threshold.set.hash64(from, to, count),
            threshold.serial.hash64,
            from,
            to,
            messages.len(),
        )
    }
}

/// Replaces the first half of `nodes` by the double hashes of pairs: `nodes[i]`
/// becomes that of `nodes[2 * i]` and `nodes[2 * i + 1]`, 64 bytes. If there is an odd
/// one, it is not touched, or not read.
pub(crate) fn pairs(threshold: LaneThreshold, nodes: &mut [Digest]) {
    let count = nodes.len() / 2;
    let to = nodes.as_mut_ptr();
    // SAFETY: as many pairs of 64 bytes; each digest is written where a pair lay that
    // comes before its own, or in the first half of its own.
    unsafe {
        fixed(
            threshold,
            |from, to, count| threshold.set.hash64(from, to, count),
            threshold.serial.hash64,
            to.cast(),
            to,
            count,
        )
    }
}

/// Hashes of messages of one length, in lanes as long as they pay. The digests may be
/// written where the messages lie, the first where the first one begins.
///
/// # Safety
///
/// There must be `count` messages and digests, and the kernels must be those for them.
unsafe fn fixed<const LEN: usize>(
    threshold: LaneThreshold,
    in_lanes: impl Fn(*const [u8; LEN], *mut Digest, usize),
    one_by_one: unsafe fn(*const [u8; LEN], *mut Digest, usize),
    messages: *const [u8; LEN],
    digests: *mut Digest,
    count: usize,
) {
    let mut done = 0;
    while done < count {
        let (from, to) = (messages.wrapping_add(done), digests.wrapping_add(done));
        let left = count - done;
        let now = threshold.in_lanes(left);
        let lanes = threshold.set.hash_lanes();
        // SAFETY: so many messages and digests are left.
        unsafe {
            done += if now == 0 {
                one_by_one(from, to, left);
                left
            } else if now == lanes {
                let now = left - left % lanes;
                in_lanes(from, to, now);
                now
            } else {
                // The other lanes hash zeros.
                let mut some = [[0; LEN]; MAX_LANES];
                let mut hashes = [[0; 32]; MAX_LANES];
                core::ptr::copy_nonoverlapping(from, some.as_mut_ptr(), now);
                in_lanes(some.as_ptr(), hashes.as_mut_ptr(), lanes);
                core::ptr::copy_nonoverlapping(hashes.as_ptr(), to, now);
                now
            };
        }
    }
}
