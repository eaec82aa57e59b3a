//! How a list of jobs is done: which way each part of it goes. All thresholds are in this file.
//!
//! `docs/decisions.md` gives the figures behind the thresholds, with machine and date.

use crate::isa::Set;
use crate::job::{BLOCK_LEN, Job, blocks};
use crate::kernels::poly1305::short::SHORT;
use crate::kernels::poly1305::text::{LANES_PER_TEXT, MAX_AAD, Text, group};
use crate::kernels::stitched_lanes::MOST_TO_OPEN;
use crate::vector::MAX_LANES;
use core::ops::RangeInclusive;

/// The largest chunk of the lanes' way, in packets. It is large enough to fill the lanes, also
/// with texts of similar length for the tags, and small enough that the data between the steps
/// stays in the first-level cache.
pub(super) const CHUNK: usize = 256;

/// A chunk ends early when its texts have this length in total, in bytes, so that they stay in
/// the second-level cache from one step to the next.
pub(super) const CHUNK_BYTES: usize = 128 * 1024;

/// A chunk of so many packets at most ends as early as this, in bytes, where their tags fill all lanes.
const LONG_CHUNK: usize = 64;
const LONG_CHUNK_BYTES: usize = 64 * 1024;

/// From this many packets on, lanes are faster than short packets one at a time, even if the
/// keystream of these is precomputed.
const MANY_PRECOMPUTED: usize = 8;

/// From this many packets on, lanes are faster than long packets one at a time, each of them
/// stitched.
const MANY_STITCHED: usize = 6;

/// Below this many packets the pipeline is faster than lanes. From it on, it is not for packets that
/// need three keystream blocks, including block 0 (packets that need fewer never go through the
/// pipeline). From it on [`Strategy::Long`] is faster only on some CPUs, which is measured.
const MANY_PIPELINED: usize = 8;

/// From so many keystream blocks on a packet is long: the rounds of its own text hide its hash, and
/// lanes take longer than one packet after the other, however many there are.
const LONG: usize = 24;

/// From so many blocks on, which fill all lanes once, lanes take less time than rows to seal the rest
/// of a packet that is stitched.
pub(super) const TO_SEAL_IN_LANES: usize = 8;

/// The same to open. Where rows are computed in lanes themselves, it is one call. As many blocks as fill all
/// lanes once are faster there, too.
const TO_OPEN_IN_LANES: usize = 11;

/// From how many packets on a list is faster as [`Strategy::Long`], to seal and to open. If there are more
/// packets than lanes, half of their blocks must also be in those that have more than rows hold: the hash of
/// the others is stitched into nothing.
const MANY_LONG_TO_SEAL: usize = 4;
const MANY_LONG_TO_OPEN: usize = 2;

/// How many blocks behind those of all lanes take less time in one call with other packets', unhashed
/// beside it, than in rows.
const FEW_BEHIND: usize = 3;

/// From how many packets on [`Strategy::StitchedLanes`] is faster than other ways, where there is a kernel
/// for it, and for packets of how many blocks at most.
const MANY_IN_STITCHED_LANES: usize = 3;
const MOST_IN_STITCHED_LANES: usize = 8;

/// In a list that is too short to be sorted, packets of up to so many blocks go there too if another one
/// fits.
const MOST_BESIDE_FEWER: usize = 16;
const _: () = assert!(MOST_BESIDE_FEWER <= MOST_TO_OPEN);

/// From how many of these packets on a list is sorted by [`class`], if they are at least a third of it and
/// not all are in order; and how many packets are sorted at a time.
const MANY_SORTED: usize = 24;
pub(super) const SORTED: usize = 256;

/// Below how many keystream blocks in all packets are few, and how many blocks they have in the mean
/// at most: with vectors of 512 bits, of 256 bits and smaller ones.
const FEW: [(usize, usize); 3] = [(21, usize::MAX), (12, 5), (28, 5)];

/// How many blocks of text packets have for which [`Strategy::Lockstep`] is faster than other ways. Those
/// with one are [`Strategy::Short`]. From 4 KiB on a list takes as long.
const LOCKSTEP: RangeInclusive<usize> = 2..=48;

/// From so many bytes on a text that lies elsewhere is sealed or opened by itself. Not where packets are stitched:
/// there, texts are copied first.
const LONG_ELSEWHERE: usize = 12 * 1024;

