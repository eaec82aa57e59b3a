//! Tables that the terminal and the page show with the same cells.

use super::{bytes, digits, or_dash, per_cent, time};
use crate::report::{Blocks, Compared, DayRow, GroupRow, Report};
use crate::row::PeerRow;
use crate::tally::{LOCAL, MAX_DAYS};

/// A table.
pub(super) struct Table {
    pub(super) title: String,
    /// A sentence above the table; may be empty.
    pub(super) about: String,
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
    /// How many of the first columns are text.
    pub(super) texts: usize,
    /// Columns that the terminal leaves out.
    pub(super) only_page: &'static [&'static str],
    /// How many rows the terminal shows.
    pub(super) most: usize,
    /// How many more there are that nobody shows.
    pub(super) more: u64,
}

/// Rows in the terminal.
const COMPARED: usize = 40;
const GROUPS: usize = 20;
const PEERS: usize = 20;
const BLOCKS: usize = 10;
const STALLS: usize = 10;

/// The tables of groups, peers and blocks that are not empty, in the order of a report.
pub(super) fn all(report: &Report) -> Vec<Table> {
    let mut tables = vec![
        compared(report),
        days(report),
        peers(report),
        groups(
            report,
            &report.agents,
            "Connections by user agent",
            "Peers choose their user agent; it may be false.",
        ),
        groups(
            report,
            &report.subnets,
            "Connections by part of the network",
            "16 bits of an IPv4 address, 32 of an IPv6 one: what Bitcoin Core takes for one \
             operator.",
        ),
    ];
    if let Some(blocks) = &report.blocks {
        tables.extend([stalls(blocks), latest(blocks)]);
    }
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn compared(report: &Report) -> Table {
    let row = |row: &Compared| {
        let value = |value: Option<f64>| or_dash(value, digits);
        vec![
            row.what.clone(),
            row.unit.to_owned(),
            value(row.before),
            value(row.now),
            row.ratio()
                .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            match row.differs {
                Some(true) => "differs".to_owned(),
                Some(false) => "within the error".to_owned(),
                None => String::new(),
            },
        ]
    };
    Table {
        title: "Compared with the other recording".into(),
        about: "Differs: by more than two standard errors of sampling.".into(),
        head: vec!["", "unit", "other", "this", "ratio", ""],
        rows: report.compared.iter().map(row).collect(),
        texts: 2,
        only_page: &[],
        most: COMPARED,
        more: 0,
    }
}

fn days(report: &Report) -> Table {
    let ms = |us: f64| digits(us / 1e3);
    let row = |day: &DayRow| {
        vec![
            day.date.clone(),
            format!("{} h", digits(day.recorded_hours)),
            per_cent(day.observed_share),
            digits(day.peers),
            or_dash(day.cpu_mean, ms),
            or_dash(day.cpu_p95, ms),
            or_dash(day.thread, ms),
            or_dash(day.received_per_day, |count| format!("{count:.0}")),
            or_dash(day.sent_per_day, |count| format!("{count:.0}")),
            bytes(day.received_bytes_per_day),
            bytes(day.sent_bytes_per_day),
            day.blocks.to_string(),
            or_dash(day.block_seconds, |seconds| time(seconds * 1e6)),
        ]
    };
    let cut = match report.earlier_days_dropped {
        true => format!(" Only the last {MAX_DAYS} days are listed."),
        false => String::new(),
    };
    Table {
        title: "By day (UTC)".into(),
        about: format!(
            "CPU in milliseconds per second: of all peers together (mean, and 95th percentile over \
             windows), and of the message thread by its own clock. Messages and bytes of all peers: \
             in 24 hours, at the rate of the observed time. Blocks: connected ones, and the \
             median time from the first announcement until then.{cut}"
        ),
        head: vec![
            "", "recorded", "observed", "peers", "mean", "p95", "thread", "msgs in", "out",
            "bytes in", "out", "blocks", "took",
        ],
        rows: report.days.iter().map(row).collect(),
        texts: 1,
        only_page: &[],
        most: MAX_DAYS,
        more: 0,
    }
}

fn peers(report: &Report) -> Table {
    let timed = report.together.is_some();
    let mut head = vec!["peer", "address", "user agent", "kind", "v1/v2"];
    if timed {
        head.extend(["CPU us/s", "+-", "recv", "send", "useful", "us/msg"]);
    }
    head.extend([
        "msgs/s in",
        "msgs/s out",
        "B/s in",
        "B/s out",
        "tx/s",
        "first",
        "given",
        "stalls",
        "costliest",
        "for",
        "",
    ]);
    let order = match timed {
        true => "costliest first",
        false => "most bytes first",
    };
    Table {
        title: format!("Peers, {order}"),
        about: match timed {
            true => {
                "useful: the part of receiving for transactions and blocks that the node took. first, \
                 given: blocks that the peer announced first, and delivered. Rates cover the time \
                 that a peer was connected."
                    .into()
            }
            false => String::new(),
        },
        head,
        rows: report.peers.iter().map(|row| peer(row, timed)).collect(),
        texts: 4,
        only_page: &["v1/v2", "+-", "recv", "send", "given"],
        most: PEERS,
        more: report.more_peers,
    }
}

fn peer(row: &PeerRow, timed: bool) -> Vec<String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let us = |ms: Option<f64>| or_dash(ms, |ms| digits(ms * 1e3));
    let mut cells = vec![
        row.peer.to_string(),
        text(&row.address),
        text(&row.user_agent),
        row.connection.to_owned(),
        row.transport.unwrap_or("-").to_owned(),
    ];
    if timed {
        let messages = row
            .received_per_second
            .zip(row.sent_per_second)
            .map(|(received, sent)| received + sent)
            .filter(|messages| *messages > 0.0);
        let each = messages.map(|messages| row.cpu_ms_per_second() * 1e3 / messages);
        cells.extend([
            us(Some(row.cpu_ms_per_second())),
            us(row.error_ms_per_second),
            us(row.receiving_ms_per_second),
            us(row.sending_ms_per_second),
            us(row.useful_ms_per_second),
            or_dash(each, digits),
        ]);
    }
    cells.extend([
        or_dash(row.received_per_second, digits),
        or_dash(row.sent_per_second, digits),
        digits(row.received_bytes_per_second),
        digits(row.sent_bytes_per_second),
        or_dash(row.transactions_per_second, digits),
        row.blocks_first.to_string(),
        row.blocks_delivered.to_string(),
        row.stalls.to_string(),
        text(&row.costliest_type),
        format!(
            "{}{}",
            if row.is_older { ">" } else { "" },
            duration(row.age_seconds as f64)
        ),
        match row.left {
            Some(_) => "left".to_owned(),
            None => String::new(),
        },
    ]);
    cells
}

