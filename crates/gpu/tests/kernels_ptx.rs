//! The shipped PTX, executed on the CPU, against RustCrypto and `lanes`.

mod kernels;

use kernels::emulated::Emulated;
use kernels::{Batch, Class, Device, Noise, PTX, check, every_length, long, shape, with_aad};
use packetlane_ptx_emulator::Order;

const ORDERS: [Order; 3] = [Order::Permuted(7), Order::Reversed, Order::Forward];

/// In each class, with a different order of threads.
fn passes((batch, mut noise): (Batch, Noise)) {
    for (i, class) in Class::ALL.into_iter().enumerate() {
        let mut device = Emulated::new(PTX, ORDERS[i % 3]);
        check(&mut device, &mut noise, class, &batch).unwrap_or_else(|error| panic!("{error}"));
        println!(
            "{class:?}: {} million instructions",
            device.steps / 1_000_000
        );
    }
}

#[test]
fn lengths_to_1100() {
    passes(every_length(1));
}

#[test]
fn aad() {
    passes(with_aad(2));
}

#[test]
fn lengths_to_300_kb() {
    passes(long(3));
}

/// Each alignment with each length of a last block, with adjacent packets on both sides.
#[test]
fn every_alignment() {
    let mut noise = Noise(4);
    let mut shapes = Vec::new();
    for align in 0..16 {
        shapes.extend((0..=68).map(|len| shape(0, len, align)));
        shapes.extend((300..=305).map(|len| shape(0, len, align)));
    }
    passes((Batch::new(&mut noise, &shapes), noise));
}

/// Adjacent packets of the profile `mail`, in random order.
#[test]
fn mixed() {
    let mut noise = Noise(5);
    let mut end = 0;
    let shapes: Vec<_> = (0..700)
        .map(|_| {
            let len = match noise.below(10) {
                0..=3 => 1 + noise.below(32),
                4..=6 => 33 + noise.below(96),
                7..=8 => 129 + noise.below(384),
                _ => 513 + noise.below(3584),
            };
            let align = end % 16;
            end += len + 16;
            shape(0, len, align)
        })
        .collect();
    passes((Batch::new(&mut noise, &shapes), noise));
}

/// Batches of every number of packets: lanes of a warp without a packet are harmless.
#[test]
fn every_number_of_packets() {
    for count in (1..=34).chain([127, 128, 129]) {
        let mut noise = Noise(count as u64);
        let shapes: Vec<_> = (0..count)
            .map(|_| shape(noise.below(3), noise.below(200), noise.below(16)))
            .collect();
        passes((Batch::new(&mut noise, &shapes), noise));
    }
}

/// RFC 8439, section 2.8.2.
#[test]
fn vector_of_the_rfc() {
    let text = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip \
        for the future, sunscreen would be it.";
    let aad = [
        0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7,
    ];
    let key: Vec<u8> = (0x80..0xa0).collect();
    let nonce = [7, 0, 0, 0, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47];
    let batch = Batch::one(&key, nonce, &aad, text);
    let begins = [0xd3, 0x1a, 0x8d, 0x34, 0x64, 0x8e, 0x60, 0xdb];
    let tag = [
        0x1a, 0xe1, 0x0b, 0x59, 0x4f, 0x09, 0xe2, 0x6a, 0x7e, 0x90, 0x2e, 0xcb, 0xd0, 0x60, 0x06,
        0x91,
    ];
    assert_eq!(batch.sealed[12..20], begins);
    assert_eq!(batch.sealed[12 + 114..], tag);
    passes((batch, Noise(6)));
}

/// The longest BIP324 packet: 1029 chunks.
#[test]
fn sixteen_mebibytes() {
    let mut noise = Noise(7);
    let batch = Batch::new(&mut noise, &[shape(3, 1 << 24, 9), shape(0, 61, 4)]);
    let mut device = Emulated::new(PTX, Order::Permuted(1));
    check(&mut device, &mut noise, Class::Chunks, &batch).unwrap_or_else(|error| panic!("{error}"));
}

/// The number of PTX instructions per thread, which `kernels/README.md` quotes: for another block
/// of text in each of a packet's threads, and for a packet of 61 bytes. Changes that only cost time
/// show up here.
#[test]
fn instructions() {
    let count = |class: Class, open, len, align| {
        let mut noise = Noise(8);
        // The first packet is at the start of the arena, wherever the others are.
        let mut shapes = vec![shape(0, len, align); 128];
        shapes[0] = shape(0, len, 0);
        let batch = Batch::new(&mut noise, &shapes);
        let bytes = if open { &batch.sealed } else { &batch.plain };
        let mut device = Emulated::new(PTX, Order::Forward);
        device.run(class, open, &batch, bytes).expect("it is right");
        device.steps / (128 * class.entries(open).1 as u64)
    };
    // Seal and open, aligned and unaligned, and a small packet sealed.
    let most = [
        (Class::One, [1290, 1300, 1410, 1480], 2800),
        (Class::Four, [1390, 1390, 1500, 1580], 2500),
        (Class::Warp, [1390, 1390, 1500, 1580], 2500),
        (Class::Chunks, [1410, 1440, 1530, 1620], 5800),
    ];
    for (class, blocks, small) in most {
        let (_, threads) = class.entries(false);
        let lens = [64 * 63, 64 * 63 + 64 * threads as usize * 4];
        for ((align, open), most) in [(0, false), (0, true), (13, false), (13, true)]
            .into_iter()
            .zip(blocks)
        {
            let [short, long] = lens.map(|len| count(class, open, len, align));
            let block = (long - short) / 4;
            println!("{class:?}, open {open}, alignment {align}: {block} a block");
            assert!(block <= most, "{class:?}: {block} instructions a block");
        }
        let packet = count(class, false, 61, 0);
        println!("{class:?}, sealed: {packet} for 61 bytes");
        assert!(
            packet <= small,
            "{class:?}: {packet} instructions for 61 bytes"
        );
    }
}
