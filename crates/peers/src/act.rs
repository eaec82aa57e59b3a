//! Rules by which costly peers are disconnected.
//!
//! Only inbound peers are ever chosen. As in [`hints`](crate::hints), a peer's cost excludes the
//! transactions and blocks that the node took from it.

use crate::record::{ConnectionType, Time};
use crate::tally::Tally;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

const MINUTE: Time = 60_000_000;
const HOUR: Duration = Duration::from_secs(3600);

/// Into how many parts the time of a rule is divided.
const PARTS: u64 = 30;

/// The fewest parts, of windows at different times, that show what a peer costs.
const LEAST_PARTS: usize = 5;

/// When a peer is disconnected. Parsed from `cost=2000,minutes=5,per-hour=3`; the last two have
/// these values by default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Disconnect a peer that costs more than this, in CPU microseconds per second: 100 to 1,000,000.
    pub cost_us: f64,
    /// On average over this time, in minutes: 0.1 to 60.
    pub minutes: f64,
    /// At most so many peers in an hour: 1 to 100.
    pub per_hour: usize,
}

/// Why a text has no rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RulesError {
    /// Not a list of `NAME=NUMBER`.
    Form,
    /// The cost is missing, or out of range.
    Cost,
    /// The minutes are out of range.
    Minutes,
    /// The number in an hour is out of range.
    PerHour,
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => {
                "expected cost=US,minutes=M,per-hour=N, such as cost=2000,minutes=5,per-hour=3"
            }
            Self::Cost => "cost must be given, from 100 to 1000000 CPU microseconds per second",
            Self::Minutes => "minutes must be from 0.1 to 60",
            Self::PerHour => "per-hour must be from 1 to 100",
        })
    }
}

impl std::error::Error for RulesError {}

impl FromStr for Rules {
    type Err = RulesError;

    fn from_str(text: &str) -> Result<Self, RulesError> {
        let mut rules = Self {
            cost_us: 0.0,
            minutes: 5.0,
            per_hour: 3,
        };
        for part in text.split(',') {
            let (name, number) = part.split_once('=').ok_or(RulesError::Form)?;
            match name.trim() {
                "cost" => rules.cost_us = number.trim().parse().map_err(|_| RulesError::Cost)?,
                "minutes" => {
                    rules.minutes = number.trim().parse().map_err(|_| RulesError::Minutes)?;
                }
                "per-hour" => {
                    rules.per_hour = number.trim().parse().map_err(|_| RulesError::PerHour)?;
                }
                _ => return Err(RulesError::Form),
            }
        }
        match () {
            () if !(100.0..=1e6).contains(&rules.cost_us) => Err(RulesError::Cost),
            () if !(0.1..=60.0).contains(&rules.minutes) => Err(RulesError::Minutes),
            () if !(1..=100).contains(&rules.per_hour) => Err(RulesError::PerHour),
            () => Ok(rules),
        }
    }
}

/// A peer that the rules want disconnected.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// The node's id of the peer.
    pub peer: i64,
    /// Its address.
    pub address: String,
    /// The figures that say so.
    pub reason: String,
}

/// Applies rules to what is observed, window by window.
#[derive(Debug)]
pub struct Actor {
    rules: Rules,
    peers: BTreeMap<i64, Costs>,
    /// When peers were chosen within the last hour, by a clock that nobody sets.
    acted: VecDeque<Duration>,
    /// The number of windows at the last decision.
    windows: u64,
    /// When the last windows began: the latest three.
    begun: VecDeque<Time>,
}

/// The cost of a peer over the time of the rule.
#[derive(Debug)]
struct Costs {
    address: String,
    parts: VecDeque<Part>,
    /// Whether it was chosen, so that it is not chosen again.
    is_done: bool,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    start: Time,
    observed: Time,
    cpu_ns: u64,
}

