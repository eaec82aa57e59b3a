//! Runs `lanes` under valgrind with every key and plaintext marked as uninitialised. Valgrind then
//! reports each branch and each address that depends on one (Adam Langley's ctgrind).
//!
//! `ctgrind BACKEND` prints what it runs; valgrind's exit status shows whether there were reports.
//! `ctgrind BACKEND branch` and `ctgrind BACKEND index` run a leaking kernel, which valgrind must
//! report.

use crabgrind::memcheck::{MemState, mark_memory};
use crabgrind::valgrind::{count_errors, running_mode};
use packetlane_lanes::{
    AesKey, Backend, GcmKey, Header, Job, Key, Outcome, PublicKey, TAG_LEN, Work, is_secret_key,
};
use std::hint::black_box;
use std::process::ExitCode;

/// Marks bytes as secret: valgrind tracks everything computed from them.
fn secret(bytes: &[u8]) {
    mark_memory(bytes.as_ptr().cast(), bytes.len(), MemState::Undefined)
        .expect("running under valgrind");
}

/// Marks bytes as public.
fn public<T>(what: &[T]) {
    mark_memory(what.as_ptr().cast(), size_of_val(what), MemState::Defined)
        .expect("running under valgrind");
}

/// Lays out packets of these lengths one after the other, every third one with AAD.
fn lay_out(lengths: &[usize]) -> (Vec<u8>, Vec<Key>, Vec<Job>) {
    let mut end = 0;
    let mut jobs = Vec::new();
    for (i, &len) in lengths.iter().enumerate() {
        let aad_len = if i % 3 == 2 { 1 + i % 20 } else { 0 };
        jobs.push(Job {
            aad: end,
            aad_len: aad_len as u32,
            text: end + aad_len as u32,
            text_len: len as u32,
            key: i,
            nonce: [i as u8; 12],
        });
        end += (aad_len + len + TAG_LEN) as u32;
    }
    let bytes = (0..end).map(|i| (i * 31) as u8).collect();
    let keys = (0..lengths.len()).map(|i| [i as u8; 32]).collect();
    (bytes, keys, jobs)
}

fn text(bytes: &[u8], job: &Job) -> std::ops::Range<usize> {
    let start = job.text as usize;
    assert!(start <= bytes.len());
    start..start + job.text_len as usize
}

/// Seals packets of these lengths, then opens them unchanged and with every second one forged.
fn seal_and_open(backend: Backend, lengths: &[usize]) {
    let (mut bytes, keys, jobs) = lay_out(lengths);
    let plain = bytes.clone();
    let mut outcomes = vec![Outcome::Pending; jobs.len()];
    for job in &jobs {
        secret(&bytes[text(&bytes, job)]);
    }
    secret(keys.as_flattened());
    // Also each packet alone, with the start of its text masked like a header.
    let mut masked = bytes.clone();
    masked.extend([0; 20]);
    for (i, job) in jobs.iter().enumerate() {
        let header = Header {
            bits: 0x00ff_ff1f,
            first: job.text,
            number: job.text,
            key: 0,
        };
        let header_key = &keys[(i + 1) % keys.len()];
        backend
            .kernels()
            .seal_with_header(&mut masked, [&keys[i], header_key], job, &header);
    }
    public(&masked);
    black_box(masked);
    backend.kernels().seal(Work {
        bytes: &mut bytes,
        keys: &keys,
        jobs: &jobs,
        outcomes: &mut outcomes,
    });
    assert!(outcomes.iter().all(|&outcome| outcome == Outcome::Sealed));

    // Ciphertext is public. The keys are still secret.
    public(&bytes);
    let sealed = bytes.clone();
    backend.kernels().open(Work {
        bytes: &mut bytes,
        keys: &keys,
        jobs: &jobs,
        outcomes: &mut outcomes,
    });
    assert!(
        outcomes
            .iter()
            .all(|&outcome| outcome == Outcome::Authentic)
    );
    // Public for the comparison below. Valgrind has already checked the call.
    public(&bytes);
    for job in &jobs {
        let text = text(&bytes, job);
        assert_eq!(bytes[text.clone()], plain[text]);
    }

    bytes.copy_from_slice(&sealed);
    for (i, job) in jobs.iter().enumerate().step_by(2) {
        let tag = text(&bytes, job).end;
        bytes[tag + i % TAG_LEN] ^= 1;
    }
    let damaged = bytes.clone();
    backend.kernels().open(Work {
        bytes: &mut bytes,
        keys: &keys,
        jobs: &jobs,
        outcomes: &mut outcomes,
    });
    public(&bytes);
    for (i, (job, outcome)) in jobs.iter().zip(&outcomes).enumerate() {
        let text = text(&bytes, job);
        if i % 2 == 0 {
            assert_eq!(*outcome, Outcome::BadTag);
            assert_eq!(bytes[text.clone()], damaged[text]);
        } else {
            assert_eq!(*outcome, Outcome::Authentic);
            assert_eq!(bytes[text.clone()], plain[text]);
        }
    }
    public(keys.as_flattened());
}

