//! The experiments on double SHA-256: many messages, Merkle trees, a block of Bitcoin
//! and files of blocks.
//!
//! Ours hashes all messages of a call together. The libraries hash one after the
//! other, as a program does that uses them, but for the one function among theirs that
//! takes several: [`BitcoinHashes::hash64`].

use crate::experiments::{Bench, Task, siblings, thread_counts};
use crate::measure::{Clock, Contender, Metric, Plan, in_turn, record};
use crate::report::{Case, OURS, Report};
use crate::rivals::ours;
use crate::traffic::Turn;
use packetlane::Engine;
use packetlane::bitcoin::Network;
use packetlane::sha256d::{
    Block, FRAME_LEN, Found, Hash, Hasher, Obfuscation, Scanner, Verifier, many_in_pieces,
};
use std::iter::repeat_n;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Lengths of messages, in bytes: a hash, two of them, a header, a transaction, and
/// the published ones.
const SIZES: [usize; 6] = [32, 64, 80, 250, 1024, 4096];

/// Messages hashed together.
const BATCHES: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 1024];

/// Pairs of hashes hashed together.
const PAIRS: [usize; 8] = [1, 2, 3, 4, 8, 16, 64, 1024];

/// Leaves of a Merkle tree.
const LEAVES: [usize; 4] = [9001, 2000, 300, 16];

/// The block that is hashed. It lies among the published vectors
/// (`vectors/README.md`).
const BLOCK: &[u8] = include_bytes!(
    "../../../vectors/blocks/0000000000000000001602407ac49862a7bca9d00f7f402db20b7be2f5de59d2.blk"
);

/// Its number in the chain.
const BLOCK_HEIGHT: u32 = 574_200;

/// Its hash, in the order in which a hash function gives it.
const BLOCK_HASH: Hash = [
    0xd2, 0x59, 0xde, 0xf5, 0xe2, 0x7b, 0x0b, 0xb2, 0x2d, 0x40, 0x7f, 0x0f, 0xd0, 0xa9, 0xbc, 0xa7,
    0x62, 0x98, 0xc4, 0x7a, 0x40, 0x02, 0x16, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
];

/// How many transactions it has.
const TRANSACTIONS: usize = 3315;

/// How long a file of blocks is, in a quick run too: more than the caches hold.
const FILE_BYTES: usize = 256 << 20;
const QUICK_FILE_BYTES: usize = 32 << 20;

/// One that computes double SHA-256.
trait Hashes {
    /// Those of messages.
    fn many(&self, messages: &[&[u8]], digests: &mut [Hash]);

    /// Those of messages in pieces.
    fn many_in_pieces(&self, messages: &[[&[u8]; 3]], digests: &mut [Hash]);

    /// Those of messages of 64 bytes.
    fn hash64(&self, pairs: &[[u8; 64]], digests: &mut [Hash]);

    /// The Merkle root of at least one leaf.
    fn merkle_root(&self, leaves: &[Hash]) -> Hash {
        if let [only] = leaves {
            return *only;
        }
        let mut level = Vec::new();
        let mut above = Vec::new();
        self.level_above(leaves, &mut level);
        while level.len() > 1 {
            self.level_above(&level, &mut above);
            std::mem::swap(&mut level, &mut above);
        }
        level[0]
    }

    /// Replaces `above` by the hashes of each pair of `nodes`, an odd last one twice.
    fn level_above(&self, nodes: &[Hash], above: &mut Vec<Hash>) {
        above.resize(nodes.len().div_ceil(2), Hash::default());
        let (pairs, odd) = nodes.as_flattened().as_chunks();
        let (digests, last) = above.split_at_mut(pairs.len());
        self.hash64(pairs, digests);
        if !odd.is_empty() {
            let mut pair = [0; 64];
            pair[..32].copy_from_slice(odd);
            pair[32..].copy_from_slice(odd);
            self.hash64(&[pair], last);
        }
    }
}

impl Hashes for Hasher {
    fn many(&self, messages: &[&[u8]], digests: &mut [Hash]) {
        Hasher::many(self, messages, digests);
    }

    fn many_in_pieces(&self, messages: &[[&[u8]; 3]], digests: &mut [Hash]) {
        Hasher::many_in_pieces(self, messages, digests);
    }

    fn hash64(&self, pairs: &[[u8; 64]], digests: &mut [Hash]) {
        Hasher::hash64(self, pairs, digests);
    }

    fn merkle_root(&self, leaves: &[Hash]) -> Hash {
        Hasher::merkle_root(self, leaves).root
    }
}

