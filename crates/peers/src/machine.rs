//! The speed of machines in three kinds of work, to carry a plan from one machine to another.
//!
//! A calibration measures one thread. Boards that we do not have come with published figures,
//! which [`Board::speed`] converts: a machine that ran both our calibration and the published
//! benchmarks is the link ([`Speed::reference`]).
//!
//! The message thread's work is a mix whose weights are not known. So the factor between two
//! machines is the geometric mean of the factors of the three kinds, and the lowest and highest of
//! them are its range.

use crate::format::json;
use packetlane::bip324::{Keypair, Role};
use packetlane::sha256d::{Hash, Hasher};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::hint::black_box;
use std::time::Duration;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Double SHA-256 of 64 bytes.
    Hashing,
    /// A secp256k1 key exchange, and 256 inserts, lookups and removals in a hash map of transaction
    /// ids.
    Validation,
    /// A read from a random cache line of 64 MiB, whose address the previous read gave.
    Memory,
}

impl Work {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Hashing, Self::Validation, Self::Memory];

    /// The name in text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hashing => "hashing",
            Self::Validation => "validation",
            Self::Memory => "memory",
        }
    }
}

/// Maximum length of a machine's name, in bytes.
const MAX_NAME: usize = 100;

/// Maximum time for a unit of work, in nanoseconds: a second.
const MAX_NS: f64 = 1e9;

/// CPU time of a machine for a unit of each kind of work, in nanoseconds. The JSON form is what
/// `peers plan --calibrate --json` writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speed {
    /// The machine.
    pub machine: String,
    /// A unit of [`Work::Hashing`]. `None` if it was not published for this machine.
    pub hashing_ns: Option<f64>,
    /// A unit of [`Work::Validation`].
    pub validation_ns: f64,
    /// A unit of [`Work::Memory`].
    pub memory_ns: f64,
    /// Whether the figures are converted from published benchmarks.
    #[serde(default)]
    pub published: bool,
}

impl Speed {
    /// The machine on which we ran both the calibration and the published benchmarks: AMD EPYC
    /// (Zen 4), a virtual machine with two busy cores, 30 November 2026, the best of all runs. Random
    /// reads are slow there: they go through the page tables of the host, too.
    #[must_use]
    pub fn reference() -> Self {
        Self {
            machine: "AMD EPYC (Zen 4) VM".to_owned(),
            hashing_ns: Some(113.7),
            validation_ns: 76_600.0,
            memory_ns: 160.0,
            published: false,
        }
    }

    /// The time for a unit of this kind.
    #[must_use]
    pub fn of(&self, work: Work) -> Option<f64> {
        match work {
            Work::Hashing => self.hashing_ns,
            Work::Validation => Some(self.validation_ns),
            Work::Memory => Some(self.memory_ns),
        }
    }

    /// Indented JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// Reads what [`Speed::to_json`] writes.
    ///
    /// # Errors
    ///
    /// See [`SpeedError`].
    pub fn from_json(text: &str) -> Result<Self, SpeedError> {
        let speed: Self =
            serde_json::from_str(text).map_err(|error| SpeedError::Json(error.to_string()))?;
        let name = &speed.machine;
        if name.len() > MAX_NAME || name.chars().any(char::is_control) {
            return Err(SpeedError::Name);
        }
        for work in Work::ALL {
            match speed.of(work) {
                Some(ns) if ns > 0.0 && ns <= MAX_NS => {}
                None if work == Work::Hashing => {}
                _ => return Err(SpeedError::Time(work)),
            }
        }
        Ok(speed)
    }
}

/// Why a file is no calibration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpeedError {
    /// Not the JSON of a [`Speed`].
    Json(String),
    /// The machine's name is longer than 100 bytes or has control characters.
    Name,
    /// The time is not between 0 and a second.
    Time(Work),
}

impl fmt::Display for SpeedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => f.write_str(error),
            Self::Name => write!(
                f,
                "the machine's name is longer than {MAX_NAME} bytes or has control characters"
            ),
            Self::Time(work) => {
                write!(f, "the time for {} is not between 0 and 1 s", work.name())
            }
        }
    }
}

impl std::error::Error for SpeedError {}

