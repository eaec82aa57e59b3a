//! The fuzz targets as plain functions of bytes. `cargo fuzz` calls them with evolving inputs,
//! `crates/packetlane/tests/fuzz_smoke.rs` with the same inputs in every run.
//!
//! Each target takes both decisions (roles, lengths, cuts, damage) and data from its input. It
//! panics if the library breaks a guarantee. It returns whether the input led to a complete message
//! or session, so a caller can see how far its inputs reach.

use packetlane::bip324::{
    Connection, Handshake, HandshakeConfig, HandshakeError, Keypair, OpenError, PacketKind,
    Progress, Role, Session, SessionKeys,
};
use packetlane::bitcoin::Network;
use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::v1;
use packetlane::quic::{self, Header, PacketType, Secret, Suite, Version};
use packetlane::sha256d::{Block, Frame, Hash, Hasher, Obfuscation, Scanner, Verifier};
use packetlane::{Backend, Engine, OpenBatch, SealBatch};

mod input;
mod lanes;

use input::Input;
pub use lanes::lanes;

const MAGIC: [u8; 4] = Network::Regtest.magic();

/// Runs `target` on every backend of this CPU and checks that the results are equal.
fn on_every_backend<R: PartialEq>(target: impl Fn(Engine) -> R) -> R {
    let expected = target(Engine::portable());
    for &backend in Backend::ALL {
        if let Ok(engine) = Engine::on(backend)
            && backend != Backend::Portable
        {
            assert!(target(engine) == expected, "{backend:?} differs");
        }
    }
    expected
}

fn role(input: &mut Input) -> Role {
    match input.flag() {
        true => Role::Initiator,
        false => Role::Responder,
    }
}

fn start(role: Role, config: HandshakeConfig) -> Handshake {
    let handshake = match role {
        Role::Initiator => Handshake::initiator(config),
        Role::Responder => Handshake::responder(config),
    };
    handshake.expect("the configuration is valid")
}

fn config(engine: Engine, seed: u8) -> HandshakeConfig {
    HandshakeConfig::new(MAGIC, engine, [seed; 32], [seed + 1; 32])
}

/// A handshake that receives arbitrary bytes, or a peer's bytes with one of them changed.
pub fn handshake(data: &[u8]) -> bool {
    on_every_backend(|engine| {
        let mut input = Input { rest: data };
        let role = role(&mut input);
        match input.flag() {
            true => authentic_handshake(engine, &mut input, role),
            false => (arbitrary_handshake(engine, &mut input, role), false),
        }
    })
    .1
}

/// Checks that a handshake never completes without the peer's secret, and that only the start of a
/// v1 message is detected as v1. Returns what was sent to the peer.
fn arbitrary_handshake(engine: Engine, input: &mut Input, role: Role) -> Vec<u8> {
    let mut first = [&MAGIC[..], b"version\0\0\0\0\0"].concat();
    first.truncate(input.below(first.len() + 1));
    input.damage(&mut first);
    first.extend_from_slice(input.bytes(5000));
    if input.flag() {
        first.resize(first.len() + 5000, 0x5a);
    }
    let mut handshake = start(role, config(engine, 1));
    let mut stream = &first[..];
    let mut fed = 0;
    let mut sent = Vec::new();
    while !stream.is_empty() {
        let piece = input.piece(&mut stream);
        fed += piece.len();
        let v1 = [&MAGIC[..], b"version\0\0\0\0\0"].concat();
        let like_v1 = first[..fed.min(16)] == v1[..fed.min(16)];
        match handshake.receive(piece) {
            Ok(Progress::Waiting) => {
                assert!(fed < 64 + 4111 + 64, "the handshake waits forever");
                let silent = role == Role::Responder && like_v1;
                assert!(!silent || fed < 16);
                let output = handshake.take_output();
                assert!(output.is_empty() || !silent);
                sent.extend(output);
            }
            Ok(Progress::V1(bytes)) => {
                assert!(role == Role::Responder && like_v1);
                assert_eq!(bytes, first[..fed]);
                assert!(handshake.take_output().is_empty());
                return sent;
            }
            Ok(Progress::Complete(_)) => panic!("completed without the peer's secret"),
            Err(HandshakeError::NoTerminator) => assert!(fed >= 64 + 4111),
            Err(HandshakeError::V1OtherNetwork { magic }) => {
                assert!(magic == first[..4] && magic != MAGIC);
            }
            Err(HandshakeError::AnsweredV1) => assert!(role == Role::Initiator && like_v1),
            Err(HandshakeError::Ended) => {}
            Err(error) => panic!("{error:?}"),
        }
        if handshake.receive(&[]).is_err() {
            let ended = handshake.receive(piece);
            assert!(matches!(ended, Err(HandshakeError::Ended)));
        }
    }
    sent
}