/// Seals and opens packets one by one, every second one forged, with up to four blocks of
/// precomputed keystream each.
fn seal_and_open_single(backend: Backend, lengths: &[usize]) {
    let (mut bytes, keys, jobs) = lay_out(lengths);
    let (plain, kernels) = (bytes.clone(), backend.kernels());
    for job in &jobs {
        secret(&bytes[text(&bytes, job)]);
    }
    secret(keys.as_flattened());
    for (i, job) in jobs.iter().enumerate() {
        let of: Vec<_> = (0..(i as u32 + 2) % 5).map(|n| (n, job.nonce)).collect();
        let mut keystream = vec![[0; 64]; of.len()];
        kernels.precompute_keystream(&keys[i], &of, &mut keystream);
        kernels.seal_single(&keys[i], &keystream, &mut bytes, job);
        // Ciphertext is public. The keys are still secret.
        public(&bytes);
        let (text, is_forged) = (text(&bytes, job), i % 2 == 0);
        bytes[text.end + i % TAG_LEN] ^= u8::from(is_forged);
        let before = bytes.clone();
        let outcome = kernels.open_single(&keys[i], &keystream, &mut bytes, job);
        public(&bytes);
        let (expected, opened) = match is_forged {
            true => (Outcome::BadTag, &before),
            false => (Outcome::Authentic, &plain),
        };
        assert_eq!(outcome, expected);
        assert_eq!(bytes[text.clone()], opened[text]);
    }
    public(keys.as_flattened());
}

/// The same out of place.
fn seal_out_of_place(backend: Backend, lengths: &[usize]) {
    let (mut bytes, keys, jobs) = lay_out(lengths);
    let plain = bytes.clone();
    let source = bytes.clone();
    let mut outcomes = vec![Outcome::Pending; jobs.len()];
    for job in &jobs {
        secret(&bytes[text(&bytes, job)]);
        secret(&source[text(&bytes, job)]);
    }
    secret(keys.as_flattened());
    let after_first = |job: &Job| &source[text(&source, job)][64.min(job.text_len as usize)..];
    let sources: Vec<_> = jobs.iter().map(after_first).collect();
    let work = Work {
        bytes: &mut bytes,
        keys: &keys[..],
        jobs: &jobs,
        outcomes: &mut outcomes,
    };
    backend.kernels().seal_from(work, &sources);
    assert!(outcomes.iter().all(|&outcome| outcome == Outcome::Sealed));

    public(&bytes);
    // Opening in place must yield the plaintext.
    let work = Work {
        bytes: &mut bytes,
        keys: &keys[..],
        jobs: &jobs,
        outcomes: &mut outcomes,
    };
    backend.kernels().open(work);
    public(&bytes);
    for (job, outcome) in jobs.iter().zip(&outcomes) {
        let text = text(&bytes, job);
        assert_eq!(*outcome, Outcome::Authentic);
        assert_eq!(bytes[text.clone()], plain[text]);
    }
    public(keys.as_flattened());
}

