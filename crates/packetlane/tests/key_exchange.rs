//! Handshakes of many connections in one turn, whose keys are computed together.

mod common;

use common::{MAGIC, engines};
use packetlane::bip324::{
    Connection, ConnectionError, Handshake, HandshakeConfig, HandshakeError, KeyPool, Keypair,
    OpenError, PacketKind, Progress,
};
use packetlane::{Engine, OpenBatch, SealBatch};
use std::io::Write;

fn config(engine: Engine) -> HandshakeConfig {
    HandshakeConfig {
        batched: true,
        ..HandshakeConfig::random(MAGIC, engine).unwrap()
    }
}

/// One side of many connections: its event loop, and what lies on the way to it.
struct Side {
    engine: Engine,
    connections: Vec<Connection>,
    arrived: Vec<Vec<u8>>,
    incoming: OpenBatch,
    outgoing: SealBatch,
}

impl Side {
    fn new(engine: Engine, connections: Vec<Connection>) -> Self {
        Self {
            engine,
            arrived: vec![Vec::new(); connections.len()],
            connections,
            incoming: OpenBatch::new(),
            outgoing: SealBatch::new(),
        }
    }

    /// One turn: takes what has arrived, and sends to `other`. Returns the messages received.
    fn turn(&mut self, other: &mut Self) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        for (connection, arrived) in self.connections.iter_mut().zip(&mut self.arrived) {
            if arrived.is_empty() && !connection.has_pending_input() {
                continue;
            }
            self.incoming.room(arrived.len()).copy_from_slice(arrived);
            connection
                .receive(&mut self.incoming, arrived.len())
                .unwrap();
            arrived.clear();
        }
        self.engine.open(&mut self.incoming);
        for connection in &mut self.connections {
            while let Some(message) = connection.next_packet(&self.incoming).unwrap() {
                messages.push(message.to_vec());
            }
        }
        self.incoming.clear();
        self.engine.seal(&mut self.outgoing);
        for (connection, to) in self.connections.iter_mut().zip(&mut other.arrived) {
            let write = |pieces: &[std::io::IoSlice<'_>]| to.write_vectored(pieces);
            connection.outbox.write(&self.outgoing, write).unwrap();
        }
        self.outgoing.clear();
        messages
    }

    fn send_all(&mut self, message: &[u8]) {
        for connection in &mut self.connections {
            let kind = PacketKind::Genuine;
            connection.push(&mut self.outgoing, kind, message).unwrap();
        }
    }

    fn are_connected(&self) -> bool {
        let mut all = self.connections.iter();
        all.all(|connection| connection.session().is_some())
    }
}

#[test]
fn handshakes_of_one_turn_agree_with_their_peers() {
    for engine in engines() {
        let mut pool = KeyPool::new(engine, 12);
        for count in [1, 2, 3, 7, 8, 9, 17, 64] {
            pool.fill().unwrap();
            let mut configs = (0..count).map(|_| {
                let mut config = config(engine);
                config.keypair = pool.take();
                config
            });
            let initiators = configs.by_ref().take(count / 2).collect::<Vec<_>>();
            let responders = configs.collect::<Vec<_>>();
            let all = |configs: Vec<HandshakeConfig>,
                       begin: fn(_) -> Result<Connection, HandshakeError>|
             -> Vec<Connection> {
                let configs = configs.into_iter();
                configs.map(|config| begin(config).unwrap()).collect()
            };
            // Half of each side connects.
            let mut here = all(initiators, Connection::initiator);
            let mut there: Vec<_> = (0..here.len()).map(|_| config(engine)).collect();
            there.extend(responders);
            let missing = there.len() - here.len();
            here.extend((0..missing).map(|_| Connection::initiator(config(engine)).unwrap()));
            let mut here = Side::new(engine, here);
            let mut there = Side::new(engine, all(there, Connection::responder));
            for _ in 0..6 {
                assert_eq!(here.turn(&mut there), [] as [Vec<u8>; 0]);
                assert_eq!(there.turn(&mut here), [] as [Vec<u8>; 0]);
            }
            assert!(
                here.are_connected() && there.are_connected(),
                "{engine:?} {count}"
            );
            for (one, other) in here.connections.iter().zip(&there.connections) {
                let id = |of: &Connection| *of.session().unwrap().id();
                assert_eq!(id(one), id(other));
            }
            here.send_all(b"hello");
            here.turn(&mut there);
            assert_eq!(
                there.turn(&mut here),
                vec![b"hello".to_vec(); here.connections.len()]
            );
        }
    }
}

