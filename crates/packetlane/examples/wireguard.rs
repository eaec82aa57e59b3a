//! A third protocol through the library's public API: WireGuard's transport data messages
//! (<https://www.wireguard.com/protocol/>) of several sessions in one batch.
//!
//! A message is type 4, three reserved bytes, the receiver's index and a counter, both
//! little-endian, and the encrypted packet, padded to 16 bytes. The nonce is four zero bytes
//! followed by the counter; there is no AAD. The key exchange is omitted.

use chacha20poly1305::{ChaCha20Poly1305, KeyInit, aead::Aead};
use packetlane::{
    AddError, BatchKey, Engine, Key, Nonce, OpenBatch, PacketLayout, Received, SealBatch, Slot,
    TAG_LEN,
};

const HEADER_LEN: usize = 16;
/// At this counter a session ends, so that no nonce is used twice.
const REJECT_AFTER_MESSAGES: u64 = u64::MAX - (1 << 13);
const DATA: [u8; 4] = [4, 0, 0, 0];

fn nonce(counter: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
}

/// The sending side of a session.
#[derive(Default)]
struct Sender {
    key: Key,
    batch_key: BatchKey,
    receiver: u32,
    counter: u64,
}

impl Sender {
    /// # Panics
    ///
    /// If the session has sent its maximum number of messages.
    fn push(&mut self, batch: &mut SealBatch, packet: &[u8]) -> Result<Slot, AddError> {
        assert!(
            self.counter < REJECT_AFTER_MESSAGES,
            "a new handshake is due"
        );
        batch.ensure_key(&mut self.batch_key, &self.key);
        let text = HEADER_LEN..HEADER_LEN + packet.len().next_multiple_of(16);
        let layout = PacketLayout {
            key: self.batch_key,
            nonce: nonce(self.counter),
            aad: 0..0,
            text: text.clone(),
        };
        let (slot, wire) = batch.add_to_seal(text.end + TAG_LEN, layout)?;
        wire[..4].copy_from_slice(&DATA);
        wire[4..8].copy_from_slice(&self.receiver.to_le_bytes());
        wire[8..16].copy_from_slice(&self.counter.to_le_bytes());
        let (contents, padding) = wire[text].split_at_mut(packet.len());
        contents.copy_from_slice(packet);
        padding.fill(0);
        self.counter += 1;
        Ok(slot)
    }
}

/// The receiving side of a session.
#[derive(Default)]
struct Receiver {
    key: Key,
    batch_key: BatchKey,
    /// The largest authentic counter, plus 1, and which of the 64 counters below it have arrived.
    next: u64,
    seen: u64,
}

/// A message in a batch: its session, its counter, its slot.
struct Waiting(usize, u64, Slot);

impl Receiver {
    /// Adds a message to the batch. The message's index selects one of `sessions`. Returns `None`
    /// if the message is malformed.
    fn push(sessions: &mut [Self], batch: &mut OpenBatch, wire: Received) -> Option<Waiting> {
        let bytes = batch.received_bytes(&wire).ok()?;
        if bytes.len() < HEADER_LEN + TAG_LEN || !bytes.starts_with(&DATA) {
            return None;
        }
        let session = u32::from_le_bytes(bytes[4..8].try_into().ok()?) as usize;
        let counter = u64::from_le_bytes(bytes[8..16].try_into().ok()?);
        if counter >= REJECT_AFTER_MESSAGES {
            return None;
        }
        let receiver = sessions.get_mut(session)?;
        batch.ensure_key(&mut receiver.batch_key, &receiver.key);
        let layout = PacketLayout {
            key: receiver.batch_key,
            nonce: nonce(counter),
            aad: 0..0,
            text: HEADER_LEN..wire.len() - TAG_LEN,
        };
        let slot = batch.add_to_open(wire, layout).ok()?;
        Some(Waiting(session, counter, slot))
    }

    /// Returns the packet of an opened message, with its padding; `None` if its tag is wrong or it
    /// is a replay. The window moves only here, after the tag has been checked.
    fn take<'b>(&mut self, batch: &'b OpenBatch, counter: u64, slot: &Slot) -> Option<&'b [u8]> {
        let packet = batch.opened(slot).ok()?;
        if counter >= self.next {
            let shift = u32::try_from(counter - self.next + 1).unwrap_or(u32::MAX);
            self.seen = self.seen.checked_shl(shift).unwrap_or(0);
            self.next = counter + 1;
        }
        let bit = 1_u64.checked_shl(u32::try_from(self.next - 1 - counter).ok()?)?;
        let replayed = self.seen & bit != 0;
        self.seen |= bit;
        (!replayed).then_some(packet)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const SESSIONS: usize = 5;
    let engine = Engine::detect()?;
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for receiver in 0..SESSIONS as u32 {
        let key = [receiver as u8 + 1; 32];
        let (mut here, mut there) = (Sender::default(), Receiver::default());
        (here.key, here.receiver, there.key) = (key, receiver, key);
        senders.push(here);
        receivers.push(there);
    }
    let packet = |i: usize| vec![i as u8; 20 + 7 * i];

    let (mut batch, mut slots) = (SealBatch::new(), Vec::new());
    for i in 0..40 {
        slots.push(senders[i % SESSIONS].push(&mut batch, &packet(i))?);
    }
    engine.seal(&mut batch);
    let mut wires = Vec::new();
    for slot in &slots {
        wires.push(batch.wire(slot)?.to_vec());
    }
    for (i, wire) in wires.iter().enumerate() {
        let other = ChaCha20Poly1305::new(&senders[i % SESSIONS].key.into());
        let opened = other.decrypt(&nonce((i / SESSIONS) as u64).into(), &wire[HEADER_LEN..]);
        assert!(opened.expect("a right tag").starts_with(&packet(i)));
    }

    wires.swap(10, 20); // The network reorders,
    wires.push(wires[3].clone()); // repeats,
    wires[7][30] ^= 1; // and damages.
    let mut batch = OpenBatch::new();
    let mut waiting = Vec::new();
    for wire in &wires {
        let wire = batch.feed(wire);
        waiting.extend(Receiver::push(&mut receivers, &mut batch, wire));
    }
    engine.open(&mut batch);
    let mut opened = Vec::new();
    for Waiting(session, counter, slot) in &waiting {
        opened.push(receivers[*session].take(&batch, *counter, slot).is_some());
    }
    let refused: Vec<_> = (0..41).filter(|&i| !opened[i]).collect();
    assert_eq!(refused, [7, 40]);
    println!(
        "WireGuard: 41 messages of 5 sessions; all opened except one damaged and one replayed"
    );
    Ok(())
}
