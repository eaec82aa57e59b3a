//! Blocks and block files: real blocks against known values, generated ones against a naive
//! implementation of the rules, and every kind of invalid block.

mod common;

use bzip2::read::BzDecoder;
use common::{Random, noise};
use packetlane::bitcoin::Network;
use packetlane::sha256d::{
    Block, BlockFault, FaultCause, FileFault, Frame, Hash, Hasher, Obfuscation, ParseError,
    Scanner, Transaction, TransactionError, Verifier,
};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

const MAGIC: [u8; 4] = Network::Mainnet.magic();

/// 3,315 transactions, 1,341 of them with witnesses (May 2019).
const SEGWIT_BLOCK: &str = "0000000000000000001602407ac49862a7bca9d00f7f402db20b7be2f5de59d2";

/// The btcd version whose test data is read: the last one that contains all of it.
const BTCD: &str = "github.com/btcsuite/btcd@v0.24.2";

fn segwit_block() -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/blocks");
    fs::read(folder.join(format!("{SEGWIT_BLOCK}.blk"))).unwrap()
}

/// A file of btcd's tests, unpacked, if the Go module is installed.
fn btcd(path: &str) -> Option<Vec<u8>> {
    let cache = Command::new("go").args(["env", "GOMODCACHE"]).output();
    let cache = cache.map(|output| String::from_utf8(output.stdout).unwrap());
    let file = cache.map(|cache| PathBuf::from(cache.trim()).join(BTCD).join(path));
    let Some(bytes) = file.ok().and_then(|file| fs::read(file).ok()) else {
        // Written past the test harness, which hides the output of passing tests.
        let _ = writeln!(
            std::io::stderr(),
            "NOT RUN: {path} of btcd: run `go mod download {BTCD}`"
        );
        return None;
    };
    if !path.ends_with(".bz2") {
        return Some(bytes);
    }
    let mut plain = Vec::new();
    BzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
    Some(plain)
}

/// A verifier for generated blocks, which have regtest's target, and for real ones.
fn verifier() -> Verifier {
    Verifier::new(Hasher::best(), Network::Regtest)
}

fn sha256d(bytes: &[u8]) -> Hash {
    Sha256::digest(Sha256::digest(bytes)).into()
}

/// Parses a displayed hash.
fn hash(text: &str) -> Hash {
    core::array::from_fn(|i| u8::from_str_radix(&text[62 - 2 * i..][..2], 16).unwrap())
}

