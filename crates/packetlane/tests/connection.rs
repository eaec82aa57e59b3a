//! One connection of an event loop without its socket, and its send queue.

mod common;

use common::{MAGIC, Random, config, engine, noise, pieces, sessions};
use packetlane::bip324::{
    Connection, ConnectionError, HandshakeConfig, HandshakeError, OpenError, PacketKind, Session,
};
use packetlane::bitcoin::message::MessageType;
use packetlane::{OpenBatch, Outbox, SealBatch, Slot, SlotError};
use std::io::{self, ErrorKind, IoSlice};

use PacketKind::{Decoy, Genuine};

const PING: MessageType = MessageType::literal("ping");

/// A socket that accepts a random number of bytes.
#[derive(Debug, Default)]
struct Socket {
    taken: Vec<u8>,
}

impl Socket {
    /// Writes some bytes of `slices`, or refuses as a socket may.
    fn write(&mut self, random: &mut Random, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        assert!(!slices.is_empty());
        match random.below(6) {
            0 => Err(ErrorKind::WouldBlock.into()),
            1 => Err(ErrorKind::Interrupted.into()),
            _ => {
                let most = [3, 500, 50_000][random.below(3)];
                let len = 1 + random.below(most);
                let before = self.taken.len();
                for slice in slices {
                    let rest = len - (self.taken.len() - before);
                    self.taken.extend(&slice[..rest.min(slice.len())]);
                }
                Ok(self.taken.len() - before)
            }
        }
    }
}

fn push(session: &mut Session, batch: &mut SealBatch, contents: &[u8]) -> Slot {
    session.outbound.push(batch, Genuine, contents).unwrap()
}

/// Several outboxes with one batch, over many turns, against the bytes that they were given. Other
/// sessions' packets lie between theirs, and sockets accept random numbers of bytes.
#[test]
fn bytes_come_out_in_order() {
    const OUTBOXES: usize = 4;
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut sessions: Vec<_> = (0..OUTBOXES as u64)
            .map(|seed| sessions(engine(), seed).0)
            .collect();
        let mut outboxes: Vec<_> = (0..OUTBOXES).map(|_| Outbox::new()).collect();
        let mut sockets: Vec<_> = (0..OUTBOXES).map(|_| Socket::default()).collect();
        let mut expected = vec![Vec::new(); OUTBOXES];
        let mut batch = SealBatch::new();
        for _ in 0..30 {
            // What is pushed, in order: a slot in the batch, or bytes.
            let mut pushed = Vec::new();
            for _ in 0..random.below(120) {
                let of = random.below(OUTBOXES);
                if random.below(8) == 0 {
                    let bytes = noise(random.next(), random.below(300));
                    outboxes[of].push_bytes(&bytes);
                    pushed.push((of, Err(bytes)));
                } else {
                    let most = [5, 60, 3000][random.below(3)];
                    let contents = noise(random.next(), random.below(most));
                    let slot = push(&mut sessions[of], &mut batch, &contents);
                    outboxes[of].push(slot.clone());
                    pushed.push((of, Ok(slot)));
                }
                // A turn may be sealed and written in parts.
                if random.below(60) == 0 {
                    engine().seal(&mut batch);
                    write(&mut outboxes[of], &batch, &mut sockets[of], &mut random);
                }
            }
            engine().seal(&mut batch);
            for (of, pushed) in pushed {
                match pushed {
                    Ok(slot) => expected[of].extend_from_slice(batch.wire(&slot).unwrap()),
                    Err(bytes) => expected[of].extend(bytes),
                }
            }
            for (of, outbox) in outboxes.iter_mut().enumerate() {
                assert_eq!(outbox.len(), expected[of].len() - sockets[of].taken.len());
                write(outbox, &batch, &mut sockets[of], &mut random);
                assert_eq!(outbox.len(), expected[of].len() - sockets[of].taken.len());
                let all_taken = sockets[of].taken.len() == expected[of].len();
                assert_eq!(outbox.is_empty(), all_taken);
                assert!(expected[of].starts_with(&sockets[of].taken), "seed {seed}");
            }
            batch.clear();
        }
        // At the end the sockets accept everything.
        for (of, outbox) in outboxes.iter_mut().enumerate() {
            let socket = &mut sockets[of];
            while !outbox.is_empty() {
                let write = |slices: &[IoSlice<'_>]| socket.write(&mut random, slices);
                outbox.write(&batch, write).unwrap();
            }
            assert!(socket.taken == expected[of], "seed {seed}");
        }
    }
}

