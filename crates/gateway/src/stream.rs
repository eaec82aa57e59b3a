//! The byte stream of a v1 peer, in one direction.

use crate::account::Traffic;
use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::v1;

/// Relays v1 messages and counts them. Some are seen whole, and may be changed; all other bytes are
/// relayed as they come. At bytes that are not v1 of this network, it stops counting and goes on
/// relaying.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    /// A message, or header, that is not complete yet.
    held: Vec<u8>,
    /// Bytes to relay as they come: those left of the current payload, or `u64::MAX` after bytes that
    /// are not v1 of this network.
    skip: u64,
}

impl Stream {
    /// Appends to `to` what of `bytes` can be relayed. `is_seen` says by type and payload
    /// length which messages must be seen whole, and `see` returns another payload for one that must
    /// be changed.
    pub(crate) fn relay(
        &mut self,
        magic: [u8; 4],
        mut bytes: &[u8],
        traffic: &mut Traffic,
        to: &mut Vec<u8>,
        is_seen: impl Fn(MessageType, usize) -> bool,
        mut see: impl FnMut(v1::Message<'_>) -> Option<Vec<u8>>,
    ) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let len = self.skip.min(bytes.len() as u64);
                self.skip -= len;
                let (skipped, rest) = bytes.split_at(len as usize);
                to.extend_from_slice(skipped);
                bytes = rest;
                continue;
            }
            if !self.hold(v1::Message::HEADER_LEN, &mut bytes) {
                return;
            }
            let Some((message_type, len)) = header(magic, &self.held) else {
                self.skip = u64::MAX;
                self.finish(to);
                continue;
            };
            if is_seen(message_type, len) {
                if !self.hold(v1::Message::HEADER_LEN + len, &mut bytes) {
                    return;
                }
                // A message with a wrong checksum is relayed; the receiver drops it.
                let message = v1::Message::decode(magic, &self.held).ok().flatten();
                if let Some(payload) = message.and_then(&mut see) {
                    v1::Message::new(message_type, &payload).encode(magic, to);
                    self.held.clear();
                }
            } else {
                self.skip = len as u64;
            }
            traffic.count(message_type, len);
            self.finish(to);
        }
    }

    /// Moves bytes until it holds `len` of them. Returns whether it does.
    fn hold(&mut self, len: usize, bytes: &mut &[u8]) -> bool {
        let missing = len.saturating_sub(self.held.len()).min(bytes.len());
        self.held.extend_from_slice(&bytes[..missing]);
        *bytes = &bytes[missing..];
        self.held.len() >= len
    }

    /// Appends what is held: the stream has ended, or the bytes are relayed as they are.
    pub(crate) fn finish(&mut self, to: &mut Vec<u8>) {
        to.append(&mut self.held);
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.held.capacity()
    }

    /// Releases unused memory.
    pub(crate) fn trim(&mut self) {
        if self.held.is_empty() {
            self.held = Vec::new();
        }
    }
}

/// Parses type and payload length from a header.
fn header(magic: [u8; 4], bytes: &[u8]) -> Option<(MessageType, usize)> {
    let name = bytes.strip_prefix(&magic)?.first_chunk::<12>()?;
    let len = bytes.get(16..20)?.try_into().ok()?;
    let message_type = MessageType::from_padded(name).ok()?;
    Some((message_type, u32::from_le_bytes(len) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use packetlane::bitcoin::Network;

    const MAGIC: [u8; 4] = Network::Regtest.magic();
    const PING: MessageType = MessageType::literal("ping");
    const INV: MessageType = MessageType::literal("inv");

    fn wire(messages: &[(MessageType, &[u8])]) -> Vec<u8> {
        let mut wire = Vec::new();
        for (message_type, payload) in messages {
            v1::Message::new(*message_type, payload).encode(MAGIC, &mut wire);
        }
        wire
    }

    /// However the stream is split, and although it ends with what is no message.
    #[test]
    fn messages_are_counted_relayed_and_changed() {
        let long = vec![2; 3000];
        let mut sent = wire(&[(PING, &[1; 8]), (INV, &[]), (PING, &[3; 8]), (INV, &long)]);
        let mut expected = wire(&[(PING, &[9; 5]), (INV, &[]), (PING, &[3; 8]), (INV, &long)]);
        // A wrong checksum stays wrong.
        for wire in [&mut sent, &mut expected] {
            let start = wire.len();
            v1::Message::new(PING, &[1; 8]).encode(MAGIC, wire);
            wire[start + 20] ^= 1;
            wire.extend([0; 30]);
        }
        for piece in [1, 2, 23, 24, 25, 31, 32, 33, 1000, sent.len()] {
            let (mut stream, mut traffic) = (Stream::default(), Traffic::default());
            let mut relayed = Vec::new();
            for piece in sent.chunks(piece) {
                let is_ping = |message_type, len| message_type == PING && len < 100;
                stream.relay(MAGIC, piece, &mut traffic, &mut relayed, is_ping, |ping| {
                    (ping.payload == [1; 8]).then(|| vec![9; 5])
                });
            }
            assert!(relayed == expected, "{piece}");
            let types: Vec<_> = traffic.types.iter().map(|count| count.messages).collect();
            assert_eq!((types, traffic.types[1].bytes), (vec![3, 2], 3000));
        }
    }

    /// What a stream ends with is not lost.
    #[test]
    fn an_incomplete_message_is_relayed_at_the_end() {
        let sent = wire(&[(PING, &[1; 8])]);
        for len in 0..sent.len() {
            let (mut stream, mut traffic) = (Stream::default(), Traffic::default());
            let mut relayed = Vec::new();
            let piece = &sent[..len];
            stream.relay(
                MAGIC,
                piece,
                &mut traffic,
                &mut relayed,
                |_, _| true,
                |_| None,
            );
            assert!(relayed.is_empty());
            stream.finish(&mut relayed);
            assert_eq!((&*relayed, traffic.messages()), (piece, 0));
            stream.trim();
            assert_eq!(stream.memory(), 0);
        }
    }
}