/// How long several texts are in the mean, at least, for it to pay that they are not copied first: those that fill
/// half the lanes gain.
const MOSTLY_ELSEWHERE: usize = 1024;

/// How many bytes of such a text are encrypted before they are hashed, at most: so they are near then, and the powers
/// of r are computed seldom.
pub(super) const TILE: usize = 32 * 1024;
// All but the last leave neither lanes idle nor bytes to hash later.
const _: () = assert!(TILE.is_multiple_of(BLOCK_LEN * MAX_LANES));

/// From this length on, in bytes, one message is hashed over all lanes of a vector. For shorter
/// ones, computing the powers of r costs more than it saves.
pub(super) const OVER_LANES: usize = 528;

/// From this length on, in bytes, each of many messages may be hashed in four lanes.
const IN_FOUR_LANES: usize = 384;

/// A way to seal or open jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// One packet at a time.
    Single,
    /// One packet after the other, the hash of each stitched into the rounds of the next.
    Pipelined,
    /// One packet after the other, most of their text in lanes, the hash of each stitched into its own
    /// rounds and the first ones of the next.
    Long,
    /// A short packet in each lane, in one kernel.
    Short,
    /// A packet of as many blocks in each lane, in one kernel.
    Lockstep,
    /// The blocks of all packets in lanes, and beside their rounds the hashes of packets before, in one
    /// kernel.
    StitchedLanes,
    /// Sorted, and then each of [`super::sorted::Sorted::groups`] in a way of its own.
    Sorted,
    /// The blocks of all packets in one list, then a tag in each lane.
    Lanes,
}

impl Strategy {
    /// How to seal the first jobs of a list, and how many of them. The list must not be empty.
    /// `lists_in_lanes` says whether long lists are faster there than as [`Strategy::Long`].
    #[inline]
    pub(super) fn to_seal(
        set: Set,
        jobs: &[Job],
        lists_in_lanes: fn(Set) -> bool,
    ) -> (Self, usize) {
        let most = match jobs.len() >= MANY_PIPELINED && has_long(set) {
            true => set.row_blocks(),
            false => usize::MAX,
        };
        Self::next(set, jobs, (MANY_LONG_TO_SEAL, most), lists_in_lanes)
    }

    /// How to open the first jobs of a list, as [`Strategy::to_seal`].
    #[inline]
    pub(super) fn to_open(
        set: Set,
        jobs: &[Job],
        lists_in_lanes: fn(Set) -> bool,
    ) -> (Self, usize) {
        // The pipeline keeps a packet's keystream until its tag is checked. Where that is more
        // than rows hold, lanes are as fast.
        let most = set.row_blocks();
        Self::next(set, jobs, (MANY_LONG_TO_OPEN, most), lists_in_lanes)
    }

    /// How to seal the first jobs of a list whose texts lie elsewhere, as [`Strategy::to_seal`]:
    /// [`Strategy::Single`], [`Strategy::Lockstep`] or [`Strategy::Lanes`]. `None` if they are to be copied first.
    #[inline]
    pub(super) fn to_seal_elsewhere(set: Set, jobs: &[Job]) -> (Option<Self>, usize) {
        if set.is_stitched() {
            return (None, jobs.len());
        }
        let is_long = |job: &&Job| is_long_elsewhere(set, job);
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
        // Few short ones between long ones take less time in other ways than in a list of their own.
        let gain = jobs[..others].iter().any(|job| has_runs(set, job));
        (gain.then_some(Self::Lanes), others)
    }

    /// `many_long` says from how many packets on they may be [`Strategy::Long`], and `most_pipelined` how
    /// many blocks the packets of a pipeline have at most.
    #[inline]
    fn next(
        set: Set,
        jobs: &[Job],
        (many_long, most_pipelined): (usize, usize),
        lists_in_lanes: fn(Set) -> bool,
    ) -> (Self, usize) {
        if jobs.len() == 1 {
            return (Self::Single, 1);
        }
        let short = short_packets(set, jobs);
        if short == jobs.len() {
            return (Self::Short, short);
        }
        if set.stitches_lanes()
            && let Some(way) = Self::in_stitched_lanes(jobs)
        {
            return way;
        }
        if set.is_stitched()
            && let Some((least, most)) = block_counts(jobs)
        {
            let least_pipelined = 3 + usize::from(jobs.len() >= MANY_PIPELINED);
            if jobs.len() >= many_long && are_mostly_longer(set, jobs, most) {
                if jobs.len() < MANY_PIPELINED || !lists_in_lanes(set) {
                    return (Self::Long, jobs.len());
                }
            } else if least >= least_pipelined && most <= most_pipelined {
                return (Self::Pipelined, jobs.len());
            }
        }
        if is_single(set, jobs) {
            return (Self::Single, jobs.len());
        }
        match (short, lockstep_packets(set, jobs)) {
            (0, 0) => (Self::Lanes, jobs.len()),
            (0, count) => (Self::Lockstep, count),
            (count, _) => (Self::Short, count),
        }
    }

