//! Batches for the kernels, with the expected results, for all ways of running a kernel.

// Each test uses part of it.
#![allow(dead_code)]

pub(crate) mod emulated;
pub(crate) mod host_cpp;

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};
use packetlane_lanes::{Backend, Job, Outcome, Work};

/// The shipped PTX.
pub(crate) const PTX: &str = include_str!("../../kernels/packetlane.ptx");

/// Bytes of text per chunk.
pub(crate) const CHUNK: u32 = 16320;

/// Which kernels process a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    One,
    Four,
    Warp,
    Chunks,
}

impl Class {
    pub(crate) const ALL: [Class; 4] = [Class::One, Class::Four, Class::Warp, Class::Chunks];

    /// The kernels to launch, in order, and their threads per packet or chunk.
    pub(crate) fn entries(self, open: bool) -> (&'static [&'static str], u32) {
        match (self, open) {
            (Class::One, false) => (&["seal_1"], 1),
            (Class::One, true) => (&["open_1"], 1),
            (Class::Four, false) => (&["seal_4"], 4),
            (Class::Four, true) => (&["open_4"], 4),
            (Class::Warp, false) => (&["seal_32"], 32),
            (Class::Warp, true) => (&["open_32"], 32),
            (Class::Chunks, false) => (&["seal_chunks", "seal_combine"], 32),
            (Class::Chunks, true) => (&["open_chunks", "open_combine", "open_decrypt"], 32),
        }
    }
}

/// Pseudo-random numbers, the same in every run.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    /// SplitMix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// The shape of a packet: lengths of AAD and text, and the text's offset modulo 16.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) aad: usize,
    pub(crate) text: usize,
    pub(crate) align: usize,
}

pub(crate) fn shape(aad: usize, text: usize, align: usize) -> Shape {
    Shape { aad, text, align }
}

/// A batch as passed to a device, and the expected results.
pub(crate) struct Batch {
    pub(crate) plain: Vec<u8>,
    pub(crate) sealed: Vec<u8>,
    pub(crate) jobs: Vec<Job>,
    keys: Vec<packetlane_lanes::Key>,
}

impl Batch {
    /// Adjacent packets of these shapes, each after its AAD. The first starts and the last ends
    /// with the arena.
    pub(crate) fn new(noise: &mut Noise, shapes: &[Shape]) -> Batch {
        let keys: Vec<packetlane_lanes::Key> = (0..3)
            .map(|_| noise.bytes(32).try_into().expect("32"))
            .collect();
        let mut plain = Vec::new();
        let mut jobs = Vec::new();
        for (i, shape) in shapes.iter().enumerate() {
            // Only padding for alignment is between two packets.
            let aad = plain.len();
            plain.extend(noise.bytes(shape.aad));
            while i > 0 && plain.len() % 16 != shape.align {
                plain.push(noise.next() as u8);
            }
            jobs.push(Job {
                text: plain.len() as u32,
                text_len: shape.text as u32,
                aad: aad as u32,
                aad_len: shape.aad as u32,
                key: noise.below(keys.len()),
                nonce: noise.bytes(12).try_into().expect("12"),
            });
            plain.extend(noise.bytes(shape.text + 16));
        }

        Batch::sealed(plain, jobs, keys)
    }

    /// One packet, after its AAD.
    pub(crate) fn one(key: &[u8], nonce: [u8; 12], aad: &[u8], text: &[u8]) -> Batch {
        let job = Job {
            text: aad.len() as u32,
            text_len: text.len() as u32,
            aad_len: aad.len() as u32,
            nonce,
            ..Job::default()
        };
        let plain = [aad, text, &[0; 16]].concat();
        Batch::sealed(plain, vec![job], vec![key.try_into().expect("32 bytes")])
    }

