//! Times the kernels with two classes of secrets and tests whether the times differ (dudect).
//! Covers AVX-512, which valgrind does not support.
//!
//! Class Left is a constant secret or zeros; class Right is a new random secret for each call.
//! `open_forged` compares a tag that is wrong in its first byte with one that is wrong in its last
//! byte. `planted_leak` compares tags with an early exit and must give a large t.

use dudect::{BATCH, GcmPackets, LOCKSTEP, LONG, Packets, secret_keys};
use dudect_bencher::rand::{Rng, RngExt};
use dudect_bencher::{BenchRng, Class, CtRunner, ctbench_main};
use packetlane_lanes::{AesKey, Backend, Kernels, MAX_KEY_LANES, PublicKey, TAG_LEN};
use std::cell::RefCell;
use std::hint::black_box;

/// Timed calls per test. The first tenth is dropped as warm-up of caches and clock.
const SAMPLES: usize = 1_500_000;

/// The same for secp256k1, whose calls take ten times as long.
const CURVE_SAMPLES: usize = 150_000;

/// A secret at a fixed address, whatever its class, so that caches cannot distinguish the classes.
struct Secrets {
    constant: Vec<u8>,
    fresh: Vec<u8>,
    now: Vec<u8>,
}

impl Secrets {
    /// A secret of `len` bytes. Class Left is zeros, or constant random bytes.
    fn new(len: usize, zero: bool, rng: &mut BenchRng) -> Self {
        let mut constant = vec![0; len];
        if !zero {
            rng.fill_bytes(&mut constant);
        }
        Self {
            constant,
            fresh: vec![0; len],
            now: vec![0; len],
        }
    }

    /// Draws a class and copies its secret into place, with the same instructions for both.
    fn draw(&mut self, rng: &mut BenchRng) -> Class {
        rng.fill_bytes(&mut self.fresh);
        let right = rng.random::<bool>();
        let mask = black_box(u8::from(right).wrapping_neg());
        for ((now, constant), fresh) in self.now.iter_mut().zip(&self.constant).zip(&self.fresh) {
            *now = (constant & !mask) | (fresh & mask);
        }
        if right { Class::Right } else { Class::Left }
    }
}

/// Times `call` on [`SAMPLES`] draws. `prepare` copies each draw into place before the timing.
fn time<S>(
    runner: &mut CtRunner,
    rng: &mut BenchRng,
    secrets: Secrets,
    state: S,
    prepare: impl Fn(&mut S, &[u8]),
    call: impl Fn(&mut S),
) {
    time_samples(SAMPLES, runner, rng, secrets, state, prepare, call);
}

fn time_samples<S>(
    samples: usize,
    runner: &mut CtRunner,
    rng: &mut BenchRng,
    mut secrets: Secrets,
    state: S,
    prepare: impl Fn(&mut S, &[u8]),
    call: impl Fn(&mut S),
) {
    let state = RefCell::new(state);
    for sample in 0..samples + samples / 10 {
        let class = secrets.draw(rng);
        prepare(&mut state.borrow_mut(), &secrets.now);
        let call = || call(&mut state.borrow_mut());
        if sample < samples / 10 {
            call();
        } else {
            runner.run_one(class, call);
        }
    }
}

/// Seals packets. The secret is keys and texts.
fn seal(
    backend: Backend,
    shape: (usize, usize),
    zero: bool,
    runner: &mut CtRunner,
    rng: &mut BenchRng,
) {
    let secrets = Secrets::new(shape.0 * (32 + shape.1), zero, rng);
    let packets = Packets::new(shape);
    time(runner, rng, secrets, packets, Packets::fill, |packets| {
        packets.seal(backend);
    });
}

/// Opens genuine packets. The secret is keys and texts.
fn open(
    backend: Backend,
    shape: (usize, usize),
    zero: bool,
    runner: &mut CtRunner,
    rng: &mut BenchRng,
) {
    let secrets = Secrets::new(shape.0 * (32 + shape.1), zero, rng);
    let packets = Packets::new(shape);
    let prepare = |packets: &mut Packets, secret: &[u8]| {
        packets.fill(secret);
        packets.seal(backend);
    };
    time(runner, rng, secrets, packets, prepare, |packets| {
        packets.open(backend);
    });
}

