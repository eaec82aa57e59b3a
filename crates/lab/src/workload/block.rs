//! The block that is hashed and verified.

use packetlane::sha256d::Hash;

/// The block from the published vectors (`vectors/README.md`), through a symbolic link.
pub(crate) const BLOCK: &[u8] = include_bytes!("../../data/block-574200.blk");

/// Its height in the chain.
pub(crate) const BLOCK_HEIGHT: u32 = 574_200;

/// Its hash, in the byte order of the hash function.
pub(crate) const BLOCK_HASH: Hash = [
    0xd2, 0x59, 0xde, 0xf5, 0xe2, 0x7b, 0x0b, 0xb2, 0x2d, 0x40, 0x7f, 0x0f, 0xd0, 0xa9, 0xbc, 0xa7,
    0x62, 0x98, 0xc4, 0x7a, 0x40, 0x02, 0x16, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
];

/// Its number of transactions.
pub(crate) const TRANSACTIONS: usize = 3315;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::hashes::implementations;
    use crate::rivals::ours::ours;
    use packetlane::Engine;
    use packetlane::sha256d::Block;

    /// Compares each implementation with an independent answer: the chain itself.
    #[test]
    fn all_know_the_block_and_its_root() {
        let mut transactions = Vec::new();
        let block = Block::parse(BLOCK, &mut transactions).unwrap();
        let txids: Vec<[&[u8]; 3]> = block.txid_pieces().collect();
        assert_eq!(txids.len(), TRANSACTIONS);
        let engine = Engine::detect().unwrap();
        let implementations = implementations(engine);
        assert_eq!(implementations.len(), ours(engine, true).len() + 4);
        for (name, _, hashes) in implementations {
            let mut hash = [Hash::default()];
            hashes.many(&[block.header()], &mut hash);
            assert_eq!(hash, [BLOCK_HASH], "{name}");
            let mut ids = vec![Hash::default(); TRANSACTIONS];
            hashes.many_in_pieces(&txids, &mut ids);
            assert_eq!(hashes.merkle_root(&ids), *block.merkle_root(), "{name}");
            // This tree has levels with an odd number of nodes, but not the case of a single leaf.
            assert_eq!(hashes.merkle_root(&ids[..1]), ids[0], "{name}");
        }
    }
}
