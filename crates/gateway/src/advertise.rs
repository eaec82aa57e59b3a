//! Tells others that the node has v2 now: the service bit in its `version`, and in entries of `addr`
//! and `addrv2` that are its own address.

use crate::address::NodeAddress;
use crate::reader::Reader;
use crate::settings::Settings;
use packetlane::bitcoin::message::MessageType;
use std::net::{IpAddr, Ipv6Addr};

/// The service bit of nodes that support v2 (BIP324).
const NODE_P2P_V2: u64 = 1 << 11;

/// The network ids of BIP155 that the gateway knows.
const IPV4: u8 = 1;
const IPV6: u8 = 2;
const TORV3: u8 = 4;

/// Longest payloads that are looked at. A thousand entries of `addrv2` take 50 KB.
const MAX_VERSION_LEN: usize = 1024;
const MAX_ADDR_LEN: usize = 64 * 1024;

/// Whether a message of the node's may have to be changed: its type, and the length of its payload.
pub(crate) fn may_change(message_type: MessageType, len: usize) -> bool {
    match message_type.name() {
        "version" => len <= MAX_VERSION_LEN,
        "addr" | "addrv2" => len <= MAX_ADDR_LEN,
        _ => false,
    }
}

/// Maximum entries of `addr` and `addrv2` (BIP155).
const MAX_ENTRIES: u64 = 1000;

/// Maximum length of an address in `addrv2`, in bytes (BIP155).
const MAX_ADDRESS_LEN: u64 = 512;

/// What a peer's `version` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerVersion {
    services: u64,
    /// The IP address at which the peer sees the node.
    sees_node_at: IpAddr,
}

impl PeerVersion {
    /// Whether a message is a `version`, and not longer than one may be.
    pub(crate) fn is_in(message_type: MessageType, len: usize) -> bool {
        message_type.name() == "version" && len <= MAX_VERSION_LEN
    }

    /// Whether the peer says that it speaks v2.
    pub(crate) fn has_v2(self) -> bool {
        self.services & NODE_P2P_V2 != 0
    }

    /// Of a payload of `version`: protocol version (4 bytes), services (8), time (8), and the
    /// receiver's services (8), IP (16) and port (2).
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let mut rest = Reader(payload);
        rest.take(4)?;
        let services = u64::from_le_bytes(rest.array()?);
        rest.take(16)?;
        let ip = Ipv6Addr::from(rest.array::<16>()?).to_canonical();
        Some(Self {
            services,
            sees_node_at: ip,
        })
    }
}

/// The addresses of the node, as far as one peer is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnAddresses<'a> {
    /// What the operator says.
    external: &'a [NodeAddress],
    /// What the peer says. Nodes announce this to the peer if they know nothing better. Only the
    /// peer itself hears what follows from it.
    peer: Option<PeerVersion>,
}

impl<'a> OwnAddresses<'a> {
    /// `None` if the settings say that nothing is advertised. What a peer sees counts only if the
    /// gateway accepts peers.
    pub(crate) fn new(settings: &'a Settings, peer: Option<PeerVersion>) -> Option<Self> {
        settings.advertise.then_some(Self {
            external: &settings.external,
            peer: peer.filter(|_| !settings.inbound.is_empty()),
        })
    }

    fn have(&self, address: NodeAddress) -> bool {
        let seen = |ip: IpAddr| self.peer.is_some_and(|peer| peer.sees_node_at == ip);
        self.external.contains(&address)
            || matches!(address, NodeAddress::Ip(address) if seen(address.ip()))
    }

    /// A message of the node's with the service bit of v2. `None` if it stays as it is.
    pub(crate) fn advertise(&self, message_type: MessageType, payload: &[u8]) -> Option<Vec<u8>> {
        match message_type.name() {
            "version" => {
                let mut payload = payload.to_vec();
                let services = payload.get_mut(4..12)?.first_chunk_mut()?;
                *services = (u64::from_le_bytes(*services) | NODE_P2P_V2).to_le_bytes();
                Some(payload)
            }
            "addr" => self.advertise_entries(payload, false),
            "addrv2" => self.advertise_entries(payload, true),
            _ => None,
        }
    }