fn shown(hash: &Hash) -> String {
    hash.iter()
        .rev()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn plain_root(leaves: &[Hash]) -> Hash {
    let mut level = leaves.to_vec();
    while level.len() > 1 {
        let pairs = level.chunks(2);
        level = pairs
            .map(|pair| sha256d(&[pair[0], *pair.last().unwrap()].concat()))
            .collect();
    }
    level[0]
}

fn compact(number: usize) -> Vec<u8> {
    let bytes = (number as u64).to_le_bytes();
    match number {
        0..=0xfc => vec![bytes[0]],
        0xfd..=0xffff => [&[0xfd], &bytes[..2]].concat(),
        _ => [&[0xfe], &bytes[..4]].concat(),
    }
}

fn counted(bytes: &[u8]) -> Vec<u8> {
    [&compact(bytes.len()), bytes].concat()
}

/// A transaction in parts.
#[derive(Clone, Default)]
struct Tx {
    inputs: Vec<u8>,
    outputs: Vec<u8>,
    witness: Option<Vec<u8>>,
}

impl Tx {
    fn new(inputs: &[&[u8]], outputs: &[&[u8]], witness: Option<&[&[&[u8]]]>) -> Self {
        let mut tx = Self {
            inputs: compact(inputs.len()),
            outputs: compact(outputs.len()),
            witness: None,
        };
        for (i, script) in inputs.iter().enumerate() {
            tx.inputs
                .extend([&[i as u8; 36][..], &counted(script), &[0xff; 4]].concat());
        }
        for script in outputs {
            tx.outputs.extend([&[0; 8][..], &counted(script)].concat());
        }
        tx.witness = witness.map(|inputs| {
            let items = |items: &&[&[u8]]| {
                [
                    compact(items.len()),
                    items.iter().flat_map(|item| counted(item)).collect(),
                ]
                .concat()
            };
            inputs.iter().flat_map(items).collect()
        });
        tx
    }

    /// Gives an input the null outpoint, which a coinbase has. All inputs before it must have
    /// empty scripts.
    fn spend_null(&mut self, input: usize) {
        let outpoint = &mut self.inputs[1 + 41 * input..][..36];
        outpoint.fill(0);
        outpoint[32..].fill(0xff);
    }

    /// A random transaction.
    fn any(random: &mut Random) -> Self {
        let mut list = |most: usize, longest: usize| -> Vec<Vec<u8>> {
            let count = 1 + random.below(most);
            (0..count)
                .map(|_| noise(random.next(), random.below(longest)))
                .collect()
        };
        let (inputs, outputs) = (list(4, 300), list(4, 60));
        let witnesses: Vec<Vec<Vec<u8>>> = inputs.iter().map(|_| list(3, 300)).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(|script| &script[..]).collect();
        let outputs: Vec<&[u8]> = outputs.iter().map(|script| &script[..]).collect();
        let items: Vec<Vec<&[u8]>> = witnesses
            .iter()
            .map(|w| w.iter().map(|i| &i[..]).collect())
            .collect();
        let items: Vec<&[&[u8]]> = items.iter().map(|items| &items[..]).collect();
        let witness = (random.below(2) == 0).then_some(&items[..]);
        Self::new(&inputs, &outputs, witness)
    }

    fn stripped(&self) -> Vec<u8> {
        [
            &[2, 0, 0, 0],
            &self.inputs[..],
            &self.outputs,
            &[9, 0, 0, 0],
        ]
        .concat()
    }

    fn whole(&self) -> Vec<u8> {
        match &self.witness {
            None => self.stripped(),
            Some(witness) => [
                &[2, 0, 0, 0, 0, 1],
                &self.inputs[..],
                &self.outputs,
                witness,
                &[9, 0, 0, 0],
            ]
            .concat(),
        }
    }
}

/// A block of these transactions after a coinbase, which commits to their witnesses if there
/// are any.
fn block_of(others: &[Tx]) -> Vec<u8> {
    let mut coinbase = Tx::new(&[b"coinbase"], &[b"the miner's"], None);
    if others.iter().any(|tx| tx.witness.is_some()) {
        let mut ids = vec![[0; 32]];
        ids.extend(others.iter().map(|tx| sha256d(&tx.whole())));
        let reserved = [5; 32];
        let commitment = sha256d(&[plain_root(&ids), reserved].concat());
        let script =
            |hash: &Hash| [&[0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed], &hash[..], b"more"].concat();
        // The last commitment counts. One that is too short does not.
        let outputs: [&[u8]; 4] = [
            &script(&[1; 32]),
            b"miner",
            &script(&commitment),
            &script(&[1; 32])[..37],
        ];
        coinbase = Tx::new(&[b"coinbase"], &outputs, Some(&[&[&reserved]]));
    }
    with_coinbase(&coinbase, others)
}

/// A block of `coinbase`, whose first input gets the null outpoint, and these transactions.
fn with_coinbase(coinbase: &Tx, others: &[Tx]) -> Vec<u8> {
    let mut coinbase = coinbase.clone();
    coinbase.spend_null(0);
    block_with(&[&[coinbase], others].concat())
}

fn block_with(all: &[Tx]) -> Vec<u8> {
    let ids: Vec<Hash> = all.iter().map(|tx| sha256d(&tx.stripped())).collect();
    let mut block = header(&plain_root(&ids));
    block.extend(compact(all.len()));
    block.extend(all.iter().flat_map(|tx| tx.whole()));
    block
}

/// A header with this Merkle root that meets regtest's target.
fn header(root: &Hash) -> Vec<u8> {
    let bits = 0x207f_ffff_u32.to_le_bytes();
    (0..=u8::MAX)
        .map(|nonce| [&[1; 36], &root[..], &[2; 4], &bits, &[nonce; 4]].concat())
        .find(|header| sha256d(header)[31] < 0x7f)
        .unwrap()
}

#[track_caller]
fn fault(block: &[u8]) -> BlockFault {
    let faults = verifier().verify(block).unwrap_err();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(!faults[0].to_string().is_empty());
    faults[0]
}

#[track_caller]
fn malformed(block: &[u8]) -> ParseError {
    match fault(block) {
        BlockFault::Malformed(error) => error,
        fault => panic!("{fault}"),
    }
}

/// The results of scanning a file in pieces of `piece` bytes.
fn scan(file: &[u8], obfuscation: Obfuscation, piece: usize) -> Vec<Frame<'_>> {
    let mut scanner = Scanner::new(MAGIC, obfuscation, verifier());
    let mut found = Vec::new();
    let (mut start, mut end) = (0, 0);
    while end < file.len() {
        end = file.len().min(end + piece);
        let mut rest = &file[start..end];
        while let Some(next) = scanner.next(&mut rest, end == file.len()) {
            found.push(next);
        }
        assert!(rest.len() < Scanner::MAX_NEEDED);
        start = end - rest.len();
    }
    assert_eq!(start, file.len());
    let mut rest = &[][..];
    assert_eq!(scanner.next(&mut rest, true), None);
    found
}

/// The blocks and faults of a file. They must not depend on the size of the pieces.
fn find(file: &[u8], obfuscation: Obfuscation) -> (Vec<(u64, &[u8])>, Vec<FileFault>) {
    let found = scan(file, obfuscation, usize::MAX / 2);
    if file.len() < 5000 {
        for piece in [1, 7, 100] {
            assert_eq!(scan(file, obfuscation, piece), found, "{piece}");
        }
    }
    // Bytes between the results are zero in the file.
    let are_zeros = |start: u64, end: u64| {
        let mut bytes = file[start as usize..end as usize].to_vec();
        obfuscation.apply(start, &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == 0), "{start}..{end}");
    };
    let mut place = 0;
    let (mut blocks, mut faults) = (Vec::new(), Vec::new());
    for found in found {
        match found {
            Frame::Block { offset, bytes } => {
                are_zeros(place, offset - Scanner::FRAME_LEN as u64);
                assert_eq!(&file[offset as usize..][..bytes.len()], bytes);
                place = offset + bytes.len() as u64;
                blocks.push((offset, bytes));
            }
            Frame::Fault(fault) => {
                are_zeros(place, fault.offset);
                assert!(!fault.to_string().is_empty());
                place = fault.offset + fault.length;
                faults.push(fault);
            }
        }
    }
    are_zeros(place, file.len() as u64);
    (blocks, faults)
}

fn framed(block: &[u8]) -> Vec<u8> {
    [&MAGIC, &(block.len() as u32).to_le_bytes()[..], block].concat()
}

