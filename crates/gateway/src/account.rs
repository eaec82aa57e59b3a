//! Traffic and CPU time of a peer.

use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::v1;
use std::time::Duration;

/// Message types counted by name, per direction. Nodes send about thirty; a peer may invent any
/// number.
const MAX_TYPES: usize = 40;

/// Messages of one type, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeCount {
    /// The type; `None` for all types after the first forty.
    pub message_type: Option<MessageType>,
    /// Number of messages.
    pub messages: u64,
    /// Total length of their payloads.
    pub bytes: u64,
}

/// Traffic in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes on the wire.
    pub bytes: u64,
    /// Messages by type, in order of first appearance.
    pub types: Vec<TypeCount>,
    /// Messages from or to a v2 peer that were dropped: unknown type, malformed or damaged.
    pub ignored: u64,
}

impl Traffic {
    /// Zero counts for each type that nodes send, and for all others together.
    pub(crate) fn of_known_types() -> Self {
        let known = MessageType::known().iter().copied().map(Some);
        let nothing = |message_type| TypeCount {
            message_type,
            messages: 0,
            bytes: 0,
        };
        Self {
            bytes: 0,
            ignored: 0,
            types: known.chain([None]).map(nothing).collect(),
        }
    }

    /// Adds other traffic. Types that are not listed here are counted with `None`.
    pub(crate) fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.ignored += other.ignored;
        for count in &other.types {
            let types = &mut self.types;
            let index = |of| types.iter().position(|to| to.message_type == of);
            if let Some(index) = index(count.message_type).or_else(|| index(None)) {
                types[index].messages += count.messages;
                types[index].bytes += count.bytes;
            }
        }
    }

    /// Messages of all types.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.types.iter().map(|count| count.messages).sum()
    }

    pub(crate) fn count(&mut self, message_type: MessageType, payload_len: usize) {
        let is_same = |count: &TypeCount| count.message_type == Some(message_type);
        let index = match self.types.iter().position(is_same) {
            Some(index) => index,
            None => {
                if self.types.len() <= MAX_TYPES {
                    let is_named = self.types.len() < MAX_TYPES;
                    self.types.push(TypeCount {
                        message_type: is_named.then_some(message_type),
                        messages: 0,
                        bytes: 0,
                    });
                }
                self.types.len() - 1
            }
        };
        self.types[index].messages += 1;
        self.types[index].bytes += payload_len as u64;
    }
}

/// Traffic and CPU time of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// From the peer.
    pub received: Traffic,
    /// To the peer.
    pub sent: Traffic,
    /// The peer's share of the CPU time of its turns, by system calls and bytes.
    pub cpu: Duration,
}

/// Counts messages in a v1 byte stream that is relayed unchanged. Stops counting at bytes that are
/// not v1 of this network; the relay goes on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scanner {
    header: Vec<u8>,
    /// Bytes left of the current payload.
    skip: usize,
    is_out_of_sync: bool,
}

impl Scanner {
    pub(crate) fn scan(&mut self, magic: [u8; 4], mut bytes: &[u8], traffic: &mut Traffic) {
        while !bytes.is_empty() && !self.is_out_of_sync {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let missing = (v1::Message::HEADER_LEN - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            if self.header.len() < v1::Message::HEADER_LEN {
                return;
            }
            match header(magic, &self.header) {
                Some((message_type, payload_len)) => {
                    traffic.count(message_type, payload_len);
                    self.skip = payload_len;
                }
                None => self.is_out_of_sync = true,
            }
            self.header.clear();
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

    #[test]
    fn v1_messages_are_counted_however_they_are_split() {
        let magic = Network::Regtest.magic();
        let [ping, inv] = [MessageType::literal("ping"), MessageType::literal("inv")];
        let mut wire = Vec::new();
        for len in [0, 8, 3000, 1] {
            v1::Message::new(ping, &[1; 8]).encode(magic, &mut wire);
            v1::Message::new(inv, &vec![2; len]).encode(magic, &mut wire);
        }
        wire.extend([0; 30]);
        for piece in [1, 2, 23, 24, 25, 1000, wire.len()] {
            let (mut scanner, mut traffic) = (Scanner::default(), Traffic::default());
            for piece in wire.chunks(piece) {
                scanner.scan(magic, piece, &mut traffic);
            }
            let types: Vec<_> = traffic.types.iter().map(|count| count.messages).collect();
            assert_eq!(types, [4, 4]);
            assert_eq!(traffic.types[1].bytes, 3009);
        }
    }

    #[test]
    fn invented_types_are_counted_together() {
        let mut traffic = Traffic::default();
        for number in 0..100 {
            let name = format!("t{number}");
            traffic.count(MessageType::new(name.as_bytes()).unwrap(), 1);
        }
        assert_eq!(
            (traffic.types.len(), traffic.messages()),
            (MAX_TYPES + 1, 100)
        );
        let others = traffic.types[MAX_TYPES];
        assert_eq!((others.message_type, others.messages), (None, 60));
    }
}
