//! Batches through the host code and the shipped PTX, on an emulated device.

mod common;

use common::{Made, Random};
use packetlane_gpu::{Gpu, PipelineConfig};
use packetlane_ptx_emulator::{Held, StandIn};

#[test]
fn whole_batches_of_every_class() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let stand_in = StandIn::with_ptx(seed);
        let gpu = Gpu::on(stand_in.clone());
        gpu.configure(PipelineConfig {
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
            made.check_on(&gpu, false, seed);
        }
        drop(gpu);
        assert_eq!(stand_in.held(), Held::default());
    }
}