const PLAIN: Obfuscation = Obfuscation([0; 8]);

#[test]
fn a_real_block_with_witnesses_matches_known_values() {
    let bytes = segwit_block();
    let mut verifier = Verifier::new(Hasher::best(), Network::Mainnet);
    let summary = verifier.verify(&bytes).unwrap();
    assert_eq!(shown(&summary.hash), SEGWIT_BLOCK);
    assert_eq!((summary.transactions, summary.bytes), (3315, 1_245_250));
    // Header, ids, witness ids of all but the first, two trees, the commitment.
    let tree: usize = [1658, 829, 415, 208, 104, 52, 26, 13, 7, 4, 2, 1]
        .iter()
        .sum();
    assert_eq!(summary.hashes, 1 + 3315 + 1340 + 2 * tree + 1);

    let mut transactions = Vec::new();
    let block = Block::parse(&bytes, &mut transactions).unwrap();
    let ids: Vec<Hash> = block
        .txid_pieces()
        .map(|pieces| sha256d(&pieces.concat()))
        .collect();
    assert_eq!(
        shown(&ids[0]),
        "57233bf44b82ef3662479e5c80f71ba00c1ae82e8c9739213841f27a2f3d0d79"
    );
    assert_eq!(
        shown(&ids[3314]),
        "901ca7595f7ed1deaeb59d83fd98ff0999f1a7caa6533c51ac7a0def312682ea"
    );
    assert_eq!(plain_root(&ids), *block.merkle_root());
    assert_eq!(block.witness_reserved_value(), Some(&[0; 32]));
    assert!(block.has_witness());
    assert_eq!(block.with_witness().count(), 1340);
}

#[test]
fn blocks_of_btcds_tests_match_known_values() {
    let large = "00000000000000000021868c2cefc52a480d173c849412fe81c4e5ab806f94ab";
    if let Some(block) = btcd(&format!("wire/testdata/block-{large}.blk")) {
        let summary = verifier().verify(&block).unwrap();
        assert_eq!(shown(&summary.hash), large);
        assert_eq!((summary.transactions, summary.bytes), (230, 2_259_447));
    }
    if let Some(file) = btcd("blockchain/testdata/277647.dat.bz2") {
        let (blocks, faults) = find(&file, PLAIN);
        assert_eq!((blocks.len(), &faults[..]), (1, &[][..]));
        let summary = verifier().verify(blocks[0].1).unwrap();
        assert_eq!(
            shown(&summary.hash),
            "0000000000000000054a714e580b16c583701712ab91060e92dbde6eb1e052a8"
        );
        // Without witnesses there is no second tree.
        let tree: usize = [107, 54, 27, 14, 7, 4, 2, 1].iter().sum();
        assert_eq!(
            (summary.transactions, summary.hashes),
            (213, 1 + 213 + tree)
        );
    }
    // One transaction of 1 MB.
    if let Some(tx) = btcd("wire/testdata/megatx.bin.bz2") {
        let id = hash("bb41a757f405890fb0f5856228e23b715702d714d59bf2b1feb70d8b2b4e3e08");
        assert_eq!(Transaction::parse(&tx).unwrap().txid(), id);
        assert_eq!(Hasher::best().txids(&[&tx]), Ok(vec![id]));
    }
}

#[test]
fn the_first_blocks_of_the_chain_are_linked() {
    for (path, count, place, known) in [
        // Bitcoin Core has preallocated space in this file. The hash is among its checkpoints.
        (
            "blockchain/testdata/blk_0_to_14131.dat",
            14_132,
            11_111,
            "0000000069e244f73d78e8fd29ba2fd2ed618bd6fa2ee92559f542fdb26e7c1d",
        ),
        (
            "database/testdata/blocks1-256.bz2",
            255,
            0,
            "00000000839a8e6886ab5951d76f411475428afc90947ee320161bbf18eb6048",
        ),
    ] {
        let Some(file) = btcd(path) else { continue };
        let (blocks, faults) = find(&file, PLAIN);
        assert_eq!((blocks.len(), &faults[..]), (count, &[][..]), "{path}");
        let mut verifier = Verifier::new(Hasher::best(), Network::Mainnet);
        let hashes: Vec<Hash> = blocks
            .iter()
            .map(|(offset, block)| match verifier.verify(block) {
                Ok(summary) => summary.hash,
                Err(faults) => panic!("{offset}: {faults:?}"),
            })
            .collect();
        assert_eq!(shown(&hashes[place]), known);
        for ((_, block), hash) in blocks[1..].iter().zip(&hashes) {
            assert_eq!(block[4..36], hash[..]);
        }
    }
}

#[test]
fn generated_blocks_match_a_naive_implementation() {
    let mut random = Random::new(1);
    let mut verifier = verifier();
    for count in [0, 1, 2, 3, 4, 7, 8, 9, 30, 100, 300, 2] {
        let others: Vec<Tx> = (0..count).map(|_| Tx::any(&mut random)).collect();
        let bytes = block_of(&others);
        let summary = verifier.verify(&bytes).unwrap();
        assert_eq!(summary.hash, sha256d(&bytes[..80]));
        assert_eq!(summary.transactions, 1 + count);

        let mut transactions = Vec::new();
        let block = Block::parse(&bytes, &mut transactions).unwrap();
        assert_eq!(block.header()[..], bytes[..80]);
        assert_eq!(block.hash(), Block::hash_header(block.header()));
        let pieces: Vec<Vec<u8>> = block.txid_pieces().map(|pieces| pieces.concat()).collect();
        let stripped: Vec<Vec<u8>> = others.iter().map(Tx::stripped).collect();
        assert_eq!(pieces[1..], stripped);
        let whole: Vec<Vec<u8>> = others
            .iter()
            .filter(|tx| tx.witness.is_some())
            .map(Tx::whole)
            .collect();
        assert_eq!(block.with_witness().collect::<Vec<_>>(), whole);
        assert_eq!(block.has_witness(), !whole.is_empty());
        assert_eq!(block.witness_commitment().is_some(), block.has_witness());
    }
}

