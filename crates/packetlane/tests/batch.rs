//! The batch, used directly, as a protocol outside this crate does.

mod common;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use common::{Random, engine, engines, noise};
use packetlane::internals::{outcome, run_pending};
use packetlane::{
    AddError, BatchKey, Engine, Key, OpenBatch, PacketLayout, Received, SealBatch, SlotError,
    TAG_LEN,
};
use packetlane_lanes::Outcome;
use std::ops::Range;

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

    fn layout(&self, key: BatchKey) -> PacketLayout {
        PacketLayout {
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
        let mut sealing_keys = vec![BatchKey::default(); keys.len()];
        let mut opening_keys = sealing_keys.clone();
        let (mut sealing, mut opening) = (SealBatch::new(), OpenBatch::new());
        for count in [1, 2, 40, 1, 300] {
            let packets: Vec<_> = (0..count)
                .map(|number| Packet::random(&mut random, keys.len(), number))
                .collect();
            sealing.clear();
            let mut slots = Vec::new();
            for packet in &packets {
                let key = &mut sealing_keys[packet.session];
                sealing.ensure_key(key, &keys[packet.session]);
                let layout = packet.layout(*key);
                let added = sealing.add_to_seal(packet.bytes.len(), layout);
                let (slot, bytes) = added.unwrap();
                bytes.copy_from_slice(&packet.bytes);
                slots.push(slot);
            }
            engine.seal(&mut sealing);

            opening.clear();
            let mut waiting = Vec::new();
            // All packets in one read.
            let wires = slots.iter().map(|slot| sealing.wire(slot).unwrap());
            let wires: Vec<_> = wires.collect();
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
                let rest = received.split_off(packet.bytes.len()).unwrap();
                let bytes = opening.received_bytes(&received).unwrap();
                assert_eq!(bytes[packet.aad.clone()], packet.bytes[packet.aad.clone()]);
                let key = &mut opening_keys[packet.session];
                opening.ensure_key(key, &keys[packet.session]);
                let layout = packet.layout(*key);
                opened.push((opening.add_to_open(received, layout).unwrap(), damaged));
                received = rest;
            }
            assert!(received.is_empty());
            engine.open(&mut opening);
            for (packet, (slot, damaged)) in packets.iter().zip(opened) {
                let expected = match damaged {
                    true => Err(SlotError::BadTag),
                    false => Ok(&packet.bytes[packet.text.clone()]),
                };
                assert_eq!(opening.opened(&slot), expected);
            }
        }
    }
}

fn layout(key: BatchKey, aad: Range<usize>, text: Range<usize>) -> PacketLayout {
    PacketLayout {
        key,
        nonce: [0; 12],
        aad,
        text,
    }
}

/// A batch to seal with one key.
fn sealing() -> (SealBatch, BatchKey) {
    let (mut batch, mut key) = (SealBatch::new(), BatchKey::default());
    batch.ensure_key(&mut key, &[1; 32]);
    (batch, key)
}

/// A batch to open with one key, and 40 bytes that it received.
fn opening() -> (OpenBatch, BatchKey, Received) {
    let (mut batch, mut key) = (OpenBatch::new(), BatchKey::default());
    batch.ensure_key(&mut key, &[1; 32]);
    let received = batch.feed(&[0; 40]);
    (batch, key, received)
}

#[test]
fn a_key_is_valid_for_one_turn_of_one_batch() {
    let seal = |batch: &mut SealBatch, key| {
        let added = batch.add_to_seal(40, layout(key, 0..0, 0..24));
        added.map(drop)
    };
    let (mut batch, key) = sealing();
    assert_eq!(seal(&mut batch, key), Ok(()));
    let refused = seal(&mut batch, BatchKey::default());
    assert_eq!(refused, Err(AddError::NoKey));
    assert!(AddError::NoKey.to_string().contains("ensure_key"));
    let mut another = SealBatch::new();
    assert_eq!(seal(&mut another, key), Err(AddError::NoKey));
    assert_eq!(batch.len(), 1);
    batch.clear();
    assert_eq!(seal(&mut batch, key), Err(AddError::NoKey));
    assert!(batch.is_empty());
    // Nor is a key of one direction valid in the other.
    let (mut batch, _, received) = opening();
    let refused = batch.add_to_open(received, layout(key, 0..0, 0..24));
    assert_eq!(refused, Err(AddError::NoKey));
    assert!(batch.is_empty());
}

