//! The message codec and v1's framing.

mod common;

use common::{Random, noise};
use packetlane::bitcoin::Network;
use packetlane::bitcoin::message::{Ignored, MessageError, MessageTable, MessageType};
use packetlane::bitcoin::v1;
use proptest::prelude::*;

/// BIP324's table, in its order: the index is the id.
const BIP324: [&str; 28] = [
    "addr",
    "block",
    "blocktxn",
    "cmpctblock",
    "feefilter",
    "filteradd",
    "filterclear",
    "filterload",
    "getblocks",
    "getblocktxn",
    "getdata",
    "getheaders",
    "headers",
    "inv",
    "mempool",
    "merkleblock",
    "notfound",
    "ping",
    "pong",
    "sendcmpct",
    "tx",
    "getcfilters",
    "cfilter",
    "getcfheaders",
    "cfheaders",
    "getcfcheckpt",
    "cfcheckpt",
    "addrv2",
];

fn encoded(message_type: MessageType, payload: &[u8]) -> Vec<u8> {
    let mut contents = b"kept".to_vec();
    message_type.encode(payload, &mut contents);
    assert_eq!(&contents[..4], b"kept");
    let contents = contents.split_off(4);
    assert_eq!(contents.len(), message_type.encoded_len(payload.len()));
    contents
}

fn long_form(name: &[u8]) -> Vec<u8> {
    let mut contents = vec![0; 1 + MessageType::MAX_LEN];
    contents[1..1 + name.len()].copy_from_slice(name);
    contents
}

/// Every id. Types in the table are sent in one byte. Ids assigned later are understood, but their
/// types are sent in the long encoding.
#[test]
fn every_short_id() {
    let mut assigned = 0;
    for id in 0..=255 {
        let payload = noise(id.into(), id.into());
        let contents = [&[id], &payload[..]].concat();
        let Some(message_type) = MessageType::from_short_id(id) else {
            let expected = match (id, payload.len()) {
                (0, length) => MessageError::TypeCut { length },
                (id, _) => MessageError::UnknownId { id },
            };
            assert_eq!(MessageType::decode(&contents), Err(expected));
            continue;
        };
        assigned += 1;
        assert_eq!(
            MessageType::decode(&contents),
            Ok((message_type, &payload[..]))
        );
        let name = message_type.name();
        let long = [long_form(name.as_bytes()), payload.clone()].concat();
        assert_eq!(MessageType::decode(&long), Ok((message_type, &payload[..])));
        match BIP324.get(usize::from(id) - 1) {
            Some(expected) => {
                assert_eq!(name, *expected);
                assert_eq!(message_type.short_id(), Some(id));
                assert_eq!(encoded(message_type, &payload), contents);
            }
            None => {
                assert_eq!(message_type.short_id(), None);
                assert_eq!(encoded(message_type, &payload), long);
            }
        }
    }
    assert_eq!(assigned, 37);
    for name in [
        "version",
        "verack",
        "sendaddrv2",
        "wtxidrelay",
        "sendtxrcncl",
        "",
    ] {
        let message_type = MessageType::new(name.as_bytes()).unwrap();
        assert_eq!(message_type.short_id(), None);
        assert_eq!(
            encoded(message_type, b"xyz"),
            [&long_form(name.as_bytes())[..], b"xyz"].concat()
        );
    }
}

/// Types with a short id, and those that nodes send without one; each once.
#[test]
fn known_types() {
    let known = MessageType::known();
    for message_type in (0..=255).filter_map(MessageType::from_short_id) {
        assert!(known.contains(&message_type), "{message_type}");
    }
    for name in ["version", "verack", "getaddr", "sendaddrv2"] {
        assert!(known.contains(&MessageType::literal(name)), "{name}");
    }
    let mut names: Vec<_> = known.iter().map(MessageType::name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), known.len());
}

