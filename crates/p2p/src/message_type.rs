//! Message types, by their names on the wire.

use packetlane::bitcoin::message::MessageType;

/// Whether a message carries or announces a block, or belongs to fetching one. For `inv` and `getdata`,
/// that is whether the first entry of `payload` is a block.
#[must_use]
pub fn is_about_block(message_type: MessageType, payload: &[u8]) -> bool {
    const BLOCK_TYPES: [MessageType; 5] = [BLOCK, BLOCKTXN, CMPCTBLOCK, GETBLOCKTXN, HEADERS];
    /// MSG_BLOCK and MSG_CMPCT_BLOCK; bit 30 asks for witnesses.
    const ENTRY_TYPES: [u32; 2] = [2, 4];
    if message_type == INV || message_type == GETDATA {
        // Its count is a single byte: blocks are announced and fetched a few at a time.
        let entry = payload.get(1..5).and_then(|entry| entry.first_chunk());
        let entry = entry.map(|entry| u32::from_le_bytes(*entry) & !(1 << 30));
        return entry.is_some_and(|entry| ENTRY_TYPES.contains(&entry));
    }
    BLOCK_TYPES.contains(&message_type)
}

/// `addr`.
pub const ADDR: MessageType = MessageType::literal("addr");
/// `addrv2`.
pub const ADDRV2: MessageType = MessageType::literal("addrv2");
/// `block`.
pub const BLOCK: MessageType = MessageType::literal("block");
/// `blocktxn`.
pub const BLOCKTXN: MessageType = MessageType::literal("blocktxn");
/// `cmpctblock`.
pub const CMPCTBLOCK: MessageType = MessageType::literal("cmpctblock");
/// `feefilter`.
pub const FEEFILTER: MessageType = MessageType::literal("feefilter");
/// `getaddr`.
pub const GETADDR: MessageType = MessageType::literal("getaddr");
/// `getblocktxn`.
pub const GETBLOCKTXN: MessageType = MessageType::literal("getblocktxn");
/// `getdata`.
pub const GETDATA: MessageType = MessageType::literal("getdata");
/// `getheaders`.
pub const GETHEADERS: MessageType = MessageType::literal("getheaders");
/// `headers`.
pub const HEADERS: MessageType = MessageType::literal("headers");
/// `inv`.
pub const INV: MessageType = MessageType::literal("inv");
/// `notfound`.
pub const NOTFOUND: MessageType = MessageType::literal("notfound");
/// `ping`.
pub const PING: MessageType = MessageType::literal("ping");
/// `pong`.
pub const PONG: MessageType = MessageType::literal("pong");
/// `sendaddrv2`.
pub const SENDADDRV2: MessageType = MessageType::literal("sendaddrv2");
/// `sendcmpct`.
pub const SENDCMPCT: MessageType = MessageType::literal("sendcmpct");
/// `tx`.
pub const TX: MessageType = MessageType::literal("tx");
/// `verack`.
pub const VERACK: MessageType = MessageType::literal("verack");
/// `version`.
pub const VERSION: MessageType = MessageType::literal("version");
/// `wtxidrelay`.
pub const WTXIDRELAY: MessageType = MessageType::literal("wtxidrelay");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_about_blocks() {
        let entry = |kind: u32| [&[1][..], &kind.to_le_bytes(), &[7; 32]].concat();
        for (message_type, payload, expected) in [
            (CMPCTBLOCK, vec![], true),
            (HEADERS, vec![], true),
            (TX, vec![], false),
            (INV, entry(1), false),
            (INV, entry(2), true),
            (GETDATA, entry(2 | 1 << 30), true),
            (GETDATA, entry(4), true),
            (GETDATA, entry(5 | 1 << 30), false),
            (INV, vec![1, 2], false),
            (INV, vec![], false),
        ] {
            assert_eq!(
                is_about_block(message_type, &payload),
                expected,
                "{message_type} {payload:?}"
            );
        }
    }
}
