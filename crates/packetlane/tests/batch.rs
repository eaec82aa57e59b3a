//! The batch alone, as a protocol outside of this crate uses it.

mod common;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use common::{Random, engine, engines, noise};
use packetlane::{
    BadTag, Batch, BatchFull, Engine, Key, KeyIndex, Outcome, Protection, Received, TAG_LEN,
};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A packet of an invented protocol: AAD, text, tag, and further bytes.
struct Packet {
    session: usize,
    number: u64,
    bytes: Vec<u8>,
    aad: Range<usize>,
    text: Range<usize>,
}

impl Packet {
    fn random(random: &mut Random, sessions: usize, number: u64) -> Self {
        let front = random.below(20);
        let text = front..front + random.below(300);
        let behind = random.below(5);
        let aad = match random.below(4) {
            0 => 0..0,
            1 => text.end + TAG_LEN..text.end + TAG_LEN + behind,
            _ => 0..random.below(front + 1),
        };
        Self {
            session: random.below(sessions),
            number,
            bytes: noise(random.next(), text.end + TAG_LEN + behind),
            aad,
            text,
        }
    }

    fn nonce(&self) -> [u8; 12] {
        let mut nonce = [7; 12];
        nonce[2..10].copy_from_slice(&self.number.to_be_bytes());
        nonce
    }

    fn protection(&self, key: KeyIndex) -> Protection {
        Protection {
            key,
            nonce: self.nonce(),
            aad: self.aad.clone(),
            text: self.text.clone(),
        }
    }

    /// The packet sealed by another implementation.
    fn sealed(&self, key: &Key) -> Vec<u8> {
        let cipher = chacha20poly1305::ChaCha20Poly1305::new(key.into());
        let payload = Payload {
            msg: &self.bytes[self.text.clone()],
            aad: &self.bytes[self.aad.clone()],
        };
        let sealed = cipher.encrypt(&self.nonce().into(), payload).unwrap();
        let mut bytes = self.bytes.clone();
        bytes[self.text.start..self.text.end + TAG_LEN].copy_from_slice(&sealed);
        bytes
    }
}

/// Packets of several sessions in one batch, over several turns, against another
/// implementation. Some are damaged.
#[test]
fn any_protocol_with_chacha20_poly1305() {
    for engine in engines() {
        let mut random = Random::new(3);
        let keys: Vec<Key> = (0..6).map(|i| [i as u8; 32]).collect();
        let mut sealing_keys = vec![KeyIndex::default(); keys.len()];
        let mut opening_keys = sealing_keys.clone();
        let (mut sealing, mut opening) = (Batch::new(), Batch::new());
        for count in [1, 2, 40, 1, 300] {
            let packets: Vec<_> = (0..count)
                .map(|number| Packet::random(&mut random, keys.len(), number))
                .collect();
            sealing.clear();
            let mut slots = Vec::new();
            for packet in &packets {
                let key = &mut sealing_keys[packet.session];
                sealing.ensure_key(key, &keys[packet.session]);
                let protection = packet.protection(*key);
                let added = sealing.add_to_seal(packet.bytes.len(), protection);
                let (slot, bytes) = added.unwrap();
                bytes.copy_from_slice(&packet.bytes);
                slots.push(slot);
            }
            engine.seal(&mut sealing);

            opening.clear();
            let mut waiting = Vec::new();
            // All packets in one read.
            let wires: Vec<_> = slots.iter().map(|slot| sealing.wire(slot)).collect();
            let mut wire = wires.concat();
            let mut start = 0;
            for (packet, sealed) in packets.iter().zip(wires) {
                assert_eq!(sealed, packet.sealed(&keys[packet.session]));
                let tag = start + packet.text.end + random.below(TAG_LEN);
                let damaged = random.below(4) == 0;
                wire[tag] ^= u8::from(damaged);
                start += packet.bytes.len();
                waiting.push(damaged);
            }
            let mut received = opening.feed(&wire);
            let mut opened = Vec::new();
            for (packet, damaged) in packets.iter().zip(waiting) {
                let rest = received.split_off(packet.bytes.len());
                let bytes = opening.received_bytes(&received);
                assert_eq!(bytes[packet.aad.clone()], packet.bytes[packet.aad.clone()]);
                let key = &mut opening_keys[packet.session];
                opening.ensure_key(key, &keys[packet.session]);
                let protection = packet.protection(*key);
                opened.push((opening.add_to_open(received, protection), damaged));
                received = rest;
            }
            assert!(received.is_empty());
            engine.open(&mut opening);
            for (packet, (slot, damaged)) in packets.iter().zip(opened) {
                let expected = match damaged {
                    true => Err(BadTag),
                    false => Ok(&packet.bytes[packet.text.clone()]),
                };
                assert_eq!(opening.opened(&slot), expected);
            }
        }
    }
}

