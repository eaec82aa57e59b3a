//! Restricts a recording to a period.

use crate::known::Known;
use crate::record::{Event, Record, Time};

/// Maximum number of records that wait for the end of their window. If a window has more, all of it
/// counts as inside the period.
const MAX_HELD: usize = 1 << 18;

/// A period of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// When it begins.
    pub since: Time,
    /// When it ends.
    pub until: Time,
}

impl Period {
    /// All of the time.
    pub const ALL: Self = Self {
        since: 0,
        until: Time::MAX,
    };
}

/// Passes on the records of windows that lie within a period, and what is known of the peers that
/// connected before.
#[derive(Debug)]
pub(crate) struct Filter {
    period: Period,
    /// Peers that connected before the first window in the period. Empty from then on.
    known: Known,
    /// Whether there was a window in the period.
    begun: bool,
    /// Records of the current window.
    held: Vec<Record>,
}

impl Filter {
    pub(crate) fn new(period: Period) -> Self {
        Self {
            period,
            known: Known::default(),
            begun: false,
            held: Vec::new(),
        }
    }

    /// Takes the next record, and passes records to `to`.
    pub(crate) fn add(&mut self, record: Record, mut to: impl FnMut(&Record)) {
        if self.period == Period::ALL {
            return to(&record);
        }
        if let Event::Window { start, .. } = record.event {
            let held = std::mem::take(&mut self.held);
            if start >= self.period.since && record.time <= self.period.until {
                self.begin(start, &mut to);
                held.iter().for_each(&mut to);
                to(&record);
            } else {
                held.iter().for_each(|record| self.note(record, &mut to));
            }
        } else if record.event == Event::Started {
            // Of the last window of the earlier run, the end is missing.
            self.held.clear();
            self.note(&record, &mut to);
        } else if record.time < self.period.since {
            self.note(&record, &mut to);
        } else if record.time <= self.period.until {
            if self.held.len() >= MAX_HELD {
                let first = self.held[0].time;
                self.begin(first, &mut to);
                self.held.drain(..).for_each(|record| to(&record));
            }
            self.held.push(record);
        }
    }

    /// Drops the current window: records of it are missing.
    pub(crate) fn gap(&mut self) {
        self.held.clear();
    }

    /// Passes on what is known of the peers that connected before the first window.
    fn begin(&mut self, time: Time, to: &mut impl FnMut(&Record)) {
        self.begun = true;
        let known = std::mem::take(&mut self.known);
        known.records(time).for_each(|record| to(&record));
    }

    /// Takes a record outside of the period: only connections matter.
    fn note(&mut self, record: &Record, to: &mut impl FnMut(&Record)) {
        match &record.event {
            _ if !self.begun => self.known.note(&record.event),
            Event::Connected { .. } | Event::Disconnected { .. } | Event::Started => to(record),
            _ => {}
        }
    }
}
