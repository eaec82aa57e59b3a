//! The gateway's settings, from the command line and from a file. Both have the same names; the
//! command line wins.

use crate::args::{self, HostPort};
use clap::Args;
use packetlane::Engine;
use packetlane::bitcoin::Network;
use packetlane_files::Name;
use packetlane_gateway::{Inbound, Io, Limits, Settings, SocksUser};
use serde::{Deserialize, Deserializer};
use std::num::NonZero;
use std::path::Path;
use std::time::Duration;
use zeroize::Zeroizing;

/// A length of time, as in "5ms", "60s" or "25m".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span(Duration);

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let span = humantime::parse_duration(text);
        span.map(Self)
            .map_err(|error| format!("{error} (as in 5ms, 60s or 25m)"))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LogFormat {
    /// For people.
    Text,
    /// A JSON object a line.
    Json,
}

/// How sockets are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum IoName {
    /// In one system call a turn.
    IoUring,
    /// In a system call for each socket.
    Epoll,
}

/// What is set, on the command line or in the file.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Options {
    /// Accept peers here, by v2 or v1, and carry them to --node
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<HostPort>,
    /// Where the node listens, which is spoken to by v1
    #[arg(long, value_name = "HOST:PORT")]
    node: Option<HostPort>,
    /// Reach the node from one address for all peers. Otherwise each peer has a loopback address
    /// of its own (127.x.y.z), so that the node's limits and bans work
    #[arg(long)]
    same_address: bool,
    /// Connections at --listen begin with a PROXY protocol v2 header, which says who the peer is:
    /// behind a balancer. Let nobody else connect there: whoever does says what it likes
    #[arg(long)]
    proxy_protocol: bool,
    /// Be a SOCKS5 server here: for a node's -proxy=. Peers are reached by v2, or else by v1
    #[arg(long, value_name = "HOST:PORT")]
    socks: Option<HostPort>,
    /// Let only those use --socks who show this user and password (RFC 1929): btcd's --proxyuser;
    /// Bitcoin Core has none. What is given here, all users of this machine can see: give it in the
    /// file of --config
    #[arg(long, value_name = "NAME:PASSWORD", value_parser = socks_user)]
    #[serde(deserialize_with = "read_socks_user")]
    socks_user: Option<SocksUser>,
    /// Accept connections of the node's here that a firewall has redirected (SO_ORIGINAL_DST)
    #[arg(long, value_name = "HOST:PORT")]
    transparent: Option<HostPort>,
    /// The SOCKS5 server that reaches .onion names
    #[arg(long, value_name = "HOST:PORT")]
    tor: Option<HostPort>,
    /// Do not say in the node's version message that it speaks v2
    #[arg(long)]
    no_advertise: bool,
    /// The network
    #[arg(long, value_parser = args::network_parser(), help = "The network [default: main]")]
    #[serde(deserialize_with = "network")]
    network: Option<Network>,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "N")]
    workers: Option<NonZero<usize>>,
    /// How sockets are read and written [default: io-uring where the kernel allows it]
    #[arg(long, value_name = "WAY")]
    io: Option<IoName>,
    /// Sleep that long between turns: more packets in each batch, less CPU time, later messages
    /// [default: not at all]
    #[arg(long, value_name = "TIME")]
    turn: Option<Span>,
    /// From the connection to the end of the handshake [default: 60s, as nodes have it]
    #[arg(long, value_name = "TIME")]
    handshake: Option<Span>,
    /// How long a peer may send nothing [default: 25m; nodes ping every 2 minutes]
    #[arg(long, value_name = "TIME")]
    idle: Option<Span>,
    /// Inbound connections at a time [default: 20000, or what file descriptors suffice for]
    #[arg(long, value_name = "N")]
    connections: Option<usize>,
    /// The node's own connections at a time (--socks, --transparent). Inbound ones never take their
    /// place [default: 5000, or half of what file descriptors suffice for]
    #[arg(long, value_name = "N")]
    outbound_connections: Option<usize>,
    /// Inbound connections that have not shaken hands [default: 10000]
    #[arg(long, value_name = "N")]
    half_open: Option<usize>,
    /// Of these, from one address; and of clients that have not shown the password of --socks-user
    /// [default: 64]
    #[arg(long, value_name = "N")]
    half_open_address: Option<usize>,
    /// Of these, from one network group (an IPv4 /16 or an IPv6 /32) [default: 2000]
    #[arg(long, value_name = "N")]
    half_open_group: Option<usize>,
    /// Bytes that may wait for a side that does not read them; then the other is not read
    /// [default: 1048576]
    #[arg(long, value_name = "BYTES")]
    queued: Option<usize>,
    /// Memory of what waits in all inbound connections, in bytes; above, those that hold the most
    /// are closed [default: 1073741824]
    #[arg(long, value_name = "BYTES")]
    memory: Option<usize>,
    /// The same of the node's own connections [default: 268435456]
    #[arg(long, value_name = "BYTES")]
    outbound_memory: Option<usize>,
    /// How long a peer may take nothing of what waits for it [default: 20m, as nodes have it]
    #[arg(long, value_name = "TIME")]
    stalled: Option<Span>,
    /// How long connections may go on after SIGTERM [default: 30s]
    #[arg(long, value_name = "TIME")]
    drain: Option<Span>,
    /// Serve /metrics (Prometheus), /healthz and /peers (JSON) here. /peers is for clients that name
    /// the host as it is named here, by an address, or as localhost
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<HostPort>,
    /// Publish what happens to peers as JSON to NATS JetStream, such as nats://127.0.0.1:4222:
    /// subject packetlane.gateway.NAME, stream packetlane_gateway. The user and the password are
    /// taken from PACKETLANE_NATS_USER and PACKETLANE_NATS_PASSWORD
    #[arg(long, value_name = "URL")]
    nats: Option<String>,
    /// The node's name for NATS [default: the machine's]
    #[arg(long)]
    name: Option<String>,
    /// How the log is written, to standard error [default: text]
    #[arg(long, value_name = "FORMAT")]
    log: Option<LogFormat>,
}