#[test]
fn damage_to_a_real_block_is_found() {
    let good = segwit_block();
    let mut transactions = Vec::new();
    let block = Block::parse(&good, &mut transactions).unwrap();
    let place = |bytes: &[u8]| bytes.as_ptr() as usize - good.as_ptr() as usize;
    let [version, body, lock_time] = block
        .txid_pieces()
        .skip(1)
        .find(|pieces| !pieces[1].is_empty())
        .unwrap();
    let flip = |place: usize| {
        let mut bad = good.clone();
        bad[place] ^= 1;
        bad
    };

    // In bytes that an id covers: both roots change.
    for place in [place(version), place(body) + 10, place(lock_time)] {
        let faults = verifier().verify(&flip(place)).unwrap_err();
        assert!(matches!(
            faults[..],
            [BlockFault::MerkleRoot { header, computed }, BlockFault::Commitment { .. }]
                if header == *block.merkle_root() && computed != header
        ));
    }
    // In a witness.
    let witness = place(body) + body.len() + 5;
    let BlockFault::Commitment {
        block: commitment,
        computed,
    } = fault(&flip(witness))
    else {
        panic!("it is in the witness alone");
    };
    assert_eq!(Some(&commitment), block.witness_commitment());
    assert_ne!(commitment, computed);
    // The reserved value of the first transaction.
    let reserved = place(block.witness_reserved_value().unwrap());
    assert!(matches!(
        fault(&flip(reserved)),
        BlockFault::Commitment { .. }
    ));

    // In the header: the block hash changes, and the Merkle root if it is hit.
    for place in [0, 4, 36, 68, 76] {
        let faults = verifier().verify(&flip(place)).unwrap_err();
        assert!(matches!(faults[0], BlockFault::Work { .. }), "{faults:?}");
        assert_eq!(faults.len(), if place == 36 { 2 } else { 1 });
    }

    for length in [0, 79, 80, 81, 83, 1000, good.len() / 2, good.len() - 1] {
        malformed(&good[..length]);
    }
    let length = good.len();
    let longer = [&good[..], &[0]].concat();
    let error = ParseError::Trailing {
        offset: length,
        length: 1,
    };
    assert_eq!(malformed(&longer), error);
}

#[test]
fn repeated_transactions_are_reported_as_mutation() {
    let mut random = Random::new(2);
    // Of three leaves the last is hashed with itself, of six the last two.
    for (count, repeated) in [(3, 1), (5, 1), (6, 2), (12, 4)] {
        let others: Vec<Tx> = (1..count)
            .map(|_| Tx {
                witness: None,
                ..Tx::any(&mut random)
            })
            .collect();
        let good = block_of(&others);
        let summary = verifier().verify(&good).unwrap();
        let mut bad = good[..80].to_vec();
        bad.extend(compact(count + repeated));
        bad.extend(&good[81..]);
        let last = &others[others.len() - repeated..];
        bad.extend(last.iter().flat_map(Tx::stripped));
        assert_eq!(fault(&bad), BlockFault::Mutated);
        assert_eq!(sha256d(&bad[..80]), summary.hash);
    }
}

#[test]
fn witnesses_need_a_commitment_and_its_reserved_value() {
    let spend = Tx::new(&[b""], &[b""], Some(&[&[b"witness"]]));
    let plain = Tx::new(&[b"script"], &[b""], None);
    let others = [spend, plain.clone()];
    verifier().verify(&block_of(&others)).unwrap();

    let coinbase = Tx::new(&[b"coinbase"], &[b"out"], Some(&[&[&[0; 32]]]));
    assert_eq!(
        fault(&with_coinbase(&coinbase, &others)),
        BlockFault::NoCommitment
    );
    // Also if only the first transaction has a witness.
    assert_eq!(
        fault(&with_coinbase(&coinbase, core::slice::from_ref(&plain))),
        BlockFault::NoCommitment
    );

    let script = [&[0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed][..], &[7; 32]].concat();
    let witnesses: [Option<&[&[&[u8]]]>; 5] = [
        None,
        Some(&[&[&[0; 31]]]),
        Some(&[&[&[0; 33]]]),
        Some(&[&[&[0; 32], &[0; 32]]]),
        Some(&[&[&[]]]),
    ];
    for witness in witnesses {
        let coinbase = Tx::new(&[b"coinbase"], &[&script], witness);
        let fault = fault(&with_coinbase(&coinbase, &others));
        assert_eq!(fault, BlockFault::NoReservedValue);
    }
    let coinbase = Tx::new(&[b"coinbase"], &[&script], Some(&[&[&[0; 32]]]));
    let wrong = fault(&with_coinbase(&coinbase, &others));
    assert!(matches!(wrong, BlockFault::Commitment { block, .. } if block == [7; 32]));

    // Without witnesses a commitment is ignored: some blocks before BIP141 have one.
    let coinbase = Tx::new(&[b"coinbase"], &[&script], None);
    verifier()
        .verify(&with_coinbase(&coinbase, &[plain]))
        .unwrap();
}

