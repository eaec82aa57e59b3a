//! The traffic of the experiments: packets whose lengths follow a profile.
//!
//! `mail` is the mix of the published GPU measurement. `relay`, `listening` and `archive` are real
//! nodes: `data/traffic.csv` has their message types with counts and mean lengths. The length of a
//! type that varies is drawn from an exponential distribution with the recorded mean. A replay uses
//! a recording of one connection, byte for byte.

use packetlane::SealBatch;
use packetlane::bip324::{PacketKind, Session};
use packetlane::bitcoin::message::MessageType;
use packetlane_p2p::capture::{self, CaptureError, Record};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use std::io::Write;
use std::ops::Range;
use std::path::Path;

/// The messages of three nodes, by type.
const RECORDED: &str = include_str!("../data/traffic.csv");

/// Message types whose payload always has the recorded mean length.
const FIXED: [&str; 12] = [
    "feefilter",
    "getaddr",
    "mempool",
    "ping",
    "pong",
    "sendaddrv2",
    "sendcmpct",
    "sendheaders",
    "sendtxrcncl",
    "verack",
    "wtxidrelay",
    "alert",
];

/// Maximum length of a payload, in bytes.
const MAX_PAYLOAD: usize = packetlane::bitcoin::v1::Message::MAX_PAYLOAD_LEN;

/// Maximum total length of a case's replayed contents, in bytes, except for the last one: recorded
/// messages may be long, and every implementation processes all of a case.
const MAX_REPLAYED: usize = 16 << 20;

/// The classes of `mail`: share in per cent, minimum and maximum length in bytes.
const MAIL: [(u32, usize, usize); 4] =
    [(40, 1, 32), (30, 33, 128), (20, 129, 512), (10, 513, 4096)];

/// A source of packet lengths.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The name in case labels.
    pub name: String,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Mail,
    Node(Vec<Message>),
    Replay(Vec<Vec<u8>>),
}

/// One row of the recording.
#[derive(Clone, Debug)]
struct Message {
    message_type: MessageType,
    per_day: f64,
    mean: f64,
    fixed: bool,
}

/// The packets of one turn of an event loop: one batch.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    bytes: Vec<u8>,
    packets: Vec<(PacketKind, Range<usize>)>,
    /// Packet ranges for [`Turn::parts`].
    parts: Vec<Range<usize>>,
}

impl Turn {
    /// `packets` genuine packets of the same length.
    #[must_use]
    pub fn uniform(packets: usize, contents_len: usize) -> Self {
        let mut turn = Self::default();
        let mut rng = StdRng::seed_from_u64(contents_len as u64);
        for _ in 0..packets {
            turn.add(PacketKind::Genuine, contents_len, &mut rng);
        }
        turn
    }

    /// Adds a packet with random contents.
    fn add(&mut self, kind: PacketKind, contents_len: usize, rng: &mut StdRng) {
        let start = self.bytes.len();
        self.bytes.resize(start + contents_len, 0);
        rng.fill_bytes(&mut self.bytes[start..]);
        self.end_packet(kind, start);
    }

    /// Completes a packet whose contents start at `start` of the bytes.
    fn end_packet(&mut self, kind: PacketKind, start: usize) {
        let packet = self.packets.len();
        self.packets.push((kind, start..self.bytes.len()));
        match self.parts.last_mut() {
            Some(part) if wire_len(&self.packets[part.clone()]) < SealBatch::ENOUGH_BYTES => {
                part.end += 1;
            }
            _ => self.parts.push(packet..packet + 1),
        }
    }

    /// Kind and contents of each packet, in order.
    pub fn packets(&self) -> impl ExactSizeIterator<Item = (PacketKind, &[u8])> {
        self.some(0..self.packets.len())
    }

