//! Which blocks a message is about.

use crate::record::BlockStep;
use packetlane_p2p::payload::{BlockHash, InventoryType, block_hash, take_compact_size};

/// Maximum number of headers in an announcement. More of them synchronize, and announce nothing.
const MAX_ANNOUNCED: u8 = 8;

/// Length of an inventory entry, of a header with its count of transactions, and of a hash.
const ENTRY_LEN: usize = 36;
const HEADER_LEN: usize = 81;
const HASH_LEN: usize = 32;

/// The longest `headers` that announces blocks, in bytes.
pub(crate) const ANNOUNCING: u64 = 1 + MAX_ANNOUNCED as u64 * HEADER_LEN as u64;

/// The blocks that a message is about, and what it does for them. `received` is false for a message
/// that the node sends, `bytes` is the payload's length, and `start` is the payload or the start of
/// it. Empty for other messages, and for those that are malformed.
#[must_use]
pub fn steps(
    received: bool,
    message_type: &str,
    bytes: u64,
    start: &[u8],
) -> Vec<(BlockHash, BlockStep)> {
    let start = &start[..start
        .len()
        .min(usize::try_from(bytes).unwrap_or(usize::MAX))];
    let headed = |step| {
        let hash = block_hash(start).ok()?;
        Some(vec![(hash, step)])
    };
    let hashed = |step| {
        let hash = start.first_chunk::<HASH_LEN>()?;
        Some(vec![(BlockHash(*hash), step)])
    };
    let found = match (received, message_type) {
        (true, "inv") => inventory(start, BlockStep::Inv),
        (false, "getdata") => inventory(start, BlockStep::Requested),
        (true, "headers") => headers(start, bytes),
        (true, "cmpctblock") => headed(BlockStep::Compact),
        (true, "block") => headed(BlockStep::Delivered),
        (true, "blocktxn") => hashed(BlockStep::DeliveredMissing),
        (false, "getblocktxn") => start.get(HASH_LEN..).and_then(|mut rest| {
            let missing = take_compact_size(&mut rest).ok()?;
            hashed(BlockStep::RequestedMissing(missing))
        }),
        _ => None,
    };
    found.unwrap_or_default()
}

/// The blocks in an inventory: as many as `start` holds.
fn inventory(start: &[u8], step: BlockStep) -> Option<Vec<(BlockHash, BlockStep)>> {
    const BLOCKS: [InventoryType; 3] = [
        InventoryType::BLOCK,
        InventoryType::WITNESS_BLOCK,
        InventoryType::COMPACT_BLOCK,
    ];
    let (count, entries) = start.split_first()?;
    let entries = entries.as_chunks::<ENTRY_LEN>().0.iter();
    let block = |entry: &[u8; ENTRY_LEN]| {
        let (kind, hash) = entry.split_first_chunk()?;
        let kind = InventoryType(u32::from_le_bytes(*kind));
        let hash = BlockHash(*hash.first_chunk()?);
        BLOCKS.contains(&kind).then_some((hash, step))
    };
    // A count of 253 or more has more bytes; such a message is about transactions.
    let count = usize::from(*count).min(252);
    Some(entries.take(count).filter_map(block).collect())
}

fn headers(start: &[u8], bytes: u64) -> Option<Vec<(BlockHash, BlockStep)>> {
    let (&count, headers) = start.split_first()?;
    if count > MAX_ANNOUNCED || bytes != 1 + u64::from(count) * HEADER_LEN as u64 {
        return None;
    }
    let headers = headers.as_chunks::<HEADER_LEN>().0.iter();
    let hash = |header: &[u8; HEADER_LEN]| Some((block_hash(header).ok()?, BlockStep::Headers));
    Some(headers.filter_map(hash).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use BlockStep::{
        Compact, Delivered, DeliveredMissing, Headers, Inv, Requested, RequestedMissing,
    };

    fn entry(kind: u32, hash: u8) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &[hash; 32]].concat()
    }

    #[test]
    fn what_messages_are_about() {
        let of =
            |received, name, payload: &[u8]| steps(received, name, payload.len() as u64, payload);
        let block = |hash, step| (BlockHash([hash; 32]), step);
        // A block, a transaction, a block with witnesses, a filtered and a compact block.
        let entries = [(2, 1), (1, 2), (0x4000_0002, 3), (3, 4), (4, 5)]
            .map(|(kind, hash)| entry(kind, hash));
        let list = [vec![5], entries.concat()].concat();
        let found = |step| [1, 3, 5].map(|hash| block(hash, step)).to_vec();
        assert_eq!(of(true, "inv", &list), found(Inv));
        assert_eq!(of(false, "getdata", &list), found(Requested));
        // What the node announces, and what is asked of it, are not its own blocks' ways.
        assert_eq!(of(false, "inv", &list), []);
        assert_eq!(of(true, "getdata", &list), []);
        // Cut: the entries that are there.
        assert_eq!(of(true, "inv", &list[..40]), [block(1, Inv)]);
        assert_eq!(of(true, "inv", &[]), []);

        let header = |number: u8| [&[number; 80][..], &[0]].concat();
        let hash = |number: u8| block_hash(&[number; 80]).unwrap();
        let headers = [vec![2], header(7), header(8)].concat();
        assert_eq!(
            of(true, "headers", &headers),
            [(hash(7), Headers), (hash(8), Headers)]
        );
        let many = [vec![9], [7; 9].map(header).concat()].concat();
        assert_eq!(of(true, "headers", &many), []);
        assert_eq!(of(true, "headers", &headers[..100]), []);
        assert_eq!(of(true, "cmpctblock", &[7; 90]), [(hash(7), Compact)]);
        assert_eq!(of(true, "block", &[7; 80]), [(hash(7), Delivered)]);
        assert_eq!(of(true, "block", &[7; 79]), []);
        assert_eq!(of(true, "blocktxn", &[7; 40]), [block(7, DeliveredMissing)]);
        for (count, missing) in [
            (&[3][..], 3),
            (&[0xfd, 1, 1], 257),
            (&[0xfe, 1, 0, 1, 0], 65537),
        ] {
            let payload = [&[7; 32], count].concat();
            assert_eq!(
                of(false, "getblocktxn", &payload),
                [block(7, RequestedMissing(missing))]
            );
        }
        assert_eq!(of(false, "getblocktxn", &[7; 32]), []);
        assert_eq!(of(true, "tx", &[7; 90]), []);
        // The start of a longer message, and a start that is longer than the message.
        assert_eq!(
            steps(true, "block", 1_000_000, &[7; 656]),
            [(hash(7), Delivered)]
        );
        assert_eq!(steps(true, "block", 40, &[7; 656]), []);
    }
}
