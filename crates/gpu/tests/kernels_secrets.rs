//! No branch and no address of the kernels depends on a secret: with other keys, nonces, texts
//! and wrong bits, every thread does the same.

mod kernels;

use kernels::emulated::Emulated;
use kernels::{Batch, Class, Device, Noise, PTX, Shape, shape};
use packetlane_ptx_emulator::Order;

fn shapes() -> Vec<Shape> {
    let mut noise = Noise(1);
    (0..100)
        .map(|len| shape(len % 20, 5 * len, noise.below(16)))
        .chain([shape(0, 17_000, 5)])
        .collect()
}

/// The traces of sealing, opening, and refusing to open.
fn traces(ptx: &str, class: Class, seed: u64) -> [u64; 3] {
    let mut noise = Noise(seed);
    let batch = Batch::new(&mut noise, &shapes());
    let mut forged = batch.sealed.clone();
    for job in &batch.jobs {
        let at = job.text as usize + noise.below(job.text_len as usize + 16);
        forged[at] ^= 1 << noise.below(8);
    }
    let runs = [
        (false, &batch.plain, 1),
        (true, &batch.sealed, 1),
        (true, &forged, 0),
    ];
    runs.map(|(open, bytes, verdict)| {
        let mut device = Emulated::new(ptx, Order::Forward);
        let (_, verdicts) = device.run(class, open, &batch, bytes).expect("it is right");
        assert!(verdicts.iter().all(|is| *is == verdict));
        device.trace
    })
}

#[test]
fn no_branch_or_address_depends_on_secrets() {
    for class in Class::ALL {
        let first = traces(PTX, class, 100);
        for seed in 101..104 {
            assert_eq!(traces(PTX, class, seed), first, "{class:?}");
        }
        // A verdict is public, and changes the trace.
        assert_ne!(first[1], first[2]);
    }
}

/// Shows that the test above can fail: plants a branch and an address that depend on keystream.
#[test]
fn a_planted_leak_is_found() {
    let leaks = [
        "setp.lt.s32 %leak0, REG, 0;\n@%leak0 bra $LEAK;\n$LEAK:\n",
        "and.b32 %spy0, REG, 3;\nmul.wide.u32 %way0, %spy0, 4;\nadd.s64 %way0, %way0, %rd5;\nld.global.u32 %spy0, [%way0];\n",
    ];
    for leak in leaks {
        let start = PTX.find(".entry seal_1(").expect("the entry");
        let body = start + PTX[start..].find("{\n").expect("its body") + 2;
        // After the first rotation, whose result is secret.
        let rotation = body + PTX[body..].find("shf.l.wrap").expect("a rotation");
        let behind = rotation + PTX[rotation..].find('\n').expect("a line") + 1;
        let register = PTX[rotation..]
            .split_whitespace()
            .nth(1)
            .expect("an operand");
        let leak = leak.replace("REG", register.trim_end_matches(','));
        let banks = ".reg .pred %leak<1>;\n.reg .b32 %spy<1>;\n.reg .b64 %way<1>;\n";
        let ptx = [
            &PTX[..body],
            banks,
            &PTX[body..behind],
            &leak,
            &PTX[behind..],
        ]
        .concat();
        let seals = [100, 101].map(|seed| traces(&ptx, Class::One, seed)[0]);
        assert_ne!(seals[0], seals[1], "{leak}");
    }
}
