//! The figures shown for each peer, in the live table, in a pipe and in NATS messages.

use crate::screen::{Column, Content, Period, age, short};
use packetlane_p2p::payload::printable;
use packetlane_peers::hints::{Hint, hints};
use packetlane_peers::report::StallRow;
use packetlane_peers::show::{plural, printable_json};
use packetlane_peers::tally::{Messages, Peer, Seen, Tally, ThreadCost};
use packetlane_peers::{MESSAGE_THREAD, NETWORK_THREAD, Network, PeerRow, Time};
use serde::Serialize;
use std::cmp::Ordering;

/// Sort order: figures and ages descending, the rest ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sort {
    /// CPU time of receiving and sending
    Cpu,
    /// CPU time of receiving
    Receiving,
    /// CPU time of sending
    Sending,
    /// Standard error of the CPU time
    Error,
    /// Messages in both directions
    Messages,
    /// Messages received
    Received,
    /// Messages sent
    Sent,
    /// Bytes in both directions
    Bytes,
    /// Bytes received
    ReceivedBytes,
    /// Bytes sent
    SentBytes,
    /// Transactions received
    Transactions,
    /// Blocks that the peer was the first to announce
    Blocks,
    /// Requests for blocks that it left unanswered
    Stalls,
    /// Age
    Age,
    /// The node's id of the peer
    Id,
    /// Direction and type
    Connection,
    /// Network
    Network,
    /// v1 or v2
    Transport,
    /// Costliest message type
    Costliest,
    /// Address
    Address,
    /// User agent
    Agent,
}

/// How many stalls and how many hints are shown below the table.
const SHOWN: usize = 3;

/// The JSON of an interval.
#[derive(Serialize)]
pub(super) struct Interval<'n> {
    schema: u32,
    /// The node's name, where many publish.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'n str>,
    /// Microseconds since 1970: the window that the rates cover.
    start: Time,
    end: Time,
    /// Number of peers that are not in the list.
    more_peers: usize,
    #[serde(flatten)]
    figures: Figures,
}

impl<'n> Interval<'n> {
    /// The last window, with at most `most` peers: those that come first by `sort`.
    pub(super) fn of(
        tally: &Tally,
        (start, end): (Time, Time),
        node: Option<&'n str>,
        sort: Sort,
        most: usize,
    ) -> Self {
        let mut figures = Figures::of(tally, Period::Latest, sort);
        let more_peers = figures.peers.len().saturating_sub(most);
        figures.peers.truncate(most);
        Self {
            schema: 1,
            node,
            start,
            end,
            more_peers,
            figures,
        }
    }

    /// One line.
    pub(super) fn to_json(&self) -> String {
        let text = serde_json::to_string(self);
        printable_json(&text.expect("figures are plain strings, numbers and lists"))
    }
}

/// A node and its peers.
#[derive(Serialize)]
pub(super) struct Figures {
    /// Totals since the start: observed seconds, number of windows, observed share of the time, and
    /// lost events.
    observed_seconds: f64,
    windows: u64,
    observed_share: f64,
    lost: u64,
    /// Messages and bytes of all connected peers. A peer's own rates cover the time that it was
    /// connected; these cover all of the time.
    received: Traffic,
    sent: Traffic,
    /// CPU time of the thread that processes messages: the sum of the next four fields.
    message_thread_ms_per_second: Option<f64>,
    /// Its CPU time for the listed peers, and for peers that have left. These cover all of the time,
    /// too.
    peers_ms_per_second: Option<f64>,
    left_ms_per_second: Option<f64>,
    /// Its CPU time for the main loop: waiting, waking up and iterating over the peers.
    loop_ms_per_second: Option<f64>,
    /// Its CPU time that is not attributed to any of these, and that share.
    unaccounted_ms_per_second: Option<f64>,
    unaccounted_share: Option<f64>,
    /// Additional CPU time caused by the probes while attached; not included in the fields above.
    probes_ms_per_second: Option<f64>,
    /// CPU time of the thread that handles the sockets.
    network_thread_ms_per_second: Option<f64>,
    /// Peers that have left: how many, and what they cost and sent, per second of all observed time.
    /// With `Period::Latest`, over all of the time, too.
    left_peers: u64,
    left_bytes_per_second: f64,
    /// Blocks that the node has connected. `None` if the source does not see blocks.
    blocks: Option<u64>,
    /// Seconds from the first announcement of a block until it was connected: the median.
    blocks_took_seconds: Option<f64>,
    /// Blocks that came as cmpctblock, and those of them that lacked no transaction.
    blocks_compact: u64,
    blocks_complete: u64,
    /// Requests for blocks that are unanswered for more than ten seconds.
    stalling: Vec<StallRow>,
    /// What could be done about peers that cost much.
    hints: Vec<Hint>,
    pub(super) peers: Vec<PeerRow>,
}