    /// How many of the first jobs go to the kernel for stitched lanes, or are sorted first, if there are
    /// enough.
    #[inline]
    fn in_stitched_lanes(jobs: &[Job]) -> Option<(Self, usize)> {
        // Not of the whole list: it comes back here as often as a part of it is sorted.
        let first = &jobs[..jobs.len().min(SORTED)];
        let (least, most) = block_counts(first)?;
        if is_sorted_first(first, least, most) {
            return Some((Self::Sorted, first.len()));
        }
        let count = match jobs.len() < MANY_SORTED
            && least <= MOST_IN_STITCHED_LANES
            && most <= MOST_BESIDE_FEWER
        {
            true => jobs.len(),
            false => {
                let goes = |job: &&Job| fits(job) && job.keystream_blocks == 0;
                jobs.iter().take_while(goes).count()
            }
        };
        let are_enough =
            count >= MANY_SORTED || count >= MANY_IN_STITCHED_LANES && count == jobs.len();
        are_enough.then_some((Self::StitchedLanes, count))
    }
}

/// Whether a single packet of `blocks` keystream blocks has its hash stitched into its own
/// rounds, if more than one call computes them.
#[inline]
pub(super) fn is_stitched(set: Set, blocks: usize) -> bool {
    set.is_stitched() && blocks > set.row_blocks()
}

/// Whether one call of [`Set::stitched_rows`] fills all lanes: then a list has nothing to gain there.
#[inline]
fn stitches_all_lanes(set: Set) -> bool {
    set.row_blocks() == set.block_lanes()
}

/// How many blocks of a stitched packet are decrypted in lanes before the verdict, if the keystream of
/// `front` of its `whole` whole blocks of text is there and that of `missing` blocks is not. They fill
/// all lanes.
#[inline]
pub(super) fn opened_in_lanes(set: Set, whole: usize, front: usize, missing: usize) -> usize {
    let (lanes, after) = (set.narrow_lanes(), whole.saturating_sub(front));
    let least = match stitches_all_lanes(set) {
        true => lanes,
        false => TO_OPEN_IN_LANES,
    };
    if missing < least && missing != lanes {
        0
    } else {
        after - remainder(after, lanes)
    }
}

/// `blocks` modulo `lanes`, which is a power of two. The compiler does not know that, and a division takes
/// longer than all else that is decided for a packet.
#[inline(always)]
pub(super) fn remainder(blocks: usize, lanes: usize) -> usize {
    debug_assert!(lanes.is_power_of_two());
    blocks & (lanes - 1)
}

/// See [`crate::Backend::are_few`].
#[inline]
pub(crate) fn are_few(set: Set, packets: usize, blocks: usize) -> bool {
    let [with_512, with_256, with_fewer] = FEW;
    // Two registers make one vector.
    let (most, mean) = match set.block_lanes() {
        32.. => with_512,
        16.. => with_256,
        _ => with_fewer,
    };
    blocks < most && blocks <= mean.saturating_mul(packets)
}

/// Whether some packets are done one at a time: two with some precomputed keystream; a few short ones
/// whose keystream is all precomputed; a few that are stitched, or many long ones.
#[inline]
fn is_single(set: Set, jobs: &[Job]) -> bool {
    if set.is_stitched()
        && (jobs.len() < MANY_STITCHED || are_long(jobs) || stitches_all_lanes(set))
        && jobs
            .iter()
            .all(|job| is_stitched(set, job.blocks() as usize))
    {
        return true;
    }
    match jobs {
        [_, _] => jobs.iter().all(|job| job.keystream_blocks > 0),
        _ => {
            jobs.len() < MANY_PRECOMPUTED
                && jobs
                    .iter()
                    .all(|job| job.is_short() && job.keystream_blocks > 1)
        }
    }
}

/// Whether all packets are long.
#[inline]
fn are_long(jobs: &[Job]) -> bool {
    jobs.iter().all(|job| job.blocks() as usize >= LONG)
}