/// A library that hashes one message in a call.
trait Library {
    /// The double SHA-256 of a message.
    fn one(message: &[u8]) -> Hash;

    /// That of a message in pieces.
    fn one_in_pieces(pieces: &[&[u8]; 3]) -> Hash;

    /// Those of messages of 64 bytes.
    fn hash64(pairs: &[[u8; 64]], digests: &mut [Hash]) {
        for (pair, digest) in pairs.iter().zip(digests) {
            *digest = Self::one(pair);
        }
    }
}

impl<L: Library> Hashes for L {
    fn many(&self, messages: &[&[u8]], digests: &mut [Hash]) {
        for (message, digest) in messages.iter().zip(digests) {
            *digest = L::one(message);
        }
    }

    fn many_in_pieces(&self, messages: &[[&[u8]; 3]], digests: &mut [Hash]) {
        for (pieces, digest) in messages.iter().zip(digests) {
            *digest = L::one_in_pieces(pieces);
        }
    }

    fn hash64(&self, pairs: &[[u8; 64]], digests: &mut [Hash]) {
        L::hash64(pairs, digests);
    }
}

/// RustCrypto's `sha2`.
struct Sha2;

impl Library for Sha2 {
    fn one(message: &[u8]) -> Hash {
        use sha2::{Digest, Sha256};
        Sha256::digest(Sha256::digest(message)).into()
    }

    fn one_in_pieces(pieces: &[&[u8]; 3]) -> Hash {
        use sha2::{Digest, Sha256};
        let mut first = Sha256::new();
        pieces.iter().for_each(|piece| first.update(piece));
        Sha256::digest(first.finalize()).into()
    }
}

/// `bitcoin_hashes`, the newest, which hashes several messages of 64 bytes in a call.
/// (The crate `bitcoin` builds on an older one, which does not.)
struct BitcoinHashes;

impl Library for BitcoinHashes {
    fn one(message: &[u8]) -> Hash {
        bitcoin_hashes::sha256d::Hash::hash(message).to_byte_array()
    }

    fn one_in_pieces(pieces: &[&[u8]; 3]) -> Hash {
        bitcoin_hashes::sha256d::Hash::hash_byte_chunks(pieces).to_byte_array()
    }

    /// Its function for several leaves the SHA instructions at an odd last one, and
    /// then takes three times as long for it as its function for one.
    fn hash64(pairs: &[[u8; 64]], digests: &mut [Hash]) {
        let even = pairs.len() & !1;
        let (pairs, last_pair) = pairs.split_at(even);
        let (digests, last_digest) = digests.split_at_mut(even);
        bitcoin_hashes::sha256d::Hash::hash_64_many(digests, pairs);
        if let ([pair], [digest]) = (last_pair, last_digest) {
            *digest = Self::one(pair);
        }
    }
}

/// `ring`.
struct Ring;

/// `aws-lc-rs`, which has the same interface.
struct AwsLcRs;

macro_rules! like_ring {
    ($library:ident, $($path:ident)::+) => {
        impl Library for $library {
            fn one(message: &[u8]) -> Hash {
                use $($path)::+::{SHA256, digest};
                let twice = digest(&SHA256, digest(&SHA256, message).as_ref());
                twice.as_ref().try_into().expect("32 bytes")
            }

            fn one_in_pieces(pieces: &[&[u8]; 3]) -> Hash {
                use $($path)::+::{Context, SHA256, digest};
                let mut first = Context::new(&SHA256);
                pieces.iter().for_each(|piece| first.update(piece));
                let twice = digest(&SHA256, first.finish().as_ref());
                twice.as_ref().try_into().expect("32 bytes")
            }
        }
    };
}

like_ring!(Ring, ring::digest);
like_ring!(AwsLcRs, aws_lc_rs::digest);

/// Name, backend and work of each, ours first.
fn everyone(engine: Engine) -> Vec<(String, &'static str, Box<dyn Hashes>)> {
    // As in a quick run, since SHA-256 has no use for IFMA: the same backend twice.
    let ours = ours(engine, true).into_iter().map(|ours| {
        let backend = ours.engine.backend();
        let hashes: Box<dyn Hashes> = Box::new(Hasher::with_backend(backend));
        (ours.name, backend.name(), hashes)
    });
    let libraries: [(&str, Box<dyn Hashes>); 4] = [
        ("sha2", Box::new(Sha2)),
        ("bitcoin_hashes", Box::new(BitcoinHashes)),
        ("ring", Box::new(Ring)),
        ("aws-lc-rs", Box::new(AwsLcRs)),
    ];
    let libraries = libraries.map(|(name, hashes)| (name.to_owned(), "", hashes));
    ours.chain(libraries).collect()
}