/// Received bytes belong to one turn of one batch.
#[test]
fn received_bytes_are_valid_for_one_turn_of_one_batch() {
    let (mut batch, mut key, received) = opening();
    let (mut another, mut other_key, other) = opening();
    assert_eq!(batch.received_bytes(&received), Ok(&[0; 40][..]));
    assert_eq!(batch.received_bytes(&other), Err(SlotError::Stale));
    let refused = batch.add_to_open(other, layout(key, 0..0, 0..24));
    assert_eq!(refused, Err(AddError::Stale));
    assert!(AddError::Stale.to_string().contains("cleared"));
    batch.clear();
    assert_eq!(batch.received_bytes(&received), Err(SlotError::Stale));
    for (batch, key) in [(&mut batch, &mut key), (&mut another, &mut other_key)] {
        batch.ensure_key(key, &[1; 32]);
        let (_, _, received) = opening();
        let refused = batch.add_to_open(received, layout(*key, 0..0, 0..24));
        assert_eq!(refused, Err(AddError::Stale));
        assert!(batch.is_empty());
    }
}

#[test]
fn received_bytes_are_split_within_their_length() {
    let (mut batch, _, _) = opening();
    let mut received = batch.feed(b"datagram");
    assert!(received.split_off(9).is_none());
    assert!(received.split_off(usize::MAX).is_none());
    let nothing = received.split_off(8).unwrap();
    assert!(nothing.is_empty());
    let rest = received.split_off(4).unwrap();
    assert_eq!((received.len(), rest.len()), (4, 4));
    assert_eq!(batch.received_bytes(&received), Ok(&b"data"[..]));
    assert_eq!(batch.received_bytes(&rest), Ok(&b"gram"[..]));
}

#[test]
fn a_packet_must_hold_its_text_and_tag() {
    let (mut batch, key) = sealing();
    for text in [0..25, 24..25, 41..41, usize::MAX..usize::MAX] {
        let refused = batch.add_to_seal(40, layout(key, 0..0, text.clone()));
        let packet_len = 40;
        let outside = AddError::TextOutside { text, packet_len };
        assert_eq!(refused.map(drop), Err(outside));
    }
    // The AAD overlaps the text or the tag, or ends outside.
    for aad in [0..9, 10..11, 35..36, 36..41, 0..usize::MAX] {
        let text = 8..20;
        let refused = batch.add_to_seal(40, layout(key, aad.clone(), text.clone()));
        let misplaced = AddError::AadMisplaced {
            aad,
            text,
            packet_len: 40,
        };
        assert_eq!(refused.map(drop), Err(misplaced));
    }
    assert_eq!((batch.len(), batch.bytes_used()), (0, 0));
    let good = [(0..8, 8..24), (36..40, 8..20), (0..0, 0..0), (9..9, 8..20)];
    for (aad, text) in good.clone() {
        batch.add_to_seal(40, layout(key, aad, text)).unwrap();
    }
    assert_eq!(batch.len(), 4);
    // The same for packets to open.
    let (mut batch, key, _) = opening();
    for (aad, text) in [(0..0, 0..25), (0..9, 8..20), (36..41, 8..20)] {
        let received = batch.feed(&[0; 40]);
        let refused = batch.add_to_open(received, layout(key, aad, text));
        assert!(matches!(
            refused,
            Err(AddError::TextOutside { .. } | AddError::AadMisplaced { .. })
        ));
    }
    assert!(batch.is_empty());
    for (aad, text) in good {
        let received = batch.feed(&[0; 40]);
        batch.add_to_open(received, layout(key, aad, text)).unwrap();
    }
    assert_eq!(batch.len(), 4);
}

#[test]
fn a_full_batch_takes_no_packet() {
    let (mut batch, key) = sealing();
    let first = batch.add_to_seal(40, layout(key, 0..0, 0..24));
    first.unwrap();
    let full = batch.add_to_seal(SealBatch::MAX_BYTES, layout(key, 0..0, 0..8));
    assert_eq!(full.map(drop), Err(AddError::BatchFull));
    assert_eq!((batch.len(), batch.bytes_used()), (1, 40));
}

/// Plaintext never reaches a socket.
#[test]
fn wire_bytes_are_shown_only_when_sealed() {
    let (mut batch, key) = sealing();
    let (slot, bytes) = batch.add_to_seal(40, layout(key, 0..0, 0..24)).unwrap();
    bytes.fill(5);
    assert_eq!(batch.wire(&slot), Err(SlotError::NotSealed));
    engine().seal(&mut batch);
    assert_eq!(batch.wire(&slot).map(<[u8]>::len), Ok(40));
    assert_eq!(outcome(&batch, 0), Outcome::Sealed);
    // It is not hidden by a later packet, nor does it reveal the later one.
    let (later, bytes) = batch.add_to_seal(40, layout(key, 0..0, 0..24)).unwrap();
    bytes.fill(6);
    assert!(batch.wire(&slot).is_ok());
    let both = slot.join(&later).unwrap();
    for slot in [&later, &both] {
        assert_eq!(batch.wire(slot), Err(SlotError::NotSealed));
    }
    batch.clear();
    for slot in [&slot, &later, &both] {
        assert_eq!(batch.wire(slot), Err(SlotError::Stale));
        assert_eq!(SealBatch::new().wire(slot), Err(SlotError::Stale));
    }
}