/// The secret is where a tag is wrong: in its first byte or in its last. `compare` is timed.
fn forged(
    backend: Backend,
    runner: &mut CtRunner,
    rng: &mut BenchRng,
    compare: impl Fn(&mut Packets),
) {
    // One byte of which only the last bit counts: always 0, or random.
    let secrets = Secrets::new(1, true, rng);
    let mut packets = Packets::new(BATCH);
    packets.seal(backend);
    let sealed = packets.bytes.clone();
    let prepare = |packets: &mut Packets, secret: &[u8]| {
        packets.bytes.copy_from_slice(&sealed);
        let last = usize::from(secret[0] & 1);
        for job in &packets.jobs {
            let tag = (job.text + job.text_len) as usize;
            packets.bytes[tag] ^= 1 - last as u8;
            packets.bytes[tag + TAG_LEN - 1] ^= last as u8;
        }
    };
    time(runner, rng, secrets, packets, prepare, compare);
}

fn open_forged(backend: Backend, runner: &mut CtRunner, rng: &mut BenchRng) {
    forged(backend, runner, rng, |packets| packets.open(backend));
}

fn chacha20(backend: Backend, zero: bool, runner: &mut CtRunner, rng: &mut BenchRng) {
    let secrets = Secrets::new(32 + 1024, zero, rng);
    let prepare = |bytes: &mut Vec<u8>, secret: &[u8]| bytes.copy_from_slice(secret);
    time(runner, rng, secrets, vec![0; 32 + 1024], prepare, |bytes| {
        let (key, text) = bytes.split_first_chunk_mut().expect("longer than a key");
        backend.kernels().chacha20(key, &[1; 12], 0, text);
    });
}

fn poly1305(backend: Backend, zero: bool, runner: &mut CtRunner, rng: &mut BenchRng) {
    let secrets = Secrets::new(32 + 1024, zero, rng);
    let prepare = |bytes: &mut Vec<u8>, secret: &[u8]| bytes.copy_from_slice(secret);
    time(runner, rng, secrets, vec![0; 32 + 1024], prepare, |bytes| {
        let (key, message) = bytes.split_first_chunk().expect("longer than a key");
        black_box(backend.kernels().poly1305(key, message));
    });
}

fn gcm_seal(
    backend: Backend,
    shape: (usize, usize),
    zero: bool,
    runner: &mut CtRunner,
    rng: &mut BenchRng,
) {
    let secrets = Secrets::new(16 + shape.0 * shape.1, zero, rng);
    let packets = GcmPackets::new(shape);
    time(runner, rng, secrets, packets, GcmPackets::fill, |packets| {
        packets.seal(backend);
    });
}

fn gcm_open(
    backend: Backend,
    shape: (usize, usize),
    zero: bool,
    runner: &mut CtRunner,
    rng: &mut BenchRng,
) {
    let secrets = Secrets::new(16 + shape.0 * shape.1, zero, rng);
    let packets = GcmPackets::new(shape);
    let prepare = |packets: &mut GcmPackets, secret: &[u8]| {
        packets.fill(secret);
        packets.seal(backend);
    };
    time(runner, rng, secrets, packets, prepare, |packets| {
        packets.open(backend);
    });
}

/// The secret is the key of header masks.
fn aes_masks(backend: Backend, zero: bool, runner: &mut CtRunner, rng: &mut BenchRng) {
    let secrets = Secrets::new(16, zero, rng);
    let state = (AesKey::aes128(&[0; 16]), [0; 16]);
    let prepare = |(key, _): &mut (AesKey, _), secret: &[u8]| {
        *key = AesKey::aes128(secret.first_chunk().expect("16 bytes"));
    };
    time(runner, rng, secrets, state, prepare, |(key, masks)| {
        backend
            .kernels()
            .aes_masks(&[0x5a; 16], &[key], &[(0, 0); 16], masks);
    });
}

