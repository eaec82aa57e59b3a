//! Chooses the sampling interval, to limit the cost of observing the node.

use crate::process::MESSAGE_THREAD;
use crate::record::{Event, Record};
use std::time::Duration;

/// Maximum pause between windows.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Minimum assumed load of the message thread, as a share of a core: 3 % of a nearly idle thread
/// would leave almost no window.
const MIN_LOAD: f64 = 0.02;

/// Computes the pause after each window so that the probes add a given share to the message
/// thread's run time.
#[derive(Debug)]
pub struct Pace {
    most: f64,
    /// The thread's own time in all windows, in nanoseconds; and their length in microseconds.
    own_ns: f64,
    observed: f64,
}

impl Pace {
    /// Limits the overhead of the probes to the share `most` of the thread's own time, averaged
    /// over windows and pauses.
    #[must_use]
    pub fn new(most: f64) -> Self {
        Self {
            most,
            own_ns: 0.0,
            observed: 0.0,
        }
    }

    /// The pause after a window in which the source emitted `records`. 0 for a source that costs
    /// the thread nothing.
    ///
    /// Assumes that between windows the thread's own load is the mean of all windows.
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
        // Nanoseconds per microsecond: a share of a core, times 1000.
        let own = (self.own_ns / self.observed.max(1.0)).max(1000.0 * MIN_LOAD);
        let micros = probes as f64 / own / self.most - window as f64;
        Duration::try_from_secs_f64(micros.max(0.0) / 1e6)
            .map_or(MAX_PAUSE, |pause| pause.min(MAX_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of half a second with these times of the thread and of the probes in it.
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
        // 30 ms of its own and 15 ms of the probes: 2 % overall if half a second in 12.5 is
        // observed.
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
    fn a_quiet_window_does_not_lengthen_the_pause() {
        let mut pace = Pace::new(0.02);
        for _ in 0..9 {
            let _ = pace.pause(&records(105, 5));
        }
        // On average 90 ms of its own in a window, and 5 ms of the probes.
        let pause = pace.pause(&records(5, 5)).as_secs_f64();
        assert!(
            (pause - 0.5 * (5.0 / 90.0 / 0.02 - 1.0)).abs() < 1e-6,
            "{pause}"
        );
    }
}
