//! Addresses of nodes, as text and in the messages that carry them: `addr`, and `addrv2` (BIP155).

use crate::message_type::{ADDR, ADDRV2, VERSION};
use crate::payload::{Services, put_compact_size, take, take_compact_size, take_count};
use data_encoding::BASE32_NOPAD_NOCASE;
use packetlane::bitcoin::message::MessageType;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Maximum number of entries in `addr` and `addrv2`.
pub const MAX_ADDRESSES: usize = 1000;

/// Maximum length of an address in `addrv2`, in bytes.
const MAX_ADDRESS_LEN: usize = 512;

/// The network ids of BIP155 whose addresses are decoded.
const IPV4: u8 = 1;
const IPV6: u8 = 2;
const TORV3: u8 = 4;

/// An address under which others know a node: IP or Tor v3, with its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeAddress {
    /// An IP address and port.
    Ip(SocketAddr),
    /// The public key in an onion service's name, and the port.
    Onion([u8; 32], u16),
}

/// A text is not an address of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAddressError;

impl fmt::Display for NodeAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "expected IP:PORT or NAME.onion:PORT (Tor v3), such as 203.0.113.5:8333, \
             [2001:db8::5]:8333",
        )
    }
}

impl std::error::Error for NodeAddressError {}

impl FromStr for NodeAddress {
    type Err = NodeAddressError;

    fn from_str(text: &str) -> Result<Self, NodeAddressError> {
        let address = text.parse().map(Self::Ip).ok();
        address.or_else(|| onion(text)).ok_or(NodeAddressError)
    }
}

/// Parses NAME.onion:PORT.
fn onion(text: &str) -> Option<NodeAddress> {
    let (host, port) = text.rsplit_once(':')?;
    let name = host.strip_suffix(".onion")?;
    // 32 bytes of key, 2 of a checksum, 1 of the version, which is 3.
    let bytes = BASE32_NOPAD_NOCASE.decode(name.as_bytes()).ok()?;
    match (bytes.first_chunk(), bytes.len(), bytes.last()) {
        (Some(key), 35, Some(3)) => Some(NodeAddress::Onion(*key, port.parse().ok()?)),
        _ => None,
    }
}

/// Adds services to what a message says of a node: those of the sender in a `version`, and those of
/// the entries of an `addr` or `addrv2` whose address `is_chosen`. Returns the new payload. `None` if
/// the payload stays as it is, because it says nothing of the node or is malformed.
#[must_use]
pub fn add_services(
    message_type: MessageType,
    payload: &[u8],
    added: Services,
    is_chosen: impl Fn(NodeAddress) -> bool,
) -> Option<Vec<u8>> {
    let is_v2 = match message_type {
        VERSION => {
            let mut payload = payload.to_vec();
            let services = payload.get_mut(4..12)?.first_chunk_mut()?;
            *services = (u64::from_le_bytes(*services) | added.0).to_le_bytes();
            return Some(payload);
        }
        ADDR => false,
        ADDRV2 => true,
        _ => return None,
    };
    let mut rest = payload;
    let count = take_count(&mut rest, MAX_ADDRESSES).ok()?;
    // What has been decoded is copied here as soon as an entry is changed.
    let (mut changed, mut copied) = (Vec::new(), 0);
    for _ in 0..count {
        let _time: &[u8; 4] = take(&mut rest).ok()?;
        let at = payload.len() - rest.len();
        let services = match is_v2 {
            true => take_compact_size(&mut rest).ok()?,
            false => u64::from_le_bytes(*take(&mut rest).ok()?),
        };
        let after = payload.len() - rest.len();
        let address = take_address(&mut rest, is_v2)?;
        if address.is_some_and(&is_chosen) {
            changed.extend_from_slice(&payload[copied..at]);
            match is_v2 {
                true => put_compact_size(services | added.0, &mut changed),
                false => changed.extend((services | added.0).to_le_bytes()),
            }
            copied = after;
        }
    }
    if copied == 0 {
        return None;
    }
    changed.extend_from_slice(&payload[copied..]);
    Some(changed)
}