/// Writes or keeps the queue, by a randomly chosen method.
fn write(outbox: &mut Outbox, batch: &SealBatch, socket: &mut Socket, random: &mut Random) {
    let before = outbox.len();
    match random.below(4) {
        0 => {}
        1 => {
            // By hand: a program without vectored writes.
            for _ in 0..random.below(9) {
                let front = outbox.front(batch).unwrap();
                assert_eq!(front.is_empty(), outbox.is_empty());
                let len = random.below(front.len() + 1);
                socket.taken.extend_from_slice(&front[..len]);
                outbox.written(len);
            }
        }
        _ => {
            let write = |slices: &[IoSlice<'_>]| socket.write(random, slices);
            outbox.write(batch, write).unwrap();
            return;
        }
    }
    let after = outbox.len();
    outbox.keep(batch).unwrap();
    assert_eq!(outbox.len(), after);
    assert!(after <= before);
}

/// Contiguous packets are one piece; other sessions' packets are skipped; a write has at most 32
/// pieces.
#[test]
fn a_write_has_few_pieces() {
    let (mut one, mut two) = sessions(engine(), 1);
    let mut batch = SealBatch::new();
    let mut outbox = Outbox::new();
    outbox.push_bytes(b"");
    assert!(outbox.is_empty());
    for _ in 0..40 {
        for _ in 0..3 {
            outbox.push(push(&mut one, &mut batch, b"mine"));
        }
        push(&mut two, &mut batch, b"theirs");
    }
    engine().seal(&mut batch);
    let mut writes = Vec::new();
    let write = |slices: &[IoSlice<'_>]| {
        assert!(
            slices
                .iter()
                .all(|slice| slice.len() == 3 * (4 + Session::OVERHEAD))
        );
        writes.push(slices.len());
        Ok(slices.iter().map(|slice| slice.len()).sum())
    };
    outbox.write(&batch, write).unwrap();
    assert_eq!(writes, [32, 8]);
    assert_eq!(outbox.len(), 0);
    assert_eq!(outbox.front(&batch), Ok(&[][..]));
    // With an empty queue, the socket is not called.
    outbox.write(&batch, |_| unreachable!()).unwrap();
}

/// An error of the socket is returned to the caller, and the outbox is unchanged.
#[test]
fn errors_of_the_socket_are_passed_on() {
    let (mut session, _) = sessions(engine(), 1);
    let mut batch = SealBatch::new();
    let mut outbox = Outbox::new();
    outbox.push(push(&mut session, &mut batch, b"hello"));
    engine().seal(&mut batch);
    let zero = outbox.write(&batch, |_| Ok(0)).unwrap_err();
    assert_eq!(zero.kind(), ErrorKind::WriteZero);
    let mut once = Some(10);
    let reset = outbox.write(&batch, |_| {
        once.take().ok_or_else(|| ErrorKind::ConnectionReset.into())
    });
    assert_eq!(reset.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(outbox.len(), 5 + Session::OVERHEAD - 10);
    // A socket that reports too many bytes does not make the outbox drop bytes queued later.
    outbox.write(&batch, |_| Ok(usize::MAX)).unwrap();
    assert!(outbox.is_empty());
    outbox.push_bytes(b"later");
    assert_eq!(outbox.front(&batch), Ok(&b"later"[..]));
}

/// Every misuse of the batch is an error, however often it is repeated.
#[test]
fn packets_that_are_not_in_the_batch_are_errors() {
    let refused = |outbox: &mut Outbox, batch: &SealBatch, expected: SlotError| {
        for _ in 0..2 {
            let len = outbox.len();
            let error = outbox.write(batch, |_| unreachable!()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Other);
            let inner = error.get_ref().unwrap().downcast_ref();
            assert_eq!(inner, Some(&expected));
            assert_eq!(outbox.front(batch), Err(expected));
            assert_eq!(outbox.keep(batch), Err(expected));
            assert_eq!(outbox.len(), len);
        }
    };
    let (mut session, _) = sessions(engine(), 1);
    let mut batch = SealBatch::new();
    let mut outbox = Outbox::new();
    let slot = push(&mut session, &mut batch, b"hello");
    outbox.push(slot.clone());
    // Not sealed: nothing is lost.
    refused(&mut outbox, &batch, SlotError::NotSealed);
    // In another batch: nothing is lost.
    refused(&mut outbox, &SealBatch::new(), SlotError::Stale);
    engine().seal(&mut batch);
    assert_eq!(outbox.front(&batch), batch.wire(&slot));
    // Only the later ones are not sealed.
    outbox.push_bytes(b"between");
    outbox.push(push(&mut session, &mut batch, b"late"));
    assert_eq!(outbox.keep(&batch), Err(SlotError::NotSealed));
    engine().seal(&mut batch);
    let mut taken = Vec::new();
    let write = |slices: &[IoSlice<'_>]| {
        taken.extend_from_slice(&slices[0]);
        Ok(slices[0].len())
    };
    outbox.write(&batch, write).unwrap();
    assert_eq!(taken.len(), 5 + 4 + 2 * Session::OVERHEAD + 7);
    // Cleared before they were written or kept.
    outbox.push(push(&mut session, &mut batch, b"lost"));
    engine().seal(&mut batch);
    batch.clear();
    refused(&mut outbox, &batch, SlotError::Stale);
    for contents in [&b"other"[..], &[7; 100]] {
        push(&mut session, &mut batch, contents);
    }
    engine().seal(&mut batch);
    refused(&mut outbox, &batch, SlotError::Stale);
}

/// A connection, the messages that it sends, and those that it has received.
struct Side {
    connection: Connection,
    /// Bytes in its socket's buffer.
    socket: Vec<u8>,
    says: Vec<Vec<u8>>,
    said: usize,
    heard: Vec<Vec<u8>>,
    decoys: u64,
}

impl Side {
    fn new(connection: Connection, random: &mut Random) -> Self {
        let says = (0..random.below(40))
            .map(|_| {
                noise(
                    random.next(),
                    [9, 300, 9000].map(|most| random.below(most))[random.below(3)],
                )
            })
            .collect();
        Self {
            connection,
            socket: Vec::new(),
            says,
            said: 0,
            heard: Vec::new(),
            decoys: 0,
        }
    }
}

fn dressed(random: &mut Random) -> HandshakeConfig {
    HandshakeConfig {
        garbage: noise(random.next(), random.below(4096)),
        decoys: (0..random.below(3))
            .map(|_| noise(random.next(), random.below(2000)))
            .collect(),
        ..config(engine(), random.next() >> 8)
    }
}

/// Both sides of several connections, with one batch per direction, from the first byte on: for any
/// cuts, with sockets that accept random numbers of bytes, and with deferred packets.
#[test]
fn an_event_loop_of_connections() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        // Consecutive sides are connected.
        let mut sides = Vec::new();
        for _ in 0..1 + random.below(4) {
            let initiator = Connection::initiator(dressed(&mut random)).unwrap();
            let responder = Connection::responder(dressed(&mut random)).unwrap();
            assert!(!initiator.outbox.is_empty() && responder.outbox.is_empty());
            sides.push(Side::new(initiator, &mut random));
            sides.push(Side::new(responder, &mut random));
        }
        let (mut incoming, mut outgoing) = (OpenBatch::new(), SealBatch::new());
        let mut turns = 0;
        let done = |sides: &[Side]| {
            let all =
                |(place, side): (usize, &Side)| side.heard.len() == sides[place ^ 1].says.len();
            sides.iter().enumerate().all(all)
        };
        while !done(&sides) {
            turns += 1;
            assert!(turns < 100_000, "seed {seed}: they wait forever");
            for side in &mut sides {
                let most = [10, 1000, 100_000][random.below(3)];
                let len = random.below(most).min(side.socket.len());
                // The socket is readable, or there is pending input.
                if len == 0 && !side.connection.has_pending_input() {
                    continue;
                }
                let room = incoming.room(len + random.below(50));
                room[..len].copy_from_slice(&side.socket[..len]);
                side.socket.drain(..len);
                let before = incoming.len();
                let added = side.connection.receive(&mut incoming, len).unwrap();
                assert!(added >= incoming.len() - before);
            }
            engine().open(&mut incoming);
            for side in &mut sides {
                let mut most = random.below(20);
                while most > 0
                    && let Some(contents) = side.connection.next_packet(&incoming).unwrap()
                {
                    most -= 1;
                    if contents.first() == Some(&18) && contents.len() == 9 {
                        let decoded = MessageType::decode(contents).unwrap();
                        assert_eq!(decoded, (PING, &contents[1..]));
                    }
                    side.heard.push(contents.to_vec());
                }
                side.connection.defer(&incoming).unwrap();
                if side.connection.session().is_none() {
                    continue;
                }
                for _ in 0..random.below(6) {
                    if random.below(5) == 0 {
                        let pushed = side.connection.push(&mut outgoing, Decoy, b"noise");
                        pushed.unwrap();
                        side.decoys += 1;
                    }
                    if let Some(contents) = side.says.get(side.said) {
                        side.said += 1;
                        let connection = &mut side.connection;
                        let pushed = connection.push(&mut outgoing, Genuine, contents);
                        pushed.unwrap();
                    } else if random.below(40) == 0 && side.says.len() < 60 {
                        let nonce = random.next().to_le_bytes();
                        let connection = &mut side.connection;
                        let pushed = connection.push_message(&mut outgoing, PING, &nonce);
                        pushed.unwrap();
                        side.says.push([&[18], &nonce[..]].concat());
                        side.said += 1;
                    }
                }
            }
            engine().seal(&mut outgoing);
            for place in 0..sides.len() {
                let mut socket = Socket::default();
                let outbox = &mut sides[place].connection.outbox;
                write(outbox, &outgoing, &mut socket, &mut random);
                sides[place ^ 1].socket.extend(socket.taken);
            }
            incoming.clear();
            outgoing.clear();
        }
        for (place, side) in sides.iter().enumerate() {
            assert!(side.heard == sides[place ^ 1].says, "seed {seed}");
            let session = side.connection.session().expect("a session");
            assert!(session.inbound.decoys() <= sides[place ^ 1].decoys);
            assert!(!side.connection.has_pending_input());
        }
    }
}

