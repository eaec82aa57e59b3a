//! What has passed for a peer, and what that cost.

use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::v1;
use std::time::Duration;

/// Message types that are counted by name, each way. Nodes send some thirty; a peer may invent as
/// many as it likes.
const MAX_TYPES: usize = 40;

/// Messages of one type, one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeCount {
    /// The type, or none for all that came after the first forty types.
    pub message_type: Option<MessageType>,
    /// How many.
    pub messages: u64,
    /// Their payloads' bytes.
    pub bytes: u64,
}

/// What has passed one way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Bytes as the network has them.
    pub bytes: u64,
    /// Messages by type, in the order in which each type came first.
    pub types: Vec<TypeCount>,
    /// Messages from or for a v2 peer that were dropped: of unknown type, malformed or damaged.
    pub ignored: u64,
}

impl Passed {
    /// Nothing, of each type that nodes send and of all others together.
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

    /// Adds what has passed of the same types; what has passed of others is counted as that of none.
    pub(crate) fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.ignored += other.ignored;
        for count in &other.types {
            let types = &mut self.types;
            let place = |of| types.iter().position(|to| to.message_type == of);
            if let Some(place) = place(count.message_type).or_else(|| place(None)) {
                types[place].messages += count.messages;
                types[place].bytes += count.bytes;
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
        let place = match self.types.iter().position(is_same) {
            Some(place) => place,
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
        self.types[place].messages += 1;
        self.types[place].bytes += payload_len as u64;
    }
}

/// What has passed for a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// From the peer.
    pub received: Passed,
    /// To the peer.
    pub sent: Passed,
    /// Its share of the CPU time of the turns that it was in: by its system calls and its bytes.
    pub cpu: Duration,
}

/// Counts the messages of v1 bytes that pass as they are. Bytes that are not v1 of this network end
/// the counting, and nothing else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scanner {
    header: Vec<u8>,
    /// Bytes of the payload that are still to come.
    skip: usize,
    is_lost: bool,
}

impl Scanner {
    pub(crate) fn scan(&mut self, magic: [u8; 4], mut bytes: &[u8], passed: &mut Passed) {
        while !bytes.is_empty() && !self.is_lost {
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
                    passed.count(message_type, payload_len);
                    self.skip = payload_len;
                }
                None => self.is_lost = true,
            }
            self.header.clear();
        }
    }
}

/// Type and payload length of a header.
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
    fn v1_messages_are_counted_however_they_are_cut() {
        let magic = Network::Regtest.magic();
        let [ping, inv] = [MessageType::literal("ping"), MessageType::literal("inv")];
        let mut wire = Vec::new();
        for len in [0, 8, 3000, 1] {
            v1::Message::new(ping, &[1; 8]).encode(magic, &mut wire);
            v1::Message::new(inv, &vec![2; len]).encode(magic, &mut wire);
        }
        wire.extend([0; 30]);
        for piece in [1, 2, 23, 24, 25, 1000, wire.len()] {
            let (mut scanner, mut passed) = (Scanner::default(), Passed::default());
            for piece in wire.chunks(piece) {
                scanner.scan(magic, piece, &mut passed);
            }
            let types: Vec<_> = passed.types.iter().map(|count| count.messages).collect();
            assert_eq!(types, [4, 4]);
            assert_eq!(passed.types[1].bytes, 3009);
        }
    }

    #[test]
    fn invented_types_are_counted_together() {
        let mut passed = Passed::default();
        for number in 0..100 {
            let name = format!("t{number}");
            passed.count(MessageType::new(name.as_bytes()).unwrap(), 1);
        }
        assert_eq!(
            (passed.types.len(), passed.messages()),
            (MAX_TYPES + 1, 100)
        );
        let others = passed.types[MAX_TYPES];
        assert_eq!((others.message_type, others.messages), (None, 60));
    }
}