/// Seconds with a unit.
fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds >= 172_800.0 => format!("{:.0} d", seconds / 86_400.0),
        seconds if seconds >= 7200.0 => format!("{:.0} h", seconds / 3600.0),
        seconds if seconds >= 120.0 => format!("{:.0} min", seconds / 60.0),
        seconds => time(seconds * 1e6),
    }
}

fn groups(report: &Report, rows: &[GroupRow], title: &str, about: &str) -> Table {
    let timed = report.together.is_some();
    let mut head = vec!["", "count", "under 1 min"];
    if timed {
        head.extend(["us/s all", "mean each", "median", "p95", "worst", "sd"]);
    }
    head.push("bytes/s all");
    let order = match timed {
        true => "highest total cost first",
        false => "most bytes first",
    };
    let cells = |row: &GroupRow| {
        let name = match row.name.as_str() {
            LOCAL => "this machine or a local network".to_owned(),
            "" => "(empty)".to_owned(),
            name => name.to_owned(),
        };
        let mut cells = vec![name, row.connections.to_string(), row.short.to_string()];
        if timed {
            cells.push(or_dash(row.us_per_second, digits));
            cells.extend(match row.cpu {
                Some(cpu) => [cpu.mean, cpu.median, cpu.p95, cpu.worst, cpu.sd].map(digits),
                None => [(); 5].map(|()| "-".to_owned()),
            });
        }
        cells.push(digits(row.bytes_per_second));
        cells
    };
    Table {
        title: format!("{title}, {order}"),
        about: about.to_owned(),
        head,
        rows: rows.iter().map(cells).collect(),
        texts: 1,
        only_page: &[],
        most: GROUPS,
        more: 0,
    }
}