/// Lets everyone do `work`, which fills so many `digests`, and measures it if all have
/// filled them alike.
fn compare(
    engine: Engine,
    (case, plan, report): (&Case, &Plan, &mut Report),
    metric: Metric,
    digests: usize,
    work: &dyn Fn(&dyn Hashes, &mut [Hash]),
) {
    let everyone = everyone(engine);
    let mut expected: Option<Vec<Hash>> = None;
    let mut contenders = Vec::new();
    for (name, backend, hashes) in &everyone {
        let mut digests = vec![Hash::default(); digests];
        work(&**hashes, &mut digests);
        let expected = expected.get_or_insert_with(|| digests.clone());
        assert!(*expected == digests, "{name}: other hashes");
        contenders.push(Contender::new(name, *backend, move || {
            work(&**hashes, &mut digests);
        }));
    }
    let samples = in_turn(&mut contenders, plan);
    record(report, case, &[metric], &samples);
}

/// Messages of one length, by batch.
pub(crate) fn many(bench: &Bench) -> Vec<Task<'_>> {
    let sizes: &[usize] = if bench.quick { &[80, 1024] } else { &SIZES };
    let batches: &[usize] = if bench.quick { &[1, 8, 128] } else { &BATCHES };
    let mut tasks = Vec::new();
    for &bytes in sizes {
        for &batch in batches {
            let timed = "thread CPU time of the double SHA-256 of messages that lie apart; the \
                         libraries hash one after the other";
            let case = Case::new("sha256d.many", timed)
                .with("bytes", bytes)
                .with("batch", batch);
            tasks.push(Task::new(case, move |case, plan, report| {
                let turn = Turn::uniform(batch, bytes);
                let messages: Vec<&[u8]> = turn.genuine().collect();
                let metric = Metric::time("time_per_hash", "ns", batch);
                let run = (case, plan, report);
                compare(bench.engine, run, metric, batch, &|hashes, digests| {
                    hashes.many(&messages, digests);
                });
            }));
        }
    }
    tasks
}

/// Nodes of a Merkle tree, by batch.
pub(crate) fn d64(bench: &Bench) -> Vec<Task<'_>> {
    let batches: &[usize] = if bench.quick { &[1, 8, 1024] } else { &PAIRS };
    let task = |&batch: &usize| {
        let timed = "thread CPU time of the double SHA-256 of inputs of 64 bytes, one behind the \
                     other; bitcoin_hashes by hash_64_many, which computes two at a time, and an \
                     odd last one by hash; the others hash one after the other";
        let case = Case::new("sha256d.d64", timed).with("batch", batch);
        Task::new(case, move |case, plan, report| {
            let turn = Turn::uniform(batch, 64);
            let pairs: Vec<[u8; 64]> = turn
                .genuine()
                .map(|pair| pair.try_into().expect("64 bytes"))
                .collect();
            let metric = Metric::time("time_per_hash", "ns", batch);
            let run = (case, plan, report);
            compare(bench.engine, run, metric, batch, &|hashes, digests| {
                hashes.hash64(&pairs, digests);
            });
        })
    };
    batches.iter().map(task).collect()
}

/// Merkle roots, by leaves.
pub(crate) fn merkle(bench: &Bench) -> Vec<Task<'_>> {
    let leaves: &[usize] = if bench.quick { &[9001, 16] } else { &LEAVES };
    let task = |&leaves: &usize| {
        let timed = "thread CPU time of a Merkle root from its leaves, which stay as they are; the \
                     libraries as in sha256d.d64, level by level; ours looks for equal pairs too";
        let case = Case::new("sha256d.merkle", timed).with("leaves", leaves);
        Task::new(case, move |case, plan, report| {
            let turn = Turn::uniform(leaves, 32);
            let leaves: Vec<Hash> = turn
                .genuine()
                .map(|leaf| leaf.try_into().expect("32 bytes"))
                .collect();
            let metric = Metric::time("time", "us", 1);
            let run = (case, plan, report);
            compare(bench.engine, run, metric, 1, &|hashes, digests| {
                digests[0] = hashes.merkle_root(&leaves);
            });
        })
    };
    leaves.iter().map(task).collect()
}

