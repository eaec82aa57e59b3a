//! A transaction id and a Merkle root: double SHA-256 through `packetlane::sha256d`.
//!
//! ```sh
//! cargo run -p packetlane --example merkle
//! ```
//!
//! Bitcoin shows the bytes of a hash in reverse order; the library gives and takes them in
//! the order in which SHA-256 gives them. So the example reverses a hash when it reads or
//! prints one, and nowhere else.

use packetlane::sha256d::{Hash, Hasher};

/// The only transaction of Bitcoin's first block. It has no witness, so its txid is the hash
/// of all its bytes.
const GENESIS_COINBASE: &str = "\
    01000000010000000000000000000000000000000000000000000000000000000000000000ffffffff4d04ffff\
    001d0104455468652054696d65732030332f4a616e2f32303039204368616e63656c6c6f72206f6e206272696e\
    6b206f66207365636f6e64206261696c6f757420666f722062616e6b73ffffffff0100f2052a01000000434104\
    678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb649f6bc3f4cef38c4f35504e51e\
    c112de5c384df7ba0b8d578a4c702b6bf11d5fac00000000";
const GENESIS_TXID: &str = "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b";

/// The txids of block 100,000, in their order in the block, and its Merkle root.
const TXIDS: [&str; 4] = [
    "8c14f0db3df150123e6f3dbbf30f8b955a8249b62ac1d1ff16284aefa3d06d87",
    "fff2525b8931402dd09222c50775608f75787bd2b87e56995a7bdd30f79702c4",
    "6359f0868171b1d194cbee1af2f16ea598ae8fad666d9b012c8ed2b79a236ec4",
    "e9a66845e05d5abc0ad04ec80f774a7e585c6e8db975962d069a522137b80c1d",
];
const ROOT: &str = "f3e94742aca4b5ef85488dc37c06c3282295ffec960994b2c0d5ac2a25a95766";

fn from_hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "two digits a byte");
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

/// A hash from the form in which Bitcoin shows it.
fn from_display(text: &str) -> Hash {
    let mut hash: Hash = from_hex(text).try_into().expect("32 bytes");
    hash.reverse();
    hash
}

/// A hash in the form in which Bitcoin shows it.
fn to_display(hash: &Hash) -> String {
    let digits = hash.iter().rev().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

fn main() -> Result<(), packetlane::BackendError> {
    let hasher = Hasher::detect()?;

    // One call hashes as many messages as there are, of any lengths; here it is one.
    let coinbase = from_hex(GENESIS_COINBASE);
    let mut txids = [Hash::default()];
    hasher.many(&[&coinbase], &mut txids);
    assert_eq!(to_display(&txids[0]), GENESIS_TXID);
    println!("The txid of the first transaction is {GENESIS_TXID}.");

    let tree = hasher.merkle_root(&TXIDS.map(from_display));
    assert_eq!(to_display(&tree.root), ROOT);
    // With a pair of equal nodes, a shorter list would have the same root (CVE-2012-2459).
    assert!(!tree.mutated);
    println!("The Merkle root of block 100000 is {ROOT}.");
    Ok(())
}