/// A board with published figures, of one thread on its fastest core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Board {
    /// The name on the command line.
    pub name: &'static str,
    /// Its CPU, with the clock rate of the published figures.
    pub cpu: &'static str,
    /// `cryptsetup benchmark -h sha256`, iterations of PBKDF2 per second. For hashing.
    pub pbkdf2: Option<f64>,
    /// `7za b -mmt1` of p7zip 16.02, MIPS. For validation.
    pub mips: f64,
    /// tinymembench, single random read in 64 MiB, in nanoseconds. For memory.
    pub read_ns: f64,
    /// Where the figures are published.
    pub sources: &'static [&'static str],
}

/// The published benchmarks on the machine of [`Speed::reference`], as in [`Board`].
const REFERENCE_PBKDF2: f64 = 4.43e6;
const REFERENCE_MIPS: f64 = 3514.0;

/// The boards with published figures.
pub const BOARDS: [Board; 4] = [
    Board {
        name: "raspberry-pi-4",
        cpu: "Cortex-A72, 1.8 GHz",
        pbkdf2: Some(649_675.0),
        mips: 1769.0,
        read_ns: 149.9,
        sources: &[
            "https://github.com/ThomasKaiser/sbc-bench/blob/master/results/3OBF.txt",
            "https://blog.stackframe.dev/46",
        ],
    },
    Board {
        name: "raspberry-pi-5",
        cpu: "Cortex-A76, 2.4 GHz",
        pbkdf2: None,
        mips: 3305.0,
        read_ns: 107.1,
        sources: &["https://github.com/ThomasKaiser/sbc-bench/blob/master/results/8-NK.txt"],
    },
    Board {
        name: "odroid-n2-plus",
        cpu: "Cortex-A73, 2.4 GHz",
        pbkdf2: None,
        mips: 2373.0,
        read_ns: 137.6,
        sources: &["https://github.com/ThomasKaiser/sbc-bench/blob/master/results/4rWn.txt"],
    },
    Board {
        name: "intel-n100",
        cpu: "Alder Lake-N, 3.4 GHz",
        pbkdf2: None,
        mips: 3910.0,
        read_ns: 115.4,
        sources: &["https://github.com/ThomasKaiser/sbc-bench/blob/master/results/uHzXI7.txt"],
    },
];

impl Board {
    /// The board of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        BOARDS.into_iter().find(|board| board.name == name)
    }

    /// Its speed, converted from the published figures.
    #[must_use]
    pub fn speed(&self) -> Speed {
        let reference = Speed::reference();
        let hashing = |pbkdf2| Some(reference.hashing_ns? * REFERENCE_PBKDF2 / pbkdf2);
        Speed {
            machine: format!("{} ({})", self.name, self.cpu),
            hashing_ns: self.pbkdf2.and_then(hashing),
            validation_ns: reference.validation_ns * REFERENCE_MIPS / self.mips,
            memory_ns: self.read_ns,
            published: true,
        }
    }
}

/// How many times as long one machine takes as another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Slowdown {
    /// The machine for which a plan is made.
    pub machine: String,
    /// The machine on which the costs were measured.
    pub measured_on: String,
    /// The geometric mean over the kinds of work.
    pub factor: f64,
    /// Lowest and highest factor of a kind of work.
    pub range: (f64, f64),
    /// The factor by kind of work. Kinds that are unknown for either machine are missing.
    pub by_work: Vec<(Work, f64)>,
    /// Whether figures of either machine are published ones, not measured by us.
    pub published: bool,
}

impl Slowdown {
    /// Compares `target` with `measured`.
    #[must_use]
    pub fn of(target: &Speed, measured: &Speed) -> Self {
        let factor = |work| Some((work, target.of(work)? / measured.of(work)?));
        let by_work: Vec<_> = Work::ALL.into_iter().filter_map(factor).collect();
        let factors = || by_work.iter().map(|(_, factor)| *factor);
        let logarithms: f64 = factors().map(f64::ln).sum();
        Self {
            machine: target.machine.clone(),
            measured_on: measured.machine.clone(),
            factor: (logarithms / by_work.len() as f64).exp(),
            range: (
                factors().fold(f64::INFINITY, f64::min),
                factors().fold(0.0, f64::max),
            ),
            published: target.published || measured.published,
            by_work,
        }
    }
}

