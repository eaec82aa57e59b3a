//! Helpers of the host's tests.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "a module of many tests, none of which uses all"
)]

use packetlane_gpu::{Bytes, DeviceWork, Gpu, Op, PipelineConfig, RunOptions, Timings, pending};
use packetlane_lanes::{Backend, Job, Key, Outcome, TAG_LEN, Work};
use packetlane_ptx_emulator::StandIn;

/// Pseudo-random numbers, the same in every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 16) % bound as u64) as usize
    }

    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| (self.next() >> 32) as u8)
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }

    /// A length of the profile `mail`.
    pub fn mail(&mut self) -> usize {
        match self.below(10) {
            0..4 => 1 + self.below(32),
            4..7 => 33 + self.below(96),
            7..9 => 129 + self.below(384),
            _ => 513 + self.below(3584),
        }
    }
}

/// A batch to seal or to open.
#[derive(Clone)]
pub struct Made {
    pub op: Op,
    pub bytes: Vec<u8>,
    pub keys: Vec<Key>,
    pub jobs: Vec<Job>,
}

/// The best backend of this CPU.
pub fn cpu() -> Backend {
    let mut all = Backend::ALL.iter().rev();
    *all.find(|backend| backend.is_available()).unwrap()
}

impl Made {
    /// Plaintexts of these lengths, with a few bytes between them, for `keys` keys whose epochs
    /// change occasionally. One in `aad` packets has AAD.
    pub fn new(random: &mut Random, lengths: &[usize], keys: usize, aad: usize) -> Self {
        let keys: Vec<Key> = (0..keys).map(|_| random.bytes()).collect();
        let mut epochs = vec![0_u64; keys.len()];
        let mut jobs = Vec::new();
        let mut end = random.below(40);
        for (number, &len) in (0_u32..).zip(lengths) {
            let aad_len = match random.below(aad) {
                0 => 1 + random.below(70),
                _ => 0,
            };
            let aad = end;
            end += aad_len + random.below(5);
            let key = random.below(keys.len());
            if random.below(20) == 0 {
                epochs[key] += 1;
            }
            let mut nonce = [0; 12];
            nonce[..4].copy_from_slice(&number.to_le_bytes());
            nonce[4..].copy_from_slice(&epochs[key].to_le_bytes());
            jobs.push(Job {
                text: end as u32,
                text_len: len as u32,
                aad: aad as u32,
                aad_len: aad_len as u32,
                key,
                nonce,
            });
            end += len + TAG_LEN + random.below(5);
        }
        let mut bytes = vec![0; end + random.below(40)];
        random.fill(&mut bytes);
        let op = Op::Seal;
        Self {
            op,
            bytes,
            keys,
            jobs,
        }
    }

    /// The same batch, sealed, to be opened. One in `forged` packets is forged, in one bit of
    /// its text, tag or AAD.
    pub fn sealed(mut self, random: &mut Random, forged: usize) -> Self {
        assert_eq!(self.on_cpu(), vec![Outcome::Sealed; self.jobs.len()]);
        self.op = Op::Open;
        for job in &self.jobs {
            if random.below(forged) == 0 {
                let len = job.text_len as usize + TAG_LEN;
                let bit = random.below(8 * (len + job.aad_len as usize));
                let byte = match bit / 8 {
                    byte if byte < len => job.text as usize + byte,
                    byte => job.aad as usize + byte - len,
                };
                self.bytes[byte] ^= 1 << (bit % 8);
            }
        }
        self
    }

    /// Returns the results of a backend alone.
    pub fn on_cpu(&mut self) -> Vec<Outcome> {
        let mut outcomes = vec![Outcome::Pending; self.jobs.len()];
        let keys = &self.keys[..];
        let work = Work {
            bytes: &mut self.bytes,
            keys,
            jobs: &self.jobs,
            outcomes: &mut outcomes,
        };
        run(self.op, work);
        outcomes
    }

    /// The CPU's bytes and verdicts.
    pub fn expected(&self) -> (Made, Vec<Outcome>) {
        let mut expected = self.clone();
        let verdicts = expected.on_cpu();
        (expected, verdicts)
    }

    /// Runs the batch on a device, in ordinary and in page-locked memory, and compares it with
    /// the CPU's results.
    pub fn check_on(&self, gpu: &Gpu, timed: bool, seed: u64) -> [Timings; 2] {
        let (expected, verdicts) = self.expected();
        let used = self.bytes.len();
        let mut plain = self.bytes.clone();
        let mut pinned = gpu.pinned(used).unwrap();
        pinned.copy_from_slice(&plain);
        [false, true].map(|in_pinned| {
            let bytes = match in_pinned {
                true => Bytes::Pinned(&mut pinned, used),
                false => Bytes::Plain(&mut plain),
            };
            let mut outcomes = vec![Outcome::Pending; self.jobs.len()];
            let work = (&self.keys[..], &self.jobs[..], &mut outcomes[..]);
            let with = RunOptions {
                timed,
                ..RunOptions::default()
            };
            let timings = gpu.run(self.op, device_work(bytes, work), with).unwrap();
            assert_eq!(timings.packets, self.jobs.len());
            assert!(outcomes == verdicts, "verdicts, seed {seed}");
            let bytes = if in_pinned { &pinned[..] } else { &plain[..] };
            assert!(bytes == expected.bytes, "bytes, seed {seed}");
            timings
        })
    }
}

/// Runs jobs on the CPU.
pub fn run(op: Op, work: Work<'_>) {
    match op {
        Op::Seal => cpu().kernels().seal(work),
        Op::Open => cpu().kernels().open(work),
    }
}

/// Runs the jobs that have not run.
pub fn finish(op: Op, bytes: &mut [u8], keys: &[Key], jobs: &[Job], outcomes: &mut [Outcome]) {
    let mut end = 0;
    while let Some(range) = pending(outcomes, end) {
        end = range.end;
        let work = Work {
            bytes,
            keys,
            jobs: &jobs[range.clone()],
            outcomes: &mut outcomes[range],
        };
        run(op, work);
    }
}

/// An emulated device, and a `Gpu` on it that works in small pieces.
pub fn device(seed: u64, streams: usize, piece_bytes: usize) -> (StandIn, Gpu) {
    let stand_in = StandIn::new(seed);
    let gpu = Gpu::on(stand_in.clone());
    gpu.configure(PipelineConfig {
        streams,
        piece_bytes,
    });
    (stand_in, gpu)
}

/// Work for a device.
pub fn device_work<'w>(
    bytes: Bytes<'w>,
    (keys, jobs, outcomes): (&'w [Key], &'w [Job], &'w mut [Outcome]),
) -> DeviceWork<'w> {
    DeviceWork {
        bytes,
        keys,
        jobs,
        outcomes,
    }
}
