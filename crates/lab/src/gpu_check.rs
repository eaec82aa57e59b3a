//! Checks that a CUDA device seals and opens like the CPU: a suite of batches, then any number of
//! random packets. All bytes and verdicts must be equal.

use crate::workload::gpu::nonce;
use packetlane::gpu::{Bytes, DeviceWork, Gpu, GpuError, Op, RunOptions};
use packetlane_lanes::{Backend, Job, Key, Outcome, TAG_LEN, Work};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use std::fmt;

/// All lengths up to this one are tested.
const MAX_SHORT_LEN: usize = 1100;

/// Longer lengths to test: around the boundaries of blocks, kernel classes and chunks, and BIP324's
/// maximum.
const LONG: [usize; 19] = [
    4095,
    4096,
    4097,
    8191,
    16_319,
    16_320,
    16_321,
    32_639,
    32_640,
    32_641,
    32_767,
    32_768,
    32_769,
    65_281,
    100_000,
    262_144,
    300_000,
    1 << 20,
    1 << 24,
];

/// Approximate maximum size of a batch of random packets, in bytes.
const BATCH_BYTES: usize = 64 << 20;

/// Maximum number of random packets in a batch.
const BATCH_PACKETS: usize = 1 << 18;

/// Number of different keys in a batch.
const KEYS: usize = 1000;

/// Maximum gap before a text or its AAD, in bytes, so that texts start at any address.
const GAP: usize = 20;

/// One of this many packets is forged before opening.
const FORGED: usize = 5;

/// Counts of a successful check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Batches run on the device.
    pub batches: usize,
    /// Packets of the suite, counted for each operation.
    pub suite: usize,
    /// Random packets, each sealed and opened.
    pub random: usize,
    /// Forged packets among those opened.
    pub forged: usize,
}

/// Why a device fails the check.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckError {
    /// The device could not run a batch.
    Device(GpuError),
    /// The device's results differ from the CPU's.
    Different {
        /// The batch.
        batch: String,
        /// The first packet that differs.
        packet: usize,
        /// The length of its text, in bytes.
        len: usize,
        /// Number of packets that differ.
        packets: usize,
    },
    /// The device changed bytes outside of all packets.
    Beyond {
        /// The batch.
        batch: String,
    },
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::Different {
                batch,
                packet,
                len,
                packets,
            } => write!(
                f,
                "the device is WRONG: {batch}: {packets} packets differ from the CPU's, the first \
                 is number {packet}, a text of {len} bytes"
            ),
            Self::Beyond { batch } => write!(
                f,
                "the device is WRONG: {batch}: it changed bytes outside of all packets"
            ),
        }
    }
}

impl std::error::Error for CheckError {}

impl From<GpuError> for CheckError {
    fn from(error: GpuError) -> Self {
        Self::Device(error)
    }
}

/// A batch before sealing.
struct Made {
    bytes: Vec<u8>,
    keys: Vec<Key>,
    jobs: Vec<Job>,
}

impl Made {
    /// Texts of these lengths under random keys, at any address. One of `aad` packets has AAD; none
    /// if `aad` is 0.
    fn new(rng: &mut StdRng, lengths: impl Iterator<Item = usize>, aad: usize) -> Self {
        let mut keys = vec![[0; 32]; KEYS];
        keys.iter_mut().for_each(|key| rng.fill_bytes(key));
        let mut end = rng.random_range(0..GAP);
        let mut jobs = Vec::new();
        for (number, len) in lengths.enumerate() {
            let aad_len = match aad {
                0 => 0,
                _ if rng.random_range(0..aad) > 0 => 0,
                _ => rng.random_range(1..70),
            };
            let aad = end;
            let text = aad + aad_len + rng.random_range(0..GAP);
            end = text + len + TAG_LEN;
            jobs.push(Job {
                text: text as u32,
                text_len: len as u32,
                aad: aad as u32,
                aad_len: aad_len as u32,
                key: rng.random_range(0..KEYS),
                nonce: nonce(number),
            });
        }
        let mut bytes = vec![0; end + rng.random_range(0..GAP)];
        rng.fill_bytes(&mut bytes);
        Self { bytes, keys, jobs }
    }

    /// Flips a bit of the text, the tag or the AAD in one of `one_in` packets.
    fn forge(&mut self, rng: &mut StdRng, one_in: usize) {
        for job in &self.jobs {
            if rng.random_range(0..one_in) > 0 {
                continue;
            }
            let at = match job.aad_len {
                len if len > 0 && rng.random() => job.aad + rng.random_range(0..len),
                _ => job.text + rng.random_range(0..job.text_len + TAG_LEN as u32),
            };
            self.bytes[at as usize] ^= 1 << rng.random_range(0..8);
        }
    }
}

/// Runs the checks on a device and counts.
struct Check<'a> {
    gpu: &'a Gpu,
    backend: Backend,
    checked: Checked,
}

