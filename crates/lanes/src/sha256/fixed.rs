//! Messages of a fixed length: 64 bytes hashed twice, or 32 bytes hashed once.

use super::many::many;
use super::threshold::LaneThreshold;
use crate::job::Digest;
use crate::vector::MAX_LANES;

/// Computes the double SHA-256 of each of `messages`; otherwise like [`many`].
pub(crate) fn many_twice<const N: usize>(
    threshold: LaneThreshold,
    messages: &[[&[u8]; N]],
    digests: &mut [Digest],
) {
    many(threshold, messages, digests);
    let count = digests.len();
    let digests = digests.as_mut_ptr();
    // SAFETY: messages and digests are the same `count` digests of 32 bytes and begin at the
    // same address. The kernels hash 32 bytes, and belong to this CPU.
    unsafe {
        fixed(
            threshold,
            |from, to, count, width| threshold.set.hash32(from, to, count, width),
            threshold.serial.hash32,
            digests,
            digests,
            count,
        )
    }
}

/// Computes the double SHA-256 of each of `messages`.
///
/// # Panics
///
/// If `digests` and `messages` differ in length.
pub(crate) fn many_64(threshold: LaneThreshold, messages: &[[u8; 64]], digests: &mut [Digest]) {
    assert_eq!(messages.len(), digests.len(), "one digest for each message");
    let (from, to) = (messages.as_ptr(), digests.as_mut_ptr());
    // SAFETY: there are as many messages as digests, as just asserted, and the references do
    // not overlap. The kernels hash 64 bytes twice, and belong to this CPU.
    unsafe {
        fixed(
            threshold,
            |from, to, count, width| threshold.set.hash64(from, to, count, width),
            threshold.serial.hash64,
            from,
            to,
            messages.len(),
        )
    }
}

/// Replaces the first half of `nodes` by the double SHA-256 of pairs: `nodes[i]` becomes that
/// of the 64 bytes of `nodes[2 * i]` and `nodes[2 * i + 1]`. An odd last node is ignored.
pub(crate) fn pairs(threshold: LaneThreshold, nodes: &mut [Digest]) {
    let count = nodes.len() / 2;
    let to = nodes.as_mut_ptr();
    // SAFETY: `nodes` holds `count` pairs of 64 bytes, and so `count` digests. Both begin at
    // the same address, so digest i lies where pair i / 2 was, which has been read by then. The
    // kernels hash 64 bytes twice, and belong to this CPU.
    unsafe {
        fixed(
            threshold,
            |from, to, count, width| threshold.set.hash64(from, to, count, width),
            threshold.serial.hash64,
            to.cast(),
            to,
            count,
        )
    }
}

/// Hashes messages of one length, in lanes if these are faster. Messages and digests may overlap if
/// both begin at the same address.
///
/// # Safety
///
/// `count` messages must be readable and `count` digests writable. The kernels must be those
/// for this length, and this CPU must have their instructions.
unsafe fn fixed<const LEN: usize>(
    threshold: LaneThreshold,
    in_lanes: impl Fn(*const [u8; LEN], *mut Digest, usize, usize),
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
        let width = threshold.width(now);
        // SAFETY: `left` messages and digests are left, of which the kernels take at most that
        // many, in order. The arrays have `MAX_LANES` messages and digests, and `width` is at
        // most that.
        unsafe {
            done += if now == 0 {
                one_by_one(from, to, left);
                left
            } else if now == width {
                let now = left - left % width;
                in_lanes(from, to, now, width);
                now
            } else {
                // The other lanes hash zeros.
                let mut padded = [[0; LEN]; MAX_LANES];
                let mut hashes = [[0; 32]; MAX_LANES];
                core::ptr::copy_nonoverlapping(from, padded.as_mut_ptr(), now);
                in_lanes(padded.as_ptr(), hashes.as_mut_ptr(), width, width);
                core::ptr::copy_nonoverlapping(hashes.as_ptr(), to, now);
                now
            };
        }
    }
}