/// A real peer's bytes, cut anywhere: they lead to a session if unchanged, and to none if one byte
/// was changed. Returns the peer's bytes and whether they led to a session.
fn authentic_handshake(engine: Engine, input: &mut Input, role: Role) -> (Vec<u8>, bool) {
    let mut dressed = |seed| HandshakeConfig {
        garbage: input.noise(Handshake::MAX_GARBAGE_LEN),
        decoys: (0..input.below(4)).map(|_| input.noise(700)).collect(),
        version: input.noise(50),
        receive_limit: 2000,
        ..config(engine, seed)
    };
    let (ours, theirs) = (dressed(1), dressed(3));
    let (initiator, responder) = match role {
        Role::Initiator => (ours.clone(), theirs),
        Role::Responder => (theirs, ours.clone()),
    };
    let mut initiator = start(Role::Initiator, initiator);
    let mut responder = start(Role::Responder, responder);
    let mut from_initiator = initiator.take_output();
    let waiting = responder.receive(&from_initiator);
    assert!(matches!(waiting, Ok(Progress::Waiting)));
    let from_responder = responder.take_output();
    let Ok(Progress::Complete(session)) = initiator.receive(&from_responder) else {
        panic!("the initiator does not complete");
    };
    from_initiator.extend(initiator.take_output());

    let mut transcript = match role {
        Role::Initiator => from_responder,
        Role::Responder => from_initiator,
    };
    let damaged = input.damage(&mut transcript).is_some();
    let mut stream = &transcript[..];
    let mut handshake = start(role, ours);
    loop {
        match handshake.receive(input.piece(&mut stream)) {
            Ok(Progress::Waiting) if stream.is_empty() => {
                assert!(damaged);
                return (transcript, false);
            }
            Ok(Progress::Waiting) => {}
            Ok(Progress::Complete(other)) => {
                assert!(!damaged && stream.is_empty());
                assert_eq!(session.id(), other.id());
                return (transcript, true);
            }
            Ok(Progress::V1(_)) => panic!("a public key was detected as v1"),
            Err(error) => {
                assert!(damaged, "{error}");
                return (transcript, false);
            }
        }
    }
}

/// A session that receives arbitrary bytes, or a peer's packets with one byte changed. It shares a
/// batch with another session, which must not be affected.
pub fn opener(data: &[u8]) -> bool {
    let (_, messages, _) = on_every_backend(|engine| opener_on(engine, data));
    !messages.is_empty()
}