/// The result of a computation is wrong, so its speed means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongResult(
    /// The kind of work.
    pub Work,
);

impl fmt::Display for WrongResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this machine computes a wrong result ({}): nothing is measured; run its memory test",
            self.0.name()
        )
    }
}

impl std::error::Error for WrongResult {}

/// Runs of each kind of work. The median counts.
const RUNS: usize = 9;

/// Measures this machine, which is named `machine`, in a few seconds, on one thread. `progress` is
/// called before each run with its number.
///
/// # Errors
///
/// If a result is wrong. All results are checked before they are timed.
pub fn calibrate(
    machine: &str,
    mut progress: impl FnMut(Work, usize),
) -> Result<Speed, WrongResult> {
    hashing::check()?;
    validation::check()?;
    let cycle = memory::Cycle::new();
    cycle.check()?;
    let mut keys = validation::Keys::new()?;
    let mut median = |work: Work, run: &mut dyn FnMut() -> f64| {
        let mut times: Vec<_> = (1..=RUNS)
            .map(|number| {
                progress(work, number);
                run()
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[RUNS / 2]
    };
    let name = machine.chars().filter(|char| !char.is_control());
    Ok(Speed {
        // At most 4 bytes each.
        machine: name.take(MAX_NAME / 4).collect(),
        hashing_ns: Some(median(Work::Hashing, &mut || {
            time(200_000, |units| {
                black_box(hashing::chain(units));
            })
        })),
        validation_ns: median(Work::Validation, &mut || time(800, |units| keys.run(units))),
        memory_ns: median(Work::Memory, &mut || {
            time(500_000, |units| {
                black_box(cycle.chase(black_box(0), units));
            })
        }),
        published: false,
    })
}

/// CPU time for each of `units`, in nanoseconds, at least a hundredth of one.
fn time(units: usize, run: impl FnOnce(usize)) -> f64 {
    let begun = cpu_time();
    run(units);
    let took = cpu_time().saturating_sub(begun);
    (took.as_nanos() as f64 / units as f64).max(0.01)
}

/// CPU time of this thread.
#[cfg(unix)]
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap_or_default(),
        time.tv_nsec.try_into().unwrap_or_default(),
    )
}

/// Time since the first call: other systems have no such clock.
#[cfg(not(unix))]
fn cpu_time() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

mod hashing {
    use super::{Hash, Hasher, Work, WrongResult, hex};

    /// Hashes a pair of digests `times` times; each digest is both halves of the next pair.
    pub(super) fn chain(times: usize) -> Hash {
        let hasher = Hasher::best();
        let mut digest = [Hash::default()];
        for _ in 0..times {
            let mut pair = [[0; 64]];
            pair[0][..32].copy_from_slice(&digest[0]);
            pair[0][32..].copy_from_slice(&digest[0]);
            hasher.hash64(&pair, &mut digest);
        }
        digest[0]
    }

    /// Checks a thousand hashes, and with them all intermediate results. The expected one was
    /// computed with Python's hashlib.
    pub(super) fn check() -> Result<(), WrongResult> {
        const EXPECTED: Hash =
            hex("415496b68c570a5a5ce0282016d90d4e344c03466a9ef64c99ed35433658a4db");
        match chain(1000) == EXPECTED {
            true => Ok(()),
            false => Err(WrongResult(Work::Hashing)),
        }
    }
}

mod validation {
    use super::{HashMap, Keypair, Role, Work, WrongResult, black_box, hex};

    /// Number of ids in the map.
    const IDS: u64 = 20_000;

    /// Inserts, lookups and removals for each key exchange.
    const ACCESSES: u64 = 256;

    type Id = [u8; 32];

    pub(super) struct Keys {
        keypair: Keypair,
        theirs: [u8; 64],
        map: HashMap<Id, u64>,
        next: u64,
    }

