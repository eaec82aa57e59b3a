//! Helpers of this crate's tests.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "a module of many tests, none of which uses all"
)]

use packetlane::bip324::{
    Handshake, HandshakeConfig, Keypair, OpenError, Progress, Role, Session, SessionKeys,
};
use packetlane::bitcoin::Network;
use packetlane::{Backend, Engine, Key, Nonce, OpenBatch, TAG_LEN};
use std::io::Write;
use std::sync::Once;

pub const MAGIC: [u8; 4] = Network::Regtest.magic();

/// An engine on every backend of this machine. Prints once which backends are left out.
pub fn engines() -> Vec<Engine> {
    static SAID: Once = Once::new();
    let (have, lack): (Vec<Backend>, Vec<Backend>) =
        Backend::ALL.iter().copied().partition(|b| b.is_available());
    SAID.call_once(|| {
        for backend in lack {
            // Written past the test harness, which hides the output of passing tests.
            let _ = writeln!(
                std::io::stderr(),
                "NOT RUN: this CPU lacks the backend {backend:?}"
            );
        }
    });
    assert!(!have.is_empty());
    have.into_iter()
        .map(|backend| Engine::on(backend).unwrap())
        .collect()
}

/// The most capable engine, for tests that do not depend on the engine.
pub fn engine() -> Engine {
    *engines().last().unwrap()
}

/// Pseudo-random bytes, different for each `seed`.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.next().to_le_bytes()[7]).collect()
}

/// Pseudo-random numbers, the same in every run.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from((self.next() >> 16) % bound as u64).unwrap()
    }
}

fn secret(seed: u64) -> [u8; 32] {
    let mut secret: [u8; 32] = noise(seed, 32).try_into().unwrap();
    // Below the order of the curve for any noise.
    secret[0] &= 0x7f;
    secret
}

/// A configuration without garbage or decoys, the same for the same `seed`.
pub fn config(engine: Engine, seed: u64) -> HandshakeConfig {
    HandshakeConfig::new(MAGIC, engine, secret(2 * seed), secret(2 * seed + 1))
}

/// Passes the output of `from` to `to`.
fn carry(from: &mut Handshake, to: &mut Handshake) -> Option<Session> {
    let bytes = from.take_output();
    if bytes.is_empty() {
        return None;
    }
    match to.receive(&bytes).unwrap() {
        Progress::Waiting => None,
        Progress::Complete(session) => Some(*session),
        Progress::V1(_) => panic!("nobody speaks v1"),
    }
}

/// Passes bytes between both sides until both are done.
pub fn shake(mut initiator: Handshake, mut responder: Handshake) -> (Session, Session) {
    assert!(carry(&mut initiator, &mut responder).is_none());
    let ours = carry(&mut responder, &mut initiator).expect("the initiator is not done");
    let theirs = carry(&mut initiator, &mut responder).expect("the responder is not done");
    (ours, theirs)
}

/// Two connected sessions: the initiator's and the responder's.
pub fn sessions(engine: Engine, seed: u64) -> (Session, Session) {
    shake(
        Handshake::initiator(config(engine, 2 * seed)).unwrap(),
        Handshake::responder(config(engine, 2 * seed + 1)).unwrap(),
    )
}

/// The keys that these two configurations share, derived without a handshake.
pub fn keys(initiator: &HandshakeConfig, responder: &HandshakeConfig) -> Box<SessionKeys> {
    let ours = Keypair::new(&initiator.secret, &initiator.auxiliary).unwrap();
    let theirs = Keypair::new(&responder.secret, &responder.auxiliary).unwrap();
    let shared = ours.shared_secret(theirs.public(), Role::Initiator);
    SessionKeys::derive(&shared, initiator.magic)
}

/// The bytes of one side of a handshake, built by hand.
pub struct Craft {
    pub public: [u8; 64],
    pub terminator: [u8; 16],
    pub forge: Forge,
}

/// The initiator's side of a handshake with `config`'s keys, built by hand.
pub fn craft_initiator(initiator: &HandshakeConfig, responder: &HandshakeConfig) -> Craft {
    let keys = keys(initiator, responder);
    let pair = Keypair::new(&initiator.secret, &initiator.auxiliary).unwrap();
    Craft {
        public: *pair.public(),
        terminator: keys.initiator_terminator,
        forge: Forge::new(&keys.initiator_length, &keys.initiator_packet),
    }
}