/// Returns what was sent, the messages received, and the error.
fn opener_on(engine: Engine, data: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>, Option<OpenError>) {
    let mut input = Input { rest: data };
    let mut secret = [7; 32];
    secret[0] = input.byte();
    let keys = SessionKeys::derive(&secret, MAGIC);
    let mut session = Session::from_keys(engine, &keys, Role::Responder);
    let mut sender = Session::from_keys(engine, &keys, Role::Initiator);
    let limit = input.below(3000);
    session.inbound.set_receive_limit(limit);

    // The bytes for the session, and the contents that it must return.
    let mut stream = Vec::new();
    let mut expected = Vec::new();
    let mut ends = Vec::new();
    let authentic = input.flag();
    if authentic {
        for _ in 0..input.below(300) {
            let most = [3, 60, limit][input.below(3)].min(limit);
            let contents = input.noise(most);
            let kind = match input.byte() % 4 {
                0 => PacketKind::Decoy,
                _ => PacketKind::Genuine,
            };
            let sealed = sender.outbound.seal(kind, &contents, &mut stream);
            sealed.expect("the contents are short enough");
            if kind == PacketKind::Genuine {
                expected.push(contents);
                ends.push(stream.len());
            }
        }
    } else {
        stream.extend_from_slice(input.bytes(4096));
    }
    let damaged = match authentic {
        true => input.damage(&mut stream),
        false => Some(0),
    };
    if let Some(place) = damaged {
        expected.truncate(ends.iter().filter(|&&end| end <= place).count());
    }

    // The other session receives one packet per turn.
    let other = SessionKeys::derive(&[9; 32], MAGIC);
    let mut bystander = Session::from_keys(engine, &other, Role::Responder);
    let mut friend = Session::from_keys(engine, &other, Role::Initiator);

    let mut batch = OpenBatch::new();
    let mut got = Vec::new();
    let mut error: Option<OpenError> = None;
    let mut rest = &stream[..];
    while !rest.is_empty() {
        for _ in 0..=input.below(3) {
            let piece = input.piece(&mut rest);
            batch.room(piece.len() + 5)[..piece.len()].copy_from_slice(piece);
            let before = batch.len();
            match session.inbound.receive(&mut batch, piece.len()) {
                Ok(added) => {
                    assert_eq!(error, None, "packets after an error");
                    assert_eq!(added, batch.len() - before);
                }
                // Packets before the damage are still returned.
                Err(OpenError::TooLong { .. }) => {}
                Err(new) => assert_eq!(error, Some(new), "an error that was not reported before"),
            }
        }
        let mut packet = Vec::new();
        let sealed = friend
            .outbound
            .seal(PacketKind::Genuine, b"still here", &mut packet);
        sealed.expect("the contents are short enough");
        assert_eq!(bystander.inbound.feed(&mut batch, &packet), Ok(1));
        engine.open(&mut batch);
        for packet in session.inbound.packets(&batch) {
            match packet {
                Ok(contents) => {
                    assert_eq!(error, None, "a packet after an error");
                    got.push(contents.to_vec());
                }
                Err(new) => {
                    assert_eq!(*error.get_or_insert(new), new, "the error changed");
                }
            }
        }
        let still: Result<Vec<_>, _> = bystander.inbound.packets(&batch).collect();
        assert_eq!(still, Ok(vec![&b"still here"[..]]));
        assert!(session.inbound.buffered() < limit + 20);
        batch.clear();
    }
    match error {
        None | Some(OpenError::BadTag { .. }) => {}
        Some(OpenError::TooLong { length, limit: at }) => assert!(length > at && at == limit),
        Some(error) => panic!("{error:?}"),
    }
    assert!(error.is_none() || damaged.is_some());
    assert_eq!(got, expected);
    assert!(damaged.is_some() || session.inbound.buffered() == 0);
    (stream, got, error)
}

