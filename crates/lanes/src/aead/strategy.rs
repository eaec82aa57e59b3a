//! Chooses the strategy for each part of a list of jobs. All thresholds of ChaCha20-Poly1305 are in
//! this file.
//!
//! `docs/internals/decisions.md` gives the figures behind the thresholds, with machine and date.

use crate::isa::Set;
use crate::job::{BLOCK_LEN, Job, blocks};
use crate::kernels::poly1305::short::MAX_SHORT_TEXT;
use crate::kernels::poly1305::text::{LANES_PER_TEXT, MAX_AAD, Text, group};
use crate::kernels::stitched_lanes::MAX_BLOCKS_TO_OPEN;
use crate::vector::MAX_LANES;
use core::ops::RangeInclusive;

/// Maximum number of packets that [`Strategy::Lanes`] takes at a time: enough to fill the lanes,
/// including texts of similar length for the tags, and few enough that data between the steps stays
/// in the first-level cache.
pub(super) const CHUNK: usize = 256;

/// A chunk ends early when its texts have this length in total, in bytes, so that they stay in the
/// second-level cache from one step to the next.
pub(super) const CHUNK_BYTES: usize = 128 * 1024;

/// A chunk of at most this many packets is long: it ends at [`LONG_CHUNK_BYTES`].
const LONG_CHUNK: usize = 64;

/// Total length of the texts at which a long chunk ends, in bytes, if their tags fill all lanes.
const LONG_CHUNK_BYTES: usize = 64 * 1024;

/// Minimum number of packets for which a chunk is sorted by counting instead of comparing.
pub(super) const COUNTING_SORT_THRESHOLD: usize = 32;

/// If packets are stitched, lists shorter than this are processed one packet at a time, unless a
/// kernel takes them together.
const MIN_LIST: usize = 4;

/// Minimum number of packets for which sealing a list is faster with [`Strategy::Long`].
const MIN_LONG_TO_SEAL: usize = 4;

/// Minimum number of packets for which opening a list is faster with [`Strategy::Long`].
const MIN_LONG_TO_OPEN: usize = 2;

/// Maximum number of blocks, after those that fill all lanes, that share a call with other packets'
/// blocks; more are computed in rows.
const MAX_TRAILING_BLOCKS: usize = 3;

/// Minimum number of blocks for which the rest of a stitched packet is sealed in lanes instead of
/// rows. This many blocks fill all lanes once.
pub(super) const SEAL_IN_LANES_THRESHOLD: usize = 8;

/// The same for opening. Exactly as many blocks as fill all lanes once also go there.
const OPEN_IN_LANES_THRESHOLD: usize = 11;

/// Minimum number of packets for which [`Strategy::StitchedLanes`] is faster than the others, if
/// there is a kernel for it.
const MIN_IN_STITCHED_LANES: usize = 3;

/// Maximum number of blocks of a packet for [`Strategy::StitchedLanes`].
const MAX_BLOCKS_IN_STITCHED_LANES: usize = 8;

/// Maximum number of blocks of a packet that goes to [`Strategy::StitchedLanes`] together with
/// others, in a list that is too short to be sorted.
const MAX_BLOCKS_OF_LONGER: usize = 16;
const _: () = assert!(MAX_BLOCKS_OF_LONGER <= MAX_BLOCKS_TO_OPEN);

/// Minimum number of packets for [`Strategy::StitchedLanes`] for which a list is sorted by
/// [`class`], if they are at least a third of it and not all in order.
const SORT_THRESHOLD: usize = 24;

/// Maximum number of packets that are sorted at a time.
pub(super) const SORTED: usize = 256;

/// Number of text blocks of packets that use [`Strategy::Lockstep`]. One block is for
/// [`Strategy::Short`], and from 4 KiB on a list is equally fast.
const LOCKSTEP_BLOCKS: RangeInclusive<usize> = 2..=48;

/// A turn is small, so that each packet is faster alone, if it has at most this many packets,
/// keystream blocks in total, and blocks per packet on average.
struct SmallTurn {
    packets: usize,
    blocks: usize,
    mean: usize,
}