/// A vector of secp256k1 keys. The secret is the keys.
fn curve(
    backend: Backend,
    zero: bool,
    runner: &mut CtRunner,
    rng: &mut BenchRng,
    call: impl Fn(Kernels, &[&[u8; 32]]),
) {
    let secrets = Secrets::new(32 * MAX_KEY_LANES, zero, rng);
    let keys = [[0; 32]; MAX_KEY_LANES];
    let prepare = |keys: &mut [[u8; 32]; MAX_KEY_LANES], secret: &[u8]| *keys = secret_keys(secret);
    time_samples(CURVE_SAMPLES, runner, rng, secrets, keys, prepare, |keys| {
        call(backend.kernels(), &keys.each_ref());
    });
}

fn public_keys(backend: Backend, zero: bool, runner: &mut CtRunner, rng: &mut BenchRng) {
    curve(backend, zero, runner, rng, |kernels, secrets| {
        let mut keys = [PublicKey::default(); MAX_KEY_LANES];
        kernels.public_keys(secrets, &mut keys);
        black_box(&keys);
    });
}

fn shared_x(backend: Backend, zero: bool, runner: &mut CtRunner, rng: &mut BenchRng) {
    curve(backend, zero, runner, rng, |kernels, secrets| {
        let mut shared = [[0; 32]; MAX_KEY_LANES];
        kernels.shared_x(secrets, &[&[0x5a; 64]; MAX_KEY_LANES], &mut shared);
        black_box(&shared);
    });
}

/// A control: the secret is laid out as for [`poly1305`], but a different one is used. A large t
/// here comes from the harness.
fn unread(backend: Backend, zero: bool, runner: &mut CtRunner, rng: &mut BenchRng) {
    let secrets = Secrets::new(32 + 1024, zero, rng);
    let other = vec![0x5a; 32 + 1024];
    let prepare = |bytes: &mut Vec<u8>, secret: &[u8]| bytes.copy_from_slice(secret);
    time(runner, rng, secrets, vec![0; 32 + 1024], prepare, |_| {
        let (key, message) = other.split_first_chunk().expect("longer than a key");
        black_box(backend.kernels().poly1305(key, message));
    });
}

/// A leaking kernel: compares tags byte by byte and stops at the first difference.
fn planted_leak(runner: &mut CtRunner, rng: &mut BenchRng) {
    let backend = Backend::Portable;
    let mut right = Packets::new(BATCH);
    right.seal(backend);
    forged(backend, runner, rng, |packets| {
        for job in &packets.jobs {
            let tag = (job.text + job.text_len) as usize..;
            let pairs = packets.bytes[tag.clone()].iter().zip(&right.bytes[tag]);
            black_box(pairs.take(TAG_LEN).take_while(|(a, b)| a == b).count());
        }
    });
}

/// Gives each test its name in the report.
macro_rules! tests {
    ($($name:ident: $test:ident($($argument:expr),*);)*) => {
        $(fn $name(runner: &mut CtRunner, rng: &mut BenchRng) {
            $test($($argument,)* runner, rng);
        })*
    };
}

use Backend::{Avx2, Avx512, Avx512Ifma};