/// Messages in packets and in v1 frames: arbitrary bytes, and messages made from them.
pub fn codec(data: &[u8]) -> bool {
    let mut whole = false;
    if let Ok((message_type, payload)) = MessageType::decode(data) {
        whole = true;
        assert!(data.ends_with(payload));
        check_message(message_type, payload);
    }
    let framed = [&MAGIC[..], data].concat();
    for bytes in [data, &framed] {
        if let Ok(Some(message)) = v1::Message::decode(MAGIC, bytes) {
            whole = true;
            let mut again = Vec::new();
            v1::Message::new(message.message_type, message.payload).encode(MAGIC, &mut again);
            assert_eq!(again, bytes[..message.wire_len()]);
        }
    }

    let mut input = Input { rest: data };
    let name = input.bytes(14);
    let payload = input.bytes(1000);
    match MessageType::new(name) {
        Ok(message_type) => {
            assert_eq!(message_type.name().as_bytes(), name);
            check_message(message_type, payload);
            let mut frame = Vec::new();
            v1::Message::new(message_type, payload).encode(MAGIC, &mut frame);
            let message = v1::Message::decode(MAGIC, &frame).expect("the frame is well formed");
            let message = message.expect("the frame is complete");
            assert_eq!(
                (message.message_type, message.payload),
                (message_type, payload)
            );
            let cut = input.below(frame.len());
            assert_eq!(v1::Message::decode(MAGIC, &frame[..cut]), Ok(None));
            if let Some(place) = input.damage(&mut frame) {
                match v1::Message::decode(MAGIC, &frame) {
                    // The checksum covers only the payload.
                    Ok(Some(_)) => assert!((4..16).contains(&place)),
                    Ok(None) => assert!((16..20).contains(&place)),
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
        }
        Err(error) => {
            assert!(name.len() > 12 || name.iter().any(|byte| !matches!(byte, b' '..=0x7f)));
            assert!(!error.to_string().is_empty());
        }
    }
    whole
}

fn check_message(message_type: MessageType, payload: &[u8]) {
    let mut contents = Vec::new();
    message_type.encode(payload, &mut contents);
    assert_eq!(contents.len(), message_type.encoded_len(payload.len()));
    assert_eq!(MessageType::decode(&contents), Ok((message_type, payload)));
}

/// Block files: arbitrary bytes, and valid blocks among noise, zeros and damage.
pub fn blocks(data: &[u8]) -> bool {
    let mut verifier = verifier(Hasher::best());
    let headed = [&[0; 80], data].concat();
    for bytes in [data, &headed] {
        verify(&mut verifier, bytes);
        scan(&MAGIC, Obfuscation::default(), bytes, &[bytes.len()]);
    }

    let mut input = Input { rest: data };
    let mut file = Vec::new();
    let mut good = Vec::new();
    for _ in 0..input.below(6) {
        match input.byte() % 6 {
            0 => file.extend_from_slice(input.bytes(300)),
            1 => file.resize(file.len() + input.below(300), 0),
            2 => {
                // A frame of arbitrary length.
                file.extend_from_slice(&MAGIC);
                file.extend_from_slice(input.bytes(100));
            }
            _ => {
                let block = good_block(&mut input);
                assert!(verify(&mut verifier, &block));
                file.extend_from_slice(&MAGIC);
                file.extend_from_slice(&(block.len() as u32).to_le_bytes());
                file.extend_from_slice(&block);
                good.push(block);
            }
        }
    }
    let damaged = input.damage(&mut file).is_some();
    let key = Obfuscation([0, 1, 2, 3, 4, 5, 6, input.byte()]);
    let pieces = [1 + input.below(50), 1 + input.below(2000)];
    let found = scan(&MAGIC, key, &file, &pieces);
    // Noise that contains the magic may hide the block after it.
    let magics = file.windows(4).filter(|window| *window == MAGIC).count();
    if !damaged && magics == good.len() {
        for block in &good {
            assert!(found.contains(&&block[..]), "a valid block was not found");
        }
    }
    let mut any = false;
    for block in found {
        any |= verify(&mut verifier, block);
    }
    any
}

/// Generated blocks have regtest's target.
fn verifier(hasher: Hasher) -> Verifier {
    Verifier::new(hasher, Network::Regtest)
}

/// Verifies a block with a reused verifier, and with a new one on every backend.
fn verify(verifier: &mut Verifier, block: &[u8]) -> bool {
    let verdict = verifier.verify(block);
    let again = on_every_backend(|engine| {
        self::verifier(Hasher::with_backend(engine.backend())).verify(block)
    });
    assert_eq!(verdict, again);
    match &verdict {
        Ok(summary) => {
            assert_eq!(summary.bytes, block.len());
            let mut transactions = Vec::new();
            let block = Block::parse(block, &mut transactions).expect("the block is valid");
            assert_eq!(block.transactions(), summary.transactions);
        }
        Err(faults) => {
            assert!(!faults.is_empty());
            assert!(faults.iter().all(|fault| !fault.to_string().is_empty()));
        }
    }
    verdict.is_ok()
}

/// Finds the blocks in a file. The result must not depend on the sizes of the reads.
fn scan<'f>(magic: &[u8; 4], key: Obfuscation, file: &'f [u8], pieces: &[usize]) -> Vec<&'f [u8]> {
    let in_pieces = |piece: usize| {
        let mut scanner = Scanner::new(*magic, key, verifier(Hasher::best()));
        let mut found = Vec::new();
        let (mut start, mut end) = (0, 0);
        while end < file.len() {
            end = file.len().min(end.saturating_add(piece.max(1)));
            let mut rest = &file[start..end];
            while let Some(next) = scanner.next(&mut rest, end == file.len()) {
                found.push(next);
            }
            assert!(rest.len() < Scanner::MAX_NEEDED);
            start = end - rest.len();
        }
        assert_eq!(start, file.len(), "bytes are left");
        found
    };
    let found = in_pieces(file.len());
    for &piece in pieces {
        assert_eq!(in_pieces(piece), found, "in pieces of {piece}");
    }
    // Between the blocks and after the last one, there are only zeros.
    let mut place = 0;
    let zeros_to = |end: usize, place: usize| {
        let mut gap = file[place..end].to_vec();
        key.apply(place as u64, &mut gap);
        assert!(gap.iter().all(|&byte| byte == 0), "bytes were skipped");
        end
    };
    let mut blocks = Vec::new();
    for found in found {
        match found {
            Frame::Block { offset, bytes } => {
                place = zeros_to(offset as usize - Scanner::FRAME_LEN, place);
                place += Scanner::FRAME_LEN + bytes.len();
                assert_eq!(bytes, &file[place - bytes.len()..place]);
                blocks.push(bytes);
            }
            Frame::Fault(fault) => {
                place = zeros_to(fault.offset as usize, place);
                assert!(fault.length > 0 && !fault.to_string().is_empty());
                place += fault.length as usize;
            }
        }
    }
    zeros_to(file.len(), place);
    blocks
}