    /// The id with this number.
    fn id(number: u64) -> Id {
        let mut id = [0; 32];
        for (place, word) in id.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = super::random(number.wrapping_mul(4) + place as u64).to_le_bytes();
        }
        id
    }

    impl Keys {
        /// The first packet vector of BIP324.
        pub(super) fn new() -> Result<Self, WrongResult> {
            const SECRET: [u8; 32] =
                hex("61062ea5071d800bbfd59e2e8b53d47d194b095ae5a4df04936b49772ef0d4d7");
            const OURS: [u8; 64] = hex(
                "ec0adff257bbfe500c188c80b4fdd640f6b45a482bbc15fc7cef5931deff0aa186f6eb9bba7b85dc4dcc28b28722de1e3d9108b985e2967045668f66098e475b",
            );
            const THEIRS: [u8; 64] = hex(
                "a4a94dfce69b4a2a0a099313d10f9f7e7d649d60501c9e1d274c300e0d89aafaffffffffffffffffffffffffffffffffffffffffffffffffffffffff8faf88d5",
            );
            let keypair = Keypair::from_parts(&SECRET, OURS);
            Ok(Self {
                keypair: keypair.map_err(|_| WrongResult(Work::Validation))?,
                theirs: THEIRS,
                map: (0..IDS).map(|number| (id(number), number)).collect(),
                next: IDS,
            })
        }

        /// One key exchange. The result is a part of the next public key.
        fn exchange(&mut self) -> Id {
            let shared = **self.keypair.shared_secret(&self.theirs, Role::Initiator);
            self.theirs[..32].copy_from_slice(&shared);
            shared
        }

        /// Replaces the oldest ids by new ones. Returns the sum of the numbers that a lookup found.
        fn replace(&mut self) -> u64 {
            let mut sum = 0;
            for _ in 0..ACCESSES {
                self.map.insert(id(self.next), self.next);
                // From the middle.
                let found = self.map.get(&id(self.next - IDS / 2));
                sum += found.copied().unwrap_or(0);
                self.map.remove(&id(self.next - IDS));
                self.next += 1;
            }
            sum
        }

        pub(super) fn run(&mut self, times: usize) {
            for _ in 0..times {
                black_box(self.exchange());
                black_box(self.replace());
            }
        }
    }

    /// Checks the shared secret of BIP324's vector, and that the map finds all.
    pub(super) fn check() -> Result<(), WrongResult> {
        const EXPECTED: Id =
            hex("c6992a117f5edbea70c3f511d32d26b9798be4b81a62eaee1a5acaa8459a3592");
        let mut keys = Keys::new()?;
        let first = keys.next - IDS / 2;
        let expected: u64 = (first..first + ACCESSES).sum();
        let right = keys.exchange() == EXPECTED
            && keys.replace() == expected
            && keys.map.len() as u64 == IDS;
        match right {
            true => Ok(()),
            false => Err(WrongResult(Work::Validation)),
        }
    }
}

mod memory {
    use super::{Work, WrongResult, random};

    /// Length of the buffer in bytes: more than the caches of boards and of most desktops.
    const LEN: usize = 64 << 20;

    /// A cache line, which holds the number of the next one to read.
    #[derive(Clone, Copy)]
    #[repr(align(64))]
    struct Line(u32);

    /// All lines of the buffer in random order.
    pub(super) struct Cycle(Vec<Line>);

    impl Cycle {
        /// Sattolo's algorithm, which makes a single cycle.
        pub(super) fn new() -> Self {
            let count = LEN / size_of::<Line>();
            let mut lines: Vec<_> = (0..count as u32).map(Line).collect();
            for place in (1..count).rev() {
                let other = random(place as u64) % place as u64;
                lines.swap(place, other as usize);
            }
            Self(lines)
        }

        /// Reads `times` lines, each at the place that the one before it names.
        pub(super) fn chase(&self, from: u32, times: usize) -> u32 {
            (0..times).fold(from, |place, _| self.0[place as usize].0)
        }

        /// Checks that the start is reached again after all lines, and not after half of them.
        pub(super) fn check(&self) -> Result<(), WrongResult> {
            let half = self.chase(0, self.0.len() / 2);
            match half != 0 && self.chase(half, self.0.len() - self.0.len() / 2) == 0 {
                true => Ok(()),
                false => Err(WrongResult(Work::Memory)),
            }
        }
    }
}

