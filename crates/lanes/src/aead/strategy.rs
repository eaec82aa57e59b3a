//! Which way a list of jobs goes. Every threshold stands here, with the figure that set it.
//!
//! All figures are of the machine and date that `docs/decisions.md` names for them.

use crate::isa::Set;
use crate::job::{BLOCK_LEN, Job};
use crate::kernels::poly1305::short::SHORT;
use crate::kernels::poly1305::text::{LANES_PER_TEXT, MAX_AAD, Text, group};

/// How many packets the way through lanes takes at a time: enough to fill the lanes, also
/// with texts of like length for the tags, and few enough that what is between the steps
/// stays in the first cache.
pub(super) const CHUNK: usize = 256;

/// A chunk ends early when its texts reach this length in sum, so that they stay in the
/// second cache from one step to the next.
const CHUNK_BYTES: usize = 128 * 1024;

/// From this many packets on, lanes are faster than one short packet after the other whose
/// keystream is precomputed.
const MANY_PRECOMPUTED: usize = 8;

/// From this many packets on, lanes are faster than one long packet after the other, each
/// stitched.
const MANY_STITCHED: usize = 6;

/// From this many packets on, lanes are faster than the pipeline for packets of three blocks,
/// that of the one-time key included. Shorter ones never go there.
const MANY_THREE_BLOCKS: usize = 8;

/// From this length on, in bytes, one message is hashed over the lanes of a vector: before,
/// the powers of r cost more than they save, as much as some 200 bytes.
pub(super) const OVER_LANES: usize = 384;

/// A way to seal or open jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// One packet after the other, each by itself.
    Single,
    /// One packet after the other, the hash of each stitched into the rounds of the next.
    Pipelined,
    /// A short packet in each lane, in one kernel.
    Short,
    /// The blocks of all packets in one list, then a tag in each lane.
    Lanes,
}

impl Strategy {
    /// How to seal the first jobs of a list, and how many. The list is not empty.
    #[inline]
    pub(super) fn to_seal(set: Set, jobs: &[Job]) -> (Self, usize) {
        Self::next(set, jobs, usize::MAX)
    }

    /// How to open the first jobs of a list, and how many. The list is not empty.
    #[inline]
    pub(super) fn to_open(set: Set, jobs: &[Job]) -> (Self, usize) {
        // Keystream waits for the verdict: of more blocks, lanes make it as fast.
        Self::next(set, jobs, set.row_blocks())
    }

    #[inline]
    fn next(set: Set, jobs: &[Job], max_pipelined: usize) -> (Self, usize) {
        if is_pipelined(set, jobs, max_pipelined) {
            return (Self::Pipelined, jobs.len());
        }
        if is_single(set, jobs) {
            return (Self::Single, jobs.len());
        }
        match short_packets(set, jobs) {
            0 => (Self::Lanes, jobs.len()),
            count => (Self::Short, count),
        }
    }
}

/// Whether a packet by itself, of so many blocks, has its hash stitched into its own rounds.
#[inline]
pub(super) fn is_stitched(set: Set, blocks: usize) -> bool {
    set.is_stitched() && blocks > set.row_blocks()
}

/// Whether packets go one by one: one does; two if some of their keystream is precomputed; a
/// few short ones if all of it is; a few long ones that are stitched.
#[inline]
fn is_single(set: Set, jobs: &[Job]) -> bool {
    match jobs {
        [_] => true,
        _ if set.is_stitched()
            && jobs.len() < MANY_STITCHED
            && jobs
                .iter()
                .all(|job| is_stitched(set, job.blocks() as usize)) =>
        {
            true
        }
        [_, _] => jobs.iter().all(|job| job.keystream_blocks > 0),
        _ => {
            jobs.len() < MANY_PRECOMPUTED
                && jobs
                    .iter()
                    .all(|job| job.is_short() && job.keystream_blocks > 1)
        }
    }
}