/// A valid block with up to four transactions, some with witnesses.
fn good_block(input: &mut Input) -> Vec<u8> {
    // Scripts and the like are short and length-prefixed.
    let mut short = |most| {
        let noise = input.noise(most);
        [&[noise.len() as u8], &noise[..]].concat()
    };
    let mut transactions: Vec<[Vec<u8>; 4]> = Vec::new();
    let (mut ids, mut witness_ids) = (Vec::new(), vec![Hash::default()]);
    let hash = |message: &[u8]| {
        let mut hash = [Hash::default()];
        Hasher::best().hash_many(&[message], &mut hash);
        hash[0]
    };
    for number in 1..4 {
        let outpoint = [number; 36];
        let body = [
            &[1],
            &outpoint[..],
            &short(100),
            &[9; 4],
            &[1],
            &[0; 8],
            &short(60),
        ]
        .concat();
        let witness = short(80);
        let witness = match witness.len() % 3 {
            0 => Vec::new(),
            _ => [&[1], &witness[..]].concat(),
        };
        transactions.push(transaction(body, witness));
    }
    let count = usize::from(short(200)[0]) % 4;
    transactions.truncate(count);
    witness_ids.extend(transactions.iter().map(|parts| hash(&parts.concat())));
    // The reserved value is zeros.
    let commitment = [
        Hasher::best().merkle_root(&witness_ids).root,
        Hash::default(),
    ]
    .concat();
    let commitment = hash(&commitment);
    let tag = [38, 0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed];
    let coinbase = [
        &[1],
        &[0; 32][..],
        &[0xff; 4],
        &short(90),
        &[9; 4],
        &[1],
        &[0; 8],
        &tag,
        &commitment,
    ];
    let reserved = [&[1, 32], &Hash::default()[..]].concat();
    transactions.insert(0, transaction(coinbase.concat(), reserved));
    for [version, _, body, tail] in &transactions {
        let lock_time = &tail[tail.len() - 4..];
        let mut id = [Hash::default()];
        Hasher::best().hash_many_in_pieces(&[[version, body, lock_time]], &mut id);
        ids.extend(id);
    }

    let root = Hasher::best().merkle_root(&ids).root;
    let bits = 0x207f_ffff_u32.to_le_bytes();
    let headers =
        (0..=u8::MAX).map(|nonce| [&[4; 36], &root[..], &[5; 4], &bits, &[nonce; 4]].concat());
    let mut block = headers
        .into_iter()
        .find(|header| hash(header)[31] < 0x7f)
        .expect("every second hash meets this target");
    block.push(transactions.len() as u8);
    block.extend(transactions.iter().flat_map(|parts| parts.concat()));
    block
}

