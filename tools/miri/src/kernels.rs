//! The portable kernels of `packetlane-lanes`.

use crate::lanes::lanes;
use packetlane_lanes::{Backend, GcmKey};

/// Runs the fuzz target with packets of at most 255 bytes.
fn target(kind: u8) -> bool {
    let input: Vec<u8> = (0..80)
        .map(|i: u8| match i {
            0 => kind,
            1 => 0,
            // Number of packets.
            3 => 3,
            // Two-byte numbers whose second byte is zero.
            _ if i.is_multiple_of(2) => 0,
            _ => i.wrapping_mul(37),
        })
        .collect();
    lanes(&input)
}

#[test]
fn chacha20poly1305() {
    assert!(target(0));
}

#[test]
fn gcm() {
    assert!(target(1));
}

#[test]
fn header_masks() {
    target(2);
}

#[test]
fn sha256() {
    target(3);
}

/// Published test vectors, also valid on big-endian and 32-bit targets: RFC 8439, section 2.8.2
/// (tag); McGrew and Viega's GCM test case 2; FIPS 180-2, appendix B.1.
#[test]
fn published() {
    let backend = Backend::Portable;
    let key: [u8; 32] = std::array::from_fn(|i| 0x80 + i as u8);
    let nonce = [7, 0, 0, 0, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47];
    let aad = [
        0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7,
    ];
    let mut text = *b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip \
        for the future, sunscreen would be it.";
    let tag = backend
        .kernels()
        .seal_detached(&key, &nonce, &aad, &mut text);
    assert_eq!(u128::from_be_bytes(tag), 0x1ae10b594f09e26a7e902ecbd0600691);

    let mut text = [0; 16];
    let tag =
        backend
            .kernels()
            .gcm_seal_detached(&GcmKey::aes128(&[0; 16]), &[0; 12], &[], &mut text);
    assert_eq!(
        u128::from_be_bytes(text),
        0x0388dace60b6a392f328c2b971b2fe78
    );
    assert_eq!(u128::from_be_bytes(tag), 0xab6e47d42cec13bdf53a67b21257bddf);

    let mut digest = [[0; 32]];
    backend.kernels().set_sha256_lanes_from(1);
    backend.kernels().sha256(&[[&b"abc"[..]]], &mut digest);
    assert_eq!(
        u128::from_be_bytes(*digest[0].first_chunk().unwrap()),
        0xba7816bf8f01cfea414140de5dae2223
    );
}