/// Decodes an address and its port (2 bytes, big-endian). In `addr`, addresses take 16 bytes; in
/// `addrv2`, they begin with their network id (1 byte) and length. The inner `None` stands for a
/// network whose addresses are not decoded, the outer one for a malformed address.
#[expect(clippy::option_option, reason = "the two have different meanings")]
fn take_address(rest: &mut &[u8], is_v2: bool) -> Option<Option<NodeAddress>> {
    let (network, len) = match is_v2 {
        true => {
            let [network] = *take(rest).ok()?;
            (network, take_count(rest, MAX_ADDRESS_LEN).ok()?)
        }
        false => (IPV6, 16),
    };
    let address = rest.split_off(..len)?;
    let port = u16::from_be_bytes(*take(rest).ok()?);
    let ip = |ip: IpAddr| NodeAddress::Ip((ip.to_canonical(), port).into());
    Some(match network {
        IPV4 => Some(ip(<[u8; 4]>::try_from(address).ok()?.into())),
        IPV6 => Some(ip(<[u8; 16]>::try_from(address).ok()?.into())),
        TORV3 => Some(NodeAddress::Onion(address.try_into().ok()?, port)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: Services = Services::P2P_V2;

    #[test]
    fn only_addresses_of_nodes_are_parsed() {
        for wrong in [
            "",
            "203.0.113.5",
            "node.example:8333",
            "short.onion:8333",
            "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion",
            // Version 2.
            "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryc.onion:1",
        ] {
            assert!(wrong.parse::<NodeAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_version_gets_the_service_bit() {
        let mut payload = vec![0xff; 90];
        payload[4..12].copy_from_slice(&9_u64.to_le_bytes());
        let with = add_services(VERSION, &payload, V2, |_| false).unwrap();
        assert_eq!(with[4..12], (9_u64 | 2048).to_le_bytes());
        payload[4..12].copy_from_slice(&with[4..12]);
        assert_eq!(with, payload);
        let verack = MessageType::literal("verack");
        assert_eq!(add_services(verack, &payload, V2, |_| true), None);
    }

    fn addr(entries: &[(u64, &str, u16)]) -> Vec<u8> {
        let mut payload = vec![entries.len() as u8];
        for (services, ip, port) in entries {
            payload.extend_from_slice(&[1, 2, 3, 4]);
            payload.extend_from_slice(&services.to_le_bytes());
            let ip = match ip.parse().unwrap() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            payload.extend_from_slice(&ip.octets());
            payload.extend_from_slice(&port.to_be_bytes());
        }
        payload
    }

    fn addrv2(entries: &[(u64, u8, &[u8], u16)]) -> Vec<u8> {
        let mut payload = vec![entries.len() as u8];
        for (services, network, address, port) in entries {
            payload.extend_from_slice(&[1, 2, 3, 4]);
            put_compact_size(*services, &mut payload);
            payload.push(*network);
            put_compact_size(address.len() as u64, &mut payload);
            payload.extend_from_slice(address);
            payload.extend_from_slice(&port.to_be_bytes());
        }
        payload
    }

    #[test]
    fn only_chosen_addresses_get_the_bit() {
        let own: [NodeAddress; 2] =
            ["203.0.113.5:8333", "[2001:db8::5]:8333"].map(|own| own.parse().unwrap());
        let entries = |of_own| {
            addr(&[
                (of_own, "203.0.113.5", 8333),
                (0x409, "203.0.113.5", 8334),
                (of_own, "2001:db8::5", 8333),
                (0x409, "198.51.100.7", 8333),
            ])
        };
        let before = entries(0x409);
        let after = add_services(ADDR, &before, V2, |address| own.contains(&address));
        assert_eq!(after, Some(entries(0xc09)));
        assert_eq!(add_services(ADDR, &before, V2, |_| false), None);
    }

    /// Services of one byte need three with the bit. Networks that we do not know stay.
    #[test]
    fn entries_of_addrv2_may_grow() {
        let onion = "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion:8333";
        let onion: NodeAddress = onion.parse().unwrap();
        let NodeAddress::Onion(key, port) = onion else {
            panic!("{onion:?}");
        };
        let own = [onion, "203.0.113.5:8333".parse().unwrap()];
        let entries = |of_onion, of_ip| {
            addrv2(&[
                (9, IPV4, &[198, 51, 100, 7], 8333),
                (of_onion, TORV3, &key, port),
                (0x1_0000_0009, 77, &[5; 512], 1),
                (of_ip, IPV4, &[203, 0, 113, 5], 8333),
                (0x409, IPV6, &[7; 16], 8333),
            ])
        };
        let add = |payload: &[u8]| add_services(ADDRV2, payload, V2, |at| own.contains(&at));
        let found = add(&entries(9, 0x1_0000_0409));
        assert_eq!(found, Some(entries(0x809, 0x1_0000_0c09)));
        let others = addrv2(&[(9, IPV4, &[198, 51, 100, 7], 8333)]);
        assert_eq!(add(&others), None);
    }

    #[test]
    fn malformed_payloads_stay() {
        let add = |message_type, payload: &[u8]| add_services(message_type, payload, V2, |_| true);
        let whole = [
            (ADDR, addr(&[(9, "203.0.113.5", 8333)])),
            (ADDRV2, addrv2(&[(9, IPV4, &[203, 0, 113, 5], 8333)])),
        ];
        for (message_type, whole) in whole {
            assert!(add(message_type, &whole).is_some());
            for len in 0..whole.len() {
                assert_eq!(add(message_type, &whole[..len]), None);
            }
        }
        let too_many = [&[0xfd, 0xe9, 0x03][..], &[0; 40_000]].concat();
        assert_eq!(add(ADDR, &too_many), None);
        let wrong_len = addrv2(&[(9, IPV4, &[1; 5], 8333)]);
        assert_eq!(add(ADDRV2, &wrong_len), None);
        for len in 0..12 {
            assert_eq!(add(VERSION, &vec![0; len]), None);
        }
    }
}