/// Encodes a transaction in four parts: version; marker and flag if it has a witness; inputs and
/// outputs; witness and lock time.
fn transaction(body: Vec<u8>, witness: Vec<u8>) -> [Vec<u8>; 4] {
    let marker = match witness.is_empty() {
        true => vec![],
        false => vec![0, 1],
    };
    [
        vec![2, 0, 0, 0],
        marker,
        body,
        [&witness[..], &[7; 4]].concat(),
    ]
}

/// QUIC datagrams: arbitrary ones, none of which may open; or a peer's packets, some of them
/// damaged, in a batch with another connection's.
pub fn quic(data: &[u8]) -> bool {
    let (_, opened) = on_every_backend(|engine| {
        let mut input = Input { rest: data };
        match input.flag() {
            true => authentic_datagrams(engine, &mut input),
            false => (arbitrary_datagrams(engine, &mut input), 0),
        }
    });
    opened > 0
}

fn quic_secret(input: &mut Input, seed: u8) -> Secret {
    let suite = Suite::ALL[input.below(Suite::ALL.len())];
    let version = Version::ALL[input.below(Version::ALL.len())];
    let secret = [seed; 48];
    Secret::new(suite, version, &secret[..suite.secret_len()]).expect("the suite's length")
}

/// Returns the datagrams as they are after opening.
fn arbitrary_datagrams(engine: Engine, input: &mut Input) -> Vec<u8> {
    let mut opener = quic::Opener::new(quic_secret(input, 1));
    opener.set_expected(u64::MAX >> input.below(64));
    let cid_len = input.below(22);
    let mut batch = quic::OpenBatch::new();
    let mut slots = Vec::new();
    while !input.rest.is_empty() {
        let mut datagram = Vec::new();
        if input.flag() {
            // Use a known version, so that parsing gets further.
            let version = Version::ALL[input.below(2)].number();
            datagram.push(0xc0 | input.byte());
            datagram.extend(version.to_be_bytes());
        }
        datagram.extend_from_slice(input.bytes(1500));
        let place = batch.feed(&datagram);
        let mut start = place.start;
        while let Ok(header) = Header::parse(&batch.bytes()[start..place.end], cid_len) {
            let (offset, len) = (header.pn_offset, header.packet_len);
            assert!((1..=place.end - start).contains(&len) && offset <= len);
            assert!(header.dst_cid.len().max(header.src_cid.len()) <= 21);
            if let (Some(version), PacketType::Retry) = (header.version, header.packet_type) {
                let retry = &batch.bytes()[start..start + len];
                assert!(!version.verify_retry(&engine, b"id", retry));
            }
            let first = batch.bytes()[start];
            match opener.push(&mut batch, start..start + len, offset) {
                Ok(slot) => slots.push((slot, start..start + len, first)),
                Err(error) => {
                    assert_eq!(error, quic::OpenError::TooShort);
                    assert!(len < offset + 20);
                }
            }
            start += len;
            if start == place.end {
                break;
            }
        }
    }
    let before = batch.bytes().to_vec();
    engine.open(&mut batch);
    for (count, (slot, place, first)) in slots.into_iter().enumerate() {
        let refused = opener.take(&batch, slot);
        assert!(matches!(refused, Err(quic::OpenError::BadTag { .. })));
        assert_eq!(opener.forged(), count as u64 + 1);
        // The bits of the first byte that are not protected must be unchanged.
        assert_eq!((batch.bytes()[place.start] ^ first) & 0xe0, 0);
        assert_eq!(
            batch.bytes()[place.end - 16..place.end],
            before[place.end - 16..place.end]
        );
    }
    batch.bytes().to_vec()
}