tests! {
    chacha20_constant: chacha20(Avx512, false);
    chacha20_zero: chacha20(Avx512, true);
    poly1305_constant: poly1305(Avx512, false);
    poly1305_zero: poly1305(Avx512, true);
    poly1305_ifma_constant: poly1305(Avx512Ifma, false);
    poly1305_ifma_zero: poly1305(Avx512Ifma, true);
    poly1305_avx2_zero: poly1305(Avx2, true);
    control_zero: unread(Avx512, true);
    seal_batch_constant: seal(Avx512, BATCH, false);
    seal_batch_zero: seal(Avx512, BATCH, true);
    seal_batch_ifma_constant: seal(Avx512Ifma, BATCH, false);
    seal_batch_ifma_zero: seal(Avx512Ifma, BATCH, true);
    seal_long_constant: seal(Avx512, LONG, false);
    seal_long_zero: seal(Avx512, LONG, true);
    seal_long_ifma_constant: seal(Avx512Ifma, LONG, false);
    seal_long_ifma_zero: seal(Avx512Ifma, LONG, true);
    open_batch_constant: open(Avx512, BATCH, false);
    open_batch_zero: open(Avx512, BATCH, true);
    open_batch_ifma_constant: open(Avx512Ifma, BATCH, false);
    open_batch_ifma_zero: open(Avx512Ifma, BATCH, true);
    lockstep_seal_constant: seal(Avx512, LOCKSTEP, false);
    lockstep_seal_zero: seal(Avx512, LOCKSTEP, true);
    lockstep_seal_ifma_constant: seal(Avx512Ifma, LOCKSTEP, false);
    lockstep_seal_ifma_zero: seal(Avx512Ifma, LOCKSTEP, true);
    lockstep_open_constant: open(Avx512, LOCKSTEP, false);
    lockstep_open_zero: open(Avx512, LOCKSTEP, true);
    lockstep_open_ifma_constant: open(Avx512Ifma, LOCKSTEP, false);
    lockstep_open_ifma_zero: open(Avx512Ifma, LOCKSTEP, true);
    open_forged_avx512: open_forged(Avx512);
    open_forged_ifma: open_forged(Avx512Ifma);
    gcm_seal_batch_constant: gcm_seal(Avx512, BATCH, false);
    gcm_seal_batch_zero: gcm_seal(Avx512, BATCH, true);
    gcm_seal_long_constant: gcm_seal(Avx512, LONG, false);
    gcm_seal_long_zero: gcm_seal(Avx512, LONG, true);
    gcm_open_long_constant: gcm_open(Avx512, LONG, false);
    gcm_open_long_zero: gcm_open(Avx512, LONG, true);
    gcm_vaes_avx2_constant: gcm_seal(Avx2, LONG, false);
    aes_masks_constant: aes_masks(Avx512, false);
    aes_masks_zero: aes_masks(Avx512, true);
    public_keys_avx512_constant: public_keys(Avx512, false);
    public_keys_avx512_one: public_keys(Avx512, true);
    shared_x_avx512_constant: shared_x(Avx512, false);
    shared_x_avx512_one: shared_x(Avx512, true);
    public_keys_ifma_constant: public_keys(Avx512Ifma, false);
    public_keys_ifma_one: public_keys(Avx512Ifma, true);
    shared_x_ifma_constant: shared_x(Avx512Ifma, false);
    shared_x_ifma_one: shared_x(Avx512Ifma, true);
}

ctbench_main!(
    chacha20_constant,
    chacha20_zero,
    poly1305_constant,
    poly1305_zero,
    poly1305_ifma_constant,
    poly1305_ifma_zero,
    poly1305_avx2_zero,
    control_zero,
    seal_batch_constant,
    seal_batch_zero,
    seal_batch_ifma_constant,
    seal_batch_ifma_zero,
    seal_long_constant,
    seal_long_zero,
    seal_long_ifma_constant,
    seal_long_ifma_zero,
    open_batch_constant,
    open_batch_zero,
    open_batch_ifma_constant,
    open_batch_ifma_zero,
    lockstep_seal_constant,
    lockstep_seal_zero,
    lockstep_seal_ifma_constant,
    lockstep_seal_ifma_zero,
    lockstep_open_constant,
    lockstep_open_zero,
    lockstep_open_ifma_constant,
    lockstep_open_ifma_zero,
    open_forged_avx512,
    open_forged_ifma,
    gcm_seal_batch_constant,
    gcm_seal_batch_zero,
    gcm_seal_long_constant,
    gcm_seal_long_zero,
    gcm_open_long_constant,
    gcm_open_long_zero,
    gcm_vaes_avx2_constant,
    aes_masks_constant,
    aes_masks_zero,
    public_keys_avx512_constant,
    public_keys_avx512_one,
    shared_x_avx512_constant,
    shared_x_avx512_one,
    public_keys_ifma_constant,
    public_keys_ifma_one,
    shared_x_ifma_constant,
    shared_x_ifma_one,
    planted_leak
);