/// Two connections after their handshake. The initiator's last bytes are still in its outbox.
fn connected() -> (Connection, Connection) {
    let mut initiator = Connection::initiator(config(engine(), 1)).unwrap();
    let mut responder = Connection::responder(config(engine(), 2)).unwrap();
    let (mut incoming, outgoing) = (OpenBatch::new(), SealBatch::new());
    for (from, to) in [(0, 1), (1, 0)] {
        let sides = &mut [&mut initiator, &mut responder];
        let wire = flush(sides[from], &outgoing);
        assert_eq!(hear(sides[to], &mut incoming, &wire), [] as [Vec<u8>; 0]);
    }
    assert!(initiator.session().is_some() && responder.session().is_none());
    assert_eq!(incoming.bytes_used(), 0);
    (initiator, responder)
}

/// Everything that a connection has to send.
fn flush(connection: &mut Connection, batch: &SealBatch) -> Vec<u8> {
    let mut wire = Vec::new();
    let write = |slices: &[IoSlice<'_>]| {
        wire.extend_from_slice(&slices[0]);
        Ok(slices[0].len())
    };
    connection.outbox.write(batch, write).unwrap();
    assert!(connection.outbox.is_empty());
    wire
}

fn receive(
    connection: &mut Connection,
    batch: &mut OpenBatch,
    bytes: &[u8],
) -> Result<usize, ConnectionError> {
    batch.room(bytes.len()).copy_from_slice(bytes);
    connection.receive(batch, bytes.len())
}

