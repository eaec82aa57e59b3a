//! Checks that no memory is freed with a secret in it.

#![allow(unsafe_code, reason = "an allocator that examines freed memory")]

mod common;

use common::{MAGIC, engine, noise, take};
use packetlane::bip324::{
    Cipher, Handshake, HandshakeConfig, Keypair, PacketKind, Progress, Role, Session, SessionKeys,
};
use packetlane::quic::{self, HeaderKey, PacketKey, Secret, Suite, Version};
use packetlane::{Backend, OpenBatch, SealBatch};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use zeroize::ZeroizeOnDrop;

const MOST: usize = 70;

thread_local! {
    /// The secrets to look for, and their number.
    static SECRETS: Cell<([[u8; 16]; MOST], usize)> = const { Cell::new(([[0; 16]; MOST], 0)) };
    /// How often each was found.
    static SEEN: Cell<[usize; MOST]> = const { Cell::new([0; MOST]) };
}

struct Looking;

// SAFETY: Every call is passed to the system's allocator. All memory is zeroed when allocated,
// so it may be read when freed. The cells are plain data of the thread.
unsafe impl GlobalAlloc for Looking {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: The block is still the caller's, has this size, and was initialised when it
        // was allocated.
        look(unsafe { std::slice::from_raw_parts(pointer, layout.size()) });
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    // `realloc` is the trait's default: alloc, copy, dealloc.
}

#[global_allocator]
static ALLOCATOR: Looking = Looking;

fn look(block: &[u8]) {
    let (secrets, count) = SECRETS.get();
    let secrets = &secrets[..count];
    for window in block.windows(16) {
        for (i, secret) in secrets.iter().enumerate() {
            if window == secret {
                let mut seen = SEEN.get();
                seen[i] += 1;
                SEEN.set(seen);
            }
        }
    }
}

/// Overwrites secrets that a test has left on the stack below its caller. A moved value takes old
/// stack content along in its padding.
#[inline(never)]
fn overwrite_the_stack() {
    std::hint::black_box([0_u8; 1 << 18]);
}

/// Looks for 16 bytes of each secret from now on. A function of its own, whose copies of them are then
/// overwritten.
#[inline(never)]
fn look_for(secrets: &[&[u8]]) {
    let mut all = [[0; 16]; MOST];
    for (place, secret) in all.iter_mut().zip(secrets) {
        place.copy_from_slice(&secret[..16]);
        assert!(place.iter().any(|&byte| byte != 0));
    }
    SEEN.set([0; MOST]);
    SECRETS.set((all, secrets.len()));
}

/// Runs `run` and returns how often each secret was found in freed memory.
fn seen_in(secrets: &[&[u8]], run: impl FnOnce()) -> Vec<usize> {
    look_for(secrets);
    overwrite_the_stack();
    run();
    let seen = SEEN.get();
    look_for(&[]);
    seen[..secrets.len()].to_vec()
}

#[test]
fn the_allocator_finds_unwiped_secrets() {
    let secret = noise(1, 32);
    let mut block = vec![0; 100];
    block[37..69].copy_from_slice(&secret);
    let wiped = {
        let mut block = block.clone();
        block[40..69].fill(0);
        block
    };
    assert_eq!(seen_in(&[&secret], || drop(wiped)), [0]);
    assert_eq!(seen_in(&[&secret], || drop(block)), [1]);
    // A vector that moves when it grows frees its old block.
    let mut grown = Vec::with_capacity(32);
    grown.extend_from_slice(&secret);
    assert_eq!(seen_in(&[&secret], || grown.reserve(1000)), [1]);
}

/// The keys of one direction: the length key and the packet key, each with two successors, and
/// the keystream that masks the first lengths.
fn secrets_of(length: &[u8; 32], packet: &[u8; 32]) -> Vec<[u8; 32]> {
    let mut all = vec![*length, *packet];
    let (mut length, mut packet) = (*length, *packet);
    for epoch in 0..2_u64 {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&epoch.to_le_bytes());
        let mut stream = [0; 3 * 224 + 32];
        Backend::Portable
            .kernels()
            .chacha20(&length, &nonce, 0, &mut stream);
        all.push(stream[..32].try_into().unwrap());
        length.copy_from_slice(&stream[3 * 224..]);
        nonce[..4].fill(0xff);
        let mut next = [0; 32];
        Backend::Portable
            .kernels()
            .chacha20(&packet, &nonce, 1, &mut next);
        packet = next;
        all.extend([length, packet]);
    }
    all
}

fn dressed(seed: u64) -> HandshakeConfig {
    HandshakeConfig {
        garbage: noise(seed, 300),
        decoys: vec![noise(seed, 20)],
        ..common::config(engine(), seed)
    }
}