/// Returns all sealed packets and the number of opened ones.
fn authentic_datagrams(engine: Engine, input: &mut Input) -> (Vec<u8>, usize) {
    let secrets = [quic_secret(input, 1), quic_secret(input, 2)];
    let mut sealers = secrets.clone().map(quic::Sealer::new);
    let mut openers = secrets.map(quic::Opener::new);
    let mut numbers = [0_u64; 2];
    let mut opened = 0;
    let mut all = Vec::new();
    let (mut sealing, mut opening) = (quic::SealBatch::new(), quic::OpenBatch::new());
    // Several turns, each with at most one key update per side.
    for _ in 0..=input.below(4) {
        let mut sealed = Vec::new();
        for _ in 0..input.below(40) {
            let of = input.below(2);
            if input.byte() == 1
                && numbers[of] > 0
                && openers[of].key_phase() == sealers[of].key_phase()
            {
                sealers[of].update_keys();
            }
            numbers[of] += 1 + input.below(3) as u64;
            let number = numbers[of];
            // The encoding must have at least as many bytes as the receiver needs to recover the
            // number. Packets damaged in earlier turns keep the receiver's largest number lower.
            let largest = openers[of].expected().checked_sub(1);
            let least = quic::PacketNumber::encode(number, largest).expect("the number is near");
            let len = least.bytes().len().max(1 + input.below(4));
            // After a key update, all headers are short.
            let mut header = vec![0x40 | (len as u8 - 1)];
            header.extend(input.noise(25));
            let pn_offset = header.len();
            header.extend_from_slice(&number.to_be_bytes()[8 - len..]);
            let mut payload = input.noise(1300);
            payload.resize(payload.len().max(4 - len), 0);
            let id = &header[1..pn_offset];
            let slot =
                if len == least.bytes().len() && id.len() <= quic::Header::MAX_CONNECTION_ID_LEN {
                    let header = quic::ShortHeader {
                        destination: id,
                        spin: number % 2 == 1,
                        number: least,
                    };
                    let reserved = sealers[of].reserve_short(&mut sealing, &header, payload.len());
                    reserved.map(|(slot, place)| {
                        place.copy_from_slice(&payload);
                        slot
                    })
                } else {
                    sealers[of].push(&mut sealing, number, &header, &payload)
                };
            sealed.push((
                of,
                slot.expect("the packet is valid"),
                number,
                pn_offset,
                payload,
            ));
        }
        engine.seal(&mut sealing);
        let mut datagrams = Vec::new();
        for (of, slot, number, pn_offset, payload) in sealed {
            let mut wire = sealing.wire(&slot).expect("a sealed packet").to_vec();
            all.extend_from_slice(&wire);
            let damaged = input.byte() % 8 == 7 && input.damage(&mut wire).is_some();
            datagrams.push((of, wire, number, pn_offset, payload, damaged));
        }
        sealing.clear();
        // Some packets arrive late.
        for _ in 0..input.below(4) {
            let count = datagrams.len().max(1);
            let (a, b) = (input.below(count), input.below(count));
            if a < b && b < datagrams.len() {
                datagrams[a..=b].rotate_left(1);
            }
        }
        let mut waiting = Vec::new();
        for (of, wire, number, pn_offset, payload, damaged) in datagrams {
            let place = opening.feed(&wire);
            let slot = openers[of].push(&mut opening, place, pn_offset);
            waiting.push((
                of,
                slot.expect("the packet is long enough"),
                number,
                payload,
                damaged,
            ));
        }
        engine.open(&mut opening);
        for (of, slot, number, payload, damaged) in waiting {
            match openers[of].take(&opening, slot) {
                Ok(packet) => {
                    assert!(!damaged);
                    assert_eq!((packet.number, packet.payload), (number, &payload[..]));
                    opened += 1;
                }
                Err(error) => {
                    assert!(damaged, "{error}");
                    assert!(matches!(error, quic::OpenError::BadTag { .. }));
                }
            }
        }
        opening.clear();
    }
    (all, opened)
}