/// What passes in one direction.
#[derive(Clone, Copy, Serialize)]
struct Traffic {
    /// `None` if the source does not count messages.
    messages_per_second: Option<f64>,
    bytes_per_second: f64,
}

const COLUMNS: [Column<Sort>; 18] = [
    Column::number("peer", 7, Sort::Id, 0),
    Column::sorted_text("connection", 22, Sort::Connection, 1),
    Column::sorted_text("net", 5, Sort::Network, 8),
    Column::sorted_text("v1/v2", 5, Sort::Transport, 6),
    Column::number("age", 5, Sort::Age, 3),
    Column::number("recv ms/s", 9, Sort::Receiving, 0),
    Column::number("send ms/s", 9, Sort::Sending, 0),
    Column::number("+-", 7, Sort::Error, 10),
    Column::number("recv/s", 7, Sort::Received, 4),
    Column::number("sent/s", 7, Sort::Sent, 7),
    Column::number("recv B/s", 8, Sort::ReceivedBytes, 4),
    Column::number("sent B/s", 8, Sort::SentBytes, 7),
    Column::sorted_text("costliest", 12, Sort::Costliest, 5),
    Column::number("tx/s", 6, Sort::Transactions, 9),
    Column::number("blocks", 6, Sort::Blocks, 9),
    Column::number("stalls", 6, Sort::Stalls, 9),
    Column::sorted_text("address", 22, Sort::Address, 5),
    Column::sorted_text("user agent", 24, Sort::Agent, 11),
];

impl Content for Tally {
    type Sort = Sort;

    const COLUMNS: &'static [Column<Sort>] = &COLUMNS;

    const KEYS: &'static [(char, &'static str, Sort)] = &[
        ('c', "CPU", Sort::Cpu),
        ('r', "receiving", Sort::Receiving),
        ('s', "sending", Sort::Sending),
        ('m', "messages", Sort::Messages),
        ('b', "bytes", Sort::Bytes),
        ('a', "age", Sort::Age),
        ('i', "id", Sort::Id),
    ];

    fn is_by(sort: Sort, column: Sort) -> bool {
        match sort {
            Sort::Cpu => [Sort::Receiving, Sort::Sending].contains(&column),
            Sort::Messages => [Sort::Received, Sort::Sent].contains(&column),
            Sort::Bytes => [Sort::ReceivedBytes, Sort::SentBytes].contains(&column),
            _ => false,
        }
    }

    fn page(&self, sort: Sort, period: Period) -> (Vec<Vec<String>>, Vec<String>) {
        let figures = Figures::of(self, period, sort);
        let below = match self.windows() {
            0 => vec!["waiting for the first window ...".to_owned()],
            _ => figures.summary(),
        };
        (figures.peers.iter().map(cells).collect(), below)
    }
}