/// All turns that the connection needs for these bytes. Returns the contents of its packets.
fn hear(connection: &mut Connection, batch: &mut OpenBatch, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut heard = Vec::new();
    receive(connection, batch, bytes).unwrap();
    loop {
        engine().open(batch);
        while let Some(contents) = connection.next_packet(batch).unwrap() {
            heard.push(contents.to_vec());
        }
        batch.clear();
        if !connection.has_pending_input() {
            return heard;
        }
        receive(connection, batch, &[]).unwrap();
    }
}

/// Packets that arrive with the handshake's last bytes are added to the batch at once; the caller
/// need not know about them.
#[test]
fn packets_with_the_handshakes_last_bytes() {
    let (mut alice, mut bob) = connected();
    let mut outgoing = SealBatch::new();
    alice.push(&mut outgoing, Genuine, b"one").unwrap();
    alice.push(&mut outgoing, Decoy, b"noise").unwrap();
    alice.push_message(&mut outgoing, PING, b"nonce").unwrap();
    engine().seal(&mut outgoing);
    let wire = flush(&mut alice, &outgoing);
    let mut incoming = OpenBatch::new();
    let (most, last) = wire.split_at(wire.len() - 5);
    assert_eq!(receive(&mut bob, &mut incoming, most), Ok(2));
    assert!(bob.session().is_some() && !bob.has_pending_input());
    assert_eq!(receive(&mut bob, &mut incoming, last), Ok(1));
    engine().open(&mut incoming);
    assert_eq!(bob.next_packet(&incoming), Ok(Some(&b"one"[..])));
    assert_eq!(bob.next_packet(&incoming), Ok(Some(&b"\x12nonce"[..])));
    assert_eq!(bob.next_packet(&incoming), Ok(None));
    assert_eq!(bob.session_mut().unwrap().inbound.decoys(), 1);
}

