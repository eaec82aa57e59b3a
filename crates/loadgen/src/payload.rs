//! Payloads of the messages that the peers send and read.

use bitcoin::block::Header;
use bitcoin::consensus::{Decodable, deserialize, serialize};
use bitcoin::p2p::ServiceFlags;
use bitcoin::p2p::address::{AddrV2, AddrV2Message, Address};
use bitcoin::p2p::message_blockdata::{GetHeadersMessage, Inventory};
use bitcoin::p2p::message_network::VersionMessage;
use bitcoin::{BlockHash, VarInt};
use packetlane::bitcoin::message::MessageType;
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::SystemTime;

pub(crate) const ADDR: MessageType = MessageType::literal("addr");
pub(crate) const ADDRV2: MessageType = MessageType::literal("addrv2");
pub(crate) const BLOCK: MessageType = MessageType::literal("block");
pub(crate) const BLOCKTXN: MessageType = MessageType::literal("blocktxn");
pub(crate) const CMPCTBLOCK: MessageType = MessageType::literal("cmpctblock");
pub(crate) const FEEFILTER: MessageType = MessageType::literal("feefilter");
pub(crate) const GETADDR: MessageType = MessageType::literal("getaddr");
pub(crate) const GETBLOCKTXN: MessageType = MessageType::literal("getblocktxn");
pub(crate) const GETDATA: MessageType = MessageType::literal("getdata");
pub(crate) const GETHEADERS: MessageType = MessageType::literal("getheaders");
pub(crate) const HEADERS: MessageType = MessageType::literal("headers");
pub(crate) const INV: MessageType = MessageType::literal("inv");
pub(crate) const NOTFOUND: MessageType = MessageType::literal("notfound");
pub(crate) const PING: MessageType = MessageType::literal("ping");
pub(crate) const PONG: MessageType = MessageType::literal("pong");
pub(crate) const SENDADDRV2: MessageType = MessageType::literal("sendaddrv2");
pub(crate) const SENDCMPCT: MessageType = MessageType::literal("sendcmpct");
pub(crate) const TX: MessageType = MessageType::literal("tx");
pub(crate) const VERACK: MessageType = MessageType::literal("verack");
pub(crate) const VERSION: MessageType = MessageType::literal("version");
pub(crate) const WTXIDRELAY: MessageType = MessageType::literal("wtxidrelay");

/// The first protocol version with `addrv2`; `wtxidrelay` is of the same.
pub(crate) const PROTOCOL: u32 = 70016;

/// Length of an entry of `inv`, in bytes; of a header in `headers`; of an IPv4 entry in `addrv2`.
pub(crate) const INVENTORY_LEN: usize = 36;
pub(crate) const HEADER_LEN: usize = 81;
pub(crate) const ADDRESS_LEN: usize = 13;

/// The most entries of an `inv` of ours, of headers that nodes send and accept, of addresses.
pub(crate) const MAX_INVENTORY: usize = 1000;
pub(crate) const MAX_HEADERS: usize = 2000;
pub(crate) const MAX_ADDRESSES: usize = 1000;

/// Seconds since 1970.
pub(crate) fn unix_time() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
    })
}

/// A `version`. The user agent names the kind of peer, so that the node's own tools show it.
pub(crate) fn version(kind: &str, relay: bool, height: usize, rng: &mut StdRng) -> Vec<u8> {
    let nobody = Address {
        services: ServiceFlags::NONE,
        address: [0; 8],
        port: 0,
    };
    serialize(&VersionMessage {
        version: PROTOCOL,
        services: ServiceFlags::NETWORK | ServiceFlags::WITNESS | ServiceFlags::P2P_V2,
        timestamp: i64::from(unix_time()),
        receiver: nobody.clone(),
        sender: nobody,
        nonce: rng.next_u64(),
        user_agent: format!("/packetlane-traffic:{}({kind})/", env!("CARGO_PKG_VERSION")),
        start_height: i32::try_from(height).unwrap_or(i32::MAX),
        relay,
    })
}