impl Figures {
    /// Computes the figures of the connected peers.
    pub(super) fn of(tally: &Tally, period: Period, sort: Sort) -> Self {
        let connected = || tally.peers().filter(|(_, peer)| peer.gone().is_none());
        let is_all = period == Period::All;
        let peers = connected()
            .map(|(number, peer)| PeerRow::of(tally, number, peer, seen(peer, period), is_all));
        let mut peers: Vec<PeerRow> = peers.collect();
        peers.sort_by(|one, other| order(one, other, sort));
        let threads = match period {
            Period::All => tally.threads(),
            Period::Latest => tally.latest_threads(),
        };
        let rate = |ns: f64, thread: &ThreadCost| ns / 1e6 / thread.seconds;
        let run_time = |name: &str| {
            let thread = threads.get(name)?;
            Some(rate(thread.cpu_ns as f64, thread))
        };
        let message_thread = threads.get(MESSAGE_THREAD).filter(|_| tally.timed());
        let of_thread = |ns: &dyn Fn(&ThreadCost) -> f64| -> Option<f64> {
            message_thread.map(|thread| rate(ns(thread), thread))
        };
        let now = tally.times().map_or(0, |(_, now)| now);
        let stalling = tally.blocks().stalling(now);
        let blocks = tally.blocks().sums();
        let sees_blocks = tally.counted();
        let (left_peers, left) = tally.left_together();
        let connected_ns: u64 = connected()
            .map(|(_, peer)| seen(peer, period).cpu_ns())
            .sum();
        let seconds = match period {
            Period::All => tally.observed(),
            Period::Latest => tally.latest(),
        };
        let traffic = |of: &dyn Fn(&Seen) -> Messages| {
            let all = connected().map(|(_, peer)| of(seen(peer, period)));
            let (count, bytes) = all.fold((0, 0), |(count, bytes), one| {
                (count + one.count, bytes + one.bytes)
            });
            let rate = |amount: u64| amount as f64 / seconds.max(1e-6);
            Traffic {
                messages_per_second: tally.counted().then(|| rate(count)),
                bytes_per_second: rate(bytes),
            }
        };
        Self {
            observed_seconds: tally.observed(),
            windows: tally.windows(),
            observed_share: tally.observed_share(),
            lost: tally.lost(),
            received: traffic(&|seen| seen.received),
            sent: traffic(&|seen| seen.sent),
            message_thread_ms_per_second: run_time(MESSAGE_THREAD),
            peers_ms_per_second: of_thread(&|_| connected_ns as f64),
            left_ms_per_second: of_thread(&|thread| {
                thread.peers_ns.saturating_sub(connected_ns) as f64
            }),
            loop_ms_per_second: of_thread(&|thread| thread.loop_ns as f64),
            unaccounted_ms_per_second: of_thread(&|thread| thread.unaccounted_ns() as f64),
            unaccounted_share: message_thread.map(ThreadCost::unaccounted),
            probes_ms_per_second: of_thread(&|thread| thread.probes_ns as f64),
            network_thread_ms_per_second: run_time(NETWORK_THREAD),
            left_peers,
            left_bytes_per_second: left.received.bytes.saturating_add(left.sent.bytes) as f64
                / tally.observed().max(f64::MIN_POSITIVE),
            blocks: sees_blocks.then_some(blocks.connected),
            blocks_took_seconds: (blocks.took.count() > 0).then(|| blocks.took.quantile(0.5) / 1e6),
            blocks_compact: blocks.compact,
            blocks_complete: blocks.complete,
            stalling: stalling
                .iter()
                .map(|stall| StallRow::of(tally, stall, now))
                .collect(),
            hints: hints(tally),
            peers,
        }
    }

