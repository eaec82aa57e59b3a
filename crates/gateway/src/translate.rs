//! Translates messages between v1 and v2 framing.

use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::v1;
use packetlane::sha256d::{Hash, Hasher};

/// Messages of all peers in a turn that go to the node: the link, type and payload of each.
pub(crate) type Frames<'b> = Vec<(usize, MessageType, &'b [u8])>;

/// Calls `to` with the link of each message, the message and its v1 checksum, in order. The checksums
/// are computed together.
pub(crate) fn frame(
    frames: Frames<'_>,
    hasher: &Hasher,
    mut to: impl FnMut(usize, v1::Message<'_>, [u8; 4]),
) {
    let payloads: Vec<_> = frames.iter().map(|(.., payload)| *payload).collect();
    let mut digests = vec![Hash::default(); payloads.len()];
    hasher.hash_many(&payloads, &mut digests);
    for ((link, message_type, payload), digest) in frames.into_iter().zip(&digests) {
        let [a, b, c, d, ..] = *digest;
        to(link, v1::Message::new(message_type, payload), [a, b, c, d]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packetlane::bitcoin::Network;

    #[test]
    fn frames_are_what_v1_decodes() {
        let magic = Network::Regtest.magic();
        let [ping, inv] = [MessageType::literal("ping"), MessageType::literal("inv")];
        let payloads = [vec![1; 8], Vec::new(), vec![2; 3000]];
        let mut frames = Frames::new();
        for (link, payload) in payloads.iter().enumerate() {
            frames.push((link, if link == 0 { ping } else { inv }, payload.as_slice()));
        }
        let mut seen = 0;
        frame(frames, &Hasher::best(), |link, message, checksum| {
            let mut wire = Vec::new();
            message.encode_with_checksum(magic, checksum, &mut wire);
            let message = v1::Message::decode(magic, &wire).unwrap().unwrap();
            assert_eq!((link, message.payload), (seen, payloads[seen].as_slice()));
            assert_eq!(message.message_type, if link == 0 { ping } else { inv });
            seen += 1;
        });
        assert_eq!(seen, 3);
    }
}