pub(crate) fn headers(headers: &[Header]) -> Vec<u8> {
    let mut payload = serialize(&VarInt::from(headers.len()));
    for header in headers {
        payload.extend(serialize(header));
        // The number of transactions, always 0.
        payload.push(0);
    }
    payload
}

/// The headers in a `headers` message; `None` if it is malformed.
pub(crate) fn decode_headers(mut payload: &[u8]) -> Option<Vec<Header>> {
    let VarInt(count) = VarInt::consensus_decode(&mut payload).ok()?;
    if count > MAX_HEADERS as u64 {
        return None;
    }
    let mut headers = Vec::new();
    for _ in 0..count {
        headers.push(Header::consensus_decode(&mut payload).ok()?);
        let (&transactions, rest) = payload.split_first()?;
        (transactions == 0).then_some(())?;
        payload = rest;
    }
    payload.is_empty().then_some(headers)
}

pub(crate) fn getheaders(locator: Vec<BlockHash>) -> Vec<u8> {
    let stop = <BlockHash as bitcoin::hashes::Hash>::all_zeros();
    let mut message = GetHeadersMessage::new(locator, stop);
    message.version = PROTOCOL;
    serialize(&message)
}

/// The entries of an `inv`, `getdata` or `notfound`; none if it is malformed.
pub(crate) fn decode_inventory(payload: &[u8]) -> Vec<Inventory> {
    deserialize(payload).unwrap_or_default()
}

/// An `addrv2` of `count` addresses. They are of the network for documentation
/// (192.0.2.0/24), which nodes neither keep, relay nor connect to.
pub(crate) fn addresses(count: usize, rng: &mut StdRng) -> Vec<u8> {
    let time = unix_time();
    let mut address = || AddrV2Message {
        time: time.saturating_sub(rng.random_range(0..10_000)),
        services: ServiceFlags::NETWORK | ServiceFlags::WITNESS,
        addr: AddrV2::Ipv4(Ipv4Addr::new(192, 0, 2, rng.random_range(1..255))),
        port: 8333,
    };
    let addresses: Vec<_> = (0..count).map(|_| address()).collect();
    serialize(&addresses)
}

/// Whether an address can belong to nobody but this machine.
pub(crate) fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bitcoin::constants::genesis_block;
    use rand::SeedableRng;

    #[test]
    fn headers_round_trip() {
        let genesis = genesis_block(bitcoin::Network::Regtest).header;
        let payload = headers(&[genesis, genesis]);
        assert_eq!(payload.len(), 1 + 2 * HEADER_LEN);
        assert_eq!(decode_headers(&payload), Some(vec![genesis, genesis]));
        for length in 0..payload.len() {
            assert_eq!(decode_headers(&payload[..length]), None, "{length}");
        }
        assert_eq!(decode_headers(&[&payload[..], &[0]].concat()), None);
        // More than the payload holds, and more than the protocol allows.
        assert_eq!(decode_headers(&[0xfd, 0xd0, 7]), None);
        assert_eq!(decode_headers(&[0xfd, 0xd1, 7]), None);
    }

    #[test]
    fn entries_have_the_length_that_is_assumed() {
        let mut rng = StdRng::seed_from_u64(1);
        let entry = Inventory::Unknown {
            inv_type: 5,
            hash: [1; 32],
        };
        assert_eq!(serialize(&entry).len(), INVENTORY_LEN);
        assert_eq!(addresses(100, &mut rng).len(), 1 + 100 * ADDRESS_LEN);
        assert!(decode_inventory(&[0xff; 9]).is_empty());
    }

    #[test]
    fn loopback_is_told() {
        for (address, loopback) in [
            ("127.0.0.1:1", true),
            ("127.255.0.1:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("128.0.0.1:1", false),
            ("0.0.0.0:1", false),
            ("192.168.1.1:1", false),
            ("[::ffff:8.8.8.8]:1", false),
            ("[fe80::1]:1", false),
        ] {
            assert_eq!(
                is_loopback(&address.parse().unwrap()),
                loopback,
                "{address}"
            );
        }
    }
}
