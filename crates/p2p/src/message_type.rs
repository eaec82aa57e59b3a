//! Message types, by their names on the wire.

use packetlane::bitcoin::message::MessageType;

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