    /// Sealed by RustCrypto and by `lanes`, which must agree.
    fn sealed(plain: Vec<u8>, jobs: Vec<Job>, keys: Vec<packetlane_lanes::Key>) -> Batch {
        let mut sealed = plain.clone();
        for job in &jobs {
            let cipher = ChaCha20Poly1305::new(&keys[job.key].into());
            let (text, aad) = (job.text as usize, job.aad as usize);
            let aad = plain[aad..aad + job.aad_len as usize].to_vec();
            let (text, behind) = sealed[text..].split_at_mut(job.text_len as usize);
            let tag = cipher.encrypt_inout_detached(&job.nonce.into(), &aad, text.into());
            behind[..16].copy_from_slice(&tag.expect("a length that RFC 8439 allows"));
        }
        let mut by_lanes = plain.clone();
        let mut outcomes = vec![Outcome::Pending; jobs.len()];
        let backend = Backend::ALL.iter().rfind(|backend| backend.is_available());
        let backend = backend.expect("the portable backend is always there");
        backend.kernels().seal(Work {
            bytes: &mut by_lanes,
            keys: &keys,
            jobs: &jobs,
            outcomes: &mut outcomes,
        });
        assert!(by_lanes == sealed, "lanes and RustCrypto differ");
        Batch {
            plain,
            sealed,
            jobs,
            keys,
        }
    }

    /// 16 bytes per packet: text, text_len, key, counter.
    pub(crate) fn packets(&self) -> Vec<u8> {
        let words = self.jobs.iter().enumerate().flat_map(|(i, job)| {
            let counter = u32::from_le_bytes(job.nonce[..4].try_into().expect("4"));
            [job.text, job.text_len, i as u32, counter]
        });
        words.flat_map(u32::to_le_bytes).collect()
    }

    /// A separate key entry per packet, 48 bytes: key, end of the nonce, aad, aad_len.
    pub(crate) fn keys(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for job in &self.jobs {
            bytes.extend(self.keys[job.key]);
            bytes.extend(&job.nonce[4..]);
            bytes.extend(job.aad.to_le_bytes());
            bytes.extend(job.aad_len.to_le_bytes());
        }
        bytes
    }

    /// 8 bytes per chunk: packet, first.
    pub(crate) fn chunks(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (i, job) in self.jobs.iter().enumerate() {
            for chunk in 0..job.text_len.div_ceil(CHUNK).max(1) {
                bytes.extend((i as u32).to_le_bytes());
                bytes.extend((chunk * CHUNK).to_le_bytes());
            }
        }
        bytes
    }
}

/// Every length up to 1100, adjacent with little padding, at all alignments.
pub(crate) fn every_length(seed: u64) -> (Batch, Noise) {
    let mut noise = Noise(seed);
    let shapes: Vec<_> = (0..=1100)
        .map(|len| shape(0, len, noise.below(16)))
        .collect();
    (Batch::new(&mut noise, &shapes), noise)
}

/// AAD of every length up to 70 and some longer ones, before short texts of every alignment.
pub(crate) fn with_aad(seed: u64) -> (Batch, Noise) {
    let mut noise = Noise(seed);
    let lengths = (0..=70).chain([127, 128, 129, 1000, 4111]);
    let shapes: Vec<_> = lengths
        .map(|aad| shape(aad, noise.below(150), aad % 16))
        .collect();
    (Batch::new(&mut noise, &shapes), noise)
}

/// Lengths around every limit, up to 300 KB, and one of 39 chunks, which is more than a warp
/// combines at once.
pub(crate) fn long(seed: u64) -> (Batch, Noise) {
    let mut noise = Noise(seed);
    let chunk = CHUNK as usize;
    let lengths = [
        (4000, 4200),
        (chunk - 1, chunk + 1),
        (chunk + 17, chunk + 17),
        (2 * chunk, 2 * chunk),
        (33 * 500, 33 * 500),
        (65_536, 65_536),
        (300_000, 300_000),
        (38 * chunk + 777, 38 * chunk + 777),
    ];
    let lengths = lengths
        .into_iter()
        .flat_map(|(from, to)| (from..=to).step_by(1 + to / 300));
    let shapes: Vec<_> = lengths
        .enumerate()
        .map(|(i, len)| shape(if i % 4 == 0 { 20 } else { 0 }, len, noise.below(16)))
        .collect();
    (Batch::new(&mut noise, &shapes), noise)
}

