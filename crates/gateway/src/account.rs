//! Traffic and CPU time, of a peer and of a thread.

use packetlane::bip324::shape::Shaped;
use packetlane::bitcoin::message::MessageType;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Message types counted by name, per direction. Nodes send about thirty; a peer may invent any
/// number.
const MAX_TYPES: usize = 40;

/// Messages of one type, in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
            ..TypeCount::default()
        };
        Self {
            types: known.chain([None]).map(nothing).collect(),
            ..Self::default()
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
        let types = &mut self.types;
        let of_type = |count: &TypeCount| count.message_type == Some(message_type);
        let index = types.iter().position(of_type).unwrap_or_else(|| {
            if types.len() <= MAX_TYPES {
                types.push(TypeCount {
                    message_type: (types.len() < MAX_TYPES).then_some(message_type),
                    ..TypeCount::default()
                });
            }
            types.len() - 1
        });
        types[index].messages += 1;
        types[index].bytes += payload_len as u64;
    }
}

/// Traffic and CPU time of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// From the peer.
    pub received: Traffic,
    /// To the peer.
    pub sent: Traffic,
    /// What shaping added to `sent`.
    pub shaped: Shaped,
    /// The peer's share of the CPU time of its turns, by system calls and bytes.
    pub cpu: Duration,
}

/// Cumulative statistics of one thread: batch sizes, traffic and cost. No value ever decreases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Histogram of opened batches: element n counts the batches of n packets. Empty batches are
    /// not counted.
    pub opened: Vec<u64>,
    /// The same histogram for sealed batches.
    pub sealed: Vec<u64>,
    /// System calls that wait, read or write.
    pub calls: u64,
    /// CPU time of the thread.
    pub cpu: Duration,
    /// The part of `cpu` that was spent in the kernel.
    pub kernel: Duration,
    /// Time spent opening and sealing batches, and computing keys. Excludes packets that are opened on
    /// receipt or sealed when they are added: those of small turns, and long packets.
    pub encryption: Duration,
    /// Time spent framing messages for v1; most of it computes checksums.
    pub framing: Duration,
    /// Traffic from all peers, including those that have left. The types that nodes send are
    /// present from the start; all others are counted together.
    pub received: Traffic,
    /// Traffic to all peers.
    pub sent: Traffic,
    /// What shaping added to `sent`.
    pub shaped: Shaped,
}

impl Turns {
    /// Adds a peer's traffic. `ignored` are the messages that were dropped of those received.
    pub(crate) fn add(&mut self, account: &Account, ignored: u64) {
        self.received.add(&account.received);
        self.received.ignored += ignored;
        self.sent.add(&account.sent);
        self.shaped.add(&account.shaped);
    }

    /// Counts a batch of so many packets.
    pub(crate) fn count(batches: &mut Vec<u64>, packets: usize) {
        if packets > 0 {
            if batches.len() <= packets {
                batches.resize(packets + 1, 0);
            }
            batches[packets] += 1;
        }
    }
}

/// The thread's CPU time.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// The thread's kernel time, in clock ticks as the kernel counts it; zero if /proc is not
/// available.
pub(crate) fn kernel_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    // The thread's name comes first, in parentheses, and may contain spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = fields
        .split_whitespace()
        .nth(12)
        .and_then(|field| field.parse().ok())
        .unwrap_or(0);
    Duration::from_secs(ticks) / rustix::param::clock_ticks_per_second() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

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