    /// The packets in parts, as a sender would seal them: each part ends when it has
    /// [`SealBatch::ENOUGH_BYTES`] on the wire.
    pub fn parts(
        &self,
    ) -> impl Iterator<Item = impl ExactSizeIterator<Item = (PacketKind, &[u8])> + Clone> {
        self.parts.iter().map(|part| self.some(part.clone()))
    }

    /// The packets with these numbers.
    fn some(
        &self,
        packets: Range<usize>,
    ) -> impl ExactSizeIterator<Item = (PacketKind, &[u8])> + Clone {
        let packet =
            |(kind, place): &(PacketKind, Range<usize>)| (*kind, &self.bytes[place.clone()]);
        self.packets[packets].iter().map(packet)
    }

    /// The contents of the genuine packets, in order.
    pub fn genuine(&self) -> impl Iterator<Item = &[u8]> {
        let genuine = |(kind, contents)| (kind == PacketKind::Genuine).then_some(contents);
        self.packets().filter_map(genuine)
    }

    /// The length of all packets on the wire, in bytes.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        wire_len(&self.packets)
    }
}

/// The length of consecutive packets on the wire, in bytes.
fn wire_len(packets: &[(PacketKind, Range<usize>)]) -> usize {
    match packets {
        [(_, first), .., (_, last)] => last.end - first.start + packets.len() * Session::OVERHEAD,
        [(_, only)] => only.len() + Session::OVERHEAD,
        [] => 0,
    }
}

impl Profile {
    /// The names of the recorded nodes.
    pub const NODES: [&str; 3] = ["relay", "listening", "archive"];

    /// The mix of the published GPU measurement.
    #[must_use]
    pub fn mail() -> Self {
        Self {
            name: "mail".into(),
            source: Source::Mail,
        }
    }

    /// A recorded node: `relay`, `listening` or `archive`.
    ///
    /// # Panics
    ///
    /// For any other name.
    #[must_use]
    pub fn node(name: &str) -> Self {
        let rows = RECORDED
            .lines()
            .filter(|line| !line.starts_with('#'))
            .skip(1);
        let messages: Vec<_> = rows
            .filter_map(|row| {
                let mut fields = row.split(',');
                let mut field = || fields.next().expect("four fields in each row");
                (field() == name).then(|| Message::parse(field(), field(), field()))
            })
            .collect();
        assert!(!messages.is_empty(), "no profile {name}");
        Self {
            name: name.into(),
            source: Source::Node(messages),
        }
    }

    /// The messages of a recorded node in both directions: type, count per day and mean payload
    /// length in bytes. Empty for other profiles.
    #[must_use]
    pub fn messages_per_day(&self) -> Vec<(MessageType, f64, f64)> {
        let Source::Node(messages) = &self.source else {
            return Vec::new();
        };
        let row = |message: &Message| (message.message_type, message.per_day, message.mean);
        messages.iter().map(row).collect()
    }

    /// The messages between `packetlane connect` and btcd (`data/btcd-regtest`), both directions
    /// merged by time, repeated.
    ///
    /// # Panics
    ///
    /// Never: the recording is part of the program.
    #[must_use]
    pub fn btcd() -> Self {
        let records = [
            &include_bytes!("../data/btcd-regtest/msgs_recv.dat")[..],
            &include_bytes!("../data/btcd-regtest/msgs_sent.dat")[..],
        ];
        let records = records.into_iter().flat_map(capture::Reader::new);
        let records: Result<Vec<_>, _> = records.collect();
        Self::replayed("btcd-regtest", records.expect("the recording is whole"))
    }