/// All hashes of a block.
pub(crate) fn block(bench: &Bench) -> Vec<Task<'_>> {
    let parts: &[&str] = if bench.quick {
        &["all"]
    } else {
        &["txids", "wtxids", "all"]
    };
    let task = |&part: &&'static str| {
        let timed = "thread CPU time of a block's double SHA-256, without parsing: txids; wtxids \
                     of what has witnesses (for others they are the txids); all: both, and the \
                     two Merkle roots. The libraries hash one transaction after the other, trees \
                     as in sha256d.merkle";
        let case = Case::new("sha256d.block", timed)
            .with("block", BLOCK_HEIGHT)
            .with("part", part);
        Task::new(case, move |case, plan, report| {
            run_block(bench.engine, part, case, plan, report);
        })
    };
    parts.iter().map(task).collect()
}

fn run_block(engine: Engine, part: &str, case: &Case, plan: &Plan, report: &mut Report) {
    let mut transactions = Vec::new();
    let block = Block::parse(BLOCK, &mut transactions).expect("a block");
    assert_eq!(block.hash(), BLOCK_HASH, "another block");
    let count = block.transactions();
    let txids: Vec<[&[u8]; 3]> = block.txid_pieces().collect();
    let whole: Vec<&[u8]> = block.with_witness().collect();
    // The id of a transaction without any is the hash of it in one piece.
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
            // As our verifier does: one list, so that one call has them all.
            let mut messages = txids.clone();
            messages.extend(whole.iter().map(|&whole| [whole, &[], &[]]));
            let work = |hashes: &dyn Hashes, digests: &mut [Hash]| {
                let (ids, roots) = digests.split_at_mut(messages.len());
                hashes.many_in_pieces(&messages, ids);
                let (txids, digests) = ids.split_at(count);
                let mut digests = digests.iter();
                // The first transaction counts as zero.
                let mut wtxids = vec![Hash::default()];
                let others = txids.iter().zip(&messages).skip(1);
                wtxids.extend(others.map(|(txid, pieces)| {
                    let digest = has_witness(pieces).then(|| digests.next()).flatten();
                    *digest.unwrap_or(txid)
                }));
                roots[0] = hashes.merkle_root(txids);
                roots[1] = hashes.merkle_root(&wtxids);
            };
            // The chain knows both roots, one of them through the commitment to it.
            let mut digests = vec![Hash::default(); messages.len() + 2];
            work(&Hasher::default(), &mut digests);
            let roots = &digests[messages.len()..];
            assert_eq!(roots[0], *block.merkle_root(), "not the root in the header");
            let reserved = block.witness_reserved_value().expect("a reserved value");
            let mut commitment = [Hash::default()];
            many_in_pieces(&[[&roots[1], reserved, &[]]], &mut commitment);
            assert_eq!(Some(&commitment[0]), block.witness_commitment());
            compare(engine, run, metric, digests.len(), &work);
        }
    }
}

/// Verifies one block: its hash and how many transactions it has, if it is good.
type Verify = Box<dyn FnMut(&[u8]) -> Option<(Hash, usize)>>;

/// As `packetlane blocks` does.
fn by_packetlane() -> Verify {
    let mut verifier = Verifier::new(Hasher::best());
    Box::new(move |block| {
        let summary = verifier.verify(block).ok()?;
        Some((summary.hash, summary.transactions))
    })
}

/// As a program does that uses the crate `bitcoin`. It does not look for mutations
/// (CVE-2012-2459).
fn by_bitcoin() -> Verify {
    use bitcoin::hashes::Hash;
    Box::new(|block| {
        let block: bitcoin::Block = bitcoin::consensus::deserialize(block).ok()?;
        let hash = block.header.validate_pow(block.header.target()).ok()?;
        let good = block.check_merkle_root() && block.check_witness_commitment();
        good.then(|| (hash.to_byte_array(), block.txdata.len()))
    })
}

/// Files of blocks, verified on several threads.
pub(crate) fn files(bench: &Bench) -> Vec<Task<'_>> {
    let least = if bench.quick {
        QUICK_FILE_BYTES
    } else {
        FILE_BYTES
    };
    let blocks = least.div_ceil(BLOCK.len());
    let counts = thread_counts().filter(|threads| !bench.quick || *threads <= 2);
    let siblings = siblings();
    let task = |threads: usize| {
        let timed = format!(
            "wall time to find the blocks of a file in memory and to verify them: parse, proof of \
             work against the header's own target, txids, Merkle root, witness commitment; the \
             file is one block {blocks} times; each thread takes the next block when it is done \
             with one, and starting them counts; {siblings}"
        );
        let case = Case::new("sha256d.files", &timed).with("threads", threads);
        Task::new(case, move |case, plan, report| {
            run_files(blocks, threads, case, plan, report);
        })
    };
    counts.map(task).collect()
}