#[test]
fn the_work_is_compared_with_the_headers_target() {
    let good = block_of(&[]);
    let with_bits = |bits: u32| {
        let mut block = good.clone();
        block[72..76].copy_from_slice(&bits.to_le_bytes());
        block
    };
    let bits = 0x1d00_ffff;
    let block = with_bits(bits);
    let hash = sha256d(&block[..80]);
    assert_eq!(fault(&block), BlockFault::Work { hash, bits });
    for (bits, expected) in [
        (0, BlockFault::ZeroTarget { bits: 0 }),
        (
            0x0492_3456,
            BlockFault::NegativeTarget { bits: 0x0492_3456 },
        ),
        (
            0xff12_3456,
            BlockFault::TargetOverflow { bits: 0xff12_3456 },
        ),
    ] {
        assert_eq!(fault(&with_bits(bits)), expected);
    }
}

#[test]
fn the_target_is_compared_with_the_networks_limit() {
    let block = block_of(&[]);
    let bits = 0x207f_ffff;
    for network in Network::ALL {
        let verdict = Verifier::new(Hasher::best(), network).verify(&block);
        let easiest = match network {
            Network::Regtest => {
                verdict.unwrap();
                continue;
            }
            Network::Signet => 0x1e03_77ae,
            _ => 0x1d00_ffff,
        };
        let fault = BlockFault::TargetAboveLimit { bits, easiest };
        assert_eq!(verdict, Err(vec![fault]), "{}", network.name());
    }
    // The limit itself is allowed.
    for network in Network::ALL {
        let bits = network.easiest_target();
        let mut block = block.clone();
        block[72..76].copy_from_slice(&bits.to_le_bytes());
        let hash = sha256d(&block[..80]);
        let verdict = Verifier::new(Hasher::best(), network).verify(&block);
        let work = Err(vec![BlockFault::Work { hash, bits }]);
        assert!(verdict.is_ok() || verdict == work, "{verdict:?}");
    }
}

#[test]
fn only_the_first_transaction_has_the_null_outpoint() {
    let plain = Tx::new(&[b"", b""], &[b"out"], None);
    assert_eq!(
        fault(&block_with(std::slice::from_ref(&plain))),
        BlockFault::NoCoinbase
    );
    // A coinbase has no further input.
    let mut two = plain.clone();
    two.spend_null(0);
    assert_eq!(
        fault(&block_with(std::slice::from_ref(&two))),
        BlockFault::NoCoinbase
    );
    let coinbase = Tx::new(&[b"coinbase"], &[b"miner"], None);
    for input in [0, 1] {
        let mut null = plain.clone();
        null.spend_null(input);
        let mut last = Tx::new(&[b""], &[b"last"], None);
        last.spend_null(0);
        let others = [plain.clone(), null, last];
        let expected = BlockFault::NullOutpoint { transaction: 2 };
        assert_eq!(fault(&with_coinbase(&coinbase, &others)), expected);
    }
}

#[test]
fn transactions_of_64_bytes_are_counted() {
    // Version, counts, outpoint, sequence, value and lock time have 60 bytes.
    let of_64_bytes = Tx::new(&[b"abc"], &[b"d"], None);
    assert_eq!(of_64_bytes.stripped().len(), 64);
    let with_witness = Tx::new(&[b"ab"], &[b"cd"], Some(&[&[b"witness"]]));
    let others = [Tx::new(&[b"ab"], &[b"d"], None), of_64_bytes, with_witness];
    let of = |others: &[Tx]| {
        let summary = verifier().verify(&block_of(others)).unwrap();
        summary.transactions_of_64_bytes
    };
    assert_eq!([of(&others), of(&others[..2]), of(&others[..1])], [2, 1, 0]);
}

#[test]
fn ids_of_raw_transactions_match_a_naive_implementation() {
    let mut random = Random::new(4);
    for count in [0, 1, 2, 15, 17, 300] {
        let all: Vec<Tx> = (0..count).map(|_| Tx::any(&mut random)).collect();
        let raw: Vec<Vec<u8>> = all.iter().map(Tx::whole).collect();
        let raw: Vec<&[u8]> = raw.iter().map(|raw| &raw[..]).collect();
        let expected: Vec<Hash> = all.iter().map(|tx| sha256d(&tx.stripped())).collect();
        assert_eq!(Hasher::best().txids(&raw), Ok(expected));
        let expected: Vec<Hash> = raw.iter().map(|raw| sha256d(raw)).collect();
        assert_eq!(Hasher::best().wtxids(&raw), Ok(expected));
        for (tx, raw) in all.iter().zip(&raw) {
            let transaction = Transaction::parse(raw).unwrap();
            assert_eq!(transaction.has_witness(), tx.witness.is_some());
            assert_eq!(transaction.txid_pieces().concat(), tx.stripped());
            assert_eq!(transaction.bytes(), *raw);
            assert_eq!(transaction.txid(), sha256d(&tx.stripped()));
            assert_eq!(transaction.wtxid(), sha256d(raw));
        }
    }
}