#[test]
fn every_malformed_type() {
    assert_eq!(MessageType::decode(b""), Err(MessageError::Empty));
    for length in 0..MessageType::MAX_LEN {
        let cut = &long_form(b"application")[..1 + length];
        assert_eq!(
            MessageType::decode(cut),
            Err(MessageError::TypeCut { length })
        );
    }
    let refused = MessageType::new(b"thirteenchars");
    assert_eq!(refused, Err(MessageError::TypeTooLong { length: 13 }));
    // Every byte at every place of a name, and after it.
    for place in 0..MessageType::MAX_LEN {
        for byte in 0..=255 {
            let mut field = *b"abcdefghijkl";
            field[place] = byte;
            let decoded = MessageType::from_padded(&field);
            let contents = [&[0], &field[..], b"payload"].concat();
            match byte {
                b' '..=0x7f => {
                    let message_type = decoded.unwrap();
                    assert_eq!(message_type.padded(), &field);
                    assert_eq!(message_type.name().as_bytes(), field);
                    assert_eq!(
                        MessageType::decode(&contents),
                        Ok((message_type, &b"payload"[..]))
                    );
                }
                0 if place == MessageType::MAX_LEN - 1 => {
                    assert_eq!(decoded.unwrap().name(), "abcdefghijk")
                }
                0 => assert_eq!(decoded, Err(MessageError::TypePadding)),
                byte => {
                    assert_eq!(decoded, Err(MessageError::TypeByte { byte }));
                    assert_eq!(
                        MessageType::decode(&contents),
                        Err(MessageError::TypeByte { byte })
                    );
                }
            }
            if !matches!(byte, b' '..=0x7f) {
                let name = &field[..=place];
                assert_eq!(MessageType::new(name), Err(MessageError::TypeByte { byte }));
            }
            let mut padded = [0; MessageType::MAX_LEN];
            padded[..3].copy_from_slice(b"inv");
            if place > 3 {
                padded[place] = byte;
                let expected = match byte {
                    0 => MessageType::new(b"inv"),
                    _ => Err(MessageError::TypePadding),
                };
                assert_eq!(MessageType::from_padded(&padded), expected);
            }
        }
    }
    let shown = [
        MessageError::Empty,
        MessageError::UnknownId { id: 200 },
        MessageError::TypeCut { length: 3 },
        MessageError::TypeTooLong { length: 13 },
        MessageError::TypeByte { byte: 7 },
        MessageError::TypePadding,
    ]
    .map(|error| error.to_string());
    for (i, text) in shown.iter().enumerate() {
        assert!(!shown[..i].contains(text) && text.len() > 20, "{text}");
    }
}

const LITERAL: MessageType = MessageType::literal("sendaddrv2");

#[test]
fn types_as_text() {
    assert_eq!(LITERAL, MessageType::new(b"sendaddrv2").unwrap());
    assert_eq!(
        format!("{LITERAL:>12}|{LITERAL:?}"),
        "  sendaddrv2|MessageType(\"sendaddrv2\")"
    );
    assert!(MessageType::literal("a") < MessageType::literal("b"));
}

#[test]
#[should_panic(expected = "12 characters")]
fn a_literal_that_is_too_long() {
    let _ = MessageType::literal("thirteenchars");
}

#[test]
#[should_panic(expected = "printable")]
fn a_literal_beyond_ascii() {
    let _ = MessageType::literal("größe");
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(b' '..=0x7f, 0..=MessageType::MAX_LEN)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_type_survives(name in name(), payload in prop::collection::vec(any::<u8>(), 0..300)) {
        let message_type = MessageType::new(&name).unwrap();
        prop_assert_eq!(message_type.name().as_bytes(), &name[..]);
        prop_assert_eq!(MessageType::from_padded(message_type.padded()), Ok(message_type));
        let contents = encoded(message_type, &payload);
        prop_assert_eq!(MessageType::decode(&contents), Ok((message_type, &payload[..])));
    }

    /// A message that is accepted encodes to something that decodes to it again. Nothing
    /// panics.
    #[test]
    fn any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..40), long: bool) {
        if long && !bytes.is_empty() {
            bytes[0] = 0;
        }
        if let Ok((message_type, payload)) = MessageType::decode(&bytes) {
            prop_assert!(bytes.ends_with(payload));
            let again = encoded(message_type, payload);
            prop_assert_eq!(MessageType::decode(&again), Ok((message_type, payload)));
        }
    }
}

const MAGIC: [u8; 4] = Network::Signet.magic();