/// Decodes lower-case hexadecimal digits, at compile time.
const fn hex<const N: usize>(digits: &str) -> [u8; N] {
    const fn digit(digit: u8) -> u8 {
        match digit {
            b'0'..=b'9' => digit - b'0',
            _ => digit - b'a' + 10,
        }
    }
    let digits = digits.as_bytes();
    assert!(digits.len() == 2 * N);
    let mut bytes = [0; N];
    let mut place = 0;
    while place < N {
        bytes[place] = digit(digits[2 * place]) << 4 | digit(digits[2 * place + 1]);
        place += 1;
    }
    bytes
}

/// A random number for each `number` (SplitMix64).
fn random(number: u64) -> u64 {
    let mut word = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibration_is_measured_and_survives_a_file() {
        let mut runs = 0;
        let speed = calibrate("a \x1b[2J machine", |_, _| runs += 1).unwrap();
        assert_eq!(runs, 3 * RUNS);
        assert_eq!(speed.machine, "a [2J machine");
        // A hash takes less than a key exchange on any machine, with or without optimization.
        assert!(speed.hashing_ns.unwrap() < speed.validation_ns, "{speed:?}");
        assert_eq!(Speed::from_json(&speed.to_json()), Ok(speed));
        for speed in BOARDS.map(|board| board.speed()) {
            assert_eq!(Speed::from_json(&speed.to_json()), Ok(speed));
        }
    }

    #[test]
    fn a_hostile_file_is_rejected() {
        let file = |name: &str, hashing: &str, memory: &str| {
            format!(
                r#"{{"machine":"{name}","hashing_ns":{hashing},"validation_ns":1,"memory_ns":{memory}}}"#
            )
        };
        assert!(Speed::from_json(&file("x", "1", "1e9")).is_ok());
        for time in ["0", "-1", "-0.0", "1e10"] {
            let hashing = Speed::from_json(&file("x", time, "1"));
            assert_eq!(hashing, Err(SpeedError::Time(Work::Hashing)), "{time}");
            let memory = Speed::from_json(&file("x", "null", time));
            assert_eq!(memory, Err(SpeedError::Time(Work::Memory)), "{time}");
        }
        for name in ["\\u001b[2J", &"x".repeat(101)] {
            let speed = Speed::from_json(&file(name, "1", "1"));
            assert_eq!(speed, Err(SpeedError::Name), "{name}");
        }
        for text in [
            "",
            "null",
            "[]",
            "{}",
            &file("x", "1", "1e999"),
            &file("x", "1", "NaN"),
            &file("x", "1", "null"),
            &file("x", "1", r#"1,"memory_ns":1"#),
            &file("x", "1", r#"1,"more":1"#),
            &"[".repeat(100_000),
        ] {
            let error = Speed::from_json(text).unwrap_err();
            assert!(matches!(error, SpeedError::Json(_)), "{error:?}");
            assert_eq!(error.to_string().lines().count(), 1);
        }
    }

    #[test]
    fn factors_are_combined_by_their_geometric_mean() {
        let speed = |hashing_ns, validation_ns, memory_ns| Speed {
            machine: "m".to_owned(),
            hashing_ns,
            validation_ns,
            memory_ns,
            published: false,
        };
        let here = speed(Some(100.0), 50_000.0, 100.0);
        let slowdown = Slowdown::of(&speed(Some(800.0), 100_000.0, 400.0), &here);
        assert!((slowdown.factor - 4.0).abs() < 1e-9, "{slowdown:?}");
        assert_eq!(slowdown.range, (2.0, 8.0));
        // Unknown for one of them.
        let slowdown = Slowdown::of(&speed(None, 100_000.0, 400.0), &here);
        assert!((slowdown.factor - 8_f64.sqrt()).abs() < 1e-9);
        assert_eq!(slowdown.by_work.len(), 2);
        let same = Slowdown::of(&here, &here);
        assert_eq!((same.factor, same.range), (1.0, (1.0, 1.0)));
    }

    #[test]
    fn boards_have_sources() {
        for board in BOARDS {
            assert!(
                board
                    .sources
                    .iter()
                    .all(|source| source.starts_with("https://"))
            );
            assert_eq!(Board::named(board.name), Some(board));
        }
        assert!(Board::named("raspberry-pi-9").is_none());
    }
}