/// From the handshake, over two rekeys, to the end, with batches that grow and are cleared.
#[test]
fn no_secret_is_freed_unwiped() {
    let [a, b] = [dressed(1), dressed(2)];
    let keys = common::keys(&a, &b);
    let pair = Keypair::new(&a.secret, &a.auxiliary).unwrap();
    let theirs = *Keypair::new(&b.secret, &b.auxiliary).unwrap().public();
    let shared = pair.shared_secret(&theirs, Role::Initiator);
    let mut secrets = secrets_of(&keys.initiator_length, &keys.initiator_packet);
    secrets.extend(secrets_of(&keys.responder_length, &keys.responder_packet));
    secrets.extend([**shared, **a.secret, **b.secret]);
    let secrets: Vec<&[u8]> = secrets.iter().map(|secret| &secret[..]).collect();

    let mut packets = 0;
    let seen = seen_in(&secrets, || {
        let initiator = Handshake::initiator(a).unwrap();
        let responder = Handshake::responder(b).unwrap();
        let (first, second) = common::shake(initiator, responder);
        // Sessions are moved.
        let mut both = [Box::new(first), Box::new(second)];
        let (mut sealing, mut opening) = (SealBatch::new(), OpenBatch::new());
        for round in 0..10 {
            let [one, two] = &mut both;
            let mut wire = Vec::new();
            for _ in 0..50 {
                let contents = [round; 40];
                let kind = PacketKind::Genuine;
                one.outbound.push(&mut sealing, kind, &contents).unwrap();
            }
            engine().seal(&mut sealing);
            sealing = SealBatch::new();
            // The other side loses what was sealed here, but its counters advance. The other
            // direction is complete.
            for _ in 0..50 {
                let kind = PacketKind::Genuine;
                two.outbound.seal(kind, &[round; 40], &mut wire).unwrap();
            }
            one.inbound.feed(&mut opening, &wire).unwrap();
            engine().open(&mut opening);
            packets += take(one, &opening).0.len();
            opening.clear();
            let moved = both.map(|session| Box::new(*session));
            both = moved;
        }
    });
    assert_eq!(packets, 500, "two rekeys");
    assert!(seen.iter().all(|&times| times == 0), "{seen:?}");
}

/// Precomputed keystream: in turns of one and of a few packets, in batches that grow, across a
/// rekey, turned off, and dropped with the session.
#[test]
fn precomputed_keystream_is_wiped() {
    let keys = SessionKeys::derive(&noise(1, 32).try_into().unwrap(), MAGIC);
    // Long packets, so that all their precomputed keystream is used, up to block 9.
    for (len, last) in [(61, 64), (512, 576)] {
        let mut secrets = Vec::new();
        for number in (0..20_u32).chain(215..224) {
            let mut nonce = [0; 12];
            nonce[..4].copy_from_slice(&number.to_le_bytes());
            let mut blocks = [0; 640];
            Backend::Portable
                .kernels()
                .chacha20(&keys.initiator_packet, &nonce, 0, &mut blocks);
            secrets.extend([0, last].map(|at| blocks[at..at + 32].to_vec()));
        }
        let secrets: Vec<&[u8]> = secrets.iter().map(|secret| &secret[..]).collect();
        for packets in [1, 13, 222, 224] {
            let seen = seen_in(&secrets, || {
                let mut batch = SealBatch::new();
                let mut session = Session::from_keys(engine(), &keys, Role::Initiator);
                let contents = vec![7; len];
                for sent in 0..packets {
                    let kind = PacketKind::Genuine;
                    session.outbound.push(&mut batch, kind, &contents).unwrap();
                    if len > 61 || sent % 5 < 2 {
                        engine().seal(&mut batch);
                        batch.clear();
                    }
                }
                if packets == 13 {
                    session.outbound.set_precomputed_keystream(false);
                }
            });
            let seen = seen.iter().sum::<usize>();
            assert_eq!(seen, 0, "{packets} of {len} bytes");
        }
    }
}

/// A batch that grows for the keys of many sessions.
#[test]
fn a_batch_of_many_keys_wipes_them() {
    let keys: Vec<_> = (0..50)
        .map(|seed| SessionKeys::derive(&noise(seed, 32).try_into().unwrap(), MAGIC))
        .collect();
    let secrets: Vec<_> = keys.iter().map(|keys| &keys.initiator_packet[..]).collect();
    let seen = seen_in(&secrets, || {
        let mut batch = SealBatch::new();
        let mut sessions: Vec<_> = keys
            .iter()
            .map(|keys| Session::from_keys(engine(), keys, Role::Initiator))
            .collect();
        for _ in 0..3 {
            for session in &mut sessions {
                let slot = session.outbound.push(&mut batch, PacketKind::Genuine, b"x");
                slot.unwrap();
            }
            engine().seal(&mut batch);
        }
    });
    assert_eq!(seen.iter().sum::<usize>(), 0, "{seen:?}");
}