fn protection(key: KeyIndex, aad: Range<usize>, text: Range<usize>) -> Protection {
    Protection {
        key,
        nonce: [0; 12],
        aad,
        text,
    }
}

/// A batch with one key, and a packet that it received.
fn start() -> (Batch, KeyIndex, Received) {
    let (mut batch, mut key) = (Batch::new(), KeyIndex::default());
    batch.ensure_key(&mut key, &[1; 32]);
    let received = batch.feed(&[0; 40]);
    (batch, key, received)
}

/// The message with which `run` panics.
fn panics<T>(run: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| drop(Some(run()))));
    let panic = panic.expect_err("it did not panic");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast::<&str>().unwrap()).to_string(),
    }
}

#[test]
fn a_key_is_valid_for_one_turn_of_one_batch() {
    let (mut batch, key, received) = start();
    let seal = |batch: &mut Batch, key| drop(batch.add_to_seal(40, protection(key, 0..0, 0..24)));
    seal(&mut batch, key);
    assert!(panics(|| seal(&mut batch, KeyIndex::default())).contains("ensure_key"));
    assert!(panics(|| seal(&mut Batch::new(), key)).contains("ensure_key"));
    batch.clear();
    assert!(panics(|| seal(&mut batch, key)).contains("ensure_key"));
    let open = || batch.add_to_open(received, protection(key, 0..0, 0..24));
    assert!(panics(open).contains("cleared"));
    assert!(batch.is_empty());
}

#[test]
fn a_packet_must_hold_its_text_and_tag() {
    let (mut batch, key, _) = start();
    for (aad, text) in [
        (0..0, 0..25),
        (0..0, 24..25),
        (0..0, 41..41),
        (0..0, usize::MAX..usize::MAX),
        // The AAD overlaps the text or the tag, or ends outside.
        (0..9, 8..20),
        (10..11, 8..20),
        (35..36, 8..20),
        (36..41, 8..20),
        (0..usize::MAX, 8..20),
    ] {
        let text = panics(|| batch.add_to_seal(40, protection(key, aad, text)).is_ok());
        assert!(text.contains("text"), "{text}");
    }
    assert!(batch.is_empty());
    for (aad, text) in [(0..8, 8..24), (36..40, 8..20), (0..0, 0..0), (9..9, 8..20)] {
        batch.add_to_seal(40, protection(key, aad, text)).unwrap();
    }
    assert_eq!(batch.len(), 4);
}

#[test]
fn a_full_batch_takes_no_packet() {
    let (mut batch, key, _) = start();
    let used = batch.bytes_used();
    let full = batch.add_to_seal(Batch::MAX_BYTES, protection(key, 0..0, 0..8));
    assert_eq!(full.map(drop), Err(BatchFull));
    assert_eq!((batch.len(), batch.bytes_used()), (0, used));
}

/// Plaintext never reaches a socket, and ciphertext never reaches a protocol.
#[test]
fn results_are_shown_only_after_their_operation() {
    let (mut batch, key, received) = start();
    let protection = |text| protection(key, 0..0, text);
    let (sealed, bytes) = batch.add_to_seal(40, protection(0..24)).unwrap();
    bytes.fill(5);
    let received = batch.add_to_open(received, protection(0..24));
    for slot in [&sealed, &received] {
        assert!(panics(|| batch.wire(slot)).contains("not sealed"));
        assert!(panics(|| batch.opened(slot)).contains("not opened"));
    }
    // After opening, both fail: the one was plaintext, the other noise.
    engine().open(&mut batch);
    for slot in [&sealed, &received] {
        assert!(panics(|| batch.wire(slot)).contains("not sealed"));
        assert_eq!(batch.opened(slot), Err(BadTag));
    }
    assert_eq!(batch.outcome(0), Outcome::BadTag);
    let both = sealed.join(&received);
    assert_eq!(both, None);
    batch.clear();
    assert!(panics(|| batch.wire(&sealed)).contains("cleared"));
    assert!(panics(|| batch.opened(&sealed)).contains("cleared"));
}

/// Packets that no engine has sealed are sealed by the closure given to `run_with`.
#[test]
fn other_implementations_can_run_a_batch() {
    let packet = Packet::random(&mut Random::new(1), 1, 5);
    let (mut batch, mut key) = (Batch::new(), KeyIndex::default());
    batch.ensure_key(&mut key, &[1; 32]);
    let added = batch.add_to_seal(packet.bytes.len(), packet.protection(key));
    let (slot, bytes) = added.unwrap();
    bytes.copy_from_slice(&packet.bytes);
    batch.run_with(|work| Engine::portable().backend().seal(work));
    assert_eq!(batch.wire(&slot), packet.sealed(&[1; 32]));
    batch.run_with(|work| assert!(work.jobs.is_empty()));
}
