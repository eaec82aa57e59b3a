//! Tells others that the node has v2 now: the service bit in its `version`, and in entries of `addr`
//! and `addrv2` that are its own address.

use crate::settings::Settings;
use packetlane::bitcoin::message::MessageType;
use packetlane_p2p::address::{NodeAddress, add_services};
use packetlane_p2p::message_type::{ADDR, ADDRV2, VERSION};
use packetlane_p2p::payload::{Services, VersionStart};
use std::net::IpAddr;

/// Longest payloads that are looked at. A thousand entries of `addrv2` take 50 KB.
const MAX_VERSION_LEN: usize = 1024;
const MAX_ADDR_LEN: usize = 64 * 1024;

/// Whether a message is a `version`, and not longer than one may be.
pub(crate) fn is_version(message_type: MessageType, len: usize) -> bool {
    message_type == VERSION && len <= MAX_VERSION_LEN
}

/// Whether a message of the node's may have to be changed: its type, and the length of its payload.
pub(crate) fn may_change(message_type: MessageType, len: usize) -> bool {
    is_version(message_type, len) || [ADDR, ADDRV2].contains(&message_type) && len <= MAX_ADDR_LEN
}

/// The addresses of the node, as far as one peer is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnAddresses<'a> {
    /// What the operator says.
    external: &'a [NodeAddress],
    /// What the peer says. Nodes announce this to the peer if they know nothing better. Only the
    /// peer itself hears what follows from it.
    seen: Option<IpAddr>,
}

impl<'a> OwnAddresses<'a> {
    /// `None` if the settings say that nothing is advertised. What a peer sees counts only if the
    /// gateway accepts peers.
    pub(crate) fn new(settings: &'a Settings, peer: Option<VersionStart>) -> Option<Self> {
        let peer = peer.filter(|_| !settings.inbound.is_empty());
        settings.advertise.then_some(Self {
            external: &settings.external,
            seen: peer.map(|peer| peer.receiver),
        })
    }

    fn have(self, address: NodeAddress) -> bool {
        self.external.contains(&address)
            || matches!(address, NodeAddress::Ip(address) if self.seen == Some(address.ip()))
    }

    /// A message of the node's with the service bit of v2. `None` if it stays as it is.
    pub(crate) fn advertise(self, message_type: MessageType, payload: &[u8]) -> Option<Vec<u8>> {
        add_services(message_type, payload, Services::P2P_V2, |address| {
            self.have(address)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operator's addresses with their port; the address that this peer sees, whatever the port.
    #[test]
    fn own_addresses_are_the_operators_and_the_one_that_the_peer_sees() {
        let external = ["203.0.113.5:8333", "[2001:db8::5]:8333"].map(|own| own.parse().unwrap());
        let own = |seen: Option<&str>| OwnAddresses {
            external: &external,
            seen: seen.map(|ip| ip.parse().unwrap()),
        };
        for (address, is_external, is_seen) in [
            ("203.0.113.5:8333", true, false),
            ("203.0.113.5:8334", false, false),
            ("[2001:db8::5]:8333", true, false),
            ("198.51.100.7:1", false, true),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(own(None).have(address), is_external, "{address:?}");
            let have = own(Some("198.51.100.7")).have(address);
            assert_eq!(have, is_external || is_seen, "{address:?}");
        }
    }
}