/// For vectors of 512 bits, of 256 bits, and of fewer.
const SMALL_TURNS: [SmallTurn; 3] = [
    SmallTurn {
        packets: usize::MAX,
        blocks: 20,
        mean: usize::MAX,
    },
    SmallTurn {
        packets: 4,
        blocks: usize::MAX,
        mean: 8,
    },
    SmallTurn {
        packets: usize::MAX,
        blocks: 27,
        mean: 5,
    },
];

/// Minimum length, in bytes, for which a single text is sealed out of place if packets are not
/// stitched. Stitched packets are copied first.
const SINGLE_OUT_OF_PLACE_THRESHOLD: usize = 12 * 1024;

/// The same for several texts, on average: texts that fill half the lanes gain.
const LIST_OUT_OF_PLACE_THRESHOLD: usize = 1024;

/// How many bytes of a text are encrypted out of place before they are hashed: few enough that they
/// are still in the cache, and enough that the powers of r are rarely computed.
pub(super) const TILE: usize = 32 * 1024;
// All tiles but the last leave no lanes idle and no bytes to hash later.
const _: () = assert!(TILE.is_multiple_of(BLOCK_LEN * MAX_LANES));

/// Minimum length, in bytes, for which one message is hashed over all lanes of a vector. For
/// shorter messages, computing the powers of r costs more than it saves.
pub(super) const OVER_LANES_THRESHOLD: usize = 528;

/// Minimum length, in bytes, for which each of many messages may be hashed in four lanes.
const FOUR_LANES_THRESHOLD: usize = 384;

/// How jobs are sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// One packet at a time.
    Single,
    /// One packet after the other, most of the text in lanes. The hash of each is stitched into its
    /// own rounds and the first rounds of the next.
    Long,
    /// A short packet in each lane, in one kernel.
    Short,
    /// Packets with the same number of blocks, one in each lane, in one kernel.
    Lockstep,
    /// The blocks of all packets in lanes, with the hashes of earlier packets stitched into their
    /// rounds, in one kernel.
    StitchedLanes,
    /// Sorted first. Then each of [`super::sorted::Sorted::groups`] has its own strategy.
    Sorted,
    /// The blocks of all packets in one list, then a tag in each lane.
    Lanes,
}

impl Strategy {
    /// Returns how to seal the first jobs of a list, and how many of them. The list must not be
    /// empty.
    #[inline]
    pub(super) fn to_seal(set: Set, jobs: &[Job]) -> (Self, usize) {
        Self::next(set, jobs, MIN_LONG_TO_SEAL)
    }

    /// Returns how to open the first jobs of a list; see [`Strategy::to_seal`].
    #[inline]
    pub(super) fn to_open(set: Set, jobs: &[Job]) -> (Self, usize) {
        Self::next(set, jobs, MIN_LONG_TO_OPEN)
    }

    /// Returns how to seal the first jobs of a list out of place; see [`Strategy::to_seal`]:
    /// [`Strategy::Single`], [`Strategy::Lockstep`] or [`Strategy::Lanes`]. `None` if their texts
    /// should be copied first.
    #[inline]
    pub(super) fn to_seal_from(set: Set, jobs: &[Job]) -> (Option<Self>, usize) {
        if set.is_stitched() {
            return (None, jobs.len());
        }
        let is_long = |job: &&Job| job.text_len as usize >= SINGLE_OUT_OF_PLACE_THRESHOLD;
        let singles = jobs.iter().take_while(is_long).count();
        if singles > 0 {
            return (Some(Self::Single), singles);
        }
        match (short_packets(set, jobs), lockstep_packets(set, jobs)) {
            (0, 0) => {}
            (0, count) => return (Some(Self::Lockstep), count),
            (count, _) => return (None, count),
        }
        let others = jobs.iter().take_while(|job| !is_long(job)).count();
        // A few short texts between long ones are faster copied than in a list of their own.
        let gains = jobs[..others].iter().any(|job| has_runs(set, job));
        (gains.then_some(Self::Lanes), others)
    }