    /// The lines below the table: totals, and time that is not attributed to peers.
    fn summary(&self) -> Vec<String> {
        let each = |name: &str, all: Traffic| {
            let messages = all.messages_per_second;
            let messages = messages.map_or_else(String::new, |count| format!("{count:.1} msg/s, "));
            format!("{name} {messages}{}B/s", short(all.bytes_per_second))
        };
        let mut lines = vec![format!(
            "{}: {}; {}",
            plural(self.peers.len() as u64, "peer"),
            each("received", self.received),
            each("sent", self.sent),
        )];
        if let Some(thread) = self.message_thread_ms_per_second {
            let parts = [
                (self.peers_ms_per_second, "connected peers"),
                (self.left_ms_per_second, "peers that left"),
                (self.loop_ms_per_second, "main loop"),
                (self.unaccounted_ms_per_second, "unattributed"),
            ];
            let parts = parts.map(|(ms, what)| Some(format!("{what} {}", fixed(ms?, 3))));
            let rest = match (
                parts.into_iter().collect::<Option<Vec<_>>>(),
                self.unaccounted_share,
            ) {
                (Some(parts), Some(share)) => {
                    format!(" = {} ({} %)", parts.join(" + "), fixed(100.0 * share, 1))
                }
                _ if self.peers.is_empty() => String::new(),
                _ => "; this source cannot attribute it to peers".to_owned(),
            };
            lines.push(format!("message thread: {thread:.3} ms/s{rest}"));
        }
        if let Some(thread) = self.network_thread_ms_per_second {
            lines.push(format!(
                "network thread: {thread:.3} ms/s (sockets and BIP324 decryption)"
            ));
        }
        if let Some(probes) = self.probes_ms_per_second {
            let mean = match self.windows {
                1 => String::new(),
                _ => format!(", {:.3} ms/s on average", probes * self.observed_share),
            };
            lines.push(format!(
                "probe overhead: {probes:.3} ms/s while attached{mean}"
            ));
        }
        // The first window does not show how long the pauses are.
        let share = match self.windows {
            1 => String::new(),
            _ => format!(", {:.1} % of the time", 100.0 * self.observed_share),
        };
        lines.push(format!(
            "observed since the start: {:.1} s in {}{share}; {} lost",
            self.observed_seconds,
            plural(self.windows, "window"),
            plural(self.lost, "event"),
        ));
        if self.left_peers > 0 {
            lines.push(format!(
                "{} left since the start: {}B/s",
                plural(self.left_peers, "peer"),
                short(self.left_bytes_per_second),
            ));
        }
        if let Some(blocks) = self.blocks
            && blocks > 0
        {
            let took = self
                .blocks_took_seconds
                .map_or_else(String::new, |seconds| {
                    format!(", a median of {seconds:.2} s after the first announcement")
                });
            lines.push(format!(
                "blocks: {blocks} connected{took}; {} compact, of which {} lacked nothing",
                self.blocks_compact, self.blocks_complete
            ));
        }
        lines.extend(self.stalling.iter().take(SHOWN).map(|stall| {
            format!(
                "peer {} ({}) stalls a block: asked {:.0} s ago for {}, no answer",
                stall.peer,
                stall
                    .address
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), |text| printable(text.as_bytes())),
                stall.seconds,
                stall.block,
            )
        }));
        for hint in self.hints.iter().take(SHOWN) {
            let who = match hint.peers[..] {
                [peer] => format!("peer {peer}: "),
                _ => String::new(),
            };
            lines.push(format!("{who}{}", printable(hint.reason.as_bytes())));
            let loses = match hint.loses.is_empty() {
                true => "nothing known".to_owned(),
                false => hint.loses.join("; "),
            };
            lines.push(format!("  {}   would lose: {loses}", hint.command));
        }
        let more = self.hints.len().saturating_sub(SHOWN);
        if more > 0 {
            lines.push(format!("and {more} more: see `peers report`"));
        }
        if self.peers.iter().any(|peer| peer.is_older) {
            lines.push("> before an age: connected before the observation, so older".to_owned());
        }
        lines
    }
}

/// A peer's figures for a period.
fn seen(peer: &Peer, period: Period) -> &Seen {
    match period {
        Period::All => &peer.seen,
        Period::Latest => &peer.latest,
    }
}

/// Formats a number with `digits` decimals. A number that rounds to 0 has no sign.
fn fixed(number: f64, digits: usize) -> String {
    let text = format!("{number:.digits$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.chars().all(|digit| matches!(digit, '0' | '.')) => zero.to_owned(),
        _ => text,
    }
}