    /// A profile from the recording in `folder`, as written by Bitcoin Core's `-capturemessages` or
    /// `packetlane connect --record`. Like [`Profile::btcd`].
    ///
    /// # Errors
    ///
    /// If the folder has no recording, or none with a complete record. Of a damaged file, the
    /// complete records count, and a line on standard error says so.
    pub fn replay(folder: &Path) -> Result<Self, CaptureError> {
        let recording = capture::read_dir(folder)?;
        let records = recording
            .conversations
            .into_iter()
            .flat_map(|conversation| [conversation.received, conversation.sent].concat());
        let records: Vec<_> = records.collect();
        let mut damaged = recording.damaged.into_iter();
        if records.is_empty() {
            return Err(damaged.next().unwrap_or(CaptureError::Nothing {
                dir: folder.to_owned(),
            }));
        }
        for error in damaged {
            // Ignored: nobody may be reading.
            let _ = writeln!(
                std::io::stderr(),
                "{error}; only its records before the damage are used"
            );
        }
        Ok(Self::replayed("replay", records))
    }

    fn replayed(name: &str, mut records: Vec<Record>) -> Self {
        records.sort_by_key(|record| record.time);
        let contents = records.into_iter().map(|record| {
            let mut contents = Vec::new();
            record.message_type.encode(&record.payload, &mut contents);
            contents
        });
        Self {
            name: name.into(),
            source: Source::Replay(contents.collect()),
        }
    }

    /// Generates `turns` turns of `batch` packets each. `decoys` per cent of the packets are
    /// decoys, with the same length distribution. The same arguments give the same packets.
    ///
    /// A recording's packets end early, also within a turn, when they reach 16 MiB.
    #[must_use]
    pub fn turns(&self, turns: usize, batch: usize, decoys: usize) -> Vec<Turn> {
        let mut rng = StdRng::seed_from_u64(0x0324);
        let mut replayed = 0;
        let mut replayed_bytes = 0;
        let mut sent = 0;
        let mut make_turn = || {
            let mut turn = Turn::default();
            for _ in 0..batch {
                if replayed_bytes >= MAX_REPLAYED {
                    break;
                }
                sent += 1;
                // Spread the decoys evenly.
                let kind = if sent * decoys / 100 > (sent - 1) * decoys / 100 {
                    PacketKind::Decoy
                } else {
                    PacketKind::Genuine
                };
                match &self.source {
                    Source::Mail => turn.add(kind, mail(&mut rng), &mut rng),
                    Source::Node(messages) => {
                        let length = Message::draw(messages, &mut rng);
                        turn.add(kind, length, &mut rng);
                    }
                    Source::Replay(contents) => {
                        let contents = &contents[replayed % contents.len()];
                        replayed += 1;
                        replayed_bytes += contents.len();
                        let start = turn.bytes.len();
                        turn.bytes.extend_from_slice(contents);
                        turn.end_packet(kind, start);
                    }
                }
            }
            turn
        };
        let turns = (0..turns).map(|_| make_turn());
        turns.take_while(|turn| !turn.packets.is_empty()).collect()
    }
}

/// Draws a length from `mail`.
pub(crate) fn mail(rng: &mut StdRng) -> usize {
    let mut share = rng.random_range(0..100);
    for (percent, shortest, longest) in MAIL {
        if share < percent {
            return rng.random_range(shortest..=longest);
        }
        share -= percent;
    }
    unreachable!("the shares add up to 100")
}

impl Message {
    fn parse(name: &str, per_day: &str, mean: &str) -> Self {
        let number = |text: &str| text.parse().expect("a number in the recording");
        Self {
            message_type: MessageType::new(name.as_bytes()).expect("a message type"),
            per_day: number(per_day),
            mean: number(mean),
            fixed: FIXED.contains(&name),
        }
    }