#[test]
fn invalid_transactions_are_reported() {
    let good = Tx::new(&[b"in"], &[b"out"], Some(&[&[b"witness"]])).whole();
    for length in 0..good.len() {
        let bad = &good[..length];
        let cause = Transaction::parse(bad).unwrap_err();
        let expected = TransactionError { index: 2, cause };
        let list = [&good[..], &good, bad, &[]];
        assert_eq!(Hasher::best().txids(&list), Err(expected));
        assert_eq!(Hasher::best().wtxids(&list), Err(expected));
        assert!(expected.to_string().starts_with("number 2 (from 0) "));
    }
    let longer = [&good[..], &[0]].concat();
    let trailing = ParseError::Trailing {
        offset: good.len(),
        length: 1,
    };
    assert_eq!(Transaction::parse(&longer), Err(trailing));
    // Marker and flag without a witness, and no input.
    let mut empty = Tx::new(&[b"in"], &[b"out"], Some(&[&[]])).whole();
    assert!(matches!(
        Transaction::parse(&empty),
        Err(ParseError::NoWitness { .. })
    ));
    empty[5] = 0;
    let no_inputs = ParseError::NoInputs { offset: 4 };
    assert_eq!(Transaction::parse(&empty), Err(no_inputs));
    empty[5] = 2;
    let flag = ParseError::Flag { offset: 5, flag: 2 };
    assert_eq!(Transaction::parse(&empty), Err(flag));
    let length = Block::MAX_SERIALIZED_SIZE + 1;
    let too_long = ParseError::TooLong { length };
    assert_eq!(Transaction::parse(&vec![0; length]), Err(too_long));
}

#[test]
fn every_malformed_block_is_reported_with_its_offset() {
    let header = vec![0; 80];
    let behind = |parts: &[&[u8]]| [&header, &parts.concat()[..]].concat();
    let filler = [0; 1000];
    let version = [2, 0, 0, 0];
    let input = [&[3; 36][..], &[0], &[4; 4]].concat();

    let long = vec![0; Block::MAX_SERIALIZED_SIZE + 1];
    let length = long.len();
    assert_eq!(malformed(&long), ParseError::TooLong { length });
    // Values exactly at the limit are accepted.
    assert_eq!(
        malformed(&long[1..]),
        ParseError::NoTransactions { offset: 80 }
    );

    let cut = |offset, needed, left| ParseError::Cut {
        offset,
        needed,
        left,
    };
    assert_eq!(malformed(&[]), cut(0, 80, 0));
    assert_eq!(malformed(&header[..79]), cut(0, 80, 79));
    assert_eq!(malformed(&header), cut(80, 1, 0));
    assert_eq!(malformed(&behind(&[&[0xfd, 1]])), cut(81, 2, 1));
    assert_eq!(malformed(&behind(&[&[0xfe, 1, 2, 3]])), cut(81, 4, 3));
    assert_eq!(malformed(&behind(&[&[0xff]])), cut(81, 8, 0));
    // A script longer than the rest of the block, than 32 bits can encode, and than any integer can
    // encode.
    for (length, needed) in [
        (&[0xfd, 0xff, 0xff][..], 0xffff),
        (&[0xff, 0, 0, 0, 0, 1, 0, 0, 0], 1 << 32),
        (&[0xff; 9], u64::MAX),
    ] {
        let block = behind(&[&[1], &version, &[1], &[3; 36], length, &filler]);
        assert_eq!(
            malformed(&block),
            cut(81 + 4 + 1 + 36 + length.len(), needed, 1000)
        );
    }

    for (bytes, number) in [
        (&[0xfd, 0xfc, 0][..], 0xfc),
        (&[0xfe, 0xff, 0xff, 0, 0], 0xffff),
        (&[0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0], 0xffff_ffff),
        (&[0xff, 0, 0, 0, 0, 0, 0, 0, 0], 0),
    ] {
        let error = ParseError::NotShortest { offset: 80, number };
        assert_eq!(malformed(&behind(&[bytes, &filler])), error);
    }

    let too_many = |offset, count, most| ParseError::TooMany {
        offset,
        count,
        most,
    };
    assert_eq!(
        malformed(&behind(&[&[20], &filler])),
        too_many(80, 20, 1000 / 51)
    );
    let block = behind(&[&[0xff; 9], &filler]);
    assert_eq!(malformed(&block), too_many(80, u64::MAX, 1000 / 51));
    let block = behind(&[&[1], &version, &[25], &filler]);
    assert_eq!(malformed(&block), too_many(85, 25, 1000 / 41));
    let block = behind(&[&[1], &version, &[1], &input, &[112], &filler]);
    assert_eq!(malformed(&block), too_many(85 + 1 + 41, 112, 1000 / 9));
    let segwit = [&[1], &version[..], &[0, 1, 1], &input, &[0]].concat();
    let block = behind(&[&segwit, &[0xfe, 0, 0, 0, 1], &filler]);
    assert_eq!(
        malformed(&block),
        too_many(80 + segwit.len(), 1 << 24, 1000)
    );

    let block = behind(&[&[0], &filler]);
    assert_eq!(malformed(&block), ParseError::NoTransactions { offset: 80 });
    let block = behind(&[&[1], &version, &[0, 0], &filler]);
    assert_eq!(malformed(&block), ParseError::NoInputs { offset: 85 });
    let block = behind(&[&[1], &version, &[0, 1, 0], &filler]);
    assert_eq!(malformed(&block), ParseError::NoInputs { offset: 87 });
    for flag in [2, 3, 0xff] {
        let block = behind(&[&[1], &version, &[0, flag], &filler]);
        assert_eq!(malformed(&block), ParseError::Flag { offset: 86, flag });
    }
    let block = behind(&[&segwit, &[0], &[0; 4]]);
    let offset = 80 + segwit.len();
    assert_eq!(malformed(&block), ParseError::NoWitness { offset });
    let block = behind(&[&segwit, &[1, 0], &[0; 4], &[9; 3]]);
    let offset = offset + 6;
    assert_eq!(
        malformed(&block),
        ParseError::Trailing { offset, length: 3 }
    );
}

