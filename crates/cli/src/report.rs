//! Text for the user: the report on a connection, and a status line while it runs.

use crate::node::{Fetched, Observed};
use crate::peer::{Count, Peer};
use crate::wire::{Version, printable};
use packetlane::bitcoin::Network;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// How long each step of the connection took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// `None` if the peer connected to us.
    pub(crate) tcp: Option<Duration>,
    /// The BIP324 handshake; `None` on v1.
    pub(crate) keys: Option<Duration>,
    /// The exchange of `version` and `verack`.
    pub(crate) version: Duration,
}

/// The report on a connection.
pub(crate) struct Report<'r> {
    pub(crate) remote: SocketAddr,
    pub(crate) network: Network,
    /// Whether the peer closed on v2 and we connected again with v1.
    pub(crate) fell_back: bool,
    pub(crate) times: Times,
    pub(crate) version: &'r Version,
    pub(crate) observed: &'r Observed,
    pub(crate) peer: &'r Peer,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            remote,
            times,
            version,
            observed,
            peer,
            ..
        } = self;
        let network = self.network.name();
        let transport = match peer.session_id() {
            Some(_) => "v2, encrypted (BIP324)",
            None if self.fell_back => "v1, not encrypted: the peer closed the v2 connection",
            None => "v1, not encrypted",
        };
        writeln!(f, "{remote} on {network}")?;
        writeln!(f, "transport         {transport}")?;
        if let Some(id) = peer.session_id() {
            f.write_str("session id        ")?;
            id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            writeln!(f)?;
        }
        let Version {
            protocol, services, ..
        } = version;
        let user_agent = printable(&version.user_agent);
        writeln!(f, "user agent        {user_agent}")?;
        writeln!(f, "protocol version  {protocol}")?;
        writeln!(f, "services          {services}")?;
        writeln!(f, "start height      {}", version.start_height)?;

        f.write_str("handshake         ")?;
        if let Some(tcp) = times.tcp {
            write!(f, "TCP {}, ", Time(tcp))?;
        }
        if let Some(keys) = times.keys {
            write!(f, "keys {}, ", Time(keys))?;
        }
        writeln!(f, "version {}", Time(times.version))?;

        let mut pings = observed.pings.clone();
        pings.sort_unstable();
        match (pings.first(), pings.len()) {
            (Some(&min), count) => {
                let median = (pings[(count - 1) / 2] + pings[count / 2]) / 2;
                let (min, median) = (Time(min), Time(median));
                writeln!(f, "pings             {count}: min {min}, median {median}")?;
            }
            (None, _) => writeln!(f, "pings             none answered")?,
        }
        if let Some(fetched) = &observed.fetched {
            let Fetched {
                wanted,
                headers,
                blocks,
                bytes,
                took,
            } = fetched;
            let took = Time(*took);
            writeln!(
                f,
                "fetched           {headers} headers, {blocks} of {wanted} blocks ({bytes} bytes) \
                 in {took}"
            )?;
        }
        writeln!(f)?;
        self.table(f)
    }
}

impl Report<'_> {
    /// Messages and bytes on the wire by type, in both directions.
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let traffic = &self.peer.traffic;
        let mut rows: Vec<(&str, [Count; 2])> = traffic
            .types
            .iter()
            .map(|(message_type, counts)| (message_type.name(), *counts))
            .collect();
        if traffic.other != Count::default() {
            rows.push(("(other)", [traffic.other, Count::default()]));
        }
        let mut total = [Count::default(); 2];
        for (_, counts) in &rows {
            for (total, count) in total.iter_mut().zip(counts) {
                total.messages += count.messages;
                total.bytes += count.bytes;
            }
        }
        rows.push(("total", total));

        let line = |f: &mut fmt::Formatter<'_>, name: &str, cells: [&dyn fmt::Display; 4]| {
            write!(f, "{name:<14}")?;
            for cell in cells {
                write!(f, "  {:>10}", cell.to_string())?;
            }
            writeln!(f)
        };
        line(f, "message", [&"received", &"bytes", &"sent", &"bytes"])?;
        for (name, [received, sent]) in &rows {
            line(
                f,
                name,
                [
                    &received.messages,
                    &received.bytes,
                    &sent.messages,
                    &sent.bytes,
                ],
            )?;
        }
        match self.peer.decoys() {
            0 => Ok(()),
            decoys => writeln!(f, "received {decoys} decoys"),
        }
    }
}

/// Shows a time with three digits and a suitable unit.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        let (value, unit) = match seconds {
            _ if seconds >= 1.0 => (seconds, "s"),
            _ if seconds >= 1e-3 => (seconds * 1e3, "ms"),
            _ => (seconds * 1e6, "us"),
        };
        let decimals = match value {
            _ if value >= 100.0 => 0,
            _ if value >= 10.0 => 1,
            _ => 2,
        };
        write!(f, "{value:.decimals$} {unit}")
    }
}

/// A status line on standard error. Shows nothing if standard error is not a terminal.
pub(crate) struct Status {
    visible: bool,
}

impl Status {
    pub(crate) fn new() -> Self {
        Self {
            visible: io::stderr().is_terminal(),
        }
    }

    /// For concurrent connections, whose lines would overwrite each other.
    pub(crate) fn hidden() -> Self {
        Self { visible: false }
    }

    /// Replaces the line by `text`.
    pub(crate) fn show(&self, text: &str) {
        if self.visible {
            // Return to the start of the line and clear it. A failed write of a status line is
            // ignored.
            let _ = write!(io::stderr(), "\r\x1b[K{text}");
        }
    }

    /// Clears the line.
    pub(crate) fn clear(&self) {
        self.show("");
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_three_digits_and_its_unit() {
        for (nanoseconds, expected) in [
            (1_234, "1.23 us"),
            (45_678, "45.7 us"),
            (999_900, "1000 us"),
            (1_000_000, "1.00 ms"),
            (345_600_000, "346 ms"),
            (12_340_000_000, "12.3 s"),
        ] {
            let time = Time(Duration::from_nanos(nanoseconds));
            assert_eq!(time.to_string(), expected);
        }
    }
}