impl Actor {
    /// An actor that has seen nothing.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            peers: BTreeMap::new(),
            acted: VecDeque::new(),
            windows: 0,
            begun: VecDeque::new(),
        }
    }

    /// Why no peer can be chosen: the last windows were too far apart. `None` if that is not so.
    #[must_use]
    pub fn obstacle(&self) -> Option<String> {
        let over = self.rules.minutes * MINUTE as f64;
        // One more may have begun before that time.
        let most = over / (LEAST_PARTS - 2) as f64;
        let begun = self.begun.iter();
        let pauses = begun.clone().zip(begun.skip(1));
        let least = pauses.map(|(one, next)| next.saturating_sub(*one)).min()?;
        (self.begun.len() == 3 && least as f64 >= most).then(|| {
            format!(
                "no peer can be chosen while windows are {:.1} s apart: a rule over {} min needs \
                 {LEAST_PARTS} of them",
                least as f64 / 1e6,
                self.rules.minutes,
            )
        })
    }

    /// Chooses a peer again that was not disconnected. Its last choice counts within the hour.
    pub fn retry(&mut self, peer: i64) {
        if let Some(costs) = self.peers.get_mut(&peer) {
            costs.is_done = false;
        }
    }

    /// Takes back that the last choice counts within the hour: the node was not asked to disconnect
    /// that peer.
    pub fn spare(&mut self) {
        self.acted.pop_back();
    }

    /// The peers to disconnect after a window, which `tally` has just counted and which began at
    /// `start` and ended at `end`. Each is chosen once, the costliest first. `now` is the time since
    /// any fixed moment.
    pub fn decide(
        &mut self,
        tally: &Tally,
        (start, end): (Time, Time),
        now: Duration,
    ) -> Vec<Action> {
        // The tally ignores a window that ends before it begins: the clock was set.
        if std::mem::replace(&mut self.windows, tally.windows()) == tally.windows() {
            return Vec::new();
        }
        self.begun.push_back(start);
        if self.begun.len() > 3 {
            self.begun.pop_front();
        }
        let over = (self.rules.minutes * MINUTE as f64) as Time;
        let mut wanted = Vec::new();
        let mut peers = BTreeMap::new();
        for (number, peer) in tally.peers() {
            let Some(known) = &peer.connection else {
                continue;
            };
            if peer.gone().is_some() || known.kind != ConnectionType::Inbound {
                continue;
            }
            let before = self.peers.remove(&number);
            let mut costs = before
                .filter(|before| before.address == known.address)
                .unwrap_or_else(|| Costs {
                    address: known.address.clone(),
                    parts: VecDeque::new(),
                    is_done: false,
                });
            let latest = &peer.latest;
            let useful = latest.useful.cost.cpu_ns;
            costs.add(
                Part {
                    start,
                    observed: latest.observed,
                    cpu_ns: latest.cpu_ns().saturating_sub(useful),
                },
                over,
            );
            let us = costs.us_per_second();
            if costs.cover(end, over) && us > self.rules.cost_us && !costs.is_done {
                wanted.push((us, number));
            }
            peers.insert(number, costs);
        }
        self.peers = peers;
        wanted.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let chosen = wanted.into_iter();
        chosen
            .filter_map(|(us, number)| self.choose(us, number, now))
            .collect()
    }

    /// The action for a peer, unless there were too many within the hour.
    fn choose(&mut self, us: f64, number: i64, now: Duration) -> Option<Action> {
        while let Some(oldest) = self.acted.front()
            && now.saturating_sub(*oldest) >= HOUR
        {
            self.acted.pop_front();
        }
        if self.acted.len() >= self.rules.per_hour {
            return None;
        }
        let costs = self.peers.get_mut(&number)?;
        costs.is_done = true;
        self.acted.push_back(now);
        Some(Action {
            peer: number,
            address: costs.address.clone(),
            reason: format!(
                "{us:.0} us/s over {} min beyond the transactions and blocks that the \
                 node took, more than {}",
                self.rules.minutes, self.rules.cost_us
            ),
        })
    }
}