    #[inline]
    fn next(set: Set, jobs: &[Job], min_long: usize) -> (Self, usize) {
        if jobs.len() == 1 {
            return (Self::Single, 1);
        }
        let short = short_packets(set, jobs);
        if short == jobs.len() {
            return (Self::Short, short);
        }
        if set.stitches_lanes()
            && let Some(found) = Self::in_stitched_lanes(jobs)
        {
            return found;
        }
        if set.is_stitched() {
            if jobs.len() >= min_long && are_mostly_longer(set, jobs) {
                return (Self::Long, jobs.len());
            }
            let is_stitched = |job: &Job| is_stitched(set, job.blocks() as usize);
            if jobs.len() < MIN_LIST || jobs.iter().all(is_stitched) {
                return (Self::Single, jobs.len());
            }
        }
        match (short, lockstep_packets(set, jobs)) {
            (0, 0) => (Self::Lanes, jobs.len()),
            (0, count) => (Self::Lockstep, count),
            (count, _) => (Self::Short, count),
        }
    }

    /// Returns how many of the first jobs go to the kernel for stitched lanes, or are sorted first,
    /// if there are enough.
    #[inline]
    fn in_stitched_lanes(jobs: &[Job]) -> Option<(Self, usize)> {
        // Not the whole list: this is called again after each part that is sorted.
        let first = &jobs[..jobs.len().min(SORTED)];
        let (least, most) = block_counts(first);
        if is_sorted_first(first, least, most) {
            return Some((Self::Sorted, first.len()));
        }
        let count = match jobs.len() < SORT_THRESHOLD
            && least <= MAX_BLOCKS_IN_STITCHED_LANES
            && most <= MAX_BLOCKS_OF_LONGER
        {
            true => jobs.len(),
            false => jobs.iter().take_while(|job| fits(job)).count(),
        };
        let are_enough =
            count >= SORT_THRESHOLD || count >= MIN_IN_STITCHED_LANES && count == jobs.len();
        are_enough.then_some((Self::StitchedLanes, count))
    }
}

/// Whether a single packet of `blocks` keystream blocks has its hash stitched into its own rounds,
/// if more than one call computes them.
#[inline]
pub(super) fn is_stitched(set: Set, blocks: usize) -> bool {
    set.is_stitched() && blocks > set.row_blocks()
}

/// Whether one call of [`Set::stitched_rows`] fills all lanes: then [`Strategy::Long`] gains
/// nothing.
#[inline]
fn stitches_all_lanes(set: Set) -> bool {
    set.row_blocks() == set.block_lanes()
}

/// Returns how many blocks of a stitched packet are decrypted in lanes before the verdict. The
/// packet has `whole` whole blocks of text; the keystream of its `front` first blocks exists, and
/// that of `missing` blocks does not. The returned blocks fill all lanes.
#[inline]
pub(super) fn opened_in_lanes(set: Set, whole: usize, front: usize, missing: usize) -> usize {
    let (lanes, after) = (set.narrow_lanes(), whole.saturating_sub(front));
    let least = match stitches_all_lanes(set) {
        true => lanes,
        false => OPEN_IN_LANES_THRESHOLD,
    };
    if missing < least && missing != lanes {
        0
    } else {
        after - remainder(after, lanes)
    }
}

/// Returns `blocks` modulo `lanes`, which is a power of two. The compiler does not know that, and a
/// division would take longer than all other decisions for a packet.
#[inline(always)]
pub(super) fn remainder(blocks: usize, lanes: usize) -> usize {
    debug_assert!(lanes.is_power_of_two());
    blocks & (lanes - 1)
}

/// See [`crate::Kernels::is_small_turn`].
#[inline]
pub(crate) fn is_small_turn(set: Set, packets: usize, blocks: usize) -> bool {
    let [with_512, with_256, with_fewer] = &SMALL_TURNS;
    // Two registers form one vector.
    let small = match set.block_lanes() {
        32.. => with_512,
        16.. => with_256,
        _ => with_fewer,
    };
    packets <= small.packets
        && blocks <= small.blocks
        && blocks <= small.mean.saturating_mul(packets)
}

/// See [`crate::Kernels::is_faster_out_of_place`].
#[inline]
pub(crate) fn is_faster_out_of_place(set: Set, packets: usize, text_len: usize) -> bool {
    let least = match packets {
        0..=1 => SINGLE_OUT_OF_PLACE_THRESHOLD,
        _ => LIST_OUT_OF_PLACE_THRESHOLD,
    };
    text_len >= least.saturating_mul(packets.max(1)) && !set.is_stitched()
}