#[allow(clippy::cast_precision_loss, reason = "lengths far below 2^52")]
fn run_files(blocks: usize, threads: usize, case: &Case, plan: &Plan, report: &mut Report) {
    // It hashes on the process's own backend, whatever the engine.
    let backend = Hasher::default().backend().name();
    let contenders = [
        (OURS, backend, by_packetlane as fn() -> Verify),
        ("bitcoin", "", by_bitcoin),
    ];
    let mut damaged = BLOCK.to_vec();
    // A byte of the last transaction's lock time.
    *damaged.last_mut().expect("a block") ^= 1;
    for (name, _, verify) in &contenders {
        let good = verify()(BLOCK).unwrap_or_else(|| panic!("{name}: refuses a good block"));
        assert_eq!(good, (BLOCK_HASH, TRANSACTIONS), "{name}: another block");
        assert!(verify()(&damaged).is_none(), "{name}: takes a damaged one");
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

/// A file that holds `blocks`, as Bitcoin Core writes it.
fn file_of(blocks: &[&[u8]]) -> Vec<u8> {
    let mut file = Vec::with_capacity(blocks.iter().map(|block| FRAME_LEN + block.len()).sum());
    for block in blocks {
        let length = u32::try_from(block.len()).expect("a block is shorter than 2^32");
        file.extend_from_slice(&Network::Mainnet.magic());
        file.extend_from_slice(&length.to_le_bytes());
        file.extend_from_slice(block);
    }
    file
}

/// How many good blocks there are in a file, which holds nothing but blocks.
fn good_blocks(file: &[u8], threads: usize, verify: fn() -> Verify) -> usize {
    let mut scanner = Scanner::new(
        Network::Mainnet.magic(),
        Obfuscation::default(),
        Hasher::best(),
    );
    let mut rest = file;
    let mut blocks = Vec::new();
    while let Some(found) = scanner.next(&mut rest, true) {
        match found {
            Found::Block { bytes, .. } => blocks.push(bytes),
            Found::Fault(fault) => panic!("{fault}"),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::{Options, run};
    use crate::report::Machine;

    /// Each library by itself, against an answer known from elsewhere: the chain.
    #[test]
    fn all_know_the_block_and_its_root() {
        let mut transactions = Vec::new();
        let block = Block::parse(BLOCK, &mut transactions).unwrap();
        let txids: Vec<[&[u8]; 3]> = block.txid_pieces().collect();
        assert_eq!(txids.len(), TRANSACTIONS);
        let engine = Engine::detect().unwrap();
        let everyone = everyone(engine);
        assert_eq!(everyone.len(), ours(engine, true).len() + 4);
        for (name, _, hashes) in everyone {
            let mut hash = [Hash::default()];
            hashes.many(&[block.header()], &mut hash);
            assert_eq!(hash, [BLOCK_HASH], "{name}");
            let mut ids = vec![Hash::default(); TRANSACTIONS];
            hashes.many_in_pieces(&txids, &mut ids);
            assert_eq!(hashes.merkle_root(&ids), *block.merkle_root(), "{name}");
            // Odd numbers of nodes are in this tree; an only one is not.
            assert_eq!(hashes.merkle_root(&ids[..1]), ids[0], "{name}");
        }
    }

    /// The whole of a quick run, checks included.
    #[test]
    fn every_experiment_runs_and_names_its_rivals() {
        let libraries = ["sha2", "bitcoin_hashes", "ring", "aws-lc-rs"];
        let rivals: [(&str, &str, &[&str]); 5] = [
            ("sha256d.many", "bytes=1024 batch=128", &libraries),
            ("sha256d.d64", "batch=1024", &libraries),
            ("sha256d.merkle", "leaves=9001", &libraries),
            ("sha256d.block", "block=574200 part=all", &libraries),
            ("sha256d.files", "threads=1", &["bitcoin"]),
        ];
        let options = Options {
            experiments: rivals.map(|(experiment, ..)| experiment.to_owned()).into(),
            quick: true,
            ..Options::default()
        };
        let report = run(Engine::detect().unwrap(), &options).unwrap();
        for (experiment, case, rivals) in rivals {
            let row = report.rows.iter().find(|row| {
                row.experiment == experiment && row.case == case && row.implementation == OURS
            });
            let row = row.unwrap_or_else(|| panic!("{experiment} {case}"));
            assert!(row.median > 0.0 && !row.timed.is_empty());
            for rival in rivals {
                assert!(report.ratio(row, rival).is_some(), "{experiment}: {rival}");
            }
        }
    }

    /// The parts of a block that a quick run leaves out.
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
            run_block(engine, part, &case, &plan, &mut report);
            assert_eq!(report.experiments(), ["sha256d.block"]);
        }
    }

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
