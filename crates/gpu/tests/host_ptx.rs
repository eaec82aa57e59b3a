//! Batches through the host and the very PTX that ships, on a device that is none.

mod common;

use common::{Made, Random};
use gpu::stand_in::{Held, StandIn};
use gpu::{Bytes, Gpu, Plan, With};
use lanes::Outcome;

#[test]
fn whole_batches_of_every_class() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let stand_in = StandIn::with_ptx(seed);
        let gpu = Gpu::on(stand_in.clone());
        gpu.set_plan(Plan {
            streams: 3,
            piece_bytes: 60_000,
        });
        let mut lengths: Vec<usize> = (0..300).map(|_| random.mail() - 1).collect();
        lengths.extend([4097, 10_000, 32_768, 32_769, 60_000]);
        for place in (1..lengths.len()).rev() {
            lengths.swap(place, random.below(place + 1));
        }
        let made = Made::new(&mut random, &lengths, 50, 9);
        for made in [made.clone(), made.sealed(&mut random, 6)] {
            let mut expected = made.clone();
            let verdicts = expected.on_cpu();
            let used = made.bytes.len();
            let mut plain = made.bytes.clone();
            let mut pinned = gpu.pinned(used).unwrap();
            pinned.copy_from_slice(&plain);
            for in_pinned in [false, true] {
                let bytes = match in_pinned {
                    true => Bytes::Pinned(&mut pinned, used),
                    false => Bytes::Plain(&mut plain),
                };
                let mut outcomes = vec![Outcome::Pending; made.jobs.len()];
                let work = (made.secrets(), &made.jobs[..], &mut outcomes[..]);
                let timings = gpu.run(made.op, bytes, work, With::default()).unwrap();
                assert_eq!(timings.packets, made.jobs.len());
                assert!(outcomes == verdicts, "verdicts");
                let bytes = if in_pinned { &pinned[..] } else { &plain[..] };
                assert!(bytes == expected.bytes, "bytes");
            }
        }
        drop(gpu);
        assert_eq!(stand_in.held(), Held::default());
    }
}