    /// Entries have a time (4 bytes), services, an address and a port (2, big-endian). In `addr`,
    /// services take 8 bytes and addresses 16. In `addrv2` (BIP155), services are a CompactSize, and
    /// addresses begin with their network id (1) and length.
    fn advertise_entries(&self, payload: &[u8], is_v2: bool) -> Option<Vec<u8>> {
        let mut rest = Reader(payload);
        let count = rest.compact_size().filter(|count| *count <= MAX_ENTRIES)?;
        // What has been read is copied here as soon as an entry is changed.
        let (mut changed, mut copied) = (Vec::new(), 0);
        for _ in 0..count {
            rest.take(4)?;
            let at = payload.len() - rest.0.len();
            let services = match is_v2 {
                true => rest.compact_size()?,
                false => u64::from_le_bytes(rest.array()?),
            };
            let after = payload.len() - rest.0.len();
            let (network, address) = match is_v2 {
                true => {
                    let network = rest.byte()?;
                    let len = rest.compact_size().filter(|len| *len <= MAX_ADDRESS_LEN)?;
                    (network, rest.take(len as usize)?)
                }
                false => (IPV6, rest.take(16)?),
            };
            let port = u16::from_be_bytes(rest.array()?);
            let ip = |ip: IpAddr| NodeAddress::Ip((ip.to_canonical(), port).into());
            let address = match network {
                IPV4 => ip(<[u8; 4]>::try_from(address).ok()?.into()),
                IPV6 => ip(<[u8; 16]>::try_from(address).ok()?.into()),
                TORV3 => NodeAddress::Onion(address.try_into().ok()?, port),
                _ => continue,
            };
            if self.have(address) {
                changed.extend_from_slice(&payload[copied..at]);
                match (services | NODE_P2P_V2, is_v2) {
                    (services, true) => put_compact_size(services, &mut changed),
                    (services, false) => changed.extend(services.to_le_bytes()),
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
}

impl Reader<'_> {
    fn compact_size(&mut self) -> Option<u64> {
        Some(match self.byte()? {
            0xfd => u16::from_le_bytes(self.array()?).into(),
            0xfe => u32::from_le_bytes(self.array()?).into(),
            0xff => u64::from_le_bytes(self.array()?),
            small => small.into(),
        })
    }
}

fn put_compact_size(value: u64, to: &mut Vec<u8>) {
    match value {
        0..0xfd => to.push(value as u8),
        0xfd..=0xffff => {
            to.push(0xfd);
            to.extend_from_slice(&(value as u16).to_le_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            to.push(0xfe);
            to.extend_from_slice(&(value as u32).to_le_bytes());
        }
        _ => {
            to.push(0xff);
            to.extend_from_slice(&value.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDR: MessageType = MessageType::literal("addr");
    const ADDRV2: MessageType = MessageType::literal("addrv2");

    #[test]
    fn a_version_gets_the_service_bit() {
        let version = MessageType::literal("version");
        let mut payload = vec![0xff; 90];
        payload[4..12].copy_from_slice(&9_u64.to_le_bytes());
        let with = own(&[], None).advertise(version, &payload).unwrap();
        assert_eq!(with[4..12], (9_u64 | 2048).to_le_bytes());
        payload[4..12].copy_from_slice(&with[4..12]);
        assert_eq!(with, payload);
        let verack = MessageType::literal("verack");
        assert_eq!(own(&[], None).advertise(verack, &payload), None);
    }

    fn own<'a>(external: &'a [NodeAddress], sees: Option<&str>) -> OwnAddresses<'a> {
        OwnAddresses {
            external,
            peer: sees.map(|ip| PeerVersion {
                services: 0,
                sees_node_at: ip.parse().unwrap(),
            }),
        }
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
    fn only_own_addresses_get_the_bit() {
        let external = ["203.0.113.5:8333", "[2001:db8::5]:8333"].map(|own| own.parse().unwrap());
        let before = addr(&[
            (0x409, "203.0.113.5", 8333),
            (0x409, "203.0.113.5", 8334),
            (0x409, "2001:db8::5", 8333),
            (0x409, "198.51.100.7", 8333),
        ]);
        let after = addr(&[
            (0xc09, "203.0.113.5", 8333),
            (0x409, "203.0.113.5", 8334),
            (0xc09, "2001:db8::5", 8333),
            (0x409, "198.51.100.7", 8333),
        ]);
        assert_eq!(own(&external, None).advertise(ADDR, &before), Some(after));
        // The address that this peer sees, whatever the port.
        let before = addr(&[(1, "198.51.100.7", 1), (1, "203.0.113.5", 2)]);
        let after = addr(&[(0x801, "198.51.100.7", 1), (1, "203.0.113.5", 2)]);
        let own_now = own(&[], Some("198.51.100.7"));
        assert_eq!(own_now.advertise(ADDR, &before), Some(after));
        assert_eq!(own(&[], None).advertise(ADDR, &before), None);
    }

    /// Services of one byte need three with the bit. Networks that we do not know stay.
    #[test]
    fn entries_of_addrv2_may_grow() {
        let onion = "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion:8333";
        let onion: NodeAddress = onion.parse().unwrap();
        let NodeAddress::Onion(key, port) = onion else {
            panic!("{onion:?}");
        };
        let external = [onion, "203.0.113.5:8333".parse().unwrap()];
        let entries = |of_onion, of_ip| {
            addrv2(&[
                (9, IPV4, &[198, 51, 100, 7], 8333),
                (of_onion, TORV3, &key, port),
                (0x1_0000_0009, 77, &[5; 512], 1),
                (of_ip, IPV4, &[203, 0, 113, 5], 8333),
                (0x409, IPV6, &[7; 16], 8333),
            ])
        };
        let own = own(&external, None);
        let found = own.advertise(ADDRV2, &entries(9, 0x1_0000_0409));
        assert_eq!(found, Some(entries(0x809, 0x1_0000_0c09)));
        let others = addrv2(&[(9, IPV4, &[198, 51, 100, 7], 8333)]);
        assert_eq!(own.advertise(ADDRV2, &others), None);
    }

    /// Whatever the node sends, it is relayed, and nothing panics.
    #[test]
    fn malformed_payloads_stay() {
        let external = ["203.0.113.5:8333".parse().unwrap()];
        let own = own(&external, Some("203.0.113.5"));
        let whole = [
            (ADDR, addr(&[(9, "203.0.113.5", 8333)])),
            (ADDRV2, addrv2(&[(9, IPV4, &[203, 0, 113, 5], 8333)])),
        ];
        for (message_type, whole) in whole {
            assert!(own.advertise(message_type, &whole).is_some());
            for len in 0..whole.len() {
                assert_eq!(own.advertise(message_type, &whole[..len]), None);
            }
        }
        let too_many = [&[0xfd, 0xe9, 0x03][..], &[0; 40_000]].concat();
        assert_eq!(own.advertise(ADDR, &too_many), None);
        let wrong_len = addrv2(&[(9, IPV4, &[1; 5], 8333)]);
        assert_eq!(own.advertise(ADDRV2, &wrong_len), None);
        for len in 0..12 {
            let version = MessageType::literal("version");
            assert_eq!(own.advertise(version, &vec![0; len]), None);
        }
        for len in 0..44 {
            assert_eq!(PeerVersion::parse(&vec![0; len]), None);
        }
    }
}
