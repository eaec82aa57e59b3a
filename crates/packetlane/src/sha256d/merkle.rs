//! Bitcoin's Merkle trees.

use super::hasher::{Hash, Hasher};
use alloc::vec;

/// A Merkle root, and whether its leaves may have been mutated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MerkleRoot {
    /// The root.
    pub root: Hash,
    /// Whether a pair of nodes, at any level, is two equal nodes. The same root then also
    /// belongs to a shorter list of leaves (CVE-2012-2459).
    pub mutated: bool,
}

impl Hasher {
    /// Computes the Merkle root of `leaves` by Bitcoin's rules. A level with an odd number of nodes
    /// repeats its last one. The root of one leaf is the leaf; the root of no leaves is all zeros,
    /// as in Bitcoin Core.
    #[must_use]
    pub fn merkle_root(&self, leaves: &[Hash]) -> MerkleRoot {
        if leaves.len() < 2 {
            return MerkleRoot {
                root: leaves.first().copied().unwrap_or_default(),
                mutated: false,
            };
        }
        let mut mutated = repeats(leaves);
        // The level above the leaves, with room for a second copy of its last node. Higher
        // levels are computed in the same memory.
        let (pairs, odd) = leaves.as_flattened().as_chunks::<64>();
        let mut nodes = pairs.len();
        let mut level = vec![[0; 32]; nodes + 2];
        self.hash64(pairs, &mut level[..nodes]);
        if let Ok(odd) = <Hash>::try_from(odd) {
            level[nodes..].fill(odd);
            self.backend().kernels().sha256d_pairs(&mut level[nodes..]);
            nodes += 1;
        }
        while nodes > 1 {
            mutated |= repeats(&level[..nodes]);
            if nodes % 2 == 1 {
                level[nodes] = level[nodes - 1];
                nodes += 1;
            }
            self.backend().kernels().sha256d_pairs(&mut level[..nodes]);
            nodes /= 2;
        }
        MerkleRoot {
            root: level[0],
            mutated,
        }
    }
}

/// Returns the number of hashes computed for a Merkle tree over `leaves` leaves.
pub(super) fn inner_nodes(leaves: usize) -> usize {
    let mut nodes = 0;
    let mut level = leaves;
    while level > 1 {
        level = level.div_ceil(2);
        nodes += level;
    }
    nodes
}

/// Whether two nodes that form a pair are equal.
fn repeats(nodes: &[Hash]) -> bool {
    let mut repeats = false;
    for [left, right] in nodes.as_chunks::<2>().0 {
        repeats |= left == right;
    }
    repeats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_of_a_tree_are_counted() {
        for (leaves, nodes) in [
            (0, 0),
            (1, 0),
            (2, 1),
            (3, 3),
            (4, 3),
            (5, 6),
            (8, 7),
            (9, 11),
        ] {
            assert_eq!(inner_nodes(leaves), nodes, "{leaves}");
        }
    }
}