/// The same for AES-GCM: seals packets of these lengths, opens them, and opens them again with
/// every second one forged. The keys are derived from secrets.
fn gcm(backend: Backend, lengths: &[usize]) {
    let (mut bytes, raw, jobs) = lay_out(lengths);
    let plain = bytes.clone();
    let mut outcomes = vec![Outcome::Pending; jobs.len()];
    for job in &jobs {
        secret(&bytes[text(&bytes, job)]);
    }
    secret(raw.as_flattened());
    let key = |(i, raw): (usize, &Key)| match i % 2 {
        0 => GcmKey::aes128(raw.first_chunk().expect("32 bytes")),
        _ => GcmKey::aes256(raw),
    };
    let keys: Vec<_> = raw.iter().enumerate().map(key).collect();
    let keys: Vec<_> = keys.iter().collect();
    // Also masks the start of each sealed text, like a header.
    let header_keys: Vec<_> = raw.iter().map(AesKey::aes256).collect();
    let header_keys: Vec<_> = header_keys.iter().collect();
    let headers: Vec<_> = jobs
        .iter()
        .map(|job| Header {
            bits: 0x00ff_ff1f,
            first: job.text,
            number: job.text,
            key: job.key as u32,
        })
        .collect();
    let mut masked = bytes.clone();
    masked.extend([0; 20]);
    backend.kernels().gcm_seal(Work {
        bytes: &mut masked,
        keys: &keys,
        jobs: &jobs,
        outcomes: &mut outcomes,
    });
    backend
        .kernels()
        .aes_mask_headers(&mut masked, &header_keys, &headers);
    public(&masked);
    black_box(masked);
    backend.kernels().gcm_seal(Work {
        bytes: &mut bytes,
        keys: &keys,
        jobs: &jobs,
        outcomes: &mut outcomes,
    });
    public(&bytes);
    let sealed = bytes.clone();
    for forged in [false, true] {
        bytes.copy_from_slice(&sealed);
        for (i, job) in jobs.iter().enumerate().step_by(2) {
            let tag = text(&bytes, job).end;
            bytes[tag + i % TAG_LEN] ^= u8::from(forged);
        }
        let sent = bytes.clone();
        backend.kernels().gcm_open(Work {
            bytes: &mut bytes,
            keys: &keys,
            jobs: &jobs,
            outcomes: &mut outcomes,
        });
        public(&bytes);
        for (i, (job, outcome)) in jobs.iter().zip(&outcomes).enumerate() {
            let text = text(&bytes, job);
            if forged && i % 2 == 0 {
                assert_eq!(*outcome, Outcome::BadTag);
                assert_eq!(bytes[text.clone()], sent[text]);
            } else {
                assert_eq!(*outcome, Outcome::Authentic);
                assert_eq!(bytes[text.clone()], plain[text]);
            }
        }
    }
}

/// Computes `count` header masks, with one key and with several.
fn masks(backend: Backend, count: usize) {
    let raw = [[7; 32], [8; 32], [9; 32]];
    secret(raw.as_flattened());
    let [first, second, third] = &raw;
    let aes = [
        AesKey::aes128(first.first_chunk().expect("32 bytes")),
        AesKey::aes128(second.first_chunk().expect("32 bytes")),
        AesKey::aes256(third),
    ];
    for keys in 1..=3 {
        // Samples are ciphertext, so they are public.
        let bytes: Vec<u8> = (0..16 * count).map(|i| i as u8).collect();
        let sample = |i: usize| ((i % keys) as u32, 16 * i as u32);
        let samples: Vec<_> = (0..count).map(sample).collect();
        let mut masks = vec![0; count];
        backend
            .kernels()
            .aes_masks(&bytes, &[&aes[0], &aes[1], &aes[2]], &samples, &mut masks);
        public(&masks);
        black_box(&masks);
        backend
            .kernels()
            .chacha20_masks(&bytes, &raw, &samples, &mut masks);
        public(&masks);
        black_box(masks);
    }
}

/// The keys and shared secrets of so many handshakes. Public keys are public, also x before it is
/// encoded.
fn handshakes(backend: Backend, count: usize) {
    let secrets: Vec<Key> = (0..count).map(|i| [i as u8 + 1; 32]).collect();
    secret(secrets.as_flattened());
    black_box(is_secret_key(&secrets[0]));
    let secrets: Vec<_> = secrets.iter().collect();
    let mut keys = vec![PublicKey::default(); count];
    backend.kernels().public_keys(&secrets, &mut keys);
    public(&keys);
    let mut encodings = vec![[0; 64]; count];
    let mut tries = 0_u8;
    let mut next = |_| {
        tries = tries.wrapping_add(37);
        ([tries; 32], tries % 8)
    };
    let kernels = backend.kernels();
    kernels.encode_public_keys(&keys, &mut next, &mut encodings);
    let encodings: Vec<_> = encodings.iter().collect();
    let mut shared = vec![[0; 32]; count];
    kernels.shared_x(&secrets, &encodings, &mut shared);
    public(&shared);
    black_box(shared);
}

