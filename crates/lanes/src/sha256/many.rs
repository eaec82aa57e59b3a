//! Messages of any lengths.
//!
//! A lane takes a message, and takes the next one when that ends, so that messages of different
//! lengths keep the lanes busy. Blocks are read in place. Only blocks that contain a message's end,
//! or that cross from one of its pieces to the next, are copied first. When so few messages are
//! left that most lanes would be idle, [`Serial`] kernels finish them.

use super::message::{Rest, Staged};
use super::threshold::LaneThreshold;
use crate::job::Digest;
use crate::kernels::sha256::{INITIAL_STATE, Lanes, Serial, Stream, digest};
use crate::vector::{Aligned, MAX_LANES};
use arrayvec::ArrayVec;
use core::mem::MaybeUninit;

/// Computes the SHA-256 of each of `messages`. A message is the concatenation of the pieces of an
/// array.
///
/// # Panics
///
/// If `digests` and `messages` differ in length.
pub(crate) fn many<const N: usize>(
    threshold: LaneThreshold,
    messages: &[[&[u8]; N]],
    digests: &mut [Digest],
) {
    assert_eq!(messages.len(), digests.len(), "one digest for each message");
    if threshold.in_lanes(messages.len()) > 0 {
        return many_in_lanes(threshold, messages, digests);
    }
    let mut unstarted = 0..messages.len();
    one_by_one(threshold, digests, |staged| {
        let mut rest = Rest::new(messages, unstarted.next()?);
        let (next_block, blocks) = rest.next(staged)?;
        let state = INITIAL_STATE;
        Some((Stream { state, next_block }, blocks, rest))
    });
}

/// [`many`] in lanes, as long as these are faster.
fn many_in_lanes<const N: usize>(
    threshold: LaneThreshold,
    messages: &[[&[u8]; N]],
    digests: &mut [Digest],
) {
    let mut lanes = Lanes::all(core::ptr::null(), 0);
    let mut staged = Aligned([const { MaybeUninit::uninit() }; MAX_LANES]);
    let mut active = threshold.in_lanes(messages.len());
    let mut rests = ArrayVec::<_, MAX_LANES>::new();
    for index in 0..active {
        rests.push(Rest::new(messages, index));
    }
    let mut unstarted = active..messages.len();
    // Lanes whose blocks have all been hashed, one bit each.
    let mut ended = u32::MAX >> (MAX_LANES - active);
    loop {
        while ended != 0 {
            let l = ended.trailing_zeros() as usize;
            if let Some(run) = rests[l].next(&mut staged.0[l]) {
                (lanes.next_blocks[l], lanes.left[l]) = run;
                ended &= ended - 1;
                continue;
            }
            digests[rests[l].index] = digest(lanes.state(l));
            if let Some(index) = unstarted.next() {
                rests[l] = Rest::new(messages, index);
                lanes.set_state(l, INITIAL_STATE);
            } else {
                // Moves the last lane's message here, whether it has ended or not. If its next
                // block has been copied, it stays in the last lane's `staged`, which no other
                // message will use.
                active -= 1;
                rests[l] = rests[active];
                lanes.copy(active, l);
                if ended >> active == 0 {
                    ended &= ended - 1;
                }
                ended &= !(1 << active);
            }
        }
        let keep = threshold.in_lanes(active);
        if keep < active {
            let mut others = keep..active;
            one_by_one(threshold, digests, |_| {
                let l = others.next()?;
                let (state, next_block) = (lanes.state(l), lanes.next_blocks[l]);
                Some((Stream { state, next_block }, lanes.left[l], rests[l]))
            });
            active = keep;
        }
        if active == 0 {
            return;
        }
        // The other lanes of the vector hash the same blocks as lane 0.
        let width = threshold.width(active);
        for l in active..width {
            (lanes.next_blocks[l], lanes.left[l]) = (lanes.next_blocks[0], lanes.left[0]);
        }
        // SAFETY: each lane of the vector has `left` blocks at its pointer, in a message or in
        // `staged`, neither of which changes during the call.
        ended = unsafe { threshold.set.hash_run(&mut lanes, width) };
        ended &= u32::MAX >> (MAX_LANES - active);
    }
}

/// A message that is being hashed: its stream, how many blocks are available there, and the rest of
/// the message.
type Message<'a, const N: usize> = (Stream, usize, Rest<'a, N>);

/// Finishes messages two at a time, and the last one alone. `next` returns the next message,
/// and may put its first blocks into the buffer that it is given.
#[inline(always)]
fn one_by_one<'a, const N: usize>(
    threshold: LaneThreshold,
    digests: &mut [Digest],
    mut next: impl FnMut(&mut Staged) -> Option<Message<'a, N>>,
) {
    let Serial { one, two, .. } = threshold.serial;
    let (mut staged_a, mut staged_b) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let mut a = next(&mut staged_a);
    let mut b = next(&mut staged_b);
    loop {
        // SAFETY: the message's number of blocks is readable at its stream, in a message or in a
        // buffer that only changes when they have been hashed. The threshold has kernels of this
        // CPU.
        unsafe {
            match (&mut a, &mut b) {
                (Some((a, a_blocks, _)), Some((b, b_blocks, _))) => {
                    let blocks = (*a_blocks).min(*b_blocks);
                    two(a, b, blocks);
                    *a_blocks -= blocks;
                    *b_blocks -= blocks;
                }
                (Some((stream, blocks, _)), None) | (None, Some((stream, blocks, _))) => {
                    one(stream, *blocks);
                    *blocks = 0;
                }
                (None, None) => return,
            }
        }
        // A buffer is only written when its stream has no blocks left.
        if matches!(a, Some((_, 0, _))) {
            advance(&mut a, &mut staged_a, digests, &mut next);
        }
        if matches!(b, Some((_, 0, _))) {
            advance(&mut b, &mut staged_b, digests, &mut next);
        }
    }
}

/// Continues with a message's next blocks or, after its end, with the next message.
#[inline(always)]
fn advance<'a, const N: usize>(
    message: &mut Option<Message<'a, N>>,
    staged: &mut Staged,
    digests: &mut [Digest],
    next: impl FnOnce(&mut Staged) -> Option<Message<'a, N>>,
) {
    if let Some((stream, blocks, rest)) = message {
        if let Some(run) = rest.next(staged) {
            (stream.next_block, *blocks) = run;
        } else {
            digests[rest.index] = digest(stream.state);
            *message = next(staged);
        }
    }
}