/// A handshake that is dropped in the middle, or fails.
#[test]
fn a_handshake_that_ends_early_wipes_its_secrets() {
    let [a, b] = [dressed(1), dressed(2)];
    let keys = common::keys(&a, &b);
    let mut secrets = secrets_of(&keys.initiator_length, &keys.initiator_packet);
    secrets.extend(secrets_of(&keys.responder_length, &keys.responder_packet));
    secrets.extend([**a.secret, **b.secret]);
    let secrets: Vec<&[u8]> = secrets.iter().map(|secret| &secret[..]).collect();
    for end in 0..3 {
        let (a, b) = (a.clone(), b.clone());
        let seen = seen_in(&secrets, || {
            let mut initiator = Handshake::initiator(a).unwrap();
            let mut responder = Handshake::responder(b).unwrap();
            if end > 0 {
                responder.receive(&initiator.take_output()).unwrap();
                assert!(responder.has_keys());
            }
            if end > 1 {
                assert!(responder.receive(&noise(1, 5000)).is_err());
            }
        });
        assert_eq!(seen.iter().sum::<usize>(), 0, "{end}: {seen:?}");
    }
}

/// Handshakes whose keys a batch computes: as many as two vectors hold, so that some run in lanes and
/// some alone. The batch grows, and is dropped at each stage.
#[test]
fn a_batch_of_handshakes_wipes_its_keys() {
    const COUNT: u64 = 17;
    let theirs = Keypair::new(&[7; 32], &[8; 32]).unwrap();
    let first = [&theirs.public()[..], &[9; 100]].concat();
    // Not the secrets of other tests, whose threads may get this one's stack.
    let configs: Vec<_> = (100..100 + COUNT)
        .map(|seed| common::config(engine(), seed))
        .collect();
    let shared = configs.iter().map(|config| {
        let pair = Keypair::new(&config.secret, &config.auxiliary).unwrap();
        pair.shared_secret(theirs.public(), Role::Responder)
    });
    let shared: Vec<_> = shared.collect();
    let mut secrets: Vec<&[u8]> = Vec::new();
    for (config, shared) in configs.iter().zip(&shared) {
        secrets.extend([&config.secret[..], &config.auxiliary[..], &shared[..]]);
    }
    for end in 0..4 {
        let configs = configs.clone();
        let seen = seen_in(&secrets, || {
            let mut batch = OpenBatch::new();
            let all = configs.into_iter().map(|config| {
                let mut handshake = Handshake::responder(config).unwrap();
                let progress = handshake.receive_batched(&mut batch, &first);
                assert!(matches!(progress, Ok(Progress::Waiting)));
                handshake
            });
            let mut all: Vec<_> = all.collect();
            if end > 0 {
                engine().open(&mut batch);
            }
            for handshake in all.iter_mut().take(if end > 1 { 12 } else { 0 }) {
                handshake.take_keys(&batch).unwrap();
                assert!(handshake.has_keys());
            }
            if end > 2 {
                batch.clear();
            }
        });
        assert_eq!(seen.iter().sum::<usize>(), 0, "{end}: {seen:?}");
    }
}

/// Moves a value through a box and a growing vector: both free its old place.
fn moved<T>(value: T) -> T {
    let mut list = Vec::with_capacity(1);
    list.push(*Box::new(value));
    list.reserve(1000);
    list.pop().unwrap()
}

/// Configurations and handshakes that are moved before and after each of their steps.
#[test]
fn moved_handshakes_leave_no_secret() {
    let [a, b] = [dressed(1), dressed(2)];
    let keys = common::keys(&a, &b);
    let mut secrets = secrets_of(&keys.initiator_length, &keys.initiator_packet);
    secrets.extend(secrets_of(&keys.responder_length, &keys.responder_packet));
    for config in [&a, &b] {
        secrets.push(config.secret[..].try_into().unwrap());
        secrets.push(config.auxiliary[..].try_into().unwrap());
    }
    let secrets: Vec<&[u8]> = secrets.iter().map(|secret| &secret[..]).collect();
    let seen = seen_in(&secrets, || {
        let mut responder = moved(Handshake::responder(moved(b)).unwrap());
        let mut initiator = moved(Handshake::initiator(moved(a.clone())).unwrap());
        responder.receive(&initiator.take_output()).unwrap();
        responder = moved(responder);
        let Ok(Progress::Complete(one)) = initiator.receive(&responder.take_output()) else {
            panic!("the initiator has received all");
        };
        initiator = moved(initiator);
        let Ok(Progress::Complete(two)) = responder.receive(&initiator.take_output()) else {
            panic!("the responder has received all");
        };
        assert_eq!(one.id(), two.id());
        drop((moved(one), moved(two), moved(responder)));
        // One that ends without an answer.
        drop(moved(Handshake::initiator(a).unwrap()));
    });
    assert!(seen.iter().all(|&times| times == 0), "{seen:?}");
}

