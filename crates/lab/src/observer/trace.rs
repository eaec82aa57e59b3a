//! Traces: the messages of one connection of a real node, with times and lengths.
//!
//! `data/traces.txt.gz` was recorded from Bitcoin Core by `tools/traces`, which describes the format
//! and how the nodes were driven.

use flate2::read::GzDecoder;
use packetlane::bitcoin::message::MessageType;
use packetlane_p2p::message_type::{INV, is_about_block};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::LazyLock;

/// The recording, compressed.
const RECORDED: &[u8] = include_bytes!("../../data/traces.txt.gz");

/// A message of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    /// Microseconds since the recording began.
    pub(crate) at: u64,
    /// Whether the recording node sent it.
    pub(crate) sent: bool,
    pub(crate) message_type: MessageType,
    pub(crate) payload_len: usize,
    /// The transaction or block, for messages that have or announce just one: the beginning of its id.
    pub(crate) id: Option<u32>,
}

impl Message {
    /// The length of its packet (BIP324), in bytes.
    pub(crate) fn wire_len(&self) -> usize {
        self.message_type.encoded_len(self.payload_len) + packetlane::bip324::Session::OVERHEAD
    }

    /// Whether it carries or announces a block, or belongs to fetching one.
    pub(crate) fn is_about_block(&self) -> bool {
        // An `inv` has an id if it announces just one thing: a block.
        is_about_block(self.message_type, &[]) || self.message_type == INV && self.id.is_some()
    }
}

/// The messages of one connection, in order.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    /// What kind of connection it is, and its number.
    pub(crate) name: String,
    pub(crate) messages: Vec<Message>,
}

/// A block on a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Microseconds since the recording began.
    pub(crate) at: u64,
    /// The message by which it came first.
    pub(crate) message_type: MessageType,
}

impl Trace {
    /// The kind of the connection: the name without its number.
    pub(crate) fn kind(&self) -> &str {
        self.name
            .trim_end_matches(|c: char| c.is_ascii_digit() || c == '-')
    }

    /// The blocks that were announced or sent, each once.
    pub(crate) fn blocks(&self) -> Vec<Arrival> {
        let mut known = std::collections::HashSet::new();
        let about = self.messages.iter().filter(|message| {
            message.is_about_block() && message.id.is_some_and(|id| known.insert(id))
        });
        about
            .map(|message| Arrival {
                at: message.at,
                message_type: message.message_type,
            })
            .collect()
    }

    /// When the last message came, in microseconds since the recording began.
    pub(crate) fn end(&self) -> u64 {
        self.messages.last().map_or(0, |message| message.at)
    }

    /// When the first message came.
    pub(crate) fn start(&self) -> u64 {
        self.messages.first().map_or(0, |message| message.at)
    }
}

/// All recorded connections.
pub(crate) fn recorded() -> &'static [Trace] {
    static TRACES: LazyLock<Vec<Trace>> = LazyLock::new(|| {
        let mut text = String::new();
        GzDecoder::new(RECORDED)
            .read_to_string(&mut text)
            .expect("the recording is part of the program");
        parse(&text)
    });
    &TRACES
}

/// When the network learned of each block: its first appearance on any connection.
pub(crate) fn all_blocks(traces: &[Trace]) -> Vec<u64> {
    let mut first = BTreeMap::<u32, u64>::new();
    for message in traces.iter().flat_map(|trace| &trace.messages) {
        if let Some(id) = message.id.filter(|_| message.is_about_block()) {
            let at = first.entry(id).or_insert(message.at);
            *at = (*at).min(message.at);
        }
    }
    first.into_values().collect()
}

fn parse(text: &str) -> Vec<Trace> {
    let mut traces: Vec<Trace> = Vec::new();
    let mut at = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("connection ") {
            at = 0;
            traces.push(Trace {
                name: name.to_owned(),
                messages: Vec::new(),
            });
            continue;
        }
        let message = parse_message(line, &mut at);
        let trace = traces
            .last_mut()
            .expect("a message belongs to a connection");
        trace
            .messages
            .push(message.unwrap_or_else(|| panic!("no message: {line}")));
    }
    traces
}

/// A line such as `25 > tx 244 1a2b3c4d`. Adds its time to `at`.
fn parse_message(line: &str, at: &mut u64) -> Option<Message> {
    let mut fields = line.split(' ');
    *at += fields.next()?.parse::<u64>().ok()? * 1000;
    let sent = match fields.next()? {
        ">" => true,
        "<" => false,
        _ => return None,
    };
    let message_type = MessageType::new(fields.next()?.as_bytes()).ok()?;
    let payload_len = fields.next()?.parse().ok()?;
    // Before it may be the number of headers.
    let id = fields.find(|field| field.len() == 8);
    let id = id.and_then(|id| u32::from_str_radix(id, 16).ok());
    Some(Message {
        at: *at,
        sent,
        message_type,
        payload_len,
        id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_messages() {
        let traces = parse(
            "# made by hand\nconnection full-relay-in-core-1\n100 < version 102\n5 > tx 244 1a2b3c4d\n\
             0 > headers 82 1 00ff00ff\n0 > headers 163 2\n7 < cmpctblock 20000 00ff00ff\nconnection x-2\n3 > ping 8\n",
        );
        assert_eq!(
            (traces.len(), traces[0].kind(), traces[1].kind()),
            (2, "full-relay-in-core", "x")
        );
        let first = &traces[0];
        assert_eq!((first.start(), first.end()), (100_000, 112_000));
        assert_eq!(
            (first.messages[1].id, first.messages[1].sent),
            (Some(0x1a2b_3c4d), true)
        );
        // 20 bytes of the packet, and a type of 13 or 1.
        assert_eq!(first.messages[0].wire_len(), 102 + 13 + 20);
        assert_eq!(first.messages[1].wire_len(), 244 + 1 + 20);
        let blocks = first.blocks();
        assert_eq!(
            (blocks.len(), blocks[0].at, blocks[0].message_type.name()),
            (1, 105_000, "headers")
        );
    }

    #[test]
    fn the_recording_is_whole() {
        let traces = recorded();
        assert!(traces.len() >= 4, "{}", traces.len());
        for trace in traces {
            let in_order = trace.messages.is_sorted_by_key(|message| message.at);
            assert!(in_order && trace.messages.len() > 100, "{}", trace.name);
        }
        assert!(
            traces
                .iter()
                .map(|trace| trace.blocks().len())
                .sum::<usize>()
                > 50
        );
    }
}
