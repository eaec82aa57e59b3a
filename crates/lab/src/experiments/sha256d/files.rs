//! `sha256d.files`: block files, parsed and verified on several threads.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::{Clock, Contender, Plan, in_turn};
use crate::picture::{Bottom, Picture};
use crate::record::{Metric, record};
use crate::report::{Case, OURS, Report};
use crate::sentence::Figure;
use crate::workload::block::{BLOCK, BLOCK_HASH, TRANSACTIONS};
use crate::workload::threads::thread_counts;
use packetlane::bitcoin::Network;
use packetlane::sha256d::{Frame, Hash, Hasher, Obfuscation, Scanner, Verifier};
use std::iter::repeat_n;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Size of a block file. It exceeds the caches even in a quick run.
const FILE_BYTES: usize = 256 << 20;
const QUICK_FILE_BYTES: usize = 32 << 20;

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "sha256d.files",
    description: "Block files, parsed and verified on several threads",
    cases,
    headline: Headline {
        case: "threads=2",
        metric: "throughput",
    },
    sentence,
    pictures: &[Picture {
        x: Some(Bottom::linear("threads", "threads")),
        ..Picture::new("throughput", "Block files, parsed and verified")
    }],
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let least = if bench.quick {
        QUICK_FILE_BYTES
    } else {
        FILE_BYTES
    };
    let blocks = least.div_ceil(BLOCK.len());
    let counts = thread_counts().filter(|threads| !bench.quick || *threads <= 2);
    let task = |threads: usize| {
        let timed = format!(
            "wall time to find the blocks of a file in memory and verify them: parsing, proof of \
             work against the header's own target, txids, Merkle root, witness commitment; the \
             file is one block {blocks} times; each thread takes the next block when it has \
             finished one; includes the start of the threads"
        );
        let case = EXPERIMENT.case(&timed).with("threads", threads);
        Task::new(case, move |case, plan, report| {
            run(blocks, threads, case, plan, report);
        })
    };
    counts.map(task).collect()
}

#[allow(clippy::cast_precision_loss, reason = "lengths far below 2^52")]
fn run(blocks: usize, threads: usize, case: &Case, plan: &Plan, report: &mut Report) {
    // The verifier hashes on the process's own backend, whatever the engine.
    let backend = Hasher::best().backend().name();
    let contenders = vec![
        (OURS, backend, by_packetlane as fn() -> Verify),
        #[cfg(feature = "rivals")]
        ("bitcoin", "", by_bitcoin),
    ];
    let mut damaged = BLOCK.to_vec();
    // A byte of the last transaction's lock time.
    *damaged.last_mut().expect("a block") ^= 1;
    for (name, _, verify) in &contenders {
        let good = verify()(BLOCK).unwrap_or_else(|| panic!("{name}: rejects a good block"));
        assert_eq!(good, (BLOCK_HASH, TRANSACTIONS), "{name}: another block");
        assert!(
            verify()(&damaged).is_none(),
            "{name}: accepts a damaged block"
        );
    }
    let file = file_of(&repeat_n(BLOCK, blocks).collect::<Vec<_>>());
    let mut contenders: Vec<_> = contenders
        .into_iter()
        .map(|(name, backend, verify)| {
            let file = &file;
            Contender::new(name, backend, move || {
                assert_eq!(good_blocks(file, threads, verify), blocks, "{name}");
            })
        })
        .collect();
    let plan = plan.by(Clock::Wall);
    let samples = in_turn(&mut contenders, &plan);
    let metric = Metric::rate("throughput", "MB/s", (blocks * BLOCK.len()) as f64 / 1e6);
    record(report, case, &[metric], &samples);
}

/// A file with `blocks`, as Bitcoin Core writes it.
fn file_of(blocks: &[&[u8]]) -> Vec<u8> {
    let mut file = Vec::with_capacity(
        blocks
            .iter()
            .map(|block| Scanner::FRAME_LEN + block.len())
            .sum(),
    );
    for block in blocks {
        let length = u32::try_from(block.len()).expect("a block is shorter than 2^32");
        file.extend_from_slice(&Network::Mainnet.magic());
        file.extend_from_slice(&length.to_le_bytes());
        file.extend_from_slice(block);
    }
    file
}

/// The number of good blocks in a file that contains only blocks.
fn good_blocks(file: &[u8], threads: usize, verify: fn() -> Verify) -> usize {
    let mut scanner = Scanner::new(Network::Mainnet.magic(), Obfuscation::default(), verifier());
    let mut rest = file;
    let mut blocks = Vec::new();
    while let Some(found) = scanner.next(&mut rest, true) {
        match found {
            Frame::Block { bytes, .. } => blocks.push(bytes),
            Frame::Fault(fault) => panic!("{fault}"),
        }
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut verify = verify();
        let mut good = 0;
        while let Some(block) = blocks.get(next.fetch_add(1, Ordering::Relaxed)) {
            good += usize::from(verify(block).is_some());
        }
        good
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let others = others.into_iter().map(|other| other.join());
        work() + others.map(|good| good.expect("no panic")).sum::<usize>()
    })
}

/// Verifies one block. Returns its hash and number of transactions if it is good.
type Verify = Box<dyn FnMut(&[u8]) -> Option<(Hash, usize)>>;

fn verifier() -> Verifier {
    Verifier::new(Hasher::best(), Network::Mainnet)
}

/// Like `packetlane blocks`.
fn by_packetlane() -> Verify {
    let mut verifier = verifier();
    Box::new(move |block| {
        let summary = verifier.verify(block).ok()?;
        Some((summary.hash, summary.transactions))
    })
}

/// Like a program that uses the crate `bitcoin`, which does not detect mutations (CVE-2012-2459).
#[cfg(feature = "rivals")]
fn by_bitcoin() -> Verify {
    use bitcoin::hashes::Hash;
    Box::new(|block| {
        let block: bitcoin::Block = bitcoin::consensus::deserialize(block).ok()?;
        let hash = block.header.validate_pow(block.header.target()).ok()?;
        let good = block.check_merkle_root() && block.check_witness_commitment();
        good.then(|| (hash.to_byte_array(), block.txdata.len()))
    })
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    Some(match figure.key("threads") {
        "1" => format!("verify blocks on one thread: {figure}"),
        threads => {
            let sharing = figure.sharing(threads);
            format!("verify blocks on {threads} threads{sharing}: {figure}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_blocks_is_verified_by_any_number_of_threads() {
        let mut damaged = BLOCK.to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        let file = file_of(&[BLOCK, &damaged, BLOCK]);
        for verify in [by_packetlane, by_bitcoin] {
            for threads in [1, 2, 5] {
                assert_eq!(good_blocks(&file, threads, verify), 2);
            }
        }
    }
}