/// How many keystream blocks the packets of a list have, including block 0: at least and at most. `None`
/// if any has precomputed keystream.
#[inline]
fn block_counts(jobs: &[Job]) -> Option<(usize, usize)> {
    // Lengths first, and no way out of the loop: a few instructions for each packet.
    let (mut least, mut most, mut precomputed) = (u32::MAX, 0, 0);
    for job in jobs {
        least = least.min(job.text_len);
        most = most.max(job.text_len);
        precomputed |= job.keystream_blocks;
    }
    (precomputed == 0).then(|| (blocks(least) as usize, blocks(most) as usize))
}

/// Whether a list of packets, of which the largest has `most` blocks, is faster as [`Strategy::Long`], if
/// it has enough packets.
#[inline]
fn are_mostly_longer(set: Set, jobs: &[Job], most: usize) -> bool {
    has_long(set)
        && most > set.row_blocks()
        && (jobs.len() <= set.block_lanes() || {
            let (mut all, mut in_longer) = (0, 0);
            for blocks in jobs.iter().map(|job| job.blocks() as usize) {
                all += blocks;
                in_longer += if blocks > set.row_blocks() { blocks } else { 0 };
            }
            2 * in_longer >= all
        })
}

/// The class of a packet in a list that is sorted: 0 if it is short, then by the number of its blocks if it
/// fits into [`Strategy::StitchedLanes`], and the last class for more. The two highest numbers share a class,
/// so that a word holds a counter for each class.
#[inline]
pub(super) fn class(job: &Job) -> usize {
    // By the blocks of text.
    const CLASS: [u8; MOST_IN_STITCHED_LANES + 1] = [0, 0, 1, 2, 3, 4, 5, 5, 6];
    const _: () = assert!(CLASS[MOST_IN_STITCHED_LANES] as usize == CLASSES - 1);
    let blocks = job.blocks() as usize - 1;
    CLASS[blocks.min(MOST_IN_STITCHED_LANES)].into()
}

/// The number of classes.
pub(super) const CLASSES: usize = MOST_IN_STITCHED_LANES - 1;

/// Whether a list of packets that have `least` to `most` blocks is sorted first.
#[inline]
fn is_sorted_first(jobs: &[Job], least: usize, most: usize) -> bool {
    let least_class = least.max(2);
    jobs.len() >= MANY_SORTED
        && least_class <= MOST_IN_STITCHED_LANES
        && least_class < most
        && are_mixed(jobs)
}

/// Whether packets are not in order of their classes, and enough of them fit into
/// [`Strategy::StitchedLanes`].
#[inline(never)]
fn are_mixed(jobs: &[Job]) -> bool {
    !jobs.is_sorted_by_key(class) && {
        let count = jobs.iter().filter(|job| fits(job)).count();
        count >= MANY_SORTED && 3 * count >= jobs.len()
    }
}

/// Whether a packet fits into [`Strategy::StitchedLanes`].
#[inline]
fn fits(job: &Job) -> bool {
    job.text_len as usize <= (MOST_IN_STITCHED_LANES - 1) * BLOCK_LEN
}

/// Whether lists may be done as [`Strategy::Long`].
#[inline]
pub(super) fn has_long(set: Set) -> bool {
    set.is_stitched() && !stitches_all_lanes(set)
}

/// How many blocks at the end of a text are computed in one call with those of other packets, where
/// packets are [`Strategy::Long`]. All blocks behind those that fill all lanes, if they are few; otherwise
/// those that rows do not hold.
#[inline]
pub(super) fn blocks_behind(set: Set, job: &Job) -> usize {
    let whole = job.text_len as usize / BLOCK_LEN;
    let in_lanes = whole - remainder(whole, set.narrow_lanes());
    match job.blocks() as usize - 1 - in_lanes {
        few if few <= FEW_BEHIND => few,
        many => many.saturating_sub(set.row_blocks()),
    }
}

/// How many of the first jobs go to the kernel for short packets: as many as fill its lanes, as
/// often as there are such jobs, and those after them if they are enough.
#[inline]
fn short_packets(set: Set, jobs: &[Job]) -> usize {
    let lanes = set.short_lanes();
    if lanes == 0 {
        return 0;
    }
    let fits = |job: &&Job| {
        job.text_len as usize <= SHORT
            && job.aad_len as usize <= MAX_AAD
            && job.keystream_blocks == 0
    };
    let count = jobs.iter().take_while(fits).count();
    match count % lanes {
        rest if rest >= set.short_least() => count,
        rest => count - rest,
    }
}