/// The responder's side of a handshake with `config`'s keys, built by hand.
pub fn craft_responder(initiator: &HandshakeConfig, responder: &HandshakeConfig) -> Craft {
    let keys = keys(initiator, responder);
    let pair = Keypair::new(&responder.secret, &responder.auxiliary).unwrap();
    Craft {
        public: *pair.public(),
        terminator: keys.responder_terminator,
        forge: Forge::new(&keys.responder_length, &keys.responder_packet),
    }
}

/// The sending ciphers of one direction, written as BIP324 describes them. They can also
/// produce what the library never sends: other header bytes, wrong lengths.
pub struct Forge {
    length_key: Key,
    packet_key: Key,
    /// The numbers of the next length and of the next packet.
    lengths: u64,
    packets: u64,
}

fn nonce(low: u32, high: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&low.to_le_bytes());
    nonce[4..].copy_from_slice(&high.to_le_bytes());
    nonce
}

impl Forge {
    pub fn new(length_key: &Key, packet_key: &Key) -> Self {
        Self {
            length_key: *length_key,
            packet_key: *packet_key,
            lengths: 0,
            packets: 0,
        }
    }

    /// The next encrypted length.
    pub fn length(&mut self, length: usize) -> [u8; Session::LENGTH_LEN] {
        let interval = u64::from(Session::REKEY_INTERVAL);
        let (number, epoch) = (self.lengths % interval, self.lengths / interval);
        let mut stream = [0; 3 * Session::REKEY_INTERVAL as usize + 32];
        Backend::Portable
            .kernels()
            .chacha20(&self.length_key, &nonce(0, epoch), 0, &mut stream);
        let place = Session::LENGTH_LEN * usize::try_from(number).unwrap();
        if number + 1 == interval {
            self.length_key
                .copy_from_slice(&stream[stream.len() - 32..]);
        }
        self.lengths += 1;
        let plain = u32::try_from(length).unwrap().to_le_bytes();
        core::array::from_fn(|i| plain[i] ^ stream[place + i])
    }

    /// The next packet without its length: header and contents, sealed.
    pub fn body(&mut self, header: u8, aad: &[u8], contents: &[u8]) -> Vec<u8> {
        let interval = u64::from(Session::REKEY_INTERVAL);
        let (number, epoch) = (self.packets % interval, self.packets / interval);
        let mut bytes = [aad, &[header], contents, &[0; TAG_LEN]].concat();
        let text = aad.len()..bytes.len() - TAG_LEN;
        let number = u32::try_from(number).unwrap();
        Engine::portable().seal_single(
            &self.packet_key,
            nonce(number, epoch),
            &mut bytes,
            0..aad.len(),
            text,
        );
        if number + 1 == Session::REKEY_INTERVAL {
            // The new key: the AEAD of 32 zero bytes.
            let mut next = [0; 32 + TAG_LEN];
            let nonce = nonce(u32::MAX, epoch);
            Engine::portable().seal_single(&self.packet_key, nonce, &mut next, 0..0, 0..32);
            self.packet_key.copy_from_slice(&next[..32]);
        }
        self.packets += 1;
        bytes.split_off(aad.len())
    }

    /// The next packet.
    pub fn packet(&mut self, header: u8, aad: &[u8], contents: &[u8]) -> Vec<u8> {
        let mut packet = self.length(contents.len()).to_vec();
        packet.extend(self.body(header, aad, contents));
        packet
    }
}

/// Feeds `bytes` to a session in one turn. Returns its packets and error.
pub fn turn(
    session: &mut Session,
    engine: Engine,
    bytes: &[u8],
) -> (Vec<Vec<u8>>, Option<OpenError>) {
    let mut batch = OpenBatch::new();
    let added = session.inbound.feed(&mut batch, bytes);
    engine.open(&mut batch);
    let (packets, error) = take(session, &batch);
    // An error that was returned at once is returned again after the packets, or an earlier one is.
    assert!(added.is_ok() || error.is_some());
    (packets, error)
}

/// The packets of a session in an opened batch, and the error after them.
pub fn take(session: &mut Session, batch: &OpenBatch) -> (Vec<Vec<u8>>, Option<OpenError>) {
    let mut packets = Vec::new();
    for packet in session.inbound.packets(batch) {
        match packet {
            Ok(contents) => packets.push(contents.to_vec()),
            Err(error) => return (packets, Some(error)),
        }
    }
    (packets, None)
}

/// `bytes` cut at random into pieces of at most `most` bytes, some of them empty.
pub fn pieces<'b>(bytes: &'b [u8], random: &mut Random, most: usize) -> Vec<&'b [u8]> {
    let mut rest = bytes;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let (piece, left) = rest.split_at(random.below(most + 1).min(rest.len()));
        pieces.push(piece);
        rest = left;
    }
    pieces
}