fn stream(backend: Backend, len: usize) {
    let (key, mut text) = ([7; 32], vec![1; len]);
    secret(&key);
    secret(&text);
    backend.kernels().chacha20(&key, &[3; 12], 5, &mut text);
    public(&text);
    black_box(text);
}

fn tag(backend: Backend, len: usize) {
    let (key, message) = ([0xff; 32], vec![0xff; len]);
    secret(&key);
    secret(&message);
    let tag = backend.kernels().poly1305(&key, &message);
    public(&tag);
    black_box(tag);
}

/// Must be reported: branches on the first bit of a keystream.
fn leaking_branch(backend: Backend) {
    let (key, mut text) = ([7; 32], [0; 64]);
    secret(&key);
    backend.kernels().chacha20(&key, &[3; 12], 5, &mut text);
    if black_box(text[0]) & 1 == 1 {
        println!("the first bit is set");
    }
}

/// Must be reported: uses a byte of a tag as a table index.
fn leaking_index(backend: Backend) {
    let key = [0xff; 32];
    secret(&key);
    let tag = backend.kernels().poly1305(&key, &[1; 600]);
    let table = black_box([1_u8; 256]);
    black_box(table[usize::from(tag[3])]);
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let backend = arguments.first().and_then(|name| {
        Backend::ALL
            .iter()
            .copied()
            .find(|backend| backend.name() == *name)
    });
    let Some(backend) = backend else {
        eprintln!("usage: valgrind --error-exitcode=1 ctgrind BACKEND [branch | index]");
        return ExitCode::from(2);
    };
    if running_mode().is_native() {
        eprintln!("ctgrind: run this under valgrind; otherwise it checks nothing");
        return ExitCode::from(2);
    }
    if !backend.is_available() {
        eprintln!(
            "ctgrind: valgrind's CPU does not support {}",
            backend.name()
        );
        return ExitCode::from(2);
    }
    match arguments.get(1) {
        Some(&"branch") => leaking_branch(backend),
        Some(&"index") => leaking_index(backend),
        Some(other) => {
            eprintln!("ctgrind: unknown leak '{other}'; use branch or index");
            return ExitCode::from(2);
        }
        None => run_all(backend),
    }
    match count_errors() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Runs every path of a batch, ChaCha20 and Poly1305 separately, AES-GCM, and header masks.
fn run_all(backend: Backend) {
    let longer = [
        255, 256, 350, 511, 512, 513, 700, 800, 960, 1100, 1280, 2049, 5000,
    ];
    for len in (0..=130).chain(longer) {
        stream(backend, len);
        tag(backend, len);
        seal_and_open(backend, &[len]);
        seal_and_open_single(backend, &[len; 10]);
        // A single packet, and one for each key size.
        gcm(backend, &[len]);
        gcm(backend, &[len, len]);
    }
    for n in 1..=40 {
        masks(backend, n);
    }
    for n in 2..=20 {
        seal_and_open(backend, &vec![61; n]);
    }
    seal_and_open(backend, &[61; 130]);
    let mixed: Vec<_> = (0..100).map(|i| i * 37 % 400).collect();
    seal_and_open(backend, &mixed);
    gcm(backend, &mixed);
    // Lanes that are deferred, and a text too long for other lanes to wait for it.
    let waiting: Vec<_> = (0..33).map(|i| 20 + i * 61).collect();
    seal_and_open(backend, &waiting);
    seal_and_open(backend, &[600, 600, 600, 600, 600, 600, 600, 600, 1500]);
    // For stitched lanes with AVX2: three to six blocks, and longer texts with a short one. Two
    // packets run one by one.
    seal_and_open(backend, &[61, 900, 600]);
    seal_and_open(backend, &[65, 128, 192, 256, 320]);
    seal_and_open(backend, &[65, 128]);
    seal_and_open(backend, &[200, 256]);
    seal_and_open(backend, &[40_000, 8, 33_000]);
    seal_out_of_place(backend, &[40_000, 8, 33_000]);
    for n in [1, 3, 4, 9] {
        handshakes(backend, n);
    }
    println!(
        "{}: streams, tags, batches of 1 to 130 packets of 0 to 40000 bytes, single \
         packets with precomputed keystream, AES-GCM, masks, handshakes",
        backend.name()
    );
}