/// How many of the first jobs go to the kernel for packets in lockstep: as many as fill its lanes, as
/// often as there are such jobs. They have as many blocks, as has one message to all peers, and are
/// sorted.
#[inline]
fn lockstep_packets(set: Set, jobs: &[Job]) -> usize {
    let lanes = set.lockstep_lanes();
    if lanes == 0 || jobs.len() < lanes {
        return 0;
    }
    let blocks = jobs[0].blocks() as usize;
    if !LOCKSTEP.contains(&(blocks - 1)) {
        return 0;
    }
    let mut longest = u32::MAX;
    let fits = |job: &&Job| {
        let is_sorted = job.text_len <= core::mem::replace(&mut longest, job.text_len);
        let is_bare = job.aad_len == 0 && job.keystream_blocks == 0;
        is_sorted && is_bare && job.blocks() as usize == blocks
    };
    let count = jobs.iter().take_while(fits).count();
    count - count % lanes
}

/// Whether a text that lies elsewhere is sealed or opened by itself, from there.
#[inline]
pub(super) fn is_long_elsewhere(set: Set, job: &Job) -> bool {
    !set.is_stitched() && job.text_len as usize >= LONG_ELSEWHERE && job.keystream_blocks == 0
}

/// See [`crate::Backend::is_faster_from_elsewhere`].
#[inline]
pub(crate) fn is_faster_from_elsewhere(set: Set, packets: usize, text_len: usize) -> bool {
    let least = match packets {
        0..=1 => LONG_ELSEWHERE,
        _ => MOSTLY_ELSEWHERE,
    };
    text_len >= least.saturating_mul(packets.max(1)) && !set.is_stitched()
}

/// How many of the first `jobs` make a chunk; at least one.
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

/// How many of the first jobs are opened with one call for both their one-time keys and their
/// texts' keystream. `None` if one call has too few lanes for that.
#[inline]
pub(super) fn one_call(set: Set, jobs: &[Job]) -> Option<usize> {
    let missing = |job: &Job| job.blocks().saturating_sub(job.keystream_blocks) as usize;
    let candidates = &jobs[..jobs.len().min(set.block_lanes() / 2)];
    let missing = candidates.iter().map(missing).sum::<usize>();
    // Packets that lack no keystream need no call at all.
    let fits = missing <= set.block_lanes() && (missing > 0 || candidates.len() == jobs.len());
    fits.then_some(candidates.len())
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
    /// How many of the first `texts` to tag next, and how. The texts are sorted from the
    /// longest to the shortest, in blocks of 16 bytes, and the list must not be empty.
    ///
    /// Costs are in tenths of a step of one message in general registers (one block of 16
    /// bytes). A call in lanes costs 160 before its first and after its last step; with
    /// [`LANES_PER_TEXT`] lanes per text, another 190 for the powers of r. One message costs 20
    /// before and after its steps; a long one costs 200 for the powers of r. [`Set::tag_step`]
    /// is the cost of a step in lanes.
    pub(super) fn next(set: Set, texts: &[Text]) -> (usize, Self) {
        let (lanes, step) = (set.tag_lanes(), set.tag_step());
        let len = texts[0].len as usize;
        let count_in_lanes = group(texts, lanes);
        let mut best = (count_in_lanes, Self::Lanes);
        let mut cost = 160 + len / 16 * step;
        if len >= IN_FOUR_LANES {
            let count_in_fours = group(texts, lanes / LANES_PER_TEXT);
            let cost_in_fours = 350 + len / (16 * LANES_PER_TEXT) * step;
            if texts[count_in_fours - 1].len as usize >= IN_FOUR_LANES
                && cost_in_fours * count_in_lanes < cost * count_in_fours
            {
                (best, cost) = ((count_in_fours, Self::FourLanes), cost_in_fours);
            }
        }
        let single = |text: &Text| match text.len as usize {
            len @ ..OVER_LANES => 10 * (len / 16 + 3),
            len => 200 + len / 16 * step / 8,
        };
        // The shortest text bounds the sum from below, and mostly that decides.
        let texts = &texts[..best.0];
        if best.0 * single(&texts[best.0 - 1]) <= cost
            && texts.iter().map(single).sum::<usize>() <= cost
        {
            best.1 = Self::OneByOne;
        }
        best
    }
}