impl Costs {
    /// Adds a window, and forgets what is not needed to cover the time `over`. Forgets all before a
    /// window that began before the last one: the clock was set.
    fn add(&mut self, window: Part, over: Time) {
        if self
            .parts
            .back()
            .is_some_and(|last| window.start < last.start)
        {
            self.parts.clear();
        }
        match self.parts.back_mut() {
            Some(last) if window.start.saturating_sub(last.start) < over / PARTS => {
                last.observed = last.observed.saturating_add(window.observed);
                last.cpu_ns = last.cpu_ns.saturating_add(window.cpu_ns);
            }
            _ => self.parts.push_back(window),
        }
        while let Some(second) = self.parts.get(1)
            && window.start.saturating_sub(second.start) >= over
        {
            self.parts.pop_front();
        }
    }

    /// Whether the windows cover the time `over` before `end`, and leave out at most half of it at
    /// once.
    fn cover(&self, end: Time, over: Time) -> bool {
        let starts = || self.parts.iter().map(|part| part.start);
        let gaps = starts().zip(starts().skip(1));
        self.parts.len() >= LEAST_PARTS
            && starts()
                .next()
                .is_some_and(|first| end.saturating_sub(first) >= over)
            && gaps.fold(0, |most, (one, next)| most.max(next - one)) <= over / 2
    }