/// The bytes that an initiator's connection sends first.
fn first_bytes(connection: &mut Connection) -> Vec<u8> {
    let mut bytes = Vec::new();
    let batch = SealBatch::new();
    let write = |pieces: &[std::io::IoSlice<'_>]| bytes.write_vectored(pieces);
    connection.outbox.write(&batch, write).unwrap();
    bytes
}

/// An initiator, and a responder whose key exchange with it is in the batch.
fn greeted(engine: Engine) -> (Connection, Connection, OpenBatch) {
    let mut here = Connection::initiator(config(engine)).unwrap();
    let first = first_bytes(&mut here);
    let mut there = Connection::responder(config(engine)).unwrap();
    let mut incoming = OpenBatch::new();
    incoming.room(first.len()).copy_from_slice(&first);
    assert_eq!(there.receive(&mut incoming, first.len()), Ok(1));
    (here, there, incoming)
}

#[test]
fn keys_that_are_not_taken_are_computed_again() {
    let engine = Engine::best();
    let (mut here, mut there, mut incoming) = greeted(engine);
    assert!(!incoming.is_empty());
    // Not opened yet: said so, and nothing is lost.
    assert_eq!(there.next_packet(&incoming), Err(OpenError::NotOpened));
    // More bytes in the same turn wait.
    assert_eq!(there.receive(&mut incoming, 0), Ok(1));
    engine.open(&mut incoming);
    // Cleared without being taken.
    incoming.clear();
    assert_eq!(there.next_packet(&incoming), Ok(None));
    assert!(there.outbox.is_empty());
    assert_eq!(there.receive(&mut incoming, 0), Ok(0));
    assert!(!there.outbox.is_empty());
    let answer = first_bytes(&mut there);
    incoming.room(answer.len()).copy_from_slice(&answer);
    assert_eq!(here.receive(&mut incoming, answer.len()), Ok(1));
    engine.open(&mut incoming);
    assert_eq!(here.next_packet(&incoming), Ok(None));
    incoming.clear();
    // The peer's version packet came with its key.
    assert!(here.session().is_some() && !here.has_pending_input());
}

/// An error in what came with the key is that of the next call.
#[test]
fn a_damaged_answer_ends_the_handshake() {
    let engine = Engine::best();
    let (mut here, mut there, mut incoming) = greeted(engine);
    engine.open(&mut incoming);
    assert_eq!(there.next_packet(&incoming), Ok(None));
    incoming.clear();
    let mut answer = first_bytes(&mut there);
    *answer.last_mut().unwrap() ^= 1;
    incoming.room(answer.len()).copy_from_slice(&answer);
    here.receive(&mut incoming, answer.len()).unwrap();
    engine.open(&mut incoming);
    assert_eq!(here.next_packet(&incoming), Ok(None));
    incoming.clear();
    assert!(here.has_pending_input());
    let error = here.receive(&mut incoming, 0).unwrap_err();
    let ConnectionError::Handshake(HandshakeError::Open(OpenError::BadTag { .. })) = error else {
        panic!("{error}");
    };
}

#[test]
fn a_pool_holds_no_more_than_its_capacity() {
    let mut pool = KeyPool::new(Engine::best(), 5);
    assert!(pool.is_empty() && pool.take().is_none());
    pool.add(2).unwrap();
    assert_eq!(pool.len(), 2);
    pool.add(9).unwrap();
    assert_eq!(pool.len(), 5);
    let keys: Vec<Keypair> = std::iter::from_fn(|| pool.take()).collect();
    for (i, key) in keys.iter().enumerate() {
        assert!(keys[..i].iter().all(|other| other.public() != key.public()));
    }
    assert_eq!(format!("{pool:?}"), "KeyPool { keys: 0, capacity: 5, .. }");
}

#[test]
fn a_pool_computes_as_many_keys_as_were_needed() {
    let mut pool = KeyPool::new(Engine::best(), 6);
    let mut left = Vec::new();
    let mut keys = Vec::new();
    for _ in 0..14 {
        keys.push(pool.take_or_compute().unwrap());
        left.push(pool.len());
    }
    assert_eq!(left, [0, 1, 0, 3, 2, 1, 0, 5, 4, 3, 2, 1, 0, 5]);
    for (i, key) in keys.iter().enumerate() {
        assert!(keys[..i].iter().all(|other| other.public() != key.public()));
    }
    // Without room, too.
    assert!(KeyPool::new(Engine::best(), 0).take_or_compute().is_ok());
}

/// Handshakes without connections: with a batch and alone they end alike.
#[test]
fn handshakes_take_their_keys_from_a_batch() {
    for engine in engines() {
        let config = || HandshakeConfig::random(MAGIC, engine).unwrap();
        let mut batch = OpenBatch::new();
        let mut pairs: Vec<_> = (0..9)
            .map(|_| {
                let initiator = Handshake::initiator(config()).unwrap();
                (initiator, Handshake::responder(config()).unwrap())
            })
            .collect();
        for (initiator, responder) in &mut pairs {
            let bytes = initiator.take_output();
            let progress = responder.receive_batched(&mut batch, &bytes[..64]);
            assert!(matches!(progress, Ok(Progress::Waiting)));
            // What comes meanwhile waits, too.
            let progress = responder.receive_batched(&mut batch, &bytes[64..]);
            assert!(matches!(progress, Ok(Progress::Waiting)));
            assert!(responder.take_output().is_empty());
            let early = responder.take_keys(&batch).unwrap_err();
            assert_eq!(early, HandshakeError::Open(OpenError::NotOpened));
        }
        engine.open(&mut batch);
        for (i, (initiator, responder)) in pairs.iter_mut().enumerate() {
            // One does not take them, and computes its keys alone in the next turn.
            if i == 4 {
                let mut next = OpenBatch::new();
                responder.receive_batched(&mut next, &[]).unwrap();
            } else {
                let progress = responder.take_keys(&batch);
                assert!(matches!(progress, Ok(Progress::Waiting)));
            }
            let Ok(Progress::Complete(there)) = initiator.receive(&responder.take_output()) else {
                panic!("{initiator:?}");
            };
            let Ok(Progress::Complete(here)) = responder.receive(&initiator.take_output()) else {
                panic!("{responder:?}");
            };
            assert_eq!(here.id(), there.id());
        }
    }
}

/// Alone or in lanes, a secret key has one encoding, and both sides share one secret.
#[test]
fn alone_and_in_lanes_the_keys_are_the_same() {
    use packetlane::bip324::Role;
    let pair = |byte: u8| Keypair::new(&[byte; 32], &[byte ^ 0x55; 32]).unwrap();
    for engine in engines() {
        let mut here: Vec<_> = (1..=20)
            .map(|byte| {
                let mut config = HandshakeConfig::new(MAGIC, engine, [byte; 32], [byte ^ 0x55; 32]);
                config.batched = true;
                Connection::responder(config).unwrap()
            })
            .collect();
        let mut incoming = OpenBatch::new();
        let theirs = pair(99);
        for connection in &mut here {
            incoming.room(64).copy_from_slice(theirs.public());
            connection.receive(&mut incoming, 64).unwrap();
        }
        engine.open(&mut incoming);
        for (connection, byte) in here.iter_mut().zip(1..) {
            assert_eq!(connection.next_packet(&incoming), Ok(None));
            let sent = first_bytes(connection);
            let ours = pair(byte);
            assert_eq!(&sent[..64], ours.public(), "{engine:?} {byte}");
            let shared = theirs.shared_secret(ours.public(), Role::Initiator);
            assert_eq!(shared, ours.shared_secret(theirs.public(), Role::Responder));
            let keys = packetlane::bip324::SessionKeys::derive(&shared, MAGIC);
            assert_eq!(&sent[64..80], keys.responder_terminator);
        }
    }
}