    /// Draws the contents length of a message. Types are as frequent as in the recording.
    fn draw(messages: &[Message], rng: &mut StdRng) -> usize {
        let total: f64 = messages.iter().map(|message| message.per_day).sum();
        let mut place = rng.random_range(0.0..total);
        let chosen = messages.iter().find(|message| {
            place -= message.per_day;
            place < 0.0
        });
        let message = chosen.unwrap_or(&messages[0]);
        let payload = if message.fixed {
            message.mean
        } else {
            -message.mean * rng.random_range(f64::MIN_POSITIVE..1.0).ln()
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let payload = (payload.round() as usize).min(MAX_PAYLOAD);
        message.message_type.encoded_len(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean of so many lengths. Contents would take a minute to fill.
    #[allow(clippy::cast_precision_loss)]
    fn mean(packets: usize, draw: impl Fn(&mut StdRng) -> usize) -> f64 {
        let mut rng = StdRng::seed_from_u64(0x0324);
        (0..packets).map(|_| draw(&mut rng)).sum::<usize>() as f64 / packets as f64
    }

    #[test]
    fn lengths_follow_the_profiles() {
        // The mean: 40 % of 16.5, 30 % of 80.5, 20 % of 320.5, 10 % of 2304.5.
        assert!((mean(100_000, mail) - 325.3).abs() < 5.0);
        for (name, packets) in [
            ("relay", 200_000),
            ("listening", 200_000),
            ("archive", 20_000),
        ] {
            let profile = Profile::node(name);
            let Source::Node(messages) = &profile.source else {
                panic!("a node's profile")
            };
            let days: f64 = messages.iter().map(|message| message.per_day).sum();
            #[allow(clippy::cast_precision_loss)]
            let contents = |message: &Message| {
                message.per_day * (message.message_type.encoded_len(0) as f64 + message.mean)
            };
            let expected = messages.iter().map(contents).sum::<f64>() / days;
            let drawn = mean(packets, |rng| Message::draw(messages, rng));
            assert!(
                (drawn / expected - 1.0).abs() < 0.15,
                "{name}: {drawn}, not {expected}"
            );
        }
    }

    #[test]
    fn the_share_of_decoys_is_right() {
        for (decoys, batch) in [(0, 64), (5, 1), (20, 64), (50, 4)] {
            let turns = Profile::mail().turns(1000, batch, decoys);
            let packets = turns.iter().map(|turn| turn.packets().len()).sum::<usize>();
            let genuine = turns
                .iter()
                .map(|turn| turn.genuine().count())
                .sum::<usize>();
            assert_eq!(packets, 1000 * batch);
            assert_eq!(packets - genuine, packets * decoys / 100);
        }
    }

    /// Recordings with long messages: unbounded, the cases would have 2 to 4 GB.
    #[test]
    fn a_replay_is_bounded_in_bytes() {
        let record = |length: usize| Record {
            time: 0,
            message_type: MessageType::literal("block"),
            payload: vec![7; length],
        };
        let ordinary = [vec![record(100); 100], vec![record(1_500_000); 2]].concat();
        for (records, least) in [(ordinary, 500), (vec![record(MAX_PAYLOAD)], 4)] {
            let longest = MAX_PAYLOAD + 1;
            let profile = Profile::replayed("replay", records);
            for (turns, batch) in [(1024, 1), (16, 64), (1, 4096)] {
                let turns = profile.turns(turns, batch, 20);
                let packets = turns.iter().flat_map(Turn::packets);
                let bytes: usize = packets.map(|(_, contents)| contents.len()).sum();
                assert!((MAX_REPLAYED..MAX_REPLAYED + longest).contains(&bytes));
                let packets: usize = turns.iter().map(|turn| turn.packets().len()).sum();
                assert!(packets >= least, "{packets}");
                assert!(
                    turns
                        .iter()
                        .all(|turn| (1..=batch).contains(&turn.packets().len()))
                );
            }
        }
        // Short messages are all included.
        let profile = Profile::replayed("replay", vec![record(100); 3]);
        let turns = profile.turns(16, 64, 0);
        assert!(turns.len() == 16 && turns.iter().all(|turn| turn.packets().len() == 64));
    }

    #[test]
    fn the_same_arguments_give_the_same_packets() {
        let bytes = |_| Profile::node("relay").turns(3, 20, 5)[2].bytes.clone();
        assert_eq!(bytes(0), bytes(1));
    }
}