/// Runs the kernels of a class on a batch.
pub(crate) trait Device {
    /// Runs them on these bytes. Returns the resulting bytes and the verdicts.
    fn run(
        &mut self,
        class: Class,
        open: bool,
        batch: &Batch,
        bytes: &[u8],
    ) -> Result<(Vec<u8>, Vec<u8>), String>;
}

/// Seals the batch, opens it, and opens it again after some packets were forged.
pub(crate) fn check(
    device: &mut dyn Device,
    noise: &mut Noise,
    class: Class,
    batch: &Batch,
) -> Result<(), String> {
    let right = vec![1; batch.jobs.len()];
    let (bytes, verdicts) = device.run(class, false, batch, &batch.plain)?;
    same(class, "sealed", batch, &bytes, &batch.sealed)?;
    same_verdicts(class, "sealed", batch, &verdicts, &right)?;

    let mut opened = batch.sealed.clone();
    for job in &batch.jobs {
        let text = job.text as usize..(job.text + job.text_len) as usize;
        opened[text.clone()].copy_from_slice(&batch.plain[text]);
    }
    let (bytes, verdicts) = device.run(class, true, batch, &batch.sealed)?;
    same(class, "opened", batch, &bytes, &opened)?;
    same_verdicts(class, "opened", batch, &verdicts, &right)?;

    // One bit of about every second packet: in text, tag or AAD.
    let mut forged = batch.sealed.clone();
    let mut verdicts_wanted = right;
    for (job, verdict) in batch.jobs.iter().zip(&mut verdicts_wanted) {
        if noise.next().is_multiple_of(2) {
            continue;
        }
        *verdict = 0;
        let at = noise.below((job.text_len + 16 + job.aad_len) as usize);
        let place = match at.checked_sub(job.text_len as usize + 16) {
            Some(at) => job.aad as usize + at,
            None => job.text as usize + at,
        };
        forged[place] ^= 1 << noise.below(8);
        let text = job.text as usize..(job.text + job.text_len) as usize;
        opened[text.clone()].copy_from_slice(&forged[text]);
    }
    // Forged packets are unchanged, as are all tags and AAD.
    let mut wanted = forged.clone();
    for (job, verdict) in batch.jobs.iter().zip(&verdicts_wanted) {
        if *verdict == 1 {
            let text = job.text as usize..(job.text + job.text_len) as usize;
            wanted[text.clone()].copy_from_slice(&batch.plain[text]);
        }
    }
    let (bytes, verdicts) = device.run(class, true, batch, &forged)?;
    same(class, "forged", batch, &bytes, &wanted)?;
    same_verdicts(class, "forged", batch, &verdicts, &verdicts_wanted)
}

fn same(
    class: Class,
    what: &str,
    batch: &Batch,
    bytes: &[u8],
    wanted: &[u8],
) -> Result<(), String> {
    match (0..wanted.len()).find(|i| bytes[*i] != wanted[*i]) {
        None => Ok(()),
        Some(at) => {
            let end = |job: &Job| (job.text + job.text_len) as usize + 16;
            let packet = batch.jobs.iter().position(|job| at < end(job));
            Err(format!(
                "{class:?}, {what}: byte {at} of the arena is wrong, in or before packet {packet:?}"
            ))
        }
    }
}

fn same_verdicts(
    class: Class,
    what: &str,
    batch: &Batch,
    verdicts: &[u8],
    wanted: &[u8],
) -> Result<(), String> {
    match (0..wanted.len()).find(|i| verdicts[*i] != wanted[*i]) {
        None => Ok(()),
        Some(i) => Err(format!(
            "{class:?}, {what}: the verdict on packet {i} is {}, {} bytes",
            verdicts[i], batch.jobs[i].text_len
        )),
    }
}
