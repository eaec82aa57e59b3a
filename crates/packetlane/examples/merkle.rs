//! Transaction ids, a Merkle root and block hashes: double SHA-256 with `packetlane::sha256d`.
//!
//! ```sh
//! cargo run -p packetlane --example merkle
//! ```
//!
//! Bitcoin displays the bytes of a hash in reverse order; the library uses the order of SHA-256's
//! output. The example therefore reverses hashes when it reads or prints them.

use packetlane::sha256d::{Block, Hash, Hasher};
use std::error::Error;

/// The only transaction of Bitcoin's first block.
const GENESIS_COINBASE: &str = "\
    01000000010000000000000000000000000000000000000000000000000000000000000000ffffffff4d04ffff\
    001d0104455468652054696d65732030332f4a616e2f32303039204368616e63656c6c6f72206f6e206272696e\
    6b206f66207365636f6e64206261696c6f757420666f722062616e6b73ffffffff0100f2052a01000000434104\
    678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb649f6bc3f4cef38c4f35504e51e\
    c112de5c384df7ba0b8d578a4c702b6bf11d5fac00000000";
const GENESIS_TXID: &str = "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b";

/// A transaction of block 574,200. It has a witness, which the wtxid covers and the txid does not.
const WITH_WITNESS: &str = "\
    010000000001013dc22a3e360e879497fca14710e356d75b5a0f7ecc58e483d468a341516ea1490100000000\
    ffffffff0133bc03000000000017a91449ed69ad4acce58dfef0e5a40ee609076cdd1f4e8702473044022022\
    ca9525f766dcf902869e2f496be17a40d21607f62cfad331cb3531dcd30f31022048b47cfced81ec889936a0\
    a0d44424da489899cf873029d62a2ecd3237913e3c01210389decc0769220720c606696b29b001778434af96\
    c5fb5978b864d7196824737600000000";
const WITH_WITNESS_TXID: &str = "d81e046b6690bec85ad7104d756f856f48c25b160d086e6a86fbf0dd5873518c";
const WITH_WITNESS_WTXID: &str = "589aeda7181f32afb26c93dcce129281e60f55f9b05e1f44481def9248f228a0";

/// The header of Bitcoin's first block, and the block's hash.
const GENESIS_HEADER: &str = "\
    0100000000000000000000000000000000000000000000000000000000000000000000003ba3edfd7a7b12b2\
    7ac72c3e67768f617fc81bc3888a51323a9fb8aa4b1e5e4a29ab5f49ffff001d1dac2b7c";
const GENESIS_HASH: &str = "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f";

/// The txids of block 100,000, in their order in the block, and its Merkle root.
const TXIDS: [&str; 4] = [
    "8c14f0db3df150123e6f3dbbf30f8b955a8249b62ac1d1ff16284aefa3d06d87",
    "fff2525b8931402dd09222c50775608f75787bd2b87e56995a7bdd30f79702c4",
    "6359f0868171b1d194cbee1af2f16ea598ae8fad666d9b012c8ed2b79a236ec4",
    "e9a66845e05d5abc0ad04ec80f774a7e585c6e8db975962d069a522137b80c1d",
];
const ROOT: &str = "f3e94742aca4b5ef85488dc37c06c3282295ffec960994b2c0d5ac2a25a95766";

fn from_hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "two digits for each byte");
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Parses a hash as Bitcoin displays it.
fn from_display(text: &str) -> Hash {
    let mut hash: Hash = from_hex(text).try_into().expect("32 bytes");
    hash.reverse();
    hash
}

/// Formats a hash as Bitcoin displays it.
fn to_display(hash: &Hash) -> String {
    let digits = hash.iter().rev().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let hasher = Hasher::detect()?;

    // One call hashes any number of transactions, with and without witnesses.
    let transactions = [GENESIS_COINBASE, WITH_WITNESS].map(from_hex);
    let transactions = transactions.each_ref().map(Vec::as_slice);
    let txids = hasher.txids(&transactions)?;
    assert_eq!(to_display(&txids[0]), GENESIS_TXID);
    assert_eq!(to_display(&txids[1]), WITH_WITNESS_TXID);
    let wtxids = hasher.wtxids(&transactions)?;
    assert_eq!(to_display(&wtxids[0]), GENESIS_TXID);
    assert_eq!(to_display(&wtxids[1]), WITH_WITNESS_WTXID);
    println!("The txid of the first transaction is {GENESIS_TXID}.");

    // Contiguous messages of one length; here, one.
    let headers = from_hex(GENESIS_HEADER);
    let headers = headers.as_chunks::<{ Block::HEADER_LEN }>().0;
    let mut hashes = vec![Hash::default(); headers.len()];
    hasher.hash_many_fixed(headers, &mut hashes);
    assert_eq!(to_display(&hashes[0]), GENESIS_HASH);
    println!("The hash of the first block is {GENESIS_HASH}.");

    let tree = hasher.merkle_root(&TXIDS.map(from_display));
    assert_eq!(to_display(&tree.root), ROOT);
    // With a pair of equal nodes, a shorter list would have the same root (CVE-2012-2459).
    assert!(!tree.mutated);
    println!("The Merkle root of block 100000 is {ROOT}.");
    Ok(())
}