/// Packets without a valid message are dropped and counted, and do not end the connection, whether
/// they are taken in their own turn or deferred.
#[test]
fn invalid_messages_are_ignored() {
    // Unknown ids, nothing, a truncated type, one that is not ASCII, and one that is not padded
    // with zeros.
    let bad: [&[u8]; 7] = [
        &[38],
        b"\x7f of a later version",
        &[255],
        b"",
        b"\0ping",
        b"\0p\xffng\0\0\0\0\0\0\0\0payload",
        b"\0ping\0x\0\0\0\0\0\0",
    ];
    let (mut alice, mut bob) = connected();
    let (mut outgoing, mut incoming) = (SealBatch::new(), OpenBatch::new());
    for contents in bad {
        alice.push(&mut outgoing, Genuine, contents).unwrap();
        alice.push_message(&mut outgoing, PING, contents).unwrap();
        alice.push(&mut outgoing, Decoy, contents).unwrap();
    }
    alice.push(&mut outgoing, Genuine, b"").unwrap();
    engine().seal(&mut outgoing);
    let wire = flush(&mut alice, &outgoing);
    receive(&mut bob, &mut incoming, &wire).unwrap();
    engine().open(&mut incoming);
    for (taken, contents) in bad.into_iter().enumerate() {
        if taken == 3 {
            bob.defer(&incoming).unwrap();
            incoming.clear();
            receive(&mut bob, &mut incoming, &[]).unwrap();
            engine().open(&mut incoming);
        }
        assert_eq!(bob.next_message(&incoming), Ok(Some((PING, contents))));
    }
    assert_eq!(bob.next_message(&incoming), Ok(None));
    let session = bob.session().unwrap();
    let ignored = session.inbound.ignored();
    assert_eq!(ignored.messages, bad.len() as u64 + 1);
    let contents: usize = bad.iter().map(|contents| contents.len()).sum();
    assert_eq!(ignored.bytes as usize, contents + 8 * Session::OVERHEAD);
    assert_eq!(session.inbound.decoys(), bad.len() as u64);

    // As an iterator; an error comes after the messages before it.
    outgoing.clear();
    incoming.clear();
    for contents in bad {
        alice.push(&mut outgoing, Genuine, contents).unwrap();
    }
    alice.push_message(&mut outgoing, PING, b"").unwrap();
    alice.push(&mut outgoing, Genuine, b"").unwrap();
    engine().seal(&mut outgoing);
    let mut wire = flush(&mut alice, &outgoing);
    *wire.last_mut().unwrap() ^= 1;
    receive(&mut bob, &mut incoming, &wire).unwrap();
    engine().open(&mut incoming);
    let inbound = &mut bob.session_mut().unwrap().inbound;
    let messages: Vec<_> = inbound.messages(&incoming).collect();
    assert!(
        matches!(
            messages[..],
            [Ok((PING, b"")), Err(OpenError::BadTag { .. })]
        ),
        "{messages:?}"
    );
    assert_eq!(inbound.ignored().messages, 2 * bad.len() as u64 + 1);
}

