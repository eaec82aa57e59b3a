//! The kernels of `packetlane-lanes`: for a list of jobs, every backend of this CPU must produce
//! the same bytes and outcomes as the portable one.

use super::input::Input;
use packetlane_lanes::{AesKey, Backend, GcmKey, Header, Job, Key, Outcome, TAG_LEN, Work};

/// Runs lists of packets with ChaCha20-Poly1305 and AES-GCM, some of them damaged; masks QUIC
/// headers; hashes messages. Returns whether a packet was authentic.
pub fn lanes(data: &[u8]) -> bool {
    let input = || Input { rest: data };
    match data.first().map_or(0, |byte| byte % 4) {
        0 => on_every_backend(|backend| chacha20poly1305(backend, input())),
        1 => on_every_backend(|backend| gcm(backend, input())),
        2 => {
            on_every_backend(|backend| headers(backend, input()));
            false
        }
        _ => {
            on_every_backend(|backend| digests(backend, input()));
            false
        }
    }
}

/// Runs `run` on every backend of this CPU and checks that the results are equal. Returns whether a
/// packet was authentic.
fn on_every_backend(run: impl Fn(Backend) -> (Vec<Outcome>, Vec<u8>)) -> bool {
    let expected = run(Backend::Portable);
    for &backend in Backend::ALL {
        if backend != Backend::Portable && backend.is_available() {
            let (outcomes, bytes) = run(backend);
            assert_eq!(outcomes, expected.0, "{backend:?}");
            assert!(bytes == expected.1, "{backend:?} produced other bytes");
        }
    }
    expected.0.contains(&Outcome::Authentic)
}

/// Up to 40 packets in one buffer, each with its own nonce.
fn packets(input: &mut Input, keys: usize) -> (Vec<u8>, Vec<Job>) {
    let mut bytes = input.noise(70);
    let mut jobs = Vec::new();
    for number in 0..input.below(40) {
        let most = [64, 300, 1500, 5000][input.below(4)];
        let aad = input.noise(most / 8);
        let text = input.noise(most);
        let mut job = Job {
            text_len: text.len() as u32,
            aad_len: aad.len() as u32,
            key: input.below(keys),
            nonce: [number as u8 + 1; 12],
            ..Job::default()
        };
        job.aad = bytes.len() as u32;
        bytes.extend(aad);
        job.text = bytes.len() as u32;
        bytes.extend(text);
        bytes.extend([0xee; TAG_LEN]);
        jobs.push(job);
    }
    bytes.extend(input.noise(70));
    (bytes, jobs)
}

/// Damages some of the sealed packets. Returns the expected outcome of opening each.
fn damage(input: &mut Input, bytes: &mut [u8], jobs: &[Job]) -> Vec<Outcome> {
    let mut expected = Vec::new();
    for job in jobs {
        let end = job.text as usize + job.text_len as usize + TAG_LEN;
        let packet = &mut bytes[job.aad as usize..end];
        expected.push(
            match input.byte() % 4 == 3 && input.damage(packet).is_some() {
                true => Outcome::BadTag,
                false => Outcome::Authentic,
            },
        );
    }
    expected
}

fn chacha20poly1305(backend: Backend, mut input: Input) -> (Vec<Outcome>, Vec<u8>) {
    let keys: [Key; 3] = [[input.byte(); 32], [2; 32], [3; 32]];
    let (mut bytes, jobs) = packets(&mut input, keys.len());
    let plain = bytes.clone();
    let mut outcomes = vec![Outcome::Pending; jobs.len()];
    backend.kernels().seal(Work {
        bytes: &mut bytes,
        keys: &keys,
        jobs: &jobs,
        outcomes: &mut outcomes,
    });
    let mut seen = bytes.clone();
    let expected = damage(&mut input, &mut bytes, &jobs);
    check_single(
        backend,
        &mut input,
        (&plain, &seen, &bytes),
        &keys,
        &jobs,
        &expected,
    );
    backend.kernels().open(Work {
        bytes: &mut bytes,
        keys: &keys,
        jobs: &jobs,
        outcomes: &mut outcomes,
    });
    check_opened(&plain, &bytes, &jobs, &outcomes, &expected);
    seen.extend(bytes);
    (outcomes, seen)
}

/// Seals packets one by one, with some of their keystream precomputed, and compares with the batch.
/// Then opens them, some `damaged`.
fn check_single(
    backend: Backend,
    input: &mut Input,
    (plain, sealed, damaged): (&[u8], &[u8], &[u8]),
    keys: &[Key],
    jobs: &[Job],
    expected: &[Outcome],
) {
    let (kernels, mut ours, mut outcomes) = (backend.kernels(), plain.to_vec(), Vec::new());
    let mut keystreams = Vec::new();
    for job in jobs {
        let key = &keys[job.key];
        let blocks = [0, 0, 2, 5][input.below(4)];
        let counters: Vec<_> = (0..blocks).map(|block| (block, job.nonce)).collect();
        let mut keystream = vec![[0; 64]; counters.len()];
        kernels.precompute_keystream(key, &counters, &mut keystream);
        kernels.seal_single(key, &keystream, &mut ours, job);
        keystreams.push(keystream);
    }
    assert!(ours == sealed, "a single packet is sealed to other bytes");
    ours.copy_from_slice(damaged);
    for (job, keystream) in jobs.iter().zip(&keystreams) {
        let key = &keys[job.key];
        outcomes.push(kernels.open_single(key, keystream, &mut ours, job));
    }
    check_opened(plain, &ours, jobs, &outcomes, expected);
}

