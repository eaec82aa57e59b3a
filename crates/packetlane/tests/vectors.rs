//! Published vectors of BIP324 and RFC 5869.

use packetlane::Engine;
use packetlane::bip324::{Cipher, Keypair, OpenError, PacketKind, Role, Session, SessionKeys};
use packetlane::bitcoin::Network;
use serde_json::Value;

fn vectors(file: &str) -> Value {
    let path = format!("{}/../../vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap()
}

fn hex(vector: &Value, name: &str) -> Vec<u8> {
    let digits = vector[name]
        .as_str()
        .unwrap_or_else(|| panic!("no {name} in {vector}"));
    (0..digits.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap())
        .collect()
}

fn array<const N: usize>(vector: &Value, name: &str) -> [u8; N] {
    hex(vector, name).try_into().unwrap()
}

fn role(vector: &Value, name: &str) -> Role {
    if vector[name].as_bool().unwrap() {
        Role::Initiator
    } else {
        Role::Responder
    }
}

/// The keys of a packet vector, and the role of its side.
fn keys(vector: &Value) -> (Box<SessionKeys>, Role) {
    let public = array(vector, "in_ellswift_ours");
    let pair = Keypair::from_parts(&array(vector, "in_priv_ours"), public).unwrap();
    let role = role(vector, "in_initiating");
    let shared = pair.shared_secret(&array(vector, "in_ellswift_theirs"), role);
    (SessionKeys::derive(&shared, Network::Mainnet.magic()), role)
}

fn cipher(engine: Engine, keys: &SessionKeys, role: Role) -> Cipher {
    match role {
        Role::Initiator => Cipher::new(engine, &keys.initiator_length, &keys.initiator_packet),
        Role::Responder => Cipher::new(engine, &keys.responder_length, &keys.responder_packet),
    }
}

fn engines() -> Vec<Engine> {
    let available = packetlane::Backend::ALL
        .iter()
        .copied()
        .filter(|backend| backend.is_available());
    available
        .map(|backend| Engine::on(backend).unwrap())
        .collect()
}

#[test]
fn bip324_packets() {
    let vectors = vectors("bip324_packets.json");
    let vectors = vectors["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), 7);
    for (vector, engine) in vectors
        .iter()
        .flat_map(|v| engines().into_iter().map(move |e| (v, e)))
    {
        let (keys, role) = keys(vector);
        let (ours, theirs) = match role {
            Role::Initiator => (keys.initiator_terminator, keys.responder_terminator),
            Role::Responder => (keys.responder_terminator, keys.initiator_terminator),
        };
        assert_eq!(ours, array(vector, "mid_send_garbage_terminator"));
        assert_eq!(theirs, array(vector, "mid_recv_garbage_terminator"));
        assert_eq!(keys.session_id, array(vector, "out_session_id"));

        let mut sender = cipher(engine, &keys, role);
        let index = vector["in_idx"].as_u64().unwrap();
        let mut wire = Vec::new();
        for _ in 0..index {
            sender.seal(PacketKind::Decoy, &[], &[], &mut wire).unwrap();
        }
        let before = wire.len();
        let contents =
            hex(vector, "in_contents").repeat(vector["in_multiply"].as_u64().unwrap() as usize);
        let kind = match vector["in_ignore"].as_bool().unwrap() {
            true => PacketKind::Decoy,
            false => PacketKind::Genuine,
        };
        let aad = hex(vector, "in_aad");
        sender.seal(kind, &aad, &contents, &mut wire).unwrap();
        let packet = &wire[before..];
        let whole = hex(vector, "out_ciphertext");
        if whole.is_empty() {
            assert!(packet.ends_with(&hex(vector, "out_ciphertext_endswith")));
        } else {
            assert_eq!(packet, whole);
        }

        // Open it again, one packet at a time.
        let mut receiver = cipher(engine, &keys, role);
        let mut at = 0;
        for i in 0..=index {
            let length = [wire[at], wire[at + 1], wire[at + 2]];
            let length = receiver.decrypt_length(length).unwrap();
            let end = at + length + packetlane::bip324::Session::OVERHEAD;
            let aad = if i == index { &aad[..] } else { &[] };
            let mut bytes = [aad, &wire[at + Session::LENGTH_LEN..end]].concat();
            let packet = aad.len()..bytes.len();
            let (opened, range) = receiver.open(&mut bytes, 0..aad.len(), packet).unwrap();
            if i == index {
                assert_eq!(opened, kind);
                assert!(bytes[range] == contents);
            } else {
                assert_eq!((opened, range.len()), (PacketKind::Decoy, 0));
            }
            at = end;
        }
        assert_eq!(at, wire.len());

        // The other side's keys do not open it.
        let other = if role == Role::Initiator {
            Role::Responder
        } else {
            Role::Initiator
        };
        let mut stranger = cipher(engine, &keys, other);
        let mut bytes = wire[Session::LENGTH_LEN..].to_vec();
        let end = bytes.len().min(1000);
        assert_eq!(
            stranger.open(&mut bytes, 0..0, 0..end),
            Err(OpenError::BadTag {
                packet: 0,
                epoch: 0
            })
        );
    }
}

#[test]
fn bip324_ellswift_decoding() {
    let vectors = vectors("bip324_ellswift.json");
    let decode = vectors["decode"].as_array().unwrap();
    assert_eq!(decode.len(), 76);
    for vector in decode {
        let encoded = secp256k1::ellswift::ElligatorSwift::from_array(array(vector, "ellswift"));
        let point = secp256k1::PublicKey::from_ellswift(encoded);
        let (x, _) = point.x_only_public_key();
        assert_eq!(x.serialize(), array(vector, "x"));
    }
    for vector in vectors["shared_secrets"].as_array().unwrap() {
        let public = array(vector, "ellswift_ours");
        let pair = Keypair::from_parts(&array(vector, "priv_ours"), public).unwrap();
        let theirs = array(vector, "ellswift_theirs");
        let shared = pair.shared_secret(&theirs, role(vector, "initiating"));
        assert_eq!(**shared, array(vector, "shared_secret"));
    }
}

#[test]
fn rfc5869() {
    for vector in vectors("rfc5869.json")["vectors"].as_array().unwrap() {
        let salt = hex(vector, "salt");
        let (prk, hkdf) = hkdf::Hkdf::<sha2::Sha256>::extract(Some(&salt), &hex(vector, "ikm"));
        assert_eq!(prk[..], hex(vector, "prk"));
        let mut okm = vec![0; vector["length"].as_u64().unwrap() as usize];
        hkdf.expand(&hex(vector, "info"), &mut okm).unwrap();
        assert_eq!(okm, hex(vector, "okm"));
    }
}

/// A generated public key decodes to the point of its secret key.
#[test]
fn a_generated_key_agrees_with_its_peer() {
    for i in 1..50_u8 {
        let a = Keypair::new(&[i; 32], &[i ^ 0x55; 32]).unwrap();
        let b = Keypair::new(&[i + 100; 32], &[i ^ 0xaa; 32]).unwrap();
        let ab = a.shared_secret(b.public(), Role::Initiator);
        let ba = b.shared_secret(a.public(), Role::Responder);
        assert_eq!(ab, ba);
        assert_ne!(*ab, *a.shared_secret(b.public(), Role::Responder));
    }
    assert!(Keypair::new(&[0; 32], &[1; 32]).is_err());
    assert!(Keypair::new(&[0xff; 32], &[1; 32]).is_err());
}
