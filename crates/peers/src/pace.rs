//! How often to look, so that looking costs the node no more than it may.

use crate::process::MESSAGE_THREAD;
use crate::record::{Event, Record};
use std::time::Duration;

/// Nobody waits longer for the next window.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// A thread that does less than this share of a core is treated as if it did that: three per cent
/// of nearly nothing would leave nearly no window.
const LEAST: f64 = 0.02;

/// Says how long to wait after a window, so that the probes make the node's message thread run longer
/// by a share of its own time.
#[derive(Debug)]
pub struct Pace {
    most: f64,
    /// What was seen of the thread's own time, in nanoseconds, in so many microseconds.
    own_ns: f64,
    observed: f64,
}

impl Pace {
    /// The probes may cost the share `most` of the thread's own time, over all of the time.
    #[must_use]
    pub fn new(most: f64) -> Self {
        Self {
            most,
            own_ns: 0.0,
            observed: 0.0,
        }
    }

    /// How long to wait after a window, of which the source gave `records`. It is 0 for a source that
    /// costs the thread nothing.
    ///
    /// The thread's own time while nobody looks is taken to be what it was in all windows.
    #[must_use]
    pub fn pause(&mut self, records: &[Record]) -> Duration {
        let (mut thread_ns, mut probes, mut window) = (0, 0, 0);
        for record in records {
            match &record.event {
                Event::Thread { name, cpu_ns } if name == MESSAGE_THREAD => thread_ns += cpu_ns,
                Event::Window {
                    start, probes_ns, ..
                } => {
                    probes += probes_ns;
                    window += record.time.saturating_sub(*start);
                }
                _ => {}
            }
        }
        self.own_ns += thread_ns.saturating_sub(probes) as f64;
        self.observed += window as f64;
        if probes == 0 {
            return Duration::ZERO;
        }
        // Nanoseconds in a microsecond: a share of a core by 1000.
        let own = (self.own_ns / self.observed.max(1.0)).max(1000.0 * LEAST);
        let micros = probes as f64 / own / self.most - window as f64;
        Duration::try_from_secs_f64(micros.max(0.0) / 1e6)
            .map_or(MAX_PAUSE, |pause| pause.min(MAX_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half a second, in milliseconds of the thread and of the probes in it.
    fn records(thread_ms: u64, probes_ms: u64) -> [Record; 3] {
        let record = |event| Record {
            time: 1_500_000,
            event,
        };
        [
            record(Event::Thread {
                name: MESSAGE_THREAD.into(),
                cpu_ns: thread_ms * 1_000_000,
            }),
            record(Event::Thread {
                name: "b-net".into(),
                cpu_ns: 7,
            }),
            record(Event::Window {
                start: 1_000_000,
                lost: 0,
                probes_ns: probes_ms * 1_000_000,
                stolen_ns: 0,
            }),
        ]
    }

    #[test]
    fn the_probes_cost_their_share() {
        let close = |records: [Record; 3], most, seconds: f64| {
            let pause = Pace::new(most).pause(&records).as_secs_f64();
            assert!((pause - seconds).abs() < 1e-6, "{pause}");
        };
        // 30 ms of its own and 15 of the probes: 2 % of all the time if half a second in 12.5 is
        // watched.
        close(records(45, 15), 0.02, 12.0);
        close(records(45, 15), 0.5, 0.0);
        close(records(45, 15), 0.9, 0.0);
        // An idle thread: 10 ms in half a second.
        close(records(2, 1), 0.02, 2.0);
        close(records(45, 15), 0.0, 60.0);
        assert_eq!(Pace::new(0.02).pause(&records(45, 0)), Duration::ZERO);
        assert_eq!(Pace::new(0.02).pause(&[]), Duration::ZERO);
    }

    #[test]
    fn a_quiet_moment_does_not_close_its_eyes() {
        let mut pace = Pace::new(0.02);
        for _ in 0..9 {
            let _ = pace.pause(&records(105, 5));
        }
        // 90 ms of its own in a window, in the mean, and 5 of the probes.
        let pause = pace.pause(&records(5, 5)).as_secs_f64();
        assert!(
            (pause - 0.5 * (5.0 / 90.0 / 0.02 - 1.0)).abs() < 1e-6,
            "{pause}"
        );
    }
}