fn socks_user(text: &str) -> Result<SocksUser, &'static str> {
    let user = text.split_once(':');
    let user = user.and_then(|(name, pass)| SocksUser::new(name.as_bytes(), pass.as_bytes()));
    user.ok_or("expected NAME:PASSWORD, each of 1 to 255 bytes")
}

fn read_socks_user<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocksUser>, D::Error> {
    let text = Zeroizing::new(String::deserialize(deserializer)?);
    let user = socks_user(&text).map_err(serde::de::Error::custom)?;
    Ok(Some(user))
}

fn network<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Network>, D::Error> {
    let name = String::deserialize(deserializer)?;
    match args::network(&name) {
        Some(network) => Ok(Some(network)),
        None => Err(serde::de::Error::custom(format!("no network {name:?}"))),
    }
}

impl Options {
    /// Reads a TOML file.
    pub(super) fn read(file: &Path) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", Name(file));
        // A password may be in it.
        let text = packetlane_files::read_text(file).map_err(|error| failed(&error))?;
        let text = Zeroizing::new(text);
        toml::from_str(&text).map_err(|error| {
            // One line: where, and what.
            let start = error.span().map_or(0, |span| span.start);
            let line = 1 + text[..start].matches('\n').count();
            failed(&format!("line {line}: {}", error.message()))
        })
    }

    /// These, and where they say nothing, those of the file.
    pub(super) fn or(self, file: Self) -> Self {
        Self {
            listen: self.listen.or(file.listen),
            node: self.node.or(file.node),
            same_address: self.same_address || file.same_address,
            proxy_protocol: self.proxy_protocol || file.proxy_protocol,
            socks: self.socks.or(file.socks),
            socks_user: self.socks_user.or(file.socks_user),
            transparent: self.transparent.or(file.transparent),
            tor: self.tor.or(file.tor),
            no_advertise: self.no_advertise || file.no_advertise,
            network: self.network.or(file.network),
            workers: self.workers.or(file.workers),
            io: self.io.or(file.io),
            turn: self.turn.or(file.turn),
            handshake: self.handshake.or(file.handshake),
            idle: self.idle.or(file.idle),
            connections: self.connections.or(file.connections),
            outbound_connections: self.outbound_connections.or(file.outbound_connections),
            half_open: self.half_open.or(file.half_open),
            half_open_address: self.half_open_address.or(file.half_open_address),
            half_open_group: self.half_open_group.or(file.half_open_group),
            queued: self.queued.or(file.queued),
            memory: self.memory.or(file.memory),
            outbound_memory: self.outbound_memory.or(file.outbound_memory),
            stalled: self.stalled.or(file.stalled),
            drain: self.drain.or(file.drain),
            http: self.http.or(file.http),
            nats: self.nats.or(file.nats),
            name: self.name.or(file.name),
            log: self.log.or(file.log),
        }
    }

    /// What they say, for a process that may have `files` files open. A name stands for its first
    /// address, by IPv4 if it has one: may wait for a name server.
    pub(super) fn settings(&self, files: u64) -> Result<Settings, String> {
        let resolve = |name: &str, address: &Option<HostPort>| match address {
            Some(address) => match address.resolve() {
                Ok(found) => Ok(Some(found[0])),
                Err(error) => Err(format!("{name}: {error}")),
            },
            None => Ok(None),
        };
        let socks = resolve("socks", &self.socks)?;
        let transparent = resolve("transparent", &self.transparent)?;
        let inbound = match (
            resolve("listen", &self.listen)?,
            resolve("node", &self.node)?,
        ) {
            (Some(listen), Some(node)) if listen == node => {
                return Err(format!("listen and node are both {node}"));
            }
            (Some(listen), Some(node)) => Some(Inbound {
                listen,
                node,
                same_address: self.same_address,
                proxy_protocol: self.proxy_protocol,
            }),
            (None, None) if self.proxy_protocol => {
                return Err("proxy-protocol without listen and node".into());
            }
            (None, None) => None,
            (Some(_), None) => return Err("listen without node: where does it listen?".into()),
            (None, Some(_)) => return Err("node without listen: where to accept peers?".into()),
        };
        if inbound.is_none() && socks.is_none() && transparent.is_none() {
            return Err("nothing to do: --listen and --node, --socks or --transparent".into());
        }
        if self.socks_user.is_some() && socks.is_none() {
            return Err("socks-user without socks".into());
        }
        let engine = Engine::detect().map_err(|error| error.to_string())?;
        let network = self.network.unwrap_or(Network::Mainnet);
        let default = Settings::new(network, engine);
        let workers = self.workers.unwrap_or(default.workers);
        // Each connection has two sockets. Clients of --http, each worker's listeners and queues, logs
        // and lookups of names take files, too.
        let others = (64 + crate::http::MAX_CLIENTS + 8 * workers.get()) as u64;
        let for_links = (files.saturating_sub(others) / 2) as usize;
        // Those for the node's own connections are kept for them.
        let for_outbound = match (inbound, socks.or(transparent)) {
            (_, None) => 0,
            (None, Some(_)) => for_links,
            (Some(_), Some(_)) => for_links / 2,
        };
        let span = |span: Option<Span>, default: Duration| span.map_or(default, |span| span.0);
        let limits = default.limits;
        let outbound = self.outbound_connections;
        let outbound = outbound.unwrap_or(limits.outbound_connections);
        let outbound = outbound.min(for_outbound);
        let connections = self.connections.unwrap_or(limits.connections);
        Ok(Settings {
            inbound,
            socks,
            socks_user: self.socks_user,
            transparent,
            tor: resolve("tor", &self.tor)?,
            advertise: !self.no_advertise,
            workers,
            io: match self.io {
                Some(IoName::IoUring) => Io::IoUring,
                Some(IoName::Epoll) => Io::Epoll,
                None => Io::Best,
            },
            turn: span(self.turn, Duration::ZERO),
            limits: Limits {
                handshake: span(self.handshake, limits.handshake),
                half_open: self.half_open.unwrap_or(limits.half_open),
                half_open_address: self.half_open_address.unwrap_or(limits.half_open_address),
                half_open_group: self.half_open_group.unwrap_or(limits.half_open_group),
                connections: connections.min(for_links - outbound).max(1),
                outbound_connections: outbound.max(1),
                queued: self.queued.unwrap_or(limits.queued),
                memory: self.memory.unwrap_or(limits.memory),
                outbound_memory: self.outbound_memory.unwrap_or(limits.outbound_memory),
                stalled: span(self.stalled, limits.stalled),
                batch: limits.batch,
                idle: span(self.idle, limits.idle),
            },
            ..default
        })
    }

    pub(super) fn http(&self) -> Option<&HostPort> {
        self.http.as_ref()
    }

    pub(super) fn nats(&self) -> Option<&str> {
        self.nats.as_deref()
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(super) fn log(&self) -> LogFormat {
        self.log.unwrap_or(LogFormat::Text)
    }

    pub(super) fn drain(&self) -> Duration {
        self.drain.map_or(Duration::from_secs(30), |span| span.0)
    }

    /// Where these options and `old` say the same of where to listen, `settings` get the addresses of
    /// `before`: a name may have others by now, and a port may have been left to the system.
    pub(super) fn keep_listening(&self, old: &Self, settings: &mut Settings, before: &Settings) {
        if self.socks == old.socks {
            settings.socks = before.socks;
        }
        if self.transparent == old.transparent {
            settings.transparent = before.transparent;
        }
        if let (true, Some(new), Some(before)) = (
            self.listen == old.listen,
            &mut settings.inbound,
            before.inbound,
        ) {
            new.listen = before.listen;
        }
    }

    /// The names of those that differ from these, and that a running gateway has no way to change.
    /// Those of [`Settings`] the gateway names itself.
    pub(super) fn fixed(&self, other: &Self) -> Vec<&'static str> {
        let fixed = [
            ("http", self.http != other.http),
            ("nats", self.nats != other.nats),
            ("name", self.name != other.name),
            ("log", self.log() != other.log()),
        ];
        let differ = fixed.into_iter().filter(|(_, differs)| *differs);
        differ.map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn parse(text: &str) -> Options {
        toml::from_str(text).unwrap()
    }

    /// A name that leads elsewhere now, and a port that the system gave, are no change.
    #[test]
    fn what_is_written_as_before_listens_as_before() {
        let text = "listen = 'localhost:0'\nnode = '127.0.0.1:2'\nsocks = '127.0.0.1:0'";
        let old = parse(text);
        let mut before = old.settings(1000).unwrap();
        before.socks = Some("192.0.2.1:7".parse().unwrap());
        before.inbound.as_mut().unwrap().listen = "192.0.2.1:8".parse().unwrap();
        let mut settings = old.settings(1000).unwrap();
        parse(text).keep_listening(&old, &mut settings, &before);
        assert_eq!(settings.socks, before.socks);
        assert_eq!(settings.inbound.unwrap().listen.port(), 8);
        let new = parse(&text.replace("socks = '127.0.0.1:0'", "socks = '127.0.0.1:9'"));
        let mut settings = new.settings(1000).unwrap();
        new.keep_listening(&old, &mut settings, &before);
        assert_eq!(settings.socks.unwrap().port(), 9);
        assert_eq!(settings.inbound.unwrap().listen.port(), 8);
    }

    #[test]
    fn the_command_line_wins() {
        let file =
            parse("listen = '0.0.0.0:8333'\nnode = '127.0.0.1:8334'\nturn = '5ms'\nqueued = 7");
        let line = parse("turn = '1ms'\nnetwork = 'regtest'\nno-advertise = true\nworkers = 3");
        let settings = line.or(file).settings(1 << 20).unwrap();
        assert_eq!(settings.turn, Duration::from_millis(1));
        assert_eq!(settings.limits.queued, 7);
        assert_eq!(settings.network, Network::Regtest);
        assert!(!settings.advertise);
        let inbound = settings.inbound.unwrap();
        assert_eq!(inbound.listen.port(), 8333);
        assert_eq!(settings.limits.handshake, Duration::from_secs(60));
        assert_eq!(settings.limits.connections, 20_000);
    }

    #[test]
    fn limits_are_of_all_threads() {
        let options = parse(
            "listen = '127.0.0.1:1'\nnode = '127.0.0.1:2'\nworkers = 8\nhalf-open = 64\n\
             connections = 100\nmemory = 1000\noutbound-connections = 50\noutbound-memory = 500\n\
             socks = '127.0.0.1:3'",
        );
        let limits = options.settings(1 << 20).unwrap().limits;
        assert_eq!((limits.half_open, limits.connections), (64, 100));
        assert_eq!((limits.memory, limits.outbound_memory), (1000, 500));
        assert_eq!(limits.outbound_connections, 50);
    }

    /// Inbound connections leave files for those of the node, however few there are.
    #[test]
    fn few_files_are_few_connections() {
        let both = "listen = '127.0.0.1:1'\nnode = '127.0.0.1:2'\nsocks = '127.0.0.1:3'\n";
        let inbound = "listen = '127.0.0.1:1'\nnode = '127.0.0.1:2'\n";
        let outbound = "transparent = '127.0.0.1:3'\n";
        for (text, files, expected) in [
            (inbound, 512, (188, 1)),
            (outbound, 512, (1, 188)),
            (both, 512, (94, 94)),
            (both, 65_536, (20_000, 5_000)),
            (both, 10, (1, 1)),
        ] {
            let options = parse(&format!("{text}workers = 1"));
            let limits = options.settings(files).unwrap().limits;
            let found = (limits.connections, limits.outbound_connections);
            assert_eq!(found, expected, "{text}: {files}");
        }
        let options = parse(&format!("{both}workers = 1\noutbound-connections = 20"));
        assert_eq!(options.settings(512).unwrap().limits.connections, 168);
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (text, expected) in [
            ("", "nothing to do"),
            ("tor = '127.0.0.1:9050'", "nothing to do"),
            ("proxy-protocol = true", "proxy-protocol without listen"),
            ("listen = '127.0.0.1:1'", "listen without node"),
            ("node = '127.0.0.1:1'", "node without listen"),
            (
                "listen = '127.0.0.1:1'\nnode = 'localhost:1'",
                "both 127.0.0.1:1",
            ),
            (
                "socks = 'no.such.name.invalid:1'",
                "socks: cannot resolve no.such.name.invalid:1: ",
            ),
            (
                "transparent = '127.0.0.1:1'\nsocks-user = 'a:b'",
                "socks-user without socks",
            ),
        ] {
            let error = parse(text).settings(1 << 20).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        for text in [
            "lisen = 1",
            "turn = 'soon'",
            "network = 'moon'",
            "listen = 8333",
            "listen = '8333'",
            "socks-user = 'name'",
            "socks-user = 'name:'",
        ] {
            assert!(toml::from_str::<Options>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_resolved() {
        let options = parse(
            "listen = 'localhost:1'\nnode = 'localhost:2'\nsocks = 'localhost:3'\n\
             transparent = 'localhost:4'\ntor = 'localhost:5'",
        );
        let settings = options.settings(1 << 20).unwrap();
        let inbound = settings.inbound.unwrap();
        let found = [
            Some(inbound.listen),
            Some(inbound.node),
            settings.socks,
            settings.transparent,
            settings.tor,
        ];
        let expected = [1, 2, 3, 4, 5].map(|port| Some((Ipv4Addr::LOCALHOST, port).into()));
        assert_eq!(found, expected);
    }
}