/// Every cut of the bytes that a responder receives in the handshake, with two packets after it.
#[test]
fn every_cut_of_a_handshake() {
    let mut alice = Connection::initiator(config(engine(), 1)).unwrap();
    let mut outgoing = SealBatch::new();
    let key = flush(&mut alice, &outgoing);
    let mut bob = Connection::responder(config(engine(), 2)).unwrap();
    let mut incoming = OpenBatch::new();
    hear(&mut bob, &mut incoming, &key);
    let answer = flush(&mut bob, &outgoing);
    hear(&mut alice, &mut incoming, &answer);
    alice.push(&mut outgoing, Genuine, b"one").unwrap();
    alice.push(&mut outgoing, Genuine, b"two").unwrap();
    engine().seal(&mut outgoing);
    let wire = [key, flush(&mut alice, &outgoing)].concat();
    for cut in 0..=wire.len() {
        let mut bob = Connection::responder(config(engine(), 2)).unwrap();
        let mut heard = Vec::new();
        for piece in [&wire[..cut], &wire[cut..]] {
            heard.extend(hear(&mut bob, &mut incoming, piece));
        }
        assert_eq!(heard, [b"one", b"two"], "cut {cut}");
    }
}

/// A v1 peer is handed over with every byte that it has sent; nothing is sent to it.
#[test]
fn a_v1_peer_is_handed_over() {
    let mut message = MAGIC.to_vec();
    message.extend(b"version\0\0\0\0\0");
    message.extend(noise(1, 110));
    for most in [1, 7, 200] {
        let mut connection = Connection::responder(config(engine(), 1)).unwrap();
        let mut batch = OpenBatch::new();
        let mut sent = Vec::new();
        let mut random = Random::new(most as u64);
        let mut ended = None;
        for piece in pieces(&message, &mut random, most) {
            sent.extend_from_slice(piece);
            match receive(&mut connection, &mut batch, piece) {
                Ok(added) => assert_eq!(added, 0),
                Err(error) => {
                    ended = Some(error);
                    break;
                }
            }
        }
        assert!(sent.len() >= 16);
        assert_eq!(ended, Some(ConnectionError::V1 { received: sent }));
        assert!(connection.outbox.is_empty() && connection.session().is_none());
        assert_eq!((batch.len(), batch.bytes_used()), (0, 0));
        let again = receive(&mut connection, &mut batch, b"more");
        let over = ConnectionError::Handshake(HandshakeError::Ended);
        assert_eq!(again, Err(over));
    }
}