    fn us_per_second(&self) -> f64 {
        let [mut observed, mut cpu_ns] = [0_u64; 2];
        for part in &self.parts {
            observed = observed.saturating_add(part.observed);
            cpu_ns = cpu_ns.saturating_add(part.cpu_ns);
        }
        match observed {
            0 => 0.0,
            observed => cpu_ns as f64 * 1e3 / observed as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Calls, Connection, Cost, Event, Record};

    const SECOND: Time = 1_000_000;

    #[test]
    fn rules_are_read_and_bounded() {
        let rules: Rules = "cost=2000,minutes=7,per-hour=1".parse().unwrap();
        assert_eq!(
            (rules.cost_us, rules.minutes, rules.per_hour),
            (2000.0, 7.0, 1)
        );
        let rules: Rules = "cost=100".parse().unwrap();
        assert_eq!((rules.minutes, rules.per_hour), (5.0, 3));
        for (text, error) in [
            ("", RulesError::Form),
            ("2000", RulesError::Form),
            ("price=2000", RulesError::Form),
            ("minutes=5", RulesError::Cost),
            ("cost=nan", RulesError::Cost),
            ("cost=99", RulesError::Cost),
            ("cost=2000,minutes=0", RulesError::Minutes),
            ("cost=2000,minutes=61", RulesError::Minutes),
            ("cost=2000,per-hour=0", RulesError::PerHour),
        ] {
            assert_eq!(text.parse::<Rules>(), Err(error), "{text}");
        }
    }

    /// Three inbound peers and an outbound one cost `us` microseconds in each second.
    fn window(tally: &mut Tally, start: Time, us: &[u64; 4]) {
        for (peer, us) in (0..).zip(us) {
            let kind = match peer {
                3 => ConnectionType::OutboundFullRelay,
                _ => ConnectionType::Inbound,
            };
            let connection = Connection {
                address: format!("192.0.2.{peer}:8333"),
                kind,
                network: None,
                transport: None,
                relay: Some(true),
                user_agent: None,
                since: Some(0),
            };
            let cost = Cost {
                wall_ns: 0,
                cpu_ns: us * 1000,
            };
            let time = start + SECOND;
            for event in [
                Event::Connected { peer, connection },
                Event::Calls {
                    peer,
                    receiving: Calls { count: 1, cost },
                    sending: Calls::default(),
                },
            ] {
                tally.add(&Record { time, event });
            }
        }
        tally.add(&Record {
            time: start + SECOND,
            event: Event::Window {
                start,
                lost: 0,
                probes_ns: 0,
                stolen_ns: 0,
            },
        });
    }

    /// The peers that are chosen after a window of these costs.
    fn decide(actor: &mut Actor, tally: &mut Tally, second: u64, us: &[u64; 4]) -> Vec<i64> {
        window(tally, second * SECOND, us);
        let times = (second * SECOND, (second + 1) * SECOND);
        let chosen = actor.decide(tally, times, Duration::from_secs(second));
        chosen.iter().map(|action| action.peer).collect()
    }

    #[test]
    fn only_a_lasting_cost_of_an_inbound_peer_counts() {
        let mut actor = Actor::new("cost=2000,minutes=2,per-hour=1".parse().unwrap());
        let mut tally = Tally::new();
        let mut chosen = Vec::new();
        for second in 0..300 {
            // Peer 0 is costly all the time, peer 1 for a moment, peer 2 from a later time on.
            let one = if second == 100 { 90_000 } else { 100 };
            let two = if second >= 110 { 8000 } else { 0 };
            let peers = decide(&mut actor, &mut tally, second, &[3000, one, two, 9000]);
            chosen.extend(peers.into_iter().map(|peer| (second, peer)));
        }
        // At most one in an hour.
        assert_eq!(chosen, [(119, 0)]);
        // The next one after that hour, although all are costly then.
        for second in 300..4999 {
            let us = [3000, 5000, 8000, 9000];
            let peers = decide(&mut actor, &mut tally, second, &us);
            chosen.extend(peers.into_iter().map(|peer| (second, peer)));
        }
        assert_eq!(chosen, [(119, 0), (119 + 3600, 2)]);
        // One that could not be disconnected is chosen again.
        actor.retry(2);
        let us = [3000, 5000, 8000, 9000];
        assert_eq!(decide(&mut actor, &mut tally, 4999, &us), [0; 0]);
        actor.spare();
        assert_eq!(decide(&mut actor, &mut tally, 5000, &us), [2]);
        assert_eq!(decide(&mut actor, &mut tally, 5001, &us), [0; 0]);
    }

    /// Neither a clock that is set nor a gap makes one window stand for minutes.
    #[test]
    fn a_gap_is_no_lasting_cost() {
        const COSTLY: [u64; 4] = [9000, 9000, 9000, 9000];
        const CHEAP: [u64; 4] = [10; 4];
        let mut actor = Actor::new("cost=2000,minutes=2,per-hour=100".parse().unwrap());
        let mut tally = Tally::new();
        for second in 0..200 {
            assert_eq!(decide(&mut actor, &mut tally, second, &CHEAP), [0; 0]);
        }
        // An hour later, by a clock that was set or after a rest.
        for second in 4000..4120 {
            let chosen = decide(&mut actor, &mut tally, second, &COSTLY);
            assert_eq!(chosen, [0; 0], "{second}");
        }
        assert_eq!(decide(&mut actor, &mut tally, 4120, &COSTLY).len(), 3);
        // Back to before: all begins anew.
        (0..3).for_each(|peer| actor.retry(peer));
        for second in 1000..1119 {
            assert_eq!(decide(&mut actor, &mut tally, second, &COSTLY), [0; 0]);
        }
        assert_eq!(decide(&mut actor, &mut tally, 1119, &COSTLY).len(), 3);
        // A window that ends before it begins is none.
        let chosen = actor.decide(&tally, (9, 8), Duration::from_secs(9));
        assert_eq!(chosen, []);
        // Windows that are too far apart.
        let mut actor = Actor::new("cost=2000,minutes=2".parse().unwrap());
        let mut tally = Tally::new();
        for minute in 0..20 {
            let second = 61 * minute;
            assert_eq!(decide(&mut actor, &mut tally, second, &COSTLY), [0; 0]);
            assert_eq!(actor.obstacle().is_some(), minute > 1);
        }
        decide(&mut actor, &mut tally, 61 * 19 + 5, &COSTLY);
        assert_eq!(actor.obstacle(), None);
        // What is said and what is done agree.
        for pause in 1..80 {
            let mut actor = Actor::new("cost=2000,minutes=2".parse().unwrap());
            let mut tally = Tally::new();
            let mut chosen = 0;
            for turn in 0..200 {
                chosen += decide(&mut actor, &mut tally, pause * turn, &COSTLY).len();
            }
            assert_eq!(actor.obstacle().is_none(), chosen > 0, "{pause}");
        }
    }
}