/// The order of two rows.
fn order(one: &PeerRow, other: &PeerRow, sort: Sort) -> Ordering {
    type Number = fn(&PeerRow) -> f64;
    type Text = for<'r> fn(&'r PeerRow) -> Option<&'r str>;
    let by_number = |key: Number| key(other).total_cmp(&key(one));
    // Unknown ones last.
    let by_text = |key: Text| {
        let (one, other) = (key(one), key(other));
        (one.is_none(), one).cmp(&(other.is_none(), other))
    };
    match sort {
        Sort::Cpu => by_number(PeerRow::cpu_ms_per_second),
        Sort::Receiving => by_number(|row| row.receiving_ms_per_second.unwrap_or(0.0)),
        Sort::Sending => by_number(|row| row.sending_ms_per_second.unwrap_or(0.0)),
        Sort::Error => by_number(|row| row.error_ms_per_second.unwrap_or(0.0)),
        Sort::Messages => by_number(|row| {
            row.received_per_second.unwrap_or(0.0) + row.sent_per_second.unwrap_or(0.0)
        }),
        Sort::Received => by_number(|row| row.received_per_second.unwrap_or(0.0)),
        Sort::Sent => by_number(|row| row.sent_per_second.unwrap_or(0.0)),
        Sort::Bytes => by_number(|row| row.received_bytes_per_second + row.sent_bytes_per_second),
        Sort::ReceivedBytes => by_number(|row| row.received_bytes_per_second),
        Sort::SentBytes => by_number(|row| row.sent_bytes_per_second),
        Sort::Transactions => by_number(|row| row.transactions_per_second.unwrap_or(0.0)),
        Sort::Blocks => by_number(|row| row.blocks_first as f64),
        Sort::Stalls => by_number(|row| row.stalls as f64),
        Sort::Age => by_number(|row| row.age_seconds as f64),
        Sort::Id => one.peer.cmp(&other.peer),
        Sort::Connection => one.connection.cmp(other.connection),
        Sort::Network => by_text(|row| row.network),
        Sort::Transport => by_text(|row| row.transport),
        Sort::Costliest => by_text(|row| row.costliest_type.as_deref()),
        Sort::Address => by_text(|row| row.address.as_deref()),
        Sort::Agent => by_text(|row| row.user_agent.as_deref()),
    }
}