#[test]
fn nothing_is_sent_before_the_handshake_is_complete() {
    for connection in [Connection::initiator, Connection::responder] {
        let mut connection = connection(config(engine(), 1)).unwrap();
        let waits = connection.outbox.len();
        let mut batch = SealBatch::new();
        let refused = connection.push(&mut batch, Genuine, b"hello");
        assert_eq!(refused, Err(ConnectionError::NotReady));
        let refused = connection.push_message(&mut batch, PING, b"");
        assert_eq!(refused, Err(ConnectionError::NotReady));
        let packets: [(PacketKind, &[u8]); 2] = [(Genuine, b"one"), (Decoy, b"two")];
        let refused = connection.push_many(&mut batch, packets);
        assert_eq!(refused, Err(ConnectionError::NotReady));
        assert!(batch.is_empty());
        assert_eq!(connection.outbox.len(), waits);
        // There is nothing to take or defer, either.
        let mut incoming = OpenBatch::new();
        incoming.feed(b"of others");
        assert_eq!(connection.next_packet(&incoming), Ok(None));
        assert_eq!(connection.defer(&incoming), Ok(()));
        assert!(!connection.has_pending_input());
        assert!(connection.session().is_none() && connection.session_mut().is_none());
    }
    // Afterwards, a packet that is refused has no effect.
    let (mut connection, _) = connected();
    let mut batch = SealBatch::new();
    let waits = connection.outbox.len();
    let refused = connection.push(&mut batch, Genuine, &vec![0; 1 << 24]);
    assert!(matches!(refused, Err(ConnectionError::Seal(_))));
    assert_eq!(connection.outbox.len(), waits);
    connection.push(&mut batch, Genuine, b"hello").unwrap();
    assert_eq!(connection.outbox.len(), waits + 5 + Session::OVERHEAD);
}

/// Packets that are pushed together come out in order; pushing none leaves nothing to write.
#[test]
fn packets_are_pushed_together() {
    let (mut alice, mut bob) = connected();
    let mut outgoing = SealBatch::new();
    let packets: [(PacketKind, &[u8]); 3] = [(Genuine, b"one"), (Decoy, b""), (Genuine, b"two")];
    let before = flush(&mut alice, &outgoing);
    for some in [&packets[..0], &packets[..2], &[], &packets[2..], &[]] {
        alice
            .push_many(&mut outgoing, some.iter().copied())
            .unwrap();
    }
    assert_eq!(alice.outbox.len(), 6 + 3 * Session::OVERHEAD);
    engine().seal(&mut outgoing);
    let wire = [before, flush(&mut alice, &outgoing)].concat();
    let mut incoming = OpenBatch::new();
    assert_eq!(receive(&mut bob, &mut incoming, &wire), Ok(3));
    engine().open(&mut incoming);
    assert_eq!(bob.next_packet(&incoming), Ok(Some(&b"one"[..])));
    assert_eq!(bob.next_packet(&incoming), Ok(Some(&b"two"[..])));
    assert_eq!(bob.next_packet(&incoming), Ok(None));
    // Also after bytes that are kept, and after a turn.
    alice.outbox.push_bytes(b"kept");
    outgoing.clear();
    alice.push_many(&mut outgoing, []).unwrap();
    outgoing.clear();
    engine().seal(&mut outgoing);
    assert_eq!(flush(&mut alice, &outgoing), b"kept");
}

#[test]
fn a_closed_connection_says_in_which_stage_it_was() {
    let initiator = Connection::initiator(config(engine(), 1)).unwrap();
    let unanswered = HandshakeError::ClosedUnanswered;
    assert_eq!(initiator.closed(), ConnectionError::Handshake(unanswered));
    let (mut alice, mut bob) = connected();
    let closed = ConnectionError::Handshake(HandshakeError::Closed);
    assert_eq!(bob.closed(), closed);

    let in_session = |within_packet| ConnectionError::Closed { within_packet };
    let mut outgoing = SealBatch::new();
    alice.push(&mut outgoing, Genuine, b"one").unwrap();
    alice.push(&mut outgoing, Genuine, b"two").unwrap();
    engine().seal(&mut outgoing);
    let wire = flush(&mut alice, &outgoing);
    let (most, last) = wire.split_at(wire.len() - 1);
    let mut incoming = OpenBatch::new();
    assert_eq!(receive(&mut bob, &mut incoming, most), Ok(1));
    assert_eq!(bob.closed(), in_session(true));
    assert_eq!(receive(&mut bob, &mut incoming, last), Ok(1));
    assert_eq!(bob.closed(), in_session(false));
    // Deferred packets arrived complete.
    engine().open(&mut incoming);
    bob.defer(&incoming).unwrap();
    assert_eq!(bob.closed(), in_session(false));
}

