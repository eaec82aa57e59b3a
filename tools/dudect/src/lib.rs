//! What both programs here run: packets whose keys and texts are a secret.

use packetlane_lanes::{Backend, GcmKey, Job, Kernels, Key, MAX_KEY_LANES, Outcome, TAG_LEN, Work};

/// The batch: number of packets, and their length in bytes.
pub const BATCH: (usize, usize) = (64, 61);

/// Packets of a few blocks, in lockstep: number and length in bytes.
pub const LOCKSTEP: (usize, usize) = (64, 250);

/// A single packet, spread over all lanes: number and length in bytes.
pub const LONG: (usize, usize) = (1, 1500);

/// Packets to seal or to open.
pub struct Packets {
    pub bytes: Vec<u8>,
    keys: Vec<Key>,
    pub jobs: Vec<Job>,
    outcomes: Vec<Outcome>,
}

impl Packets {
    pub fn new((count, len): (usize, usize)) -> Self {
        let job = |i: usize| Job {
            text: (i * (len + TAG_LEN)) as u32,
            text_len: len as u32,
            key: i,
            ..Job::default()
        };
        Self {
            bytes: vec![0; count * (len + TAG_LEN)],
            keys: vec![[0; 32]; count],
            jobs: (0..count).map(job).collect(),
            outcomes: vec![Outcome::Pending; count],
        }
    }

    /// Copies keys and texts, in this order, from `secret`.
    pub fn fill(&mut self, secret: &[u8]) {
        let (keys, texts) = secret.split_at(32 * self.keys.len());
        self.keys.as_flattened_mut().copy_from_slice(keys);
        self.fill_texts(texts);
    }

    fn fill_texts(&mut self, texts: &[u8]) {
        let len = self.jobs[0].text_len as usize;
        for (job, text) in self.jobs.iter().zip(texts.chunks(len)) {
            self.bytes[job.text as usize..][..len].copy_from_slice(text);
        }
    }

    pub fn seal(&mut self, backend: Backend) {
        self.run(backend, Kernels::seal);
    }

    pub fn open(&mut self, backend: Backend) {
        self.run(backend, Kernels::open);
    }

    fn run(&mut self, backend: Backend, kernel: fn(Kernels, Work<'_>)) {
        let work = Work {
            bytes: &mut self.bytes,
            keys: &self.keys[..],
            jobs: &self.jobs,
            outcomes: &mut self.outcomes,
        };
        kernel(backend.kernels(), work);
    }
}

/// AES-GCM packets under one key.
pub struct GcmPackets {
    packets: Packets,
    key: GcmKey,
}

impl GcmPackets {
    pub fn new(shape: (usize, usize)) -> Self {
        let mut packets = Packets::new(shape);
        packets.jobs.iter_mut().for_each(|job| job.key = 0);
        // A different nonce for each packet, because all share one key.
        for (i, job) in packets.jobs.iter_mut().enumerate() {
            job.nonce[0] = i as u8;
        }
        let key = GcmKey::aes128(&[0; 16]);
        Self { packets, key }
    }

    /// Copies the key and the texts, in this order, from `secret`.
    pub fn fill(&mut self, secret: &[u8]) {
        let (key, texts) = secret.split_first_chunk().expect("longer than a key");
        self.key = GcmKey::aes128(key);
        self.packets.fill_texts(texts);
    }

    pub fn seal(&mut self, backend: Backend) {
        self.run(backend, Kernels::gcm_seal);
    }

    pub fn open(&mut self, backend: Backend) {
        self.run(backend, Kernels::gcm_open);
    }

    fn run(&mut self, backend: Backend, kernel: fn(Kernels, Work<'_, &[&GcmKey]>)) {
        let Packets {
            bytes,
            jobs,
            outcomes,
            ..
        } = &mut self.packets;
        let work = Work {
            bytes,
            keys: &[&self.key][..],
            jobs,
            outcomes,
        };
        kernel(backend.kernels(), work);
    }
}

/// A vector of secret keys of secp256k1, from 1 to n - 1, made by the same instructions for all.
#[must_use]
pub fn secret_keys(secret: &[u8]) -> [[u8; 32]; MAX_KEY_LANES] {
    let mut keys = [[0; 32]; MAX_KEY_LANES];
    keys.as_flattened_mut()
        .copy_from_slice(&secret[..32 * MAX_KEY_LANES]);
    for key in &mut keys {
        key[0] &= 0x7f;
        key[31] |= 1;
    }
    keys
}