/// The cells of a row; a dash for an unknown value.
fn cells(row: &PeerRow) -> Vec<String> {
    let dash = || "-".to_owned();
    let ms = |ms: Option<f64>| ms.map_or_else(dash, |ms| format!("{ms:.3}"));
    let count = |count: Option<f64>| count.map_or_else(dash, |count| format!("{count:.1}"));
    let name = |name: Option<&str>| name.unwrap_or("-").to_owned();
    // From the peer or the network.
    let text = |text: &Option<String>| {
        text.as_ref()
            .map_or_else(dash, |text| printable(text.as_bytes()))
    };
    let network = match row.network {
        Some(name) if name == Network::Unroutable.name() => Some("local"),
        network => network,
    };
    let cells: [String; COLUMNS.len()] = [
        row.peer.to_string(),
        row.connection.to_owned(),
        name(network),
        name(row.transport),
        format!(
            "{}{}",
            if row.is_older { ">" } else { "" },
            age(row.age_seconds)
        ),
        ms(row.receiving_ms_per_second),
        ms(row.sending_ms_per_second),
        ms(row.error_ms_per_second),
        count(row.received_per_second),
        count(row.sent_per_second),
        short(row.received_bytes_per_second).trim_end().to_owned(),
        short(row.sent_bytes_per_second).trim_end().to_owned(),
        text(&row.costliest_type),
        count(row.transactions_per_second),
        row.blocks_first.to_string(),
        row.stalls.to_string(),
        text(&row.address),
        text(&row.user_agent),
    ];
    cells.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::{View, draw};
    use packetlane_peers::{Calls, Connection, ConnectionType, Cost, Event, Record, Transport};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    const SECOND: u64 = 1_000_000;

    /// Space for all columns.
    const WIDE: u16 = 200;

    fn connected(peer: i64, since: u64) -> Event {
        Event::Connected {
            peer,
            connection: Connection {
                address: format!("192.0.2.{peer}:8333"),
                kind: ConnectionType::Inbound,
                network: Some(Network::Onion),
                transport: Some(Transport::V2),
                relay: Some(true),
                user_agent: None,
                since: Some(since),
            },
        }
    }

    /// Peer 1 costs 3 ms/s of receiving and 1 ms/s of sending; peer 2 has more messages and bytes.
    fn tally() -> Tally {
        let mut tally = Tally::new();
        let calls = |ms: u64| Calls {
            count: 10,
            cost: Cost {
                wall_ns: ms * 1_000_000,
                cpu_ns: ms * 1_000_000,
            },
        };
        let mut add = |event| {
            tally.add(&Record {
                time: 101 * SECOND,
                event,
            });
        };
        for (peer, name, count, ms) in [(1, "tx\u{1b}[2J", 2, 3), (2, "inv", 50, 0)] {
            add(connected(peer, (101 - 30 * peer as u64) * SECOND));
            for _ in 0..count {
                add(Event::Received {
                    peer,
                    message_type: name.to_owned(),
                    bytes: 1000,
                    cost: Some(calls(ms).cost),
                    added: None,
                });
            }
            add(Event::Calls {
                peer,
                receiving: calls(ms),
                sending: calls(1),
            });
        }
        add(Event::Thread {
            name: "b-msghand".to_owned(),
            cpu_ns: 10_000_000,
        });
        add(Event::Loop { cpu_ns: 1_000_000 });
        add(Event::Window {
            start: 100 * SECOND,
            lost: 7,
            probes_ns: 2_000_000,
            stolen_ns: 0,
        });
        tally
    }

    fn drawn(tally: &Tally, view: &View<Sort>, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| {
                draw(frame, tally, view);
            })
            .unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| {
            (0..width)
                .map(|x| buffer[(x, y)].symbol())
                .collect::<String>()
        };
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    fn press(view: &mut View<Sort>, key: KeyEvent) -> bool {
        view.press::<Tally>(key)
    }

    fn key(code: char) -> KeyEvent {
        KeyEvent::new(KeyCode::Char(code), KeyModifiers::NONE)
    }

    #[test]
    fn a_table() {
        let tally = tally();
        let mut view = View::new(Sort::Cpu);
        let lines = drawn(&tally, &view, WIDE, 12);
        let words = |line: &str| -> Vec<String> {
            line.split_ascii_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(words(&lines[0])[..3], ["peer", "connection", "net"]);
        let first = words(&lines[1]);
        let expected = [
            "1",
            "inbound",
            "full-relay",
            "onion",
            "v2",
            "30s",
            "3.000",
            "1.000",
        ];
        assert_eq!(first[..8], expected, "{lines:#?}");
        assert_eq!(
            first[9..],
            [
                "2.0",
                "0.0",
                "2000",
                "0",
                "tx\\x1b[2J",
                "0.0",
                "0",
                "0",
                "192.0.2.1:8333",
                "-"
            ],
            "{lines:#?}"
        );
        assert_eq!(words(&lines[2])[0], "2", "{lines:#?}");
        let below = lines[3..].join("\n");
        assert!(
            below.contains("2 peers: received 52.0 msg/s, 52.0 kB/s"),
            "{below}"
        );
        assert!(
            below.contains(
                "message thread: 8.000 ms/s = connected peers 5.000 + peers that left 0.000 + \
                 main loop 1.000 + unattributed 2.000 (25.0 %)"
            ),
            "{below}"
        );
        assert!(
            below.contains("probe overhead: 2.000 ms/s while attached"),
            "{below}"
        );
        assert!(below.contains("7 events lost"), "{below}");
        assert!(
            lines[11].starts_with("q quit  sort by: c CPU"),
            "{lines:#?}"
        );

        for (code, first) in [('m', "2"), ('i', "1"), ('a', "2"), ('r', "1"), ('b', "2")] {
            assert!(press(&mut view, key(code)));
            let lines = drawn(&tally, &view, 130, 12);
            assert_eq!(words(&lines[1])[0], first, "{code}: {lines:#?}");
        }
        // To the right of bytes received: bytes sent, the costliest type ("inv", "tx"), and on.
        let arrow = |code| KeyEvent::new(code, KeyModifiers::NONE);
        for (code, sort) in [
            (KeyCode::Right, Sort::SentBytes),
            (KeyCode::Right, Sort::Costliest),
            (KeyCode::Left, Sort::SentBytes),
            (KeyCode::Left, Sort::ReceivedBytes),
        ] {
            assert!(press(&mut view, arrow(code)));
            assert_eq!(view.sort, sort);
        }
        for _ in 0..COLUMNS.len() {
            press(&mut view, arrow(KeyCode::Right));
        }
        assert_eq!(view.sort, Sort::ReceivedBytes);
        for (sort, first) in [(Sort::Address, "1"), (Sort::Costliest, "2")] {
            view.sort = sort;
            let lines = drawn(&tally, &view, WIDE, 12);
            assert_eq!(words(&lines[1])[0], first, "{sort:?}: {lines:#?}");
        }
        assert!(press(
            &mut view,
            KeyEvent::new(KeyCode::PageDown, KeyModifiers::NONE)
        ));
        // Both rows fit, so there is nothing to scroll.
        assert_eq!(words(&drawn(&tally, &view, 130, 12)[1])[0], "2");
        // Space for only one row: the second.
        assert_eq!(words(&drawn(&tally, &view, 130, 6)[1])[0], "1");
        assert!(!press(&mut view, key('q')));
        assert!(!press(
            &mut view,
            KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)
        ));
    }

    /// The sum includes the cost of peers that have left, and the parts add up to the whole.
    #[test]
    fn peers_that_have_left_are_in_the_sum() {
        let mut tally = tally();
        let calls = Calls {
            count: 1,
            cost: Cost {
                wall_ns: 2_000_000,
                cpu_ns: 2_000_000,
            },
        };
        for event in [
            Event::Calls {
                peer: 2,
                receiving: calls,
                sending: Calls::default(),
            },
            Event::Disconnected { peer: 1 },
            Event::Thread {
                name: "b-msghand".to_owned(),
                cpu_ns: 4_000_000,
            },
            Event::Loop { cpu_ns: 2_000_000 },
            Event::Window {
                start: 101 * SECOND,
                lost: 0,
                probes_ns: 0,
                stolen_ns: 0,
            },
        ] {
            tally.add(&Record {
                time: 102 * SECOND,
                event,
            });
        }
        let figures = Figures::of(&tally, Period::All, Sort::Cpu);
        assert_eq!(figures.peers.len(), 1);
        let parts = [
            figures.peers_ms_per_second,
            figures.left_ms_per_second,
            figures.loop_ms_per_second,
            figures.unaccounted_ms_per_second,
        ];
        assert_eq!(parts, [1.5, 2.0, 1.5, 1.0].map(Some));
        assert_eq!(figures.message_thread_ms_per_second, Some(6.0));
        // In the last window it was still connected, and cost nothing.
        let figures = Figures::of(&tally, Period::Latest, Sort::Cpu);
        assert_eq!(figures.left_ms_per_second, Some(0.0));
        assert_eq!(figures.peers_ms_per_second, Some(2.0));
    }

    /// The age of a peer that connected before the observation is a lower bound.
    #[test]
    fn a_lower_bound_of_an_age_is_marked() {
        let mut tally = Tally::new();
        let mut before = connected(3, 0);
        if let Event::Connected { connection, .. } = &mut before {
            connection.since = None;
        }
        for (time, event) in [
            (100, before),
            (100, connected(4, 90 * SECOND)),
            (
                107,
                Event::Window {
                    start: 100 * SECOND,
                    lost: 0,
                    probes_ns: 0,
                    stolen_ns: 0,
                },
            ),
        ] {
            tally.add(&Record {
                time: time * SECOND,
                event,
            });
        }
        let lines = drawn(&tally, &View::new(Sort::Id), WIDE, 8);
        let age = |line: &str| line.split_ascii_whitespace().nth(5).map(str::to_owned);
        assert_eq!(age(&lines[1]).as_deref(), Some(">7s"), "{lines:#?}");
        assert_eq!(age(&lines[2]).as_deref(), Some("17s"), "{lines:#?}");
    }

    #[test]
    fn no_peers_cost_nothing() {
        let mut tally = Tally::new();
        tally.add(&Record {
            time: 101 * SECOND,
            event: Event::Window {
                start: 100 * SECOND,
                lost: 0,
                probes_ns: 0,
                stolen_ns: 0,
            },
        });
        let lines = drawn(&tally, &View::new(Sort::Cpu), 130, 8).join("\n");
        assert!(
            lines.contains("0 peers: received 0 B/s; sent 0 B/s"),
            "{lines}"
        );
        for (number, text) in [(-0.0004, "0.000"), (-0.0006, "-0.001"), (1.0, "1.000")] {
            assert_eq!(fixed(number, 3), text);
        }
    }

    #[test]
    fn a_source_that_reports_only_bytes() {
        let mut tally = Tally::new();
        for event in [
            connected(5, 10 * SECOND),
            Event::Bytes {
                peer: 5,
                received: true,
                message_type: "tx".to_owned(),
                bytes: 3000,
            },
            Event::Window {
                start: 100 * SECOND,
                lost: 0,
                probes_ns: 2_000_000,
                stolen_ns: 0,
            },
        ] {
            tally.add(&Record {
                time: 102 * SECOND,
                event,
            });
        }
        let view = View::new(Sort::Bytes);
        let lines = drawn(&tally, &view, WIDE, 8);
        let cells: Vec<&str> = lines[1].split_ascii_whitespace().collect();
        let expected = [
            "5",
            "inbound",
            "full-relay",
            "onion",
            "v2",
            "92s",
            "-",
            "-",
            "-",
            "-",
            "-",
            "1500",
            "0",
            "-",
            "-",
            "0",
            "0",
            "192.0.2.5:8333",
            "-",
        ];
        assert_eq!(cells, expected, "{lines:#?}");
        let below = lines.join("\n");
        assert!(below.contains("1 peer: received 1500 B/s"), "{below}");
        assert!(!below.contains("msg/s,"), "{below}");
    }

    #[test]
    fn without_peers_no_time_is_attributed() {
        let mut tally = Tally::new();
        for event in [
            Event::Thread {
                name: "b-msghand".to_owned(),
                cpu_ns: 2_000_000,
            },
            Event::Window {
                start: 100 * SECOND,
                lost: 0,
                probes_ns: 0,
                stolen_ns: 0,
            },
        ] {
            tally.add(&Record {
                time: 101 * SECOND,
                event,
            });
        }
        let lines = drawn(&tally, &View::new(Sort::Cpu), 130, 8);
        assert!(
            lines.contains(&"message thread: 2.000 ms/s".to_owned()),
            "{lines:#?}"
        );
    }

    #[test]
    fn every_size() {
        let (tally, empty) = (tally(), Tally::new());
        let mut view = View::new(Sort::Id);
        view.notice = Some("NATS has gone".to_owned());
        for width in (0..140).step_by(7) {
            for height in 0..14 {
                drawn(&tally, &view, width, height);
                drawn(&empty, &view, width, height);
            }
        }
        // The columns that remain on a narrow terminal.
        let lines = drawn(&tally, &view, 30, 12);
        assert_eq!(
            lines[1].split_ascii_whitespace().collect::<Vec<_>>(),
            ["1", "3.000", "1.000"]
        );
        assert!(
            drawn(&empty, &view, 80, 12)
                .join("\n")
                .contains("waiting for the first window")
        );
        assert!(
            drawn(&empty, &view, 80, 12)
                .join("\n")
                .contains("NATS has gone")
        );
    }
}