fn v1_message(name: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    v1::Message::new(MessageType::new(name).unwrap(), payload).encode(MAGIC, &mut bytes);
    bytes
}

/// The bytes of an empty message, `verack`, are well known.
#[test]
fn a_v1_verack() {
    let mut bytes = b"kept".to_vec();
    v1::Message::new(MessageType::literal("verack"), b"")
        .encode(Network::Mainnet.magic(), &mut bytes);
    assert_eq!(
        bytes,
        b"kept\xf9\xbe\xb4\xd9verack\0\0\0\0\0\0\0\0\0\0\x5d\xf6\xe0\xe2"
    );
}

#[test]
fn every_v1_error() {
    let good = v1_message(b"ping", b"12345678");
    assert_eq!(good.len(), v1::Message::HEADER_LEN + 8);
    // Cut anywhere it is incomplete; with more bytes after it, it is complete.
    for cut in 0..good.len() {
        assert_eq!(v1::Message::decode(MAGIC, &good[..cut]), Ok(None));
    }
    let more = [&good[..], &good].concat();
    let message = v1::Message::decode(MAGIC, &more).unwrap().unwrap();
    assert_eq!(message.message_type.name(), "ping");
    assert_eq!(message.payload, b"12345678");
    assert_eq!(message.wire_len(), good.len());

    for place in 0..good.len() {
        for bit in [0x01, 0x80] {
            let mut bytes = good.clone();
            bytes[place] ^= bit;
            let decoded = v1::Message::decode(MAGIC, &bytes);
            // Recognised as soon as the byte has arrived, whatever else is missing.
            let early = match place {
                0..4 => v1::Message::decode(MAGIC, &bytes[..4]),
                4..20 => v1::Message::decode(MAGIC, &bytes[..20]),
                _ => decoded,
            };
            let found = [bytes[0], bytes[1], bytes[2], bytes[3]];
            let wire_len = good.len();
            let malformed = |error| Err(v1::Error::Type { error, wire_len });
            let length = u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]) as usize;
            let expected = match place {
                0..4 => Err(v1::Error::Magic { found }),
                4..8 if bit == 0x80 => malformed(MessageError::TypeByte { byte: bytes[place] }),
                // The checksum does not cover the type.
                4..8 => {
                    let name = &bytes[4..8];
                    let other = MessageType::new(name).unwrap();
                    assert_eq!(decoded.unwrap().unwrap().message_type, other);
                    continue;
                }
                8 if bit == 0x80 => malformed(MessageError::TypeByte { byte: 0x80 }),
                8 => malformed(MessageError::TypeByte { byte: 1 }),
                9..16 => malformed(MessageError::TypePadding),
                16..20 if length > v1::Message::MAX_PAYLOAD_LEN => {
                    Err(v1::Error::TooLong { length })
                }
                16..20 if length > 8 => Ok(None),
                16..20 => Err(v1::Error::Checksum {
                    message_type: MessageType::literal("ping"),
                    wire_len: v1::Message::HEADER_LEN + length,
                }),
                _ => Err(v1::Error::Checksum {
                    message_type: MessageType::literal("ping"),
                    wire_len,
                }),
            };
            assert_eq!(decoded, expected, "place {place}");
            assert_eq!(early, expected, "place {place}, early");
        }
    }
}