fn gcm(backend: Backend, mut input: Input) -> (Vec<Outcome>, Vec<u8>) {
    let keys = [
        GcmKey::aes128(&[input.byte(); 16]),
        GcmKey::aes256(&[2; 32]),
        GcmKey::aes128(&[3; 16]),
    ];
    let keys = keys.each_ref();
    let (mut bytes, jobs) = packets(&mut input, keys.len());
    let plain = bytes.clone();
    let mut outcomes = vec![Outcome::Pending; jobs.len()];
    backend.kernels().gcm_seal(Work {
        bytes: &mut bytes,
        keys: &keys[..],
        jobs: &jobs,
        outcomes: &mut outcomes,
    });
    let mut seen = bytes.clone();
    let expected = damage(&mut input, &mut bytes, &jobs);
    backend.kernels().gcm_open(Work {
        bytes: &mut bytes,
        keys: &keys[..],
        jobs: &jobs,
        outcomes: &mut outcomes,
    });
    check_opened(&plain, &bytes, &jobs, &outcomes, &expected);
    seen.extend(bytes);
    (outcomes, seen)
}

/// Checks that the opened packets contain the plaintext.
fn check_opened(
    plain: &[u8],
    bytes: &[u8],
    jobs: &[Job],
    outcomes: &[Outcome],
    expected: &[Outcome],
) {
    assert_eq!(outcomes, expected);
    for (job, outcome) in jobs.iter().zip(outcomes) {
        let text = job.text as usize..(job.text + job.text_len) as usize;
        if *outcome == Outcome::Authentic {
            assert!(bytes[text.clone()] == plain[text], "opened to other text");
        }
    }
}

/// Header protection with both ciphers, on headers that do not overlap.
fn headers(backend: Backend, mut input: Input) -> (Vec<Outcome>, Vec<u8>) {
    let aes = [
        AesKey::aes128(&[input.byte(); 16]),
        AesKey::aes256(&[2; 32]),
    ];
    let keys: [Key; 2] = [[input.byte(); 32], [2; 32]];
    let mut bytes = Vec::new();
    let mut headers = Vec::new();
    for _ in 0..input.below(70) {
        let first = bytes.len() as u32;
        bytes.push(input.byte());
        bytes.extend(input.noise(25));
        headers.push(Header {
            bits: [0x1f | 0xffff_ffff << 8, 0x0f | 0xff << 8][input.below(2)],
            first,
            number: bytes.len() as u32,
            key: input.below(2) as u32,
        });
        let sample = input.byte();
        bytes.extend((0..20).map(|i| sample ^ i));
    }
    let plain = bytes.clone();
    backend
        .kernels()
        .aes_mask_headers(&mut bytes, &aes.each_ref(), &headers);
    let mut seen = bytes.clone();
    backend
        .kernels()
        .chacha20_mask_headers(&mut bytes, &keys, &headers);
    seen.extend_from_slice(&bytes);
    // Applying a mask twice restores the header, because the sample is not masked.
    backend
        .kernels()
        .aes_mask_headers(&mut bytes, &aes.each_ref(), &headers);
    backend
        .kernels()
        .chacha20_mask_headers(&mut bytes, &keys, &headers);
    assert!(bytes == plain, "the masks are not those that were applied");
    (Vec::new(), seen)
}

/// Double SHA-256 in lanes and one by one, and one level of a Merkle tree.
fn digests(backend: Backend, mut input: Input) -> (Vec<Outcome>, Vec<u8>) {
    input.byte();
    let most = [65, 300, 2000][input.below(3)];
    let messages: Vec<_> = (0..input.below(70)).map(|_| input.noise(most)).collect();
    let messages: Vec<_> = messages.iter().map(|message| [&message[..]]).collect();
    let mut digests = vec![[0; 32]; messages.len()];
    let mut seen = Vec::new();
    for lanes_from in [1, usize::MAX] {
        backend.kernels().set_sha256_lanes_from(lanes_from);
        backend.kernels().sha256(&messages, &mut digests);
        seen.extend(digests.concat());
        backend.kernels().sha256d(&messages, &mut digests);
        seen.extend(digests.concat());
        backend.kernels().sha256d_pairs(&mut digests);
        seen.extend(digests[..digests.len() / 2].concat());
    }
    let (lanes, one_by_one) = seen.split_at(seen.len() / 2);
    assert!(lanes == one_by_one, "{backend:?}: lanes give other digests");
    (Vec::new(), seen)
}
