//! Checks what a call leaves on the stack: no one-time key as a Poly1305 state holds it. (A
//! register that the compiler spills to the stack is not wiped, so single words may remain; a state
//! that was moved would remain as a whole.)

#![allow(
    unsafe_code,
    reason = "reads the stack frames of calls that have returned"
)]

use packetlane_lanes::{Backend, Job, Kernels, Key, Outcome, Work};

/// How far below its caller's frame the stack is searched, in words.
const DEPTH: usize = 16 * 1024;

/// [`Kernels::seal`] or [`Kernels::open`].
type Run = fn(Kernels, Work<'_>);

/// [`Kernels::seal_from`] of texts of 0x55.
fn seal_from(kernels: Kernels, work: Work<'_>) {
    let rest = [0x55; 20_000];
    let source = |job: &Job| &rest[..(job.text_len as usize).saturating_sub(64)];
    let sources: Vec<_> = work.jobs.iter().map(source).collect();
    kernels.seal_from(work, &sources);
}

/// A call that has its own stack frame.
#[inline(never)]
fn run(kernel: Run, backend: Backend, work: Work<'_>) {
    kernel(backend.kernels(), work);
}

/// Reads the words of the stack below its frame, downwards, where calls that have returned had
/// their frames. Calls nothing that would overwrite them.
#[inline(never)]
fn read_stack(words: &mut [u64]) {
    let here = core::hint::black_box(0_u64);
    let top = (&raw const here).expose_provenance();
    for (i, word) in words.iter_mut().enumerate() {
        // SAFETY: the thread's stack reaches further down than `DEPTH` words, and a volatile
        // read of a word of it is neither moved nor left out.
        *word = unsafe { core::ptr::with_exposed_provenance::<u64>(top - 8 * i).read_volatile() };
    }
}

/// Seals, then opens packets of these lengths, each with its own key, with each kernel, and
/// searches the stack after each call for the keys' states.
fn check(backend: Backend, lengths: &[usize], stack: &mut [u64]) {
    let keys: Vec<Key> = (0..lengths.len()).map(|i| [i as u8 + 3; 32]).collect();
    let stride = lengths.iter().max().expect("a length") + 16;
    let mut bytes = vec![0x55; stride * lengths.len()];
    let job = |(i, len): (usize, &usize)| Job {
        text: (i * stride) as u32,
        text_len: *len as u32,
        key: i,
        ..Job::default()
    };
    let jobs: Vec<Job> = lengths.iter().enumerate().map(job).collect();
    let mut outcomes = vec![Outcome::Pending; jobs.len()];
    let states: Vec<_> = keys.iter().map(|key| state_of(backend, key)).collect();
    let kernels = [
        ("seal from", seal_from as Run),
        ("seal", Kernels::seal),
        ("open", Kernels::open),
    ];
    for (name, kernel) in kernels {
        let work = Work {
            bytes: &mut bytes,
            keys: &keys[..],
            jobs: &jobs,
            outcomes: &mut outcomes,
        };
        run(kernel, backend, work);
        read_stack(stack);
        for (packet, state) in states.iter().enumerate() {
            assert!(
                !contains(stack, state),
                "{backend:?}, {name} {lengths:?}: the key of packet {packet} is left on the stack"
            );
        }
    }
    assert!(
        outcomes
            .iter()
            .all(|outcome| *outcome == Outcome::Authentic)
    );
}

/// Whether a state lies in words that were read downwards.
fn contains(stack: &[u64], &[r0, r1, s1]: &[u64; 3]) -> bool {
    stack.windows(3).any(|words| words == [s1, r1, r0])
}

/// The first words of a Poly1305 state (RFC 8439, section 2.5.1): r, clamped, and 5/4 of its
/// second word.
fn state_of(backend: Backend, key: &Key) -> [u64; 3] {
    let mut block = [0; 64];
    backend.kernels().chacha20(key, &[0; 12], 0, &mut block);
    let word = |at: usize| u64::from_le_bytes(*block[at..].first_chunk().expect("8 bytes"));
    let r0 = word(0) & 0x0fff_fffc_0fff_ffff;
    let r1 = word(8) & 0x0fff_fffc_0fff_fffc;
    [r0, r1, r1 + (r1 >> 2)]
}

/// Runs on a thread with enough stack to read.
fn on_a_thread(check: impl FnOnce(&mut [u64]) + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    let run = move || check(&mut [0; DEPTH].to_vec());
    let done = thread.spawn(run).expect("a thread").join();
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn no_state_of_poly1305_is_left_on_the_stack() {
    on_a_thread(|stack| {
        for backend in Backend::ALL.iter().filter(|one| one.is_available()) {
            for lengths in [
                &[61][..],
                &[350],
                &[600],
                &[800],
                &[1400],
                &[61; 20],
                &[250; 2],
                &[250; 5],
                &[400; 5],
                &[61, 900, 900],
                &[1400; 3],
                &[300; 20],
                &[300; 64],
                &[1100; 64],
                &[20_000],
            ] {
                check(*backend, lengths, stack);
            }
        }
    });
}

/// The secret key, as its bytes and as a number, and the number whose digits are the comb's.
fn forms(secret: &[u8; 32]) -> [[u64; 4]; 3] {
    let of = |from: fn([u8; 8]) -> u64, bytes: &[u8; 32]| {
        let (chunks, _) = bytes.as_chunks::<8>();
        core::array::from_fn(|i| from(chunks[i]))
    };
    let mut number: [u64; 4] = of(u64::from_be_bytes, secret);
    number.reverse();
    // (secret + 2^256 - 1) / 2 for an odd secret below n: the last bit of the sum falls away, and n is
    // never added.
    let mut digits = [0; 4];
    for (i, digit) in digits.iter_mut().enumerate() {
        let above = number.get(i + 1).copied().unwrap_or(1);
        *digit = number[i] >> 1 | above << 63;
    }
    [of(u64::from_ne_bytes, secret), number, digits]
}

#[inline(never)]
fn run_curve(backend: Backend, secrets: &[&[u8; 32]], shares: bool) {
    let kernels = backend.kernels();
    if shares {
        let encodings: Vec<_> = secrets.iter().map(|_| &[0x5a; 64]).collect();
        kernels.shared_x(secrets, &encodings, &mut vec![[0; 32]; secrets.len()]);
    } else {
        let mut keys = vec![packetlane_lanes::PublicKey::default(); secrets.len()];
        kernels.public_keys(secrets, &mut keys);
    }
}

#[test]
fn no_secret_key_is_left_on_the_stack() {
    on_a_thread(|stack| {
        let keys: Vec<[u8; 32]> = (0..9_u8)
            .map(|key| {
                core::array::from_fn(|i| (i as u8).wrapping_mul(23) ^ key.wrapping_mul(7) | 1)
            })
            .collect();
        for backend in Backend::ALL.iter().filter(|one| one.is_available()) {
            for count in [1, 8, 9] {
                for shares in [false, true] {
                    let secrets: Vec<_> = keys[..count].iter().collect();
                    run_curve(*backend, &secrets, shares);
                    read_stack(stack);
                    for (number, key) in keys[..count].iter().enumerate() {
                        for (form, [a, b, c, d]) in forms(key).into_iter().enumerate() {
                            assert!(
                                !stack.windows(4).any(|words| words == [d, c, b, a]),
                                "{backend:?} {count} shares={shares}: form {form} of key {number}"
                            );
                        }
                    }
                }
            }
        }
    });
}

/// The search finds a state that was moved.
#[test]
fn a_planted_state_is_found() {
    #[inline(never)]
    fn plant(state: [u64; 3]) {
        // Deep enough that the frame of the search does not cover it.
        let mut frame = [0; 128];
        frame[32..35].copy_from_slice(&core::hint::black_box(state));
        core::hint::black_box(&frame);
    }
    on_a_thread(|stack| {
        let state = state_of(Backend::Portable, &[9; 32]);
        plant(state);
        read_stack(stack);
        assert!(contains(stack, &state));
    });
}
