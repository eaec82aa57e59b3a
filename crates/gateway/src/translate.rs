//! Translates messages between v1 and v2 framing.

use packetlane::bitcoin::message::MessageType;
use packetlane::sha256d::{Hash, Hasher};

/// The service bit of nodes that support v2 (BIP324).
const NODE_P2P_V2: u64 = 1 << 11;

/// The services field of `version`: 8 bytes, little-endian, after the protocol version.
const SERVICES: std::ops::Range<usize> = 4..12;

/// Sets the v2 service bit in a `version` payload of the node's. Returns `None` for other messages.
pub(crate) fn advertise(message_type: MessageType, payload: &[u8]) -> Option<Vec<u8>> {
    if message_type.name() != "version" {
        return None;
    }
    let mut payload = payload.to_vec();
    let services = payload.get_mut(SERVICES)?;
    let with = u64::from_le_bytes(services.try_into().ok()?) | NODE_P2P_V2;
    services.copy_from_slice(&with.to_le_bytes());
    Some(payload)
}

/// Messages of all peers in a turn that go to the node. Their checksums are computed together.
#[derive(Debug, Default)]
pub(crate) struct Frames<'b> {
    links: Vec<usize>,
    types: Vec<MessageType>,
    payloads: Vec<&'b [u8]>,
}

impl<'b> Frames<'b> {
    pub(crate) fn push(&mut self, link: usize, message_type: MessageType, payload: &'b [u8]) {
        self.links.push(link);
        self.types.push(message_type);
        self.payloads.push(payload);
    }

    /// Calls `to` with the link, type, payload and v1 checksum of each message, in order.
    pub(crate) fn write(
        self,
        hasher: &Hasher,
        mut to: impl FnMut(usize, MessageType, &[u8], [u8; 4]),
    ) {
        let mut digests = vec![Hash::default(); self.payloads.len()];
        hasher.hash_many(&self.payloads, &mut digests);
        let messages = self.links.into_iter().zip(self.types).zip(self.payloads);
        for (((link, message_type), payload), digest) in messages.zip(&digests) {
            let [a, b, c, d, ..] = *digest;
            to(link, message_type, payload, [a, b, c, d]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packetlane::bitcoin::{Network, v1};

    #[test]
    fn frames_are_what_v1_decodes() {
        let magic = Network::Regtest.magic();
        let [ping, inv] = [MessageType::literal("ping"), MessageType::literal("inv")];
        let payloads = [vec![1; 8], Vec::new(), vec![2; 3000]];
        let mut frames = Frames::default();
        for (link, payload) in payloads.iter().enumerate() {
            frames.push(link, if link == 0 { ping } else { inv }, payload);
        }
        let mut seen = 0;
        frames.write(&Hasher::best(), |link, message_type, payload, checksum| {
            let mut wire = Vec::new();
            v1::Message::new(message_type, payload)
                .encode_with_checksum(magic, checksum, &mut wire);
            let message = v1::Message::decode(magic, &wire).unwrap().unwrap();
            assert_eq!((link, message.payload), (seen, payloads[seen].as_slice()));
            assert_eq!(message.message_type, if link == 0 { ping } else { inv });
            seen += 1;
        });
        assert_eq!(seen, 3);
    }

    #[test]
    fn a_version_gets_the_service_bit() {
        let version = MessageType::literal("version");
        let mut payload = vec![0xff; 90];
        payload[SERVICES].copy_from_slice(&9_u64.to_le_bytes());
        let with = advertise(version, &payload).unwrap();
        assert_eq!(with[SERVICES], (9_u64 | 2048).to_le_bytes());
        payload[SERVICES].copy_from_slice(&with[SERVICES]);
        assert_eq!(with, payload);
        assert!(advertise(version, &payload[..11]).is_none());
        assert!(advertise(MessageType::literal("verack"), &payload).is_none());
    }
}
