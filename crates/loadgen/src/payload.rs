//! Payloads of the messages that the peers send and read, converted to rust-bitcoin's types.

use bitcoin::BlockHash;
use bitcoin::block::Header;
use bitcoin::consensus::{deserialize, serialize};
use bitcoin::hashes::Hash;
use bitcoin::p2p::ServiceFlags;
use bitcoin::p2p::address::{AddrV2, AddrV2Message};
use packetlane_p2p::payload::{
    self, Inventory, InventoryType, PROTOCOL_VERSION, Services, Version, unix_time,
};
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use std::net::{Ipv4Addr, SocketAddr};

/// Length of an IPv4 entry in `addrv2`, in bytes.
pub(crate) const ADDRESS_LEN: usize = 13;

/// Maximum number of entries in an `inv`, and of addresses, that we send.
pub(crate) const MAX_INVENTORY: usize = 1000;
pub(crate) const MAX_ADDRESSES: usize = 1000;

/// Encodes a `version`. Its user agent names the kind of peer, visible in the node's own tools.
pub(crate) fn version(kind: &str, relay: bool, height: usize, rng: &mut StdRng) -> Vec<u8> {
    let version = Version {
        protocol: PROTOCOL_VERSION,
        services: Services::NETWORK
            .and(Services::WITNESS)
            .and(Services::P2P_V2),
        time: unix_time().into(),
        nonce: rng.next_u64(),
        user_agent: format!("/packetlane-traffic:{}({kind})/", env!("CARGO_PKG_VERSION"))
            .into_bytes(),
        start_height: i32::try_from(height).unwrap_or(i32::MAX),
        relay,
    };
    version.encode()
}

pub(crate) fn headers(headers: &[Header]) -> Vec<u8> {
    let header = |header| {
        let mut bytes = [0; payload::BLOCK_HEADER_LEN];
        bytes.copy_from_slice(&serialize(header));
        payload::Header(bytes)
    };
    let headers: Vec<_> = headers.iter().map(header).collect();
    payload::encode_headers(&headers)
}

/// Decodes a `headers` message. `None` if it is malformed.
pub(crate) fn decode_headers(bytes: &[u8]) -> Option<Vec<Header>> {
    let headers = payload::decode_headers(bytes).ok()?;
    let headers = headers.iter().map(|header| deserialize(&header.0).ok());
    headers.collect()
}

pub(crate) fn getheaders(locator: &[BlockHash]) -> Vec<u8> {
    let hash = |hash: &BlockHash| payload::BlockHash(hash.to_byte_array());
    let locator: Vec<_> = locator.iter().map(hash).collect();
    payload::encode_getheaders(&locator)
}

/// Decodes the locator of a `getheaders`. `None` if it is malformed.
pub(crate) fn decode_getheaders(bytes: &[u8]) -> Option<Vec<BlockHash>> {
    let locator = payload::decode_getheaders(bytes).ok()?;
    let hash = |hash: payload::BlockHash| BlockHash::from_byte_array(hash.0);
    Some(locator.into_iter().map(hash).collect())
}

/// An inventory entry. `hash` has one of rust-bitcoin's types.
pub(crate) fn inventory(kind: InventoryType, hash: impl Hash<Bytes = [u8; 32]>) -> Inventory {
    Inventory {
        kind,
        hash: hash.to_byte_array(),
    }
}

/// Encodes an `addrv2` with `count` addresses from the range for documentation (192.0.2.0/24).
/// Nodes neither keep them, nor relay them, nor connect to them.
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

/// Whether an address always belongs to this machine.
pub(crate) fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bitcoin::constants::genesis_block;
    use bitcoin::p2p::message_blockdata::{GetHeadersMessage, Inventory as Theirs};
    use bitcoin::p2p::message_network::VersionMessage;
    use bitcoin::{Txid, Wtxid};
    use packetlane_p2p::payload::HEADERS_ENTRY_LEN;
    use rand::SeedableRng;

    /// rust-bitcoin decodes what we encode, and vice versa.
    #[test]
    fn payloads_are_those_of_rust_bitcoin() {
        let mut rng = StdRng::seed_from_u64(1);
        let bytes = version("slow", false, 7, &mut rng);
        let theirs: VersionMessage = deserialize(&bytes).unwrap();
        let services = ServiceFlags::NETWORK | ServiceFlags::WITNESS | ServiceFlags::P2P_V2;
        assert_eq!((theirs.version, theirs.services), (70016, services));
        assert_eq!((theirs.start_height, theirs.relay), (7, false));
        assert!(theirs.user_agent.ends_with("(slow)/"), "{theirs:?}");
        assert_eq!(serialize(&theirs), bytes);

        let genesis = genesis_block(bitcoin::Network::Regtest).header;
        let hash = genesis.block_hash();
        let bytes = headers(&[genesis, genesis]);
        assert_eq!(bytes.len(), 1 + 2 * HEADERS_ENTRY_LEN);
        let one = [&serialize(&genesis)[..], &[0]].concat();
        assert_eq!(bytes, [&[2][..], &one, &one].concat());
        assert_eq!(decode_headers(&bytes), Some(vec![genesis, genesis]));
        assert_eq!(decode_headers(&bytes[1..]), None);

        let bytes = getheaders(&[hash, hash]);
        let theirs: GetHeadersMessage = deserialize(&bytes).unwrap();
        assert_eq!(theirs.locator_hashes, [hash, hash]);
        assert_eq!(serialize(&theirs), bytes);
        assert_eq!(decode_getheaders(&bytes), Some(theirs.locator_hashes));
        assert_eq!(decode_getheaders(&bytes[1..]), None);

        let (txid, wtxid) = (Txid::all_zeros(), Wtxid::all_zeros());
        let ours = [
            inventory(InventoryType::TX, txid),
            inventory(InventoryType::WITNESS_TX, txid),
            inventory(InventoryType::WTX, wtxid),
            inventory(InventoryType::BLOCK, hash),
            inventory(InventoryType::WITNESS_BLOCK, hash),
            inventory(InventoryType::COMPACT_BLOCK, hash),
        ];
        let theirs = vec![
            Theirs::Transaction(txid),
            Theirs::WitnessTransaction(txid),
            Theirs::WTx(wtxid),
            Theirs::Block(hash),
            Theirs::WitnessBlock(hash),
            Theirs::CompactBlock(hash),
        ];
        assert_eq!(payload::encode_inventory(&ours), serialize(&theirs));
    }

    #[test]
    fn addresses_have_the_length_that_is_assumed() {
        let mut rng = StdRng::seed_from_u64(1);
        assert_eq!(addresses(100, &mut rng).len(), 1 + 100 * ADDRESS_LEN);
    }

    #[test]
    fn loopback_addresses() {
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