/// Different small blocks of a chain.
fn small_blocks(count: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(3);
    (0..count)
        .map(|i| block_of(&vec![Tx::any(&mut random); i % 2]))
        .collect()
}

#[test]
fn zeros_at_the_end_of_a_file_are_not_a_fault() {
    let blocks = small_blocks(4);
    let mut file: Vec<u8> = blocks.iter().flat_map(|block| framed(block)).collect();
    for padding in [0, 1, 3, 4, 7, 8, 9, 500] {
        let padded = [&file[..], &vec![0; padding]].concat();
        let (found, faults) = find(&padded, PLAIN);
        assert!(faults.is_empty(), "{padding}: {faults:?}");
        assert!(found.iter().map(|(_, bytes)| bytes).eq(&blocks));
    }
    for empty in [0, 1, 8, 100] {
        assert_eq!(find(&vec![0; empty], PLAIN), (vec![], vec![]));
    }

    // With xor.dat too, preallocated space is zeros.
    let key = Obfuscation([0xa5, 0, 1, 2, 3, 4, 5, 0xff]);
    let plain = file.clone();
    key.apply(0, &mut file);
    assert_ne!(file, plain);
    for padding in [0, 1, 4, 8, 13, 500] {
        let mut read = [&file[..], &vec![0; padding]].concat();
        key.apply(0, &mut read);
        let (found, faults) = find(&read, key);
        assert!(faults.is_empty(), "{padding}: {faults:?}");
        assert!(found.iter().map(|(_, bytes)| bytes).eq(&blocks));
    }
}

/// A crashed node leaves them: it continues after space that it allocated but never wrote.
#[test]
fn zeros_between_blocks_are_not_a_fault() {
    let blocks = small_blocks(3);
    for key in [PLAIN, Obfuscation([0xa5, 0, 1, 2, 3, 4, 5, 0xff])] {
        for zeros in [1, 3, 4, 7, 8, 9, 500] {
            // As stored on disk.
            let mut file = vec![0; zeros];
            for block in &blocks {
                let mut frame = framed(block);
                key.apply(file.len() as u64, &mut frame);
                file.extend(frame);
                file.resize(file.len() + zeros, 0);
            }
            key.apply(0, &mut file);
            let (found, faults) = find(&file, key);
            assert!(faults.is_empty(), "{zeros}: {faults:?}");
            assert!(found.iter().map(|(_, bytes)| bytes).eq(&blocks));
        }
    }
    // Other bytes among them are damage.
    let file = [
        &framed(&blocks[0])[..],
        &[0; 8],
        b"x",
        &[0; 8],
        &framed(&blocks[1]),
    ]
    .concat();
    let (found, faults) = find(&file, PLAIN);
    assert_eq!((found.len(), faults.len()), (2, 1));
    // It begins after the zeros before it.
    let begins = framed(&blocks[0]).len() as u64 + 8;
    assert_eq!((faults[0].offset, faults[0].length), (begins, 9));
}

#[test]
fn damage_to_a_file_stays_local() {
    let blocks = small_blocks(3);
    let [a, b, c] = [0, 1, 2].map(|i| framed(&blocks[i]));
    let whole = |middle: &[u8]| [&a, middle, &c, &[0; 20]].concat();
    let at = a.len() as u64;
    // Anything between the first and the last block gives one fault and no block.
    let only = |middle: &[u8], cause: FaultCause| {
        let file = whole(middle);
        let (found, faults) = find(&file, PLAIN);
        let found: Vec<&[u8]> = found.iter().map(|(_, bytes)| *bytes).collect();
        assert_eq!(found, [&blocks[0][..], &blocks[2]], "{cause:?}");
        // Zeros before it do not belong to it.
        let zeros = middle.iter().take_while(|byte| **byte == 0).count() as u64;
        let length = middle.len() as u64 - zeros;
        assert_eq!(
            faults,
            [FileFault {
                offset: at + zeros,
                length,
                cause
            }]
        );
    };
    only(b"x", FaultCause::Garbage);
    only(&noise(5, 300), FaultCause::Garbage);
    only(
        &[&[0; 30], &b"between"[..], &[0; 30]].concat(),
        FaultCause::Garbage,
    );
    // A wrong magic.
    let mut wrong = b.clone();
    wrong[0] ^= 1;
    only(&wrong, FaultCause::Garbage);
    for network in Network::ALL
        .into_iter()
        .filter(|network| network.magic() != MAGIC)
    {
        wrong[..4].copy_from_slice(&network.magic());
        only(&wrong, FaultCause::OtherNetwork { network });
    }
    // A wrong length.
    let with_length = |length: u32| {
        let mut wrong = b.clone();
        wrong[4..8].copy_from_slice(&length.to_le_bytes());
        wrong
    };
    for length in [0, 131, Block::MAX_SERIALIZED_SIZE as u32 + 1, u32::MAX] {
        only(&with_length(length), FaultCause::Length { length });
    }
    let length = 4_000_000;
    let left = whole(&b).len() - a.len() - Scanner::FRAME_LEN;
    only(&with_length(length), FaultCause::Cut { length, left });
    for less in [1, 10, 81] {
        let length = (blocks[1].len() - less) as u32;
        let fault = fault(&blocks[1][..length as usize]);
        only(&with_length(length), FaultCause::NoBlock { length, fault });
    }
    for more in [1, 10, 81] {
        let length = (blocks[1].len() + more) as u32;
        let fault = fault(&whole(&b)[a.len() + Scanner::FRAME_LEN..][..length as usize]);
        only(&with_length(length), FaultCause::NoBlock { length, fault });
    }
    // A block lost bytes in the middle of the file, so its frame reaches into the next one. The
    // end may fall on a field boundary.
    for lost in 1..blocks[1].len() {
        let (cut, _) = b.split_at(b.len() - lost);
        let length = blocks[1].len() as u32;
        let there = &whole(cut)[a.len() + Scanner::FRAME_LEN..];
        let cause = match there.get(..blocks[1].len()) {
            None => FaultCause::Cut {
                length,
                left: there.len(),
            },
            Some(bytes) => FaultCause::NoBlock {
                length,
                fault: verifier().verify(bytes).unwrap_err()[0],
            },
        };
        only(cut, cause);
    }
    // A block with a correct frame is returned whatever it contains. Checking it is the
    // verifier's task.
    let bad = [1; 132];
    let file = whole(&framed(&bad));
    let (found, faults) = find(&file, PLAIN);
    assert_eq!((found.len(), found[1].1, faults.len()), (3, &bad[..], 0));
    // A block is also found if garbage follows it.
    let file = whole(&[&b[..], b"garbage"].concat());
    let (found, faults) = find(&file, PLAIN);
    let offset = at + b.len() as u64;
    let length = 7;
    let cause = FaultCause::Garbage;
    assert_eq!(
        (found.len(), &faults[..]),
        (
            3,
            &[FileFault {
                offset,
                length,
                cause
            }][..]
        )
    );
}