/// Key exchanges of one turn, with arbitrary secrets and encodings, against the same ones alone,
/// which run on libsecp256k1. Returns whether any secret was valid.
pub fn key_exchange(data: &[u8]) -> bool {
    let mut input = Input { rest: data };
    let mut bytes = || -> [u8; 32] {
        // Numbers near zero and near the order and the prime, and others.
        let mut number = match input.below(4) {
            0 => [0; 32],
            1 => [0xff; 32],
            2 => ORDER,
            _ => [input.byte(); 32],
        };
        for byte in input.bytes(32) {
            number.rotate_left(1);
            number[31] ^= byte;
        }
        number
    };
    let keys: Vec<_> = (0..1 + bytes()[31] % 9)
        .map(|_| (bytes(), bytes(), [bytes(), bytes()].concat()))
        .collect();
    let mut is_any_valid = false;
    for &backend in Backend::ALL {
        let Ok(engine) = Engine::on(backend) else {
            continue;
        };
        let mut incoming = OpenBatch::new();
        let mut waiting = Vec::new();
        for (secret, auxiliary, theirs) in &keys {
            let mut config = HandshakeConfig::new(MAGIC, engine, *secret, *auxiliary);
            config.batched = true;
            let responder = Connection::responder(config);
            let alone = Keypair::new(secret, auxiliary);
            assert_eq!(responder.is_ok(), alone.is_ok());
            let (Ok(mut responder), Ok(alone)) = (responder, alone) else {
                continue;
            };
            is_any_valid = true;
            incoming.room(64).copy_from_slice(theirs);
            // 12 bytes in 64 could say v1.
            if responder.receive(&mut incoming, 64).is_ok() {
                waiting.push((responder, alone, theirs));
            }
        }
        engine.open(&mut incoming);
        for (mut responder, alone, theirs) in waiting {
            let taken = responder.next_packet(&incoming);
            assert_eq!(taken, Ok(None));
            let theirs: &[u8; 64] = theirs.first_chunk().expect("64 bytes");
            let shared = alone.shared_secret(theirs, Role::Responder);
            let keys = SessionKeys::derive(&shared, MAGIC);
            let mut sent = Vec::new();
            let write = |pieces: &[std::io::IoSlice<'_>]| {
                sent.extend_from_slice(&pieces[0]);
                Ok(pieces[0].len())
            };
            let written = responder.outbox.write(&SealBatch::new(), write);
            written.expect("a vector takes all");
            assert_eq!(&sent[..64], alone.public());
            assert_eq!(sent[64..80], keys.responder_terminator);
        }
    }
    is_any_valid
}

/// The order of secp256k1's group.
const ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe,
    0xba, 0xae, 0xdc, 0xe6, 0xaf, 0x48, 0xa0, 0x3b, 0xbf, 0xd2, 0x5e, 0x8c, 0xd0, 0x36, 0x41, 0x41,
];