/// Ciphertext never reaches a protocol.
#[test]
fn texts_are_shown_only_when_opened() {
    let (mut sealed, key) = sealing();
    let (slot, bytes) = sealed.add_to_seal(40, layout(key, 0..0, 0..24)).unwrap();
    bytes.fill(5);
    engine().seal(&mut sealed);
    let (mut batch, key, forged) = opening();
    let received = batch.feed(sealed.wire(&slot).unwrap());
    let [forged, good] = [forged, received].map(|received| {
        let added = batch.add_to_open(received, layout(key, 0..0, 0..24));
        added.unwrap()
    });
    for slot in [&forged, &good] {
        assert_eq!(batch.opened(slot), Err(SlotError::NotOpened));
    }
    engine().open(&mut batch);
    assert_eq!(batch.opened(&forged), Err(SlotError::BadTag));
    assert_eq!(batch.opened(&good), Ok(&[5; 24][..]));
    let outcomes = [0, 1].map(|packet| outcome(&batch, packet));
    assert_eq!(outcomes, [Outcome::BadTag, Outcome::Authentic]);
    let both = forged.join(&good).unwrap();
    assert_eq!(batch.opened(&both), Err(SlotError::SeveralPackets));
    // The slot of a packet to seal is never in a batch of packets to open, nor vice versa.
    assert_eq!(batch.opened(&slot), Err(SlotError::Stale));
    assert_eq!(sealed.wire(&good), Err(SlotError::Stale));
    batch.clear();
    for slot in [&forged, &good, &both] {
        assert_eq!(batch.opened(slot), Err(SlotError::Stale));
    }
}

/// Slots of different keys are not joined, although the packets are contiguous.
#[test]
fn slots_of_two_keys_are_not_joined() {
    let (mut batch, key) = sealing();
    let mut other = BatchKey::default();
    batch.ensure_key(&mut other, &[2; 32]);
    let [one, two, three, four] = [key, key, other, other].map(|key| {
        let added = batch.add_to_seal(40, layout(key, 0..0, 0..24));
        added.unwrap().0
    });
    assert!(one.join(&two).is_some());
    assert_eq!(two.join(&three), None);
    assert!(three.join(&four).is_some());
}

/// Packets that no engine has sealed are sealed by the closure given to `run_pending`.
#[test]
fn other_implementations_can_run_a_batch() {
    let packet = Packet::random(&mut Random::new(1), 1, 5);
    let (mut batch, mut key) = (SealBatch::new(), BatchKey::default());
    batch.ensure_key(&mut key, &[1; 32]);
    let added = batch.add_to_seal(packet.bytes.len(), packet.layout(key));
    let (slot, bytes) = added.unwrap();
    bytes.copy_from_slice(&packet.bytes);
    run_pending(&mut batch, |work| {
        Engine::portable().backend().kernels().seal(work)
    });
    assert_eq!(batch.wire(&slot), Ok(&packet.sealed(&[1; 32])[..]));
    run_pending(&mut batch, |work| assert!(work.jobs.is_empty()));
}

/// A key that changes within a turn: no packet is sealed with the previous one.
#[test]
fn a_changed_key_is_added() {
    let engine = Engine::detect().unwrap();
    let (mut batch, mut key) = (SealBatch::new(), BatchKey::default());
    let mut slots = Vec::new();
    for keys in [[1; 32], [1; 32], [2; 32], [1; 32]] {
        batch.ensure_key(&mut key, &keys);
        let layout = PacketLayout {
            key,
            nonce: [0; 12],
            aad: 0..0,
            text: 0..5,
        };
        let (slot, packet) = batch.add_to_seal(5 + TAG_LEN, layout).unwrap();
        packet[..5].copy_from_slice(b"hello");
        slots.push(slot);
    }
    engine.seal(&mut batch);
    let wires: Vec<_> = slots.iter().map(|slot| batch.wire(slot).unwrap()).collect();
    assert_eq!(wires[0], wires[1]);
    assert_ne!(wires[1], wires[2]);
    assert_eq!(wires[0], wires[3]);
}