/// Moved keys, of both protocols.
#[test]
fn moved_keys_leave_no_secret() {
    let config = dressed(1);
    let pair = || Keypair::new(&config.secret, &config.auxiliary).unwrap();
    let theirs = *Keypair::new(&[7; 32], &[7; 32]).unwrap().public();
    let shared = pair().shared_secret(&theirs, Role::Initiator);
    let keys = SessionKeys::derive(&shared, MAGIC);
    let secrets = [
        &config.secret[..],
        &shared[..],
        &keys.initiator_length,
        &keys.initiator_packet,
        &keys.responder_length,
        &keys.responder_packet,
        &keys.session_id,
    ];
    let seen = seen_in(&secrets, || {
        let pair = moved(pair());
        let shared = moved(pair.shared_secret(&theirs, Role::Initiator));
        drop(moved(SessionKeys::derive(&shared, MAGIC)));
    });
    assert!(seen.iter().all(|&times| times == 0), "{seen:?}");

    for suite in Suite::ALL {
        let (key, iv) = (noise(4, suite.key_len()), [7; 12]);
        let secret = noise(3, suite.secret_len());
        let seen = seen_in(&[&secret, &key], || {
            drop(moved(Secret::new(suite, Version::V1, &secret).unwrap()));
            drop(moved(PacketKey::new(suite, &key, &iv).unwrap()));
            drop(moved(HeaderKey::new(suite, &key).unwrap()));
        });
        assert_eq!(seen, [0, 0], "{suite:?}");
    }
}

/// QUIC keys and secrets, over key updates, with batches that outlive the connections.
#[test]
fn quic_keys_are_wiped() {
    for suite in Suite::ALL {
        let bytes = noise(3, suite.secret_len());
        let expand = |secret: &[u8], label: &str, len: usize| {
            let lengths = [0, len as u8, 6 + label.len() as u8];
            let info = [&lengths, &b"tls13 "[..], label.as_bytes(), &[0]].concat();
            let mut out = vec![0; len];
            match suite {
                Suite::Aes256Gcm => hkdf::Hkdf::<sha2::Sha384>::from_prk(secret)
                    .unwrap()
                    .expand(&info, &mut out),
                _ => hkdf::Hkdf::<sha2::Sha256>::from_prk(secret)
                    .unwrap()
                    .expand(&info, &mut out),
            }
            .unwrap();
            out
        };
        // The first AES round key is the key itself.
        let mut secrets = vec![bytes.clone(), expand(&bytes, "quic hp", suite.key_len())];
        let mut secret = bytes.clone();
        for _ in 0..3 {
            secrets.push(expand(&secret, "quic key", suite.key_len()));
            secret = expand(&secret, "quic ku", suite.secret_len());
            secrets.push(secret.clone());
        }
        let secrets: Vec<&[u8]> = secrets.iter().map(|secret| &secret[..]).collect();
        let mut opened = 0;
        let seen = seen_in(&secrets, || {
            let secret = Secret::new(suite, Version::V1, secrets[0]).unwrap();
            let mut sealer = Box::new(quic::Sealer::new(secret.clone()));
            let mut opener = Box::new(quic::Opener::new(secret));
            let (mut sealing, mut opening) = (quic::SealBatch::new(), quic::OpenBatch::new());
            for number in 0..6_u8 {
                if number % 2 == 0 && number > 0 {
                    sealer.update_keys();
                }
                let slot = sealer.push(&mut sealing, number.into(), &[0x40, number], b"ping");
                engine().seal(&mut sealing);
                let place = opening.feed(sealing.wire(&slot.unwrap()).unwrap());
                let slot = opener.push(&mut opening, place, 1).unwrap();
                engine().open(&mut opening);
                opened += u8::from(opener.take(&opening, slot).is_ok());
                // Keys are moved.
                (sealer, opener) = (Box::new(*sealer), Box::new(*opener));
            }
            drop((sealer, opener));
        });
        assert_eq!(opened, 6);
        assert!(seen.iter().all(|&times| times == 0), "{suite:?}: {seen:?}");
    }
}

/// Types that implement `ZeroizeOnDrop`.
#[test]
fn types_that_wipe_themselves_implement_zeroize_on_drop() {
    fn wipes<T: ZeroizeOnDrop>() {
        assert!(core::mem::needs_drop::<T>());
    }
    wipes::<Cipher>();
    wipes::<Keypair>();
    wipes::<SessionKeys>();
    wipes::<Secret>();
    wipes::<PacketKey>();
    wipes::<HeaderKey>();
    // HKDF leaves secrets on the stack.
    wipes::<sha2::Sha256>();
}