/// Returns the minimum and maximum number of keystream blocks of the packets of a list, including
/// block 0.
#[inline]
fn block_counts(jobs: &[Job]) -> (usize, usize) {
    // Computed from lengths, without an early exit: a few instructions for each packet.
    let (mut least, mut most) = (u32::MAX, 0);
    for job in jobs {
        least = least.min(job.text_len);
        most = most.max(job.text_len);
    }
    (blocks(least) as usize, blocks(most) as usize)
}

/// Whether a list has enough packets with more blocks than rows hold. If there are more packets
/// than lanes, half of all blocks must belong to such packets, because the hashes of the others
/// cannot be stitched.
#[inline]
fn are_mostly_longer(set: Set, jobs: &[Job]) -> bool {
    if stitches_all_lanes(set) {
        return false;
    }
    let (mut all, mut in_longer) = (0, 0);
    for blocks in jobs.iter().map(|job| job.blocks() as usize) {
        all += blocks;
        in_longer += if blocks > set.row_blocks() { blocks } else { 0 };
    }
    in_longer > 0 && (jobs.len() <= set.block_lanes() || 2 * in_longer >= all)
}

/// Returns the class of a packet in a list that is sorted: 0 if it is short; then by the number of
/// its blocks if it fits into [`Strategy::StitchedLanes`]; the last class otherwise. The two
/// highest block counts share a class, so that one word holds a counter for each class.
#[inline]
pub(super) fn class(job: &Job) -> usize {
    // Indexed by the blocks of text.
    const CLASS: [u8; MAX_BLOCKS_IN_STITCHED_LANES + 1] = [0, 0, 1, 2, 3, 4, 5, 5, 6];
    const _: () = assert!(CLASS[MAX_BLOCKS_IN_STITCHED_LANES] as usize == CLASSES - 1);
    let blocks = job.blocks() as usize - 1;
    CLASS[blocks.min(MAX_BLOCKS_IN_STITCHED_LANES)].into()
}

/// The number of classes.
pub(super) const CLASSES: usize = MAX_BLOCKS_IN_STITCHED_LANES - 1;

/// Whether a list of packets with `least` to `most` blocks is sorted first.
#[inline]
fn is_sorted_first(jobs: &[Job], least: usize, most: usize) -> bool {
    let least_class = least.max(2);
    jobs.len() >= SORT_THRESHOLD
        && least_class <= MAX_BLOCKS_IN_STITCHED_LANES
        && least_class < most
        && are_mixed(jobs)
}

/// Whether packets are not in order of their classes, and enough of them fit into
/// [`Strategy::StitchedLanes`].
#[inline(never)]
fn are_mixed(jobs: &[Job]) -> bool {
    !jobs.is_sorted_by_key(class) && {
        let count = jobs.iter().filter(|job| fits(job)).count();
        count >= SORT_THRESHOLD && 3 * count >= jobs.len()
    }
}

/// Whether a packet fits into [`Strategy::StitchedLanes`].
#[inline]
fn fits(job: &Job) -> bool {
    job.text_len as usize <= (MAX_BLOCKS_IN_STITCHED_LANES - 1) * BLOCK_LEN
}

/// Returns how many blocks at the end of a text share a call with those of other packets, in
/// [`Strategy::Long`]: all blocks after those that fill all lanes, if they are few; otherwise those
/// that rows do not hold.
#[inline]
pub(super) fn trailing_blocks(set: Set, job: &Job) -> usize {
    let whole = job.text_len as usize / BLOCK_LEN;
    let in_lanes = whole - remainder(whole, set.narrow_lanes());
    match job.blocks() as usize - 1 - in_lanes {
        few if few <= MAX_TRAILING_BLOCKS => few,
        many => many.saturating_sub(set.row_blocks()),
    }
}

/// Returns how many of the first jobs go to the kernel for short packets: multiples of its lanes,
/// plus the jobs after them if they are enough.
#[inline]
fn short_packets(set: Set, jobs: &[Job]) -> usize {
    let lanes = set.short_lanes();
    if lanes == 0 {
        return 0;
    }
    let fits =
        |job: &&Job| job.text_len as usize <= MAX_SHORT_TEXT && job.aad_len as usize <= MAX_AAD;
    let count = jobs.iter().take_while(fits).count();
    match count % lanes {
        rest if rest >= set.min_short() => count,
        rest => count - rest,
    }
}

