//! Traffic that is not Bitcoin, made by models. Nothing here was recorded.
//!
//! Web pages follow SURGE (Barford and Crovella, "Generating Representative Web Workloads", 1998):
//! sizes are log-normal with a Pareto tail, pauses of readers are Pareto. A video stream fetches a
//! chunk every four seconds, a download is always busy, and a chat sends short messages and
//! keep-alives: our own plain models.

use super::wire::{FULL_SEGMENT, Observed, Segment};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// The models.
pub(crate) const MODELS: [&str; 4] = ["web", "video", "download", "chat"];

/// Bytes a second of a fast line, and of a download.
const LINE: u64 = 5_000_000;
const DOWNLOAD: u64 = 250_000;

/// Round-trip time in microseconds.
const ROUND_TRIP: u64 = 30_000;

/// One connection of a model, `seconds` long.
pub(crate) fn connection(model: &str, seconds: u64, seed: u64) -> Observed {
    let mut flow = Flow {
        rng: StdRng::seed_from_u64(seed),
        segments: Vec::new(),
        now: 0,
    };
    flow.hello();
    let end = seconds * 1_000_000;
    while flow.now < end {
        match model {
            "web" => flow.page(),
            "video" => flow.chunk(),
            "download" => flow.download(),
            _ => flow.chat(),
        }
    }
    flow.segments.sort_by_key(|segment| segment.at);
    flow.segments.retain(|segment| segment.at < end);
    Observed {
        segments: flow.segments,
        span: (0, end),
        ..Observed::default()
    }
}

struct Flow {
    rng: StdRng,
    segments: Vec<Segment>,
    now: u64,
}

impl Flow {
    /// Sends bytes from now on, at the speed of a line.
    fn send(&mut self, sent: bool, bytes: u64, per_second: u64) {
        let mut rest = bytes;
        while rest > 0 {
            let len = rest.min(FULL_SEGMENT.into()) as u32;
            self.segments.push(Segment {
                at: self.now,
                sent,
                len,
            });
            rest -= u64::from(len);
            self.now += u64::from(len) * 1_000_000 / per_second;
        }
    }

    /// A handshake of TLS 1.3: hello, certificate, finished.
    fn hello(&mut self) {
        let lengths = [
            self.rng.random_range(500..700),
            self.rng.random_range(2500..5000),
            80,
        ];
        for (number, len) in lengths.into_iter().enumerate() {
            self.send(number % 2 == 0, len, LINE);
            self.now += ROUND_TRIP / 2;
        }
    }

    /// A Pareto variable.
    fn pareto(&mut self, least: f64, shape: f64) -> f64 {
        least
            / self
                .rng
                .random_range(f64::MIN_POSITIVE..1.0)
                .powf(1.0 / shape)
    }

    /// A request and its answer.
    fn exchange(&mut self, answer: u64) {
        let request = self.rng.random_range(80..700);
        self.send(true, request, LINE);
        self.now += ROUND_TRIP;
        self.send(false, answer + 60, LINE);
    }

    /// The size of a file in SURGE, in bytes.
    fn file(&mut self) -> u64 {
        let bytes = match self.rng.random_range(0..100) {
            0..93 => {
                // Two uniform numbers make a normal one (Box and Muller).
                let radius = (-2.0 * self.rng.random_range(f64::MIN_POSITIVE..1.0).ln()).sqrt();
                let angle = self.rng.random_range(0.0..std::f64::consts::TAU);
                (9.357 + 1.318 * radius * angle.cos()).exp()
            }
            _ => self.pareto(133_000.0, 1.1),
        };
        bytes.min(5e7) as u64
    }

    /// A page with its embedded files, and a pause.
    fn page(&mut self) {
        let files = self.pareto(1.0, 2.43).min(100.0) as usize;
        for _ in 0..files {
            let answer = self.file();
            self.exchange(answer);
        }
        let pause = self.pareto(1.0, 1.5).min(1000.0);
        self.now += (pause * 1e6) as u64;
    }

    fn chunk(&mut self) {
        let before = self.now;
        let answer = self.rng.random_range(700_000..2_500_000);
        self.exchange(answer);
        self.now = self.now.max(before + 4_000_000);
    }

    fn download(&mut self) {
        let answer = self.rng.random_range(5_000_000..50_000_000);
        self.exchange(0);
        self.send(false, answer, DOWNLOAD);
        self.now += self.rng.random_range(0..2_000_000);
    }

    fn chat(&mut self) {
        let pause = -20.0 * self.rng.random_range(f64::MIN_POSITIVE..1.0).ln();
        self.now += (pause.min(30.0) * 1e6) as u64;
        let sent = self.rng.random_range(0..2) == 0;
        let len = match pause > 30.0 {
            // A keep-alive.
            true => 40,
            false => 60 + (-150.0 * self.rng.random_range(f64::MIN_POSITIVE..1.0).ln()) as u64,
        };
        self.send(sent, len, LINE);
        self.now += ROUND_TRIP;
        self.send(!sent, 45, LINE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_as_busy_as_they_say() {
        for (model, least, most) in [
            ("web", 500.0, 100_000.0),
            ("video", 300_000.0, 500_000.0),
            ("download", 200_000.0, 255_000.0),
            ("chat", 3.0, 50.0),
        ] {
            let observed = connection(model, 7200, 1);
            let bytes: u64 = observed
                .segments
                .iter()
                .map(|segment| u64::from(segment.len))
                .sum();
            let rate = bytes as f64 / 7200.0;
            assert!(
                (least..most).contains(&rate),
                "{model}: {rate} bytes a second"
            );
            assert!(observed.segments.is_sorted_by_key(|segment| segment.at));
        }
    }
}