fn stalls(blocks: &Blocks) -> Table {
    let rows = blocks.stall_rows.iter().map(|row| {
        vec![
            row.peer.to_string(),
            row.address.clone().unwrap_or_else(|| "-".into()),
            or_dash(row.height, |height| height.to_string()),
            short(&row.block),
            duration(row.seconds),
            match row.goes_on {
                true => "goes on".to_owned(),
                false => "ended".to_owned(),
            },
        ]
    });
    let rows: Vec<_> = rows.collect();
    Table {
        title: "Peers that stalled a block".into(),
        about: "The node asked, and for more than 10 s got no answer.".into(),
        head: vec!["peer", "address", "height", "block", "for", ""],
        more: (blocks.stalls as usize).saturating_sub(rows.len()) as u64,
        rows,
        texts: 2,
        only_page: &[],
        most: STALLS,
    }
}

fn latest(blocks: &Blocks) -> Table {
    let step = |step: Option<crate::report::Step>| {
        step.map_or(["-".to_owned(), "-".to_owned()], |step| {
            [step.peer.to_string(), step.message.to_owned()]
        })
    };
    let rows = blocks.rows.iter().map(|row| {
        let mut cells = vec![
            or_dash(row.height, |height| height.to_string()),
            short(&row.block),
        ];
        cells.extend(step(row.announced));
        cells.push(row.announcements.to_string());
        let asked: Vec<String> = row.requested.iter().map(ToString::to_string).collect();
        cells.push(match asked.is_empty() {
            true => "-".to_owned(),
            false => asked.join(" "),
        });
        cells.extend(step(row.delivered));
        cells.push(or_dash(row.missing, |missing| missing.to_string()));
        cells.push(or_dash(row.took_seconds, |seconds| time(seconds * 1e6)));
        cells
    });
    let rows: Vec<_> = rows.collect();
    let compact = match blocks.compact {
        0 => String::new(),
        compact => format!(
            " {compact} came as cmpctblock: {} of these lacked nothing, the others {} of {} \
             transactions ({}).",
            blocks.complete,
            blocks.missing,
            blocks.transactions,
            per_cent(blocks.missing as f64 / blocks.transactions.max(1) as f64),
        ),
    };
    let took = match blocks.took_seconds {
        took if took.worst > 0.0 => format!(
            "; from the first announcement until then a median of {}, at most {}",
            time(took.median * 1e6),
            time(took.worst * 1e6)
        ),
        _ => String::new(),
    };
    Table {
        title: "Blocks, the latest first".into(),
        about: match blocks.connected {
            0 => "None was connected.".into(),
            _ => format!(
                "{} connected{took}; connecting alone took a median of {}.{compact}",
                blocks.connected,
                time(blocks.connecting_ms.median * 1e3),
            ),
        },
        head: vec![
            "height",
            "block",
            "first peer",
            "by",
            "announced",
            "asked",
            "delivered by",
            "in",
            "missing tx",
            "took",
        ],
        more: blocks.connected.saturating_sub(rows.len() as u64),
        rows,
        texts: 2,
        only_page: &[],
        most: BLOCKS,
    }
}

/// The end of a hash: its start is zeros.
fn short(hash: &str) -> String {
    hash.get(hash.len().saturating_sub(12)..)
        .map_or_else(String::new, |end| format!("..{end}"))
}

/// What [`hints`] are about.
pub(super) const ABOUT_HINTS: &str = "Of the peers that were connected at the end of the recording. \
    After a restart of the node, an id is another peer's.";

/// The hints as lines: reason, losses, command.
pub(super) fn hints(report: &Report) -> Vec<[String; 3]> {
    let line = |hint: &crate::hints::Hint| {
        let peers: Vec<String> = hint.peers.iter().map(ToString::to_string).collect();
        let who = match peers.len() {
            1 => format!("peer {}: ", peers[0]),
            _ => String::new(),
        };
        let loses = match hint.loses.is_empty() {
            true => "nothing known".to_owned(),
            false => hint.loses.join("; "),
        };
        [format!("{who}{}", hint.reason), loses, hint.command.clone()]
    };
    report.hints.iter().map(line).collect()
}