impl Check<'_> {
    /// Runs one operation on the device, from ordinary or page-locked memory, and on the CPU.
    /// Returns the bytes and verdicts if they are equal.
    fn same(
        &mut self,
        batch: &str,
        op: Op,
        made: &Made,
        pinned: bool,
    ) -> Result<(Vec<u8>, Vec<Outcome>), CheckError> {
        let batch = format!(
            "{batch}, {} memory, {}",
            if pinned { "page-locked" } else { "ordinary" },
            if op == Op::Seal { "seal" } else { "open" },
        );
        let Made { bytes, keys, jobs } = made;
        let pending = vec![Outcome::Pending; jobs.len()];

        let (mut expected, mut verdicts) = (bytes.clone(), pending.clone());
        match op {
            Op::Seal => self.backend.kernels().seal(Work {
                bytes: &mut expected,
                keys,
                jobs,
                outcomes: &mut verdicts,
            }),
            Op::Open => self.backend.kernels().open(Work {
                bytes: &mut expected,
                keys: &keys[..],
                jobs,
                outcomes: &mut verdicts,
            }),
        }

        let mut outcomes = pending;
        let given = if pinned {
            let mut arena = self.gpu.pinned(bytes.len())?;
            arena[..bytes.len()].copy_from_slice(bytes);
            let work = DeviceWork {
                bytes: Bytes::Pinned(&mut arena, bytes.len()),
                keys: &keys[..],
                jobs,
                outcomes: &mut outcomes,
            };
            self.gpu.run(op, work, RunOptions::default())?;
            arena[..bytes.len()].to_vec()
        } else {
            let mut arena = bytes.clone();
            let work = Work {
                bytes: &mut arena,
                keys: &keys[..],
                jobs,
                outcomes: &mut outcomes,
            };
            self.gpu.run(op, work.into(), RunOptions::default())?;
            arena
        };

        let place = |job: &Job| {
            let text = job.text as usize;
            text..text + job.text_len as usize + TAG_LEN
        };
        if given != expected || outcomes != verdicts {
            let differs = |packet: &usize| {
                let place = place(&jobs[*packet]);
                given[place.clone()] != expected[place] || outcomes[*packet] != verdicts[*packet]
            };
            let wrong: Vec<usize> = (0..jobs.len()).filter(differs).collect();
            let Some(&packet) = wrong.first() else {
                return Err(CheckError::Beyond { batch });
            };
            return Err(CheckError::Different {
                batch,
                packet,
                len: jobs[packet].text_len as usize,
                packets: wrong.len(),
            });
        }
        self.checked.batches += 1;
        let forged = verdicts.iter().filter(|one| **one == Outcome::BadTag);
        self.checked.forged += forged.count();
        Ok((expected, verdicts))
    }

    /// Seals a batch, forges some packets, and opens it. Returns the number of packets.
    fn both(
        &mut self,
        batch: &str,
        rng: &mut StdRng,
        mut made: Made,
        pinned: bool,
    ) -> Result<usize, CheckError> {
        made.bytes = self.same(batch, Op::Seal, &made, pinned)?.0;
        made.forge(rng, FORGED);
        self.same(batch, Op::Open, &made, pinned)?;
        Ok(made.jobs.len())
    }
}

/// Compares `gpu` with the CPU on `backend`: texts of all lengths up to 1100 bytes, mixed lengths
/// and long ones up to `longest` bytes, with and without AAD, and wrong tags, from ordinary and
/// page-locked memory; then `packets` random packets. Passes lines about the progress to `say`.
///
/// # Errors
///
/// If the device fails, or its results differ from the CPU's.
pub fn check(
    gpu: &Gpu,
    backend: Backend,
    packets: usize,
    longest: usize,
    mut say: impl FnMut(&str),
) -> Result<Checked, CheckError> {
    let mut rng = StdRng::seed_from_u64(0x0324);
    let mut check = Check {
        gpu,
        backend,
        checked: Checked::default(),
    };
    for pinned in [false, true] {
        let long = || LONG.into_iter().filter(|len| *len <= longest);
        let lengths: [(&str, Vec<usize>, usize); 5] = [
            ("all lengths to 1100", (0..=MAX_SHORT_LEN).collect(), 0),
            (
                "all lengths to 1100 with AAD",
                (0..=MAX_SHORT_LEN).collect(),
                1,
            ),
            ("one packet", vec![61], 0),
            ("long packets", long().collect(), 3),
            (
                "mixed",
                {
                    let some = (0..3000).map(|_| length(&mut rng));
                    some.chain(long().take(15)).collect()
                },
                4,
            ),
        ];
        for (name, lengths, aad) in lengths {
            let made = Made::new(&mut rng, lengths.into_iter(), aad);
            check.checked.suite += 2 * check.both(name, &mut rng, made, pinned)?;
            say(&format!(
                "{name}, {} memory: sealed and opened as on the CPU",
                if pinned { "page-locked" } else { "ordinary" }
            ));
        }
    }
    let mut shown = 0;
    while check.checked.random < packets {
        let left = packets - check.checked.random;
        let mut bytes = 0;
        let mut lengths = Vec::new();
        while lengths.len() < left.min(BATCH_PACKETS) && bytes < BATCH_BYTES {
            lengths.push(length(&mut rng));
            bytes += lengths[lengths.len() - 1];
        }
        let made = Made::new(&mut rng, lengths.into_iter(), 50);
        let pinned = rng.random();
        check.checked.random += check.both("random packets", &mut rng, made, pinned)?;
        // One line for each tenth.
        let tenths = 10 * check.checked.random / packets;
        if tenths > shown {
            shown = tenths;
            say(&format!(
                "{} of {packets} random packets",
                check.checked.random
            ));
        }
    }
    Ok(check.checked)
}

/// A random length from the profile `mail`, including the header byte.
fn length(rng: &mut StdRng) -> usize {
    1 + crate::traffic::mail(rng)
}
