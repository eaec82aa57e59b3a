//! The report on a connection, as text and as JSON.

use packetlane::bitcoin::Network;
use packetlane_p2p::node::{Fetched, Observed};
use packetlane_p2p::payload::{Version, printable};
use packetlane_p2p::peer::{Count, FellBack, Peer};
use serde_json::{Value, json};
use std::fmt;
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
    /// `Some` if we reconnected over v1.
    pub(crate) fell_back: Option<FellBack>,
    pub(crate) times: Times,
    /// How long the connection was open.
    pub(crate) stayed: Duration,
    /// Who closed it: the peer, us, or a signal.
    pub(crate) ended: &'static str,
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
            None => match self.fell_back {
                Some(FellBack::Closed) => "v1, not encrypted: the peer closed the v2 connection",
                Some(FellBack::Answered) => "v1, not encrypted: the peer answered v2 in v1",
                Some(FellBack::Silent) => "v1, not encrypted: the peer did not answer v2",
                None => "v1, not encrypted",
            },
        };
        writeln!(f, "{remote} on {network}")?;
        writeln!(f, "transport         {transport}")?;
        if let Some(id) = peer.session_id() {
            writeln!(f, "session id        {}", hex(id))?;
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
                chain_ended,
                ..
            } = fetched;
            let took = Time(*took);
            let end = match chain_ended {
                true => ": the peer's chain has no more",
                false => "",
            };
            writeln!(
                f,
                "fetched           {headers} headers, {blocks} of {wanted} blocks ({bytes} bytes) \
                 in {took}{end}"
            )?;
        }
        let stayed = Time(self.stayed);
        writeln!(f, "closed            after {stayed}, by {}", self.ended)?;
        writeln!(f)?;
        self.table(f)
    }
}

impl Report<'_> {
    /// Rows of the table: messages and bytes on the wire by type, received and sent. The last row
    /// is the total of everything on the socket.
    fn rows(&self) -> Vec<(String, [Count; 2])> {
        let traffic = self.peer.traffic();
        let mut rows = Vec::new();
        let bytes = |bytes: [u64; 2]| bytes.map(|bytes| Count { messages: 0, bytes });
        if let Some(handshake) = self.peer.handshake_bytes() {
            rows.push(("(handshake)".to_owned(), bytes(handshake)));
        }
        // Escaped, because a type may contain terminal control bytes.
        let types = traffic.types.iter().map(|(message_type, counts)| {
            let name = printable(message_type.name().as_bytes());
            (name, *counts)
        });
        rows.extend(types);
        let ignored = self.peer.ignored();
        let other = Count {
            messages: traffic.other.messages + ignored.messages,
            bytes: traffic.other.bytes + ignored.bytes,
        };
        if other != Count::default() {
            rows.push(("(other)".to_owned(), [other, Count::default()]));
        }
        let mut total = bytes([0, 0]);
        for (_, counts) in &rows {
            for (total, count) in total.iter_mut().zip(counts) {
                total.messages += count.messages;
                total.bytes += count.bytes;
            }
        }
        // Decoys, and bytes received but not processed.
        let all = self.peer.bytes();
        let rest = [0, 1].map(|side| all[side].saturating_sub(total[side].bytes));
        if rest != [0, 0] {
            rows.push(("(rest)".to_owned(), bytes(rest)));
        }
        for (total, all) in total.iter_mut().zip(all) {
            total.bytes = all;
        }
        rows.push(("total".to_owned(), total));
        rows
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name: &str, cells: [&dyn fmt::Display; 4]| {
            write!(f, "{name:<14}")?;
            for cell in cells {
                write!(f, "  {:>10}", cell.to_string())?;
            }
            writeln!(f)
        };
        line(f, "message", [&"received", &"bytes", &"sent", &"bytes"])?;
        for (name, [received, sent]) in &self.rows() {
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
        let ignored = self.peer.ignored().messages;
        if ignored > 0 {
            writeln!(
                f,
                "ignored messages: {ignored} (of an unknown type, or damaged)"
            )?;
        }
        match self.peer.decoys() {
            0 => Ok(()),
            decoys => writeln!(f, "received {decoys} decoys"),
        }
    }

    /// The report as JSON. `failure` is what went wrong after the handshakes. Times are in seconds.
    pub(crate) fn to_json(&self, failure: Option<&str>) -> Value {
        let Self {
            times,
            version,
            observed,
            peer,
            ..
        } = self;
        let seconds = |time: Duration| time.as_secs_f64();
        let fetched = observed.fetched.as_ref().map(|fetched| {
            json!({
                "wanted": fetched.wanted,
                "headers": fetched.headers,
                "blocks": fetched.blocks,
                "bytes": fetched.bytes,
                "seconds": seconds(fetched.took),
                "chain_ended": fetched.chain_ended,
            })
        });
        let row = |(name, [received, sent]): (String, [Count; 2])| {
            json!({
                "type": name,
                "received": received.messages,
                "received_bytes": received.bytes,
                "sent": sent.messages,
                "sent_bytes": sent.bytes,
            })
        };
        let mut messages: Vec<_> = self.rows().into_iter().map(row).collect();
        let total = messages.pop();
        json!({
            "schema": 1,
            "address": self.remote.to_string(),
            "network": self.network.name(),
            "transport": if peer.session_id().is_some() { "v2" } else { "v1" },
            "fell_back": self.fell_back.is_some(),
            "session_id": peer.session_id().map(|id| hex(id)),
            "user_agent": printable(&version.user_agent),
            "protocol_version": version.protocol,
            // In hexadecimal, because not every JSON reader supports 64-bit integers.
            "services": format!("{:016x}", version.services.0),
            "services_names": version.services.names(),
            "start_height": version.start_height,
            "seconds": {
                "tcp": times.tcp.map(seconds),
                "keys": times.keys.map(seconds),
                "version": seconds(times.version),
                "connection": seconds(self.stayed),
            },
            "closed_by": self.ended,
            "pings": observed.pings.iter().copied().map(seconds).collect::<Vec<_>>(),
            "fetched": fetched,
            "decoys": peer.decoys(),
            "ignored": peer.ignored().messages,
            "messages": messages,
            "total": total,
            "error": failure,
        })
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Formats a time with three digits and a suitable unit.
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