/// As in Bitcoin Core: damaged messages and malformed types are dropped. An error that ends the
/// connection is reported after the messages before it, however the bytes arrive.
#[test]
fn damaged_messages_do_not_end_a_v1_connection() {
    let good = v1_message(b"ping", b"12345678");
    let damaged = |place: usize| {
        let mut bytes = good.clone();
        bytes[place] ^= 0x80;
        bytes
    };
    let [payload, checksum, type_byte] = [damaged(30), damaged(20), damaged(5)];
    let main = {
        let mut bytes = Vec::new();
        let ping = MessageType::literal("ping");
        v1::Message::new(ping, b"12345678").encode(Network::Mainnet.magic(), &mut bytes);
        bytes
    };
    let magic = v1::Error::Magic {
        found: Network::Mainnet.magic(),
    };
    // A malformed type is no reason to wait for too long a payload.
    let too_long = damaged(19);
    let length = u32::from_le_bytes(*too_long[16..].first_chunk().unwrap()) as usize;
    let mut both = too_long.clone();
    both[5] = 0;
    let too_long_error = v1::Error::TooLong { length };
    for (end, error) in [
        (&main, magic),
        (&too_long, too_long_error),
        (&both, too_long_error),
    ] {
        let kept = [&good, &payload, &checksum, &good, &type_byte, &good];
        let wire = [kept.as_slice(), &[end]].concat();
        let wire: Vec<u8> = wire.into_iter().flatten().copied().collect();
        for piece in [1, 7, 24, 33, wire.len()] {
            let mut decoder = v1::Decoder::new(MAGIC);
            let (mut buffer, mut pings) = (Vec::new(), 0);
            let ended = wire.chunks(piece).find_map(|piece| {
                buffer.extend_from_slice(piece);
                let mut rest = &buffer[..];
                let ended = loop {
                    match decoder.next(&mut rest) {
                        Ok(Some(message)) => {
                            assert_eq!(message.payload, b"12345678");
                            pings += 1;
                        }
                        Ok(None) => break None,
                        Err(error) => break Some(error),
                    }
                };
                buffer.drain(..buffer.len() - rest.len());
                ended
            });
            assert_eq!((ended, pings), (Some(error), 3), "pieces of {piece}");
            assert!(end.starts_with(&buffer));
            let ignored = Ignored {
                messages: 3,
                bytes: 3 * good.len() as u64,
            };
            assert_eq!(decoder.ignored(), ignored);
        }
    }
}

#[test]
fn the_v1_limit() {
    let payload = noise(1, 1000).repeat(4000);
    assert_eq!(payload.len(), v1::Message::MAX_PAYLOAD_LEN);
    let bytes = v1_message(b"block", &payload);
    let message = v1::Message::decode(MAGIC, &bytes).unwrap().unwrap();
    assert!(message.payload == payload);
    let mut header = bytes[..v1::Message::HEADER_LEN].to_vec();
    let length = v1::Message::MAX_PAYLOAD_LEN + 1;
    header[16..20].copy_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
    assert_eq!(
        v1::Message::decode(MAGIC, &header),
        Err(v1::Error::TooLong { length })
    );
    header[16..20].fill(0xff);
    let length = u32::MAX as usize;
    assert_eq!(
        v1::Message::decode(MAGIC, &header),
        Err(v1::Error::TooLong { length })
    );
    let elsewhere = v1::Message::decode(Network::Mainnet.magic(), &bytes).unwrap_err();
    assert!(elsewhere.to_string().contains("signet"), "{elsewhere}");
    let nowhere = v1::Message::decode(MAGIC, b"HTTP/1.1 400").unwrap_err();
    assert!(nowhere.to_string().contains("48545450"), "{nowhere}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// A stream of messages, cut anywhere.
    #[test]
    fn any_split_of_a_v1_stream(
        messages in prop::collection::vec((name(), 0..2000_usize), 0..20),
        seed: u64,
    ) {
        let stream: Vec<u8> = messages
            .iter()
            .flat_map(|(name, len)| v1_message(name, &noise(1, *len)))
            .collect();
        let mut random = Random::new(seed);
        let mut buffer = Vec::new();
        let mut got = Vec::new();
        for piece in common::pieces(&stream, &mut random, 1 + seed as usize % 3000) {
            buffer.extend_from_slice(piece);
            while let Some(message) = v1::Message::decode(MAGIC, &buffer).unwrap() {
                let name = message.message_type.name().as_bytes().to_vec();
                assert!(message.payload == noise(1, message.payload.len()));
                got.push((name, message.payload.len()));
                let len = message.wire_len();
                buffer.drain(..len);
            }
        }
        prop_assert_eq!(got, messages);
        prop_assert!(buffer.is_empty());
    }

    #[test]
    fn any_bytes_after_the_magic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let bytes = [&MAGIC[..], &bytes].concat();
        if let Ok(Some(message)) = v1::Message::decode(MAGIC, &bytes) {
            let mut again = Vec::new();
            v1::Message::new(message.message_type, message.payload).encode(MAGIC, &mut again);
            prop_assert_eq!(&bytes[..message.wire_len()], again);
        }
    }
}