/// Whether packets go through the pipeline: several, of at least two blocks of text and at
/// most `max` blocks with that of the key, none of which is precomputed.
#[inline]
fn is_pipelined(set: Set, jobs: &[Job], max: usize) -> bool {
    let min = 3 + usize::from(jobs.len() >= MANY_THREE_BLOCKS);
    let fits =
        |job: &Job| job.keystream_blocks == 0 && (min..=max).contains(&(job.blocks() as usize));
    set.is_stitched() && jobs.len() > 1 && jobs.iter().all(fits)
}

/// How many of the first jobs go into the kernel for short packets: as many as there are
/// lanes, or nearly as many, else 0.
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
    let count = jobs.iter().take(lanes).take_while(fits).count();
    if count >= lanes - lanes / 4 { count } else { 0 }
}

/// How many of the first `jobs` make a chunk: at least one.
pub(super) fn chunk(jobs: &[Job]) -> usize {
    let mut len = 0;
    let mut bytes = 0;
    for job in jobs.iter().take(CHUNK) {
        if len > 0 && bytes + job.text_len as usize > CHUNK_BYTES {
            break;
        }
        bytes += job.text_len as usize;
        len += 1;
    }
    len
}

/// How many of the first jobs are opened with one call for their one-time keys and their
/// texts, if one call has room for all of that.
#[inline]
pub(super) fn one_call(set: Set, jobs: &[Job]) -> Option<usize> {
    let missing = |job: &Job| job.blocks().saturating_sub(job.keystream_blocks) as usize;
    let some = &jobs[..jobs.len().min(set.block_lanes() / 2)];
    let missing = some.iter().map(missing).sum::<usize>();
    // Packets that miss nothing have no use for a call.
    let fits = missing <= set.block_lanes() && (missing > 0 || some.len() == jobs.len());
    fits.then_some(some.len())
}

/// Whether a text is long enough to fill half the lanes at least.
#[inline]
pub(super) fn has_runs(set: Set, job: &Job) -> bool {
    job.text_len as usize >= set.block_lanes() / 2 * BLOCK_LEN
}

/// How the tags of some texts are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagMethod {
    /// One by one.
    OneByOne,
    /// A text in each lane.
    Lanes,
    /// A text in each [`LANES_PER_TEXT`] lanes.
    FourLanes,
}

impl TagMethod {
    /// How many of `texts`, which go from the longest to the shortest, are best tagged next,
    /// and how. The list is not empty.
    ///
    /// The costs are in tenths of a step of one message: 160 for what comes before the first
    /// step in lanes and after the last; 190 more for the powers of r for
    /// [`LANES_PER_TEXT`] lanes; 20 for what comes before and after one message; 200 for the
    /// powers of r of a long one; [`Set::tag_step`] for a step in lanes.
    pub(super) fn next(set: Set, texts: &[Text]) -> (usize, Self) {
        let (lanes, step) = (set.tag_lanes(), set.tag_step());
        let len = texts[0].len as usize;
        let together = group(texts, lanes);
        let mut best = (together, Self::Lanes);
        let mut cost = 160 + len / 16 * step;
        if len >= OVER_LANES {
            let few = group(texts, lanes / LANES_PER_TEXT);
            let cost_of_few = 350 + len / (16 * LANES_PER_TEXT) * step;
            if texts[few - 1].len as usize >= OVER_LANES && cost_of_few * together < cost * few {
                (best, cost) = ((few, Self::FourLanes), cost_of_few);
            }
        }
        let single = |text: &Text| match text.len as usize {
            len @ ..OVER_LANES => 10 * (len / 16 + 3),
            len => 200 + len / 16 * step / 8,
        };
        // The shortest text bounds the sum from below: mostly that decides.
        let texts = &texts[..best.0];
        if best.0 * single(&texts[best.0 - 1]) <= cost
            && texts.iter().map(single).sum::<usize>() <= cost
        {
            best.1 = Self::OneByOne;
        }
        best
    }
}