/// An error ends its own connection only, and is permanent.
#[test]
fn an_error_ends_the_connection() {
    let mut incoming = OpenBatch::new();
    // In the handshake: no terminator.
    let mut connection = Connection::responder(config(engine(), 1)).unwrap();
    let refused = receive(&mut connection, &mut incoming, &noise(1, 64 + 4095 + 16));
    let error = ConnectionError::Handshake(HandshakeError::NoTerminator);
    assert_eq!(refused, Err(error));
    // In the session, with another connection in the batch.
    let (mut alice, mut bob) = connected();
    let (mut carol, mut dave) = connected();
    let mut outgoing = SealBatch::new();
    for from in [&mut alice, &mut carol] {
        from.push(&mut outgoing, Genuine, b"one").unwrap();
        from.push(&mut outgoing, Genuine, b"two").unwrap();
    }
    engine().seal(&mut outgoing);
    let mut wire = flush(&mut alice, &outgoing);
    *wire.last_mut().unwrap() ^= 1;
    assert_eq!(receive(&mut bob, &mut incoming, &wire), Ok(2));
    let wire = flush(&mut carol, &outgoing);
    assert_eq!(receive(&mut dave, &mut incoming, &wire), Ok(2));
    engine().open(&mut incoming);
    let bad_tag = OpenError::BadTag {
        packet: 2,
        epoch: 0,
    };
    assert_eq!(bob.next_packet(&incoming), Ok(Some(&b"one"[..])));
    assert_eq!(bob.next_packet(&incoming), Err(bad_tag));
    assert_eq!(bob.defer(&incoming), Err(bad_tag));
    assert!(!bob.has_pending_input());
    let again = receive(&mut bob, &mut incoming, b"more");
    assert_eq!(again, Err(ConnectionError::Open(bad_tag)));
    for contents in [b"one", b"two"] {
        assert_eq!(dave.next_packet(&incoming), Ok(Some(&contents[..])));
    }
    assert_eq!(dave.next_packet(&incoming), Ok(None));
    // A packet that is too long is reported at once, after the one before it.
    incoming.clear();
    let session = dave.session_mut().unwrap();
    session.inbound.set_receive_limit(10);
    outgoing.clear();
    carol.push(&mut outgoing, Genuine, b"good").unwrap();
    carol.push(&mut outgoing, Genuine, b"eleven more").unwrap();
    engine().seal(&mut outgoing);
    let wire = flush(&mut carol, &outgoing);
    let length = 4 + Session::OVERHEAD + 3;
    let refused = receive(&mut dave, &mut incoming, &wire[..length]);
    let too_long = OpenError::TooLong {
        length: 11,
        limit: 10,
    };
    assert_eq!(refused, Err(ConnectionError::Open(too_long)));
    engine().open(&mut incoming);
    assert_eq!(dave.next_packet(&incoming), Ok(Some(&b"good"[..])));
    assert_eq!(dave.next_packet(&incoming), Err(too_long));
}

/// A session whose handshake the caller ran.
#[test]
fn a_session_becomes_a_connection() {
    let (alice, bob) = sessions(engine(), 1);
    let (mut alice, mut bob) = (Connection::from(alice), Connection::from(bob));
    assert!(alice.outbox.is_empty());
    let (mut outgoing, mut incoming) = (SealBatch::new(), OpenBatch::new());
    alice.push(&mut outgoing, Genuine, b"hello").unwrap();
    engine().seal(&mut outgoing);
    let wire = flush(&mut alice, &outgoing);
    assert_eq!(receive(&mut bob, &mut incoming, &wire), Ok(1));
    engine().open(&mut incoming);
    assert_eq!(bob.next_packet(&incoming), Ok(Some(&b"hello"[..])));
}