/// Returns how many of the first jobs go to the kernel for packets in lockstep: multiples of its
/// lanes. These packets have the same number of blocks, as when one message goes to all peers, and
/// are sorted.
#[inline]
fn lockstep_packets(set: Set, jobs: &[Job]) -> usize {
    let lanes = set.lockstep_lanes();
    if lanes == 0 || jobs.len() < lanes {
        return 0;
    }
    let blocks = jobs[0].blocks() as usize;
    if !LOCKSTEP_BLOCKS.contains(&(blocks - 1)) {
        return 0;
    }
    let mut longest = u32::MAX;
    let fits = |job: &&Job| {
        let is_sorted = job.text_len <= core::mem::replace(&mut longest, job.text_len);
        is_sorted && job.aad_len == 0 && job.blocks() as usize == blocks
    };
    let count = jobs.iter().take_while(fits).count();
    count - count % lanes
}

/// Returns how many of the first `jobs` form a chunk; at least one.
pub(super) fn chunk(set: Set, jobs: &[Job]) -> usize {
    let mut len = 0;
    let mut bytes = 0;
    for job in jobs.iter().take(CHUNK) {
        let is_full = bytes + job.text_len as usize > CHUNK_BYTES;
        let are_long = bytes >= LONG_CHUNK_BYTES && len <= LONG_CHUNK;
        if len > 0 && (is_full || are_long && remainder(len, set.tag_lanes()) == 0) {
            break;
        }
        bytes += job.text_len as usize;
        len += 1;
    }
    len
}

/// Returns how many of the first jobs are opened with one call for both their one-time keys and
/// their texts' keystream. `None` if a call has too few lanes for that.
#[inline]
pub(super) fn one_call(set: Set, jobs: &[Job]) -> Option<usize> {
    let candidates = &jobs[..jobs.len().min(set.block_lanes() / 2)];
    let blocks: usize = candidates.iter().map(|job| job.blocks() as usize).sum();
    (blocks <= set.block_lanes()).then_some(candidates.len())
}

/// Whether a text fills at least half of the lanes.
#[inline]
pub(super) fn has_runs(set: Set, job: &Job) -> bool {
    job.text_len as usize >= set.block_lanes() / 2 * BLOCK_LEN
}

/// How a group of texts is tagged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagMethod {
    /// One text at a time.
    OneByOne,
    /// A text in each lane.
    Lanes,
    /// Each text spread over [`LANES_PER_TEXT`] lanes.
    FourLanes,
}

impl TagMethod {
    /// Returns how many of the first `texts` to tag next, and how. The texts are sorted from the
    /// longest to the shortest, in blocks of 16 bytes, and the list must not be empty.
    ///
    /// Costs are in tenths of a step of one message in general registers (one block of 16 bytes). A
    /// call in lanes costs 160 before its first and after its last step; with [`LANES_PER_TEXT`]
    /// lanes per text, another 190 for the powers of r. One message costs 20 before and after its
    /// steps; a long one costs 200 for the powers of r. [`Set::tag_step`] is the cost of a step in
    /// lanes.
    pub(super) fn next(set: Set, texts: &[Text]) -> (usize, Self) {
        let (lanes, step) = (set.tag_lanes(), set.tag_step());
        let len = texts[0].len as usize;
        let count_in_lanes = group(texts, lanes);
        let mut best = (count_in_lanes, Self::Lanes);
        let mut cost = 160 + len / 16 * step;
        if len >= FOUR_LANES_THRESHOLD {
            let count_in_fours = group(texts, lanes / LANES_PER_TEXT);
            let cost_in_fours = 350 + len / (16 * LANES_PER_TEXT) * step;
            if texts[count_in_fours - 1].len as usize >= FOUR_LANES_THRESHOLD
                && cost_in_fours * count_in_lanes < cost * count_in_fours
            {
                (best, cost) = ((count_in_fours, Self::FourLanes), cost_in_fours);
            }
        }
        let single = |text: &Text| match text.len as usize {
            len @ ..OVER_LANES_THRESHOLD => 10 * (len / 16 + 3),
            len => 200 + len / 16 * step / 8,
        };
        // The shortest text gives a lower bound of the sum, which usually decides.
        let texts = &texts[..best.0];
        if best.0 * single(&texts[best.0 - 1]) <= cost
            && texts.iter().map(single).sum::<usize>() <= cost
        {
            best.1 = Self::OneByOne;
        }
        best
    }
}