/// Ids above Bitcoin's, including the highest one, and one that is only understood.
#[test]
fn a_table_of_another_network() {
    const QUORUM: MessageType = MessageType::literal("quorum");
    const LOCK: MessageType = MessageType::literal("lock");
    const OLD: MessageType = MessageType::literal("old");
    const PING: MessageType = MessageType::literal("ping");
    static TABLE: MessageTable = MessageTable::new(&[(128, QUORUM), (29, PING), (255, LOCK)])
        .with_receive_only(&[(167, OLD)]);

    for (message_type, id) in [(QUORUM, 128), (PING, 29), (LOCK, 255)] {
        let mut contents = Vec::new();
        TABLE.encode(message_type, b"payload", &mut contents);
        assert_eq!(contents, [&[id][..], b"payload"].concat());
        assert_eq!(contents.len(), TABLE.encoded_len(message_type, 7));
        assert_eq!(TABLE.decode(&contents), Ok((message_type, &b"payload"[..])));
        let long = [&long_form(message_type.name().as_bytes())[..], b"payload"].concat();
        assert_eq!(TABLE.decode(&long), Ok((message_type, &b"payload"[..])));
        assert_eq!(TABLE.short_id(message_type), Some(id));
    }
    // Types that are only understood, and types without an id, are sent in the long encoding.
    let without_id = MessageType::literal("inv");
    for message_type in [OLD, without_id] {
        let mut contents = Vec::new();
        TABLE.encode(message_type, b"", &mut contents);
        assert_eq!(contents, long_form(message_type.name().as_bytes()));
        assert_eq!(contents.len(), TABLE.encoded_len(message_type, 0));
        assert_eq!(TABLE.short_id(message_type), None);
    }
    assert_eq!(TABLE.decode(&[167, 1]), Ok((OLD, &[1][..])));
    for id in 1..=255 {
        let known = [128, 29, 255, 167].contains(&id);
        assert_eq!(TABLE.message_type(id).is_some(), known, "{id}");
        let unknown = TABLE.decode(&[id]) == Err(MessageError::UnknownId { id });
        assert_eq!(unknown, !known, "{id}");
        // It does not change Bitcoin's table.
        let default = MessageTable::BITCOIN.message_type(id);
        assert_eq!(default, MessageType::from_short_id(id));
        assert_eq!(default.is_some(), id <= 37);
    }
    for message_type in MessageType::known() {
        let id = MessageTable::BITCOIN.short_id(*message_type);
        assert_eq!(id, message_type.short_id());
    }
}

/// Every id has a type: the search finds each, and ends for a type without an id.
#[test]
fn a_full_table() {
    let types = |prefix| {
        let name = move |id: u8| format!("{prefix}{id}");
        (1..=255).map(move |id| (id, MessageType::new(name(id).as_bytes()).unwrap()))
    };
    let all: Vec<_> = types("filter").collect();
    let table = MessageTable::new(&all);
    for &(id, message_type) in &all {
        assert_eq!(table.short_id(message_type), Some(id));
        assert_eq!(table.message_type(id), Some(message_type));
    }
    for (_, absent) in types("get") {
        assert_eq!(table.short_id(absent), None);
    }
}

#[test]
#[should_panic(expected = "an id has two types")]
fn a_table_with_an_id_twice() {
    let [a, b] = ["a", "b"].map(MessageType::literal);
    let _ = MessageTable::new(&[(1, a), (1, b)]);
}

#[test]
#[should_panic(expected = "a type has two ids")]
fn a_table_with_a_type_twice() {
    let a = MessageType::literal("a");
    let _ = MessageTable::new(&[(1, a)]).with_receive_only(&[(2, a)]);
}

#[test]
#[should_panic(expected = "id 0 marks the long encoding")]
fn a_table_with_id_0() {
    let _ = MessageTable::new(&[(0, MessageType::literal("a"))]);
}

#[test]
#[should_panic(expected = "needs a name")]
fn a_table_with_an_empty_type() {
    let _ = MessageTable::new(&[(1, MessageType::literal(""))]);
}