/// Nested frames, all of which end at the end of the file. Their common bytes are verified a few
/// times, not once per frame.
#[test]
fn the_work_for_nested_frames_does_not_grow_with_their_number() {
    const FRAMES: usize = 500;
    // Each frame holds a block whose first transaction contains all later frames in its script. The
    // other transactions belong to all of these blocks.
    let tail = [
        &[0xff; 4][..],
        &[0; 5],
        &Tx::new(&[b"in"], &[b"out"], None).whole().repeat(200),
    ]
    .concat();
    let mut frames = Vec::new();
    for _ in 0..FRAMES {
        let outpoint = &[7; 36][..];
        let script = compact(frames.len());
        let head = [&[0; 80][..], &[201], &[2, 0, 0, 0, 1], outpoint, &script].concat();
        let length = (head.len() + frames.len() + tail.len()) as u32;
        frames = [&MAGIC[..], &length.to_le_bytes(), &head, &frames].concat();
    }
    let file = [frames, tail].concat();
    let (blocks, faults) = find(&file, PLAIN);
    // The last frame contains no other, so its bytes are a block, whatever its faults.
    assert_eq!((blocks.len(), faults.len()), (1, FRAMES - 1));
    let verified = |fault: &&FileFault| matches!(fault.cause, FaultCause::NoBlock { .. });
    let verified = faults.iter().filter(verified).count();
    assert!((1..10).contains(&verified), "{verified}");
}

#[test]
fn a_truncated_file_loses_only_its_last_block() {
    let blocks = small_blocks(3);
    let file: Vec<u8> = blocks.iter().flat_map(|block| framed(block)).collect();
    let last = file.len() - framed(&blocks[2]).len();
    for end in last..file.len() {
        let (found, faults) = find(&file[..end], PLAIN);
        assert_eq!(found.len(), 2);
        let length = blocks[2].len() as u32;
        let cause = match end - last {
            0 => {
                assert!(faults.is_empty());
                continue;
            }
            1..Scanner::FRAME_LEN => FaultCause::FrameCut,
            there => FaultCause::Cut {
                length,
                left: there - Scanner::FRAME_LEN,
            },
        };
        assert_eq!(faults.len(), 1);
        let FileFault {
            offset,
            length,
            cause: found,
        } = faults[0];
        assert_eq!((offset, found), (last as u64, cause));
        // Except if it ends in zeros, which look like padding.
        let end = file[..end].iter().rposition(|&byte| byte != 0).unwrap() + 1;
        assert_eq!(offset + length, end as u64);
    }
}

#[test]
fn a_block_without_a_frame_is_recognised() {
    let bare = |bytes: &[u8]| Scanner::new(MAGIC, PLAIN, verifier()).is_bare_block(bytes);
    let block = block_of(&[]);
    assert!(bare(&block));
    assert!(bare(&segwit_block()));
    assert!(bare(&block[..100]), "cut, and nothing else in it");
    assert!(bare(&[&block[..], b"more"].concat()));
    assert!(!bare(&framed(&block)));
    assert!(!bare(&[]));
    assert!(!bare(&[0; 100]), "preallocated space");
    assert!(!bare(&[b"garbage", &framed(&block)[..]].concat()));
    assert!(!bare(&[&Network::Signet.magic()[..], &block].concat()));
    assert!(!bare(&vec![1; Block::MAX_SERIALIZED_SIZE + 1]));
    // A magic within a block has no meaning.
    let block = block_of(&[Tx::new(&[&MAGIC], &[b""], None)]);
    assert!(bare(&block));
    let file = framed(&block);
    assert_eq!(find(&file, PLAIN), (vec![(8, &block[..])], vec![]));
}
