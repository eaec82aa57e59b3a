//! `sha256d.block`: all hashes of a Bitcoin block.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::Plan;
use crate::picture::Picture;
use crate::record::Metric;
use crate::report::{Case, Report};
use crate::rivals::hashes::Hashes;
use crate::sentence::Figure;
use crate::workload::block::{BLOCK, BLOCK_HASH, BLOCK_HEIGHT};
use crate::workload::hashes::compare;
use packetlane::Engine;
use packetlane::sha256d::{Block, Hash, Hasher};

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "sha256d.block",
    description: "All hashes of a Bitcoin block",
    cases,
    headline: Headline {
        case: "part=all",
        metric: "time",
    },
    sentence,
    pictures: &[Picture {
        facets: &["part"],
        ..Picture::new("time", "Hashes of a block")
    }],
    words,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let parts: &[&str] = if bench.quick {
        &["all"]
    } else {
        &["txids", "wtxids", "all"]
    };
    let task = |&part: &&'static str| {
        let timed = "thread CPU time of a block's double SHA-256, without parsing: txids; wtxids \
                     of transactions with witnesses (the others equal their txids); all: both, \
                     and the two Merkle roots. The libraries hash one transaction after the \
                     other, and trees as in sha256d.merkle";
        let case = EXPERIMENT
            .case(timed)
            .with("block", BLOCK_HEIGHT)
            .with("part", part);
        Task::new(case, move |case, plan, report| {
            run(bench.engine, part, case, plan, report);
        })
    };
    parts.iter().map(task).collect()
}

fn run(engine: Engine, part: &str, case: &Case, plan: &Plan, report: &mut Report) {
    let mut transactions = Vec::new();
    let block = Block::parse(BLOCK, &mut transactions).expect("a block");
    assert_eq!(block.hash(), BLOCK_HASH, "another block");
    let count = block.transactions();
    let txids: Vec<[&[u8]; 3]> = block.txid_pieces().collect();
    let whole: Vec<&[u8]> = block.with_witness().collect();
    // The wtxid of a transaction without witnesses is its txid.
    let has_witness = |pieces: &[&[u8]; 3]| !pieces[1].is_empty();

    let metric = Metric::time("time", "us", 1);
    let run = (case, plan, report);
    match part {
        "txids" => {
            compare(engine, run, metric, count, &|hashes, digests| {
                hashes.many_in_pieces(&txids, digests);
            });
        }
        "wtxids" => {
            compare(engine, run, metric, whole.len(), &|hashes, digests| {
                hashes.many(&whole, digests);
            });
        }
        _ => {
            // One list for a single call, as in our verifier.
            let mut messages = txids.clone();
            messages.extend(whole.iter().map(|&whole| [whole, &[], &[]]));
            let work = |hashes: &dyn Hashes, digests: &mut [Hash]| {
                let (ids, roots) = digests.split_at_mut(messages.len());
                hashes.many_in_pieces(&messages, ids);
                let (txids, digests) = ids.split_at(count);
                let mut digests = digests.iter();
                // In the witness tree, the coinbase has the hash zero.
                let mut wtxids = vec![Hash::default()];
                let others = txids.iter().zip(&messages).skip(1);
                wtxids.extend(others.map(|(txid, pieces)| {
                    let digest = has_witness(pieces).then(|| digests.next()).flatten();
                    *digest.unwrap_or(txid)
                }));
                roots[0] = hashes.merkle_root(txids);
                roots[1] = hashes.merkle_root(&wtxids);
            };
            // The block contains both roots, one of them in its commitment.
            let mut digests = vec![Hash::default(); messages.len() + 2];
            work(&Hasher::best(), &mut digests);
            let roots = &digests[messages.len()..];
            assert_eq!(roots[0], *block.merkle_root(), "not the root in the header");
            let reserved = block.witness_reserved_value().expect("a reserved value");
            let mut commitment = [Hash::default()];
            Hasher::best().hash_many_in_pieces(&[[&roots[1], reserved, &[]]], &mut commitment);
            assert_eq!(Some(&commitment[0]), block.witness_commitment());
            compare(engine, run, metric, digests.len(), &work);
        }
    }
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    let part = match figure.key("part") {
        "all" => "its transactions and trees",
        part => part,
    };
    Some(format!("block {}, {part}: {figure}", figure.key("block")))
}

fn words(key: &str, value: &str) -> Option<String> {
    ((key, value) == ("part", "all")).then(|| "txids, wtxids and trees".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Machine;

    /// For complete transactions, as a node receives them.
    #[test]
    fn ids_agree_with_the_crate_bitcoin() {
        use bitcoin::consensus::{deserialize, serialize};
        use bitcoin::hashes::Hash;
        use packetlane::sha256d::Hasher;

        let block: bitcoin::Block = deserialize(BLOCK).unwrap();
        let raw: Vec<Vec<u8>> = block.txdata.iter().map(serialize).collect();
        let raw: Vec<&[u8]> = raw.iter().map(Vec::as_slice).collect();
        let theirs = block.txdata.iter();
        let theirs = theirs.map(|tx| tx.compute_txid().to_byte_array());
        assert_eq!(Hasher::best().txids(&raw), Ok(theirs.collect()));
        let theirs = block.txdata.iter();
        let theirs = theirs.map(|tx| tx.compute_wtxid().to_byte_array());
        assert_eq!(Hasher::best().wtxids(&raw), Ok(theirs.collect()));
        assert_ne!(Hasher::best().txids(&raw), Hasher::best().wtxids(&raw));
    }

    /// Includes the parts that a quick run leaves out.
    #[test]
    fn every_part_of_the_block_is_hashed() {
        let plan = Plan {
            samples: 1,
            ..Plan::quick()
        };
        let engine = Engine::detect().unwrap();
        for part in ["txids", "wtxids"] {
            let mut report = Report::new(Machine::here());
            let case = Case::new("sha256d.block", "").with("part", part);
            run(engine, part, &case, &plan, &mut report);
            assert_eq!(report.experiments(), ["sha256d.block"]);
        }
    }
}
