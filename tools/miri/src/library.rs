//! `packetlane` on top of the kernels: one run through each protocol.

use packetlane::Engine;
use packetlane::quic::{self, Opener, Sealer, Secret, Suite, Version};
use packetlane::sha256d::Hasher;

#[test]
fn quic_packets() {
    let engine = Engine::best();
    let (mut sealing, mut opening) = (quic::SealBatch::new(), quic::OpenBatch::new());
    // The two AES suites differ only in their key length.
    for suite in [Suite::Aes128Gcm, Suite::ChaCha20Poly1305] {
        let secret = Secret::new(suite, Version::V1, &[7; 48][..suite.secret_len()]).unwrap();
        let mut sealer = Sealer::new(secret.clone());
        let mut opener = Opener::new(secret);
        let header = [0x40, 1, 2, 3, 4, 5];
        let slots = [5, 6].map(|number| {
            let header = [&header[..], &[number as u8]].concat();
            sealer
                .push(&mut sealing, number, &header, b"frames")
                .unwrap()
        });
        engine.seal(&mut sealing);
        let mut packets = slots.map(|slot| sealing.wire(&slot).unwrap().to_vec());
        packets[1][9] ^= 1;
        sealing.clear();
        let slots = packets.map(|packet| {
            let place = opening.feed(&packet);
            opener.push(&mut opening, place, header.len()).unwrap()
        });
        engine.open(&mut opening);
        let [whole, damaged] =
            slots.map(|slot| opener.take(&opening, slot).map(|p| p.payload.to_vec()));
        assert_eq!(whole.unwrap(), b"frames");
        damaged.unwrap_err();
        opening.clear();
    }
}

#[test]
fn a_merkle_tree() {
    Hasher::best().set_lanes_from(1);
    let leaves = [[1; 32], [2; 32], [3; 32]];
    let [mut left, mut right, mut root] = [[[0; 32]]; 3];
    Hasher::best().hash64(
        &[[leaves[0], leaves[1]].concat().try_into().unwrap()],
        &mut left,
    );
    Hasher::best().hash64(
        &[[leaves[2], leaves[2]].concat().try_into().unwrap()],
        &mut right,
    );
    Hasher::best().hash_many(&[&[left[0], right[0]].concat()], &mut root);
    assert_eq!(Hasher::best().merkle_root(&leaves).root, root[0]);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn bip324_packets() {
    use packetlane::bip324::{Cipher, PacketKind, Session, SessionKeys};

    let keys = SessionKeys::derive(&[7; 32], [1, 2, 3, 4]);
    let cipher = || {
        Cipher::new(
            Engine::best(),
            &keys.initiator_length,
            &keys.initiator_packet,
        )
    };
    let (mut sender, mut receiver) = (cipher(), cipher());
    for contents in [&b""[..], b"ping", &[9; 100]] {
        let mut wire = Vec::new();
        sender
            .seal(PacketKind::Genuine, &[], contents, &mut wire)
            .unwrap();
        let (length, packet) = wire.split_at_mut(Session::LENGTH_LEN);
        let length = receiver.decrypt_length(length.try_into().unwrap()).unwrap();
        assert_eq!(length, contents.len());
        let (mut bytes, all) = (packet.to_vec(), 0..packet.len());
        let (kind, place) = receiver.open(&mut bytes, 0..0, all).unwrap();
        assert_eq!((kind, &bytes[place]), (PacketKind::Genuine, contents));
    }
}
