//! The gateway's settings, from the command line and from a file. Both use the same names; the
//! command line takes precedence.

use crate::args::{self, HostPort};
use clap::Args;
use packetlane::Engine;
use packetlane::bip324::shape::Shape;
use packetlane::bitcoin;
use packetlane_files::Name;
use packetlane_gateway::{
    Credentials, Inbound, Limits, Network, NodeAddress, PeerSource, PerAddress, Settings, V2Only,
};
use serde::{Deserialize, Deserializer};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tracing::level_filters::LevelFilter;
use zeroize::Zeroizing;

/// A duration, such as "5ms", "60s" or "25m".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span(Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let span = humantime::parse_duration(text);
        span.map(Self)
            .map_err(|error| format!("{error}; write a time with its unit: 5ms, 60s, 25m"))
    }
}

/// A number of bytes, such as "1GiB", "64 MiB", "500kB" or "1048576"; not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bytes(usize);

impl FromStr for Bytes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "expected a number of bytes, such as 1GiB, 64MiB or 1048576; not 0";
        let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        let unit = match text[digits.len()..].trim() {
            "" | "B" => 1,
            "kB" => 1000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(wrong),
        };
        let bytes = digits.parse::<usize>().ok();
        let bytes = bytes.and_then(|number| number.checked_mul(unit));
        bytes.filter(|bytes| *bytes > 0).map(Self).ok_or(wrong)
    }
}

/// A number of bytes a day, such as "50MB/day".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BytesADay(u64);

impl FromStr for BytesADay {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = text.strip_suffix("/day").map(str::trim_end);
        let bytes = bytes.and_then(|bytes| bytes.parse().ok());
        let bytes = bytes.map(|Bytes(bytes)| Self(bytes as u64));
        bytes.ok_or("expected a number of bytes a day, such as 50MB/day; not 0")
    }
}

/// How traffic towards v2 peers is shaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum ShapeName {
    /// Not at all
    None,
    /// Lengths are rounded up with decoys
    Pad,
    /// The same, and decoys at random times that look like earlier messages
    Cover,
    /// The same number of bytes at regular intervals
    Constant,
}

/// A limit on connections; not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count(usize);

impl FromStr for Count {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let count = text.parse().ok().filter(|count| *count > 0);
        count.map(Self).ok_or("expected a number from 1")
    }
}

/// A number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Workers(NonZero<usize>);

impl Workers {
    /// More than any machine has cores for.
    const MAX: usize = 256;
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let count = text.parse().ok();
        let count = count.filter(|count: &NonZero<usize>| count.get() <= Self::MAX);
        count
            .map(Self)
            .ok_or_else(|| format!("expected a number from 1 to {}", Self::MAX))
    }
}

/// A TOML value that is parsed as on the command line, be it a text or a number.
fn value<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: std::fmt::Display>,
    D: Deserializer<'de>,
{
    struct AsText;

    impl serde::de::Visitor<'_> for AsText {
        type Value = String;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a text or a number")
        }

        fn visit_str<E>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }

        fn visit_i64<E>(self, number: i64) -> Result<String, E> {
            Ok(number.to_string())
        }
    }

    let text = deserializer.deserialize_any(AsText)?;
    let parsed = text.parse().map(Some);
    parsed.map_err(|error| serde::de::Error::custom(format!("{text}: {error}")))
}

/// Log formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LogFormat {
    /// Lines of text
    Text,
    /// One JSON object per line
    Json,
}

/// Which peers must speak v2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum V2OnlyName {
    /// All peers
    All,
    /// All but onion services, and inbound peers from a loopback address, where Tor delivers
    Clearnet,
}

impl From<V2OnlyName> for V2Only {
    fn from(name: V2OnlyName) -> Self {
        match name {
            V2OnlyName::All => Self::All,
            V2OnlyName::Clearnet => Self::Clearnet,
        }
    }
}

/// Settings from the command line or the file.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Options {
    /// Accept peers at this address, over v2 or v1, and relay them to --node. May be given several
    /// times
    #[arg(long, value_name = "HOST:PORT")]
    #[serde(deserialize_with = "values")]
    listen: Vec<HostPort>,
    /// Address of the node, which is connected to over v1. Give one for all --listen, or one for each,
    /// in the same order
    #[arg(long, value_name = "HOST:PORT")]
    #[serde(deserialize_with = "values")]
    node: Vec<HostPort>,
    /// Connect to the node from one address for all peers. By default, each peer gets its own
    /// loopback address (127.x.y.z), so that the node's limits and bans work per peer
    #[arg(long, conflicts_with_all = ["spoof", "send_proxy_protocol"])]
    same_address: bool,
    /// Connect to the node from each peer's own address and port, so that the node's limits, bans and
    /// evictions work as without a gateway. Needs CAP_NET_ADMIN, a node on this machine, and the
    /// routes that `packetlane gateway setup` prints
    #[arg(long, conflicts_with = "send_proxy_protocol")]
    spoof: bool,
    /// The first --node at an IPv6 address, for IPv6 peers with --spoof
    #[arg(long, value_name = "HOST:PORT")]
    node_v6: Option<HostPort>,
    /// Send the node a PROXY protocol v2 header with the peer's address on each connection
    #[arg(long)]
    send_proxy_protocol: bool,
    /// Expect a PROXY protocol v2 header with the peer's address on each connection to --listen.
    /// Only load balancers should be able to connect there: anyone else can claim any address
    #[arg(long)]
    proxy_protocol: bool,
    /// Run a SOCKS5 server at this address, for the node's -proxy option. Reaches peers over v2, or
    /// else over v1
    #[arg(long, value_name = "HOST:PORT")]
    socks: Option<HostPort>,
    /// Require this user and password from clients of --socks (RFC 1929), as with btcd's
    /// --proxyuser. Bitcoin Core cannot send one. Other users of this machine can see the command
    /// line: set it in --config instead
    #[arg(long, value_name = "NAME:PASSWORD", value_parser = credentials)]
    #[serde(deserialize_with = "read_credentials")]
    socks_user: Option<Credentials>,
    /// Accept connections of the node's that a firewall redirects here (SO_ORIGINAL_DST)
    #[arg(long, value_name = "HOST:PORT")]
    transparent: Option<HostPort>,
    /// SOCKS5 server through which all peers of the node's own connections are reached. It also
    /// resolves names
    #[arg(long, value_name = "HOST:PORT")]
    proxy: Option<HostPort>,
    /// User and password for --proxy [default: those that the node sends]. Other users of this machine
    /// can see the command line: set it in --config instead
    #[arg(long, value_name = "NAME:PASSWORD", value_parser = credentials)]
    #[serde(deserialize_with = "read_credentials")]
    proxy_user: Option<Credentials>,
    /// SOCKS5 server that reaches .onion names, instead of --proxy
    #[arg(long, value_name = "HOST:PORT")]
    tor: Option<HostPort>,
    /// Accept inbound peers only from this address or network (CIDR). May be given several times
    #[arg(long, value_name = "NETWORK")]
    #[serde(deserialize_with = "values")]
    allow: Vec<Network>,
    /// Refuse inbound peers from this address or network (CIDR), and close those that are connected.
    /// May be given several times
    #[arg(long, value_name = "NETWORK")]
    #[serde(deserialize_with = "values")]
    deny: Vec<Network>,
    /// The same from a file, a network a line; # begins a comment. SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    deny_file: Option<PathBuf>,
    /// Do not set the v2 service bit in the node's version message and in announcements of its own
    /// address
    #[arg(long)]
    no_advertise: bool,
    /// Address under which others know the node, if it announces one: IP:PORT or NAME.onion:PORT. Its
    /// announcements get the v2 service bit, so that others connect over v2. May be given several
    /// times. The IP address that a peer sees needs no option
    #[arg(long, value_name = "ADDRESS")]
    #[serde(deserialize_with = "values")]
    external: Vec<NodeAddress>,
    /// Close inbound peers that speak only v1: all, or those that Tor does not encrypt
    #[arg(long, value_name = "WHICH")]
    v2_only: Option<V2OnlyName>,
    /// Connect to peers only over v2: to all, or to those that Tor does not encrypt
    #[arg(long, value_name = "WHICH")]
    outbound_v2_only: Option<V2OnlyName>,
    /// Bitcoin network
    #[arg(long, value_parser = args::network_parser(), help = "Bitcoin network [default: main]")]
    #[serde(deserialize_with = "network")]
    network: Option<bitcoin::Network>,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "value")]
    workers: Option<Workers>,
    /// Sleep this long between turns. Saves CPU time through larger batches, but delays messages
    /// [default: 0s]
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "value")]
    turn: Option<Span>,
    /// Hide lengths and times of what v2 peers get, as far as docs/guide/privacy.md says. What they
    /// send stays as it is [default: none]
    #[arg(long, value_name = "HOW")]
    shape: Option<ShapeName>,
    /// Decoys for each peer: BYTES/day. For --shape constant all bytes [default: 50MB/day]
    #[arg(long, value_name = "BYTES")]
    #[serde(deserialize_with = "value")]
    shape_budget: Option<BytesADay>,
    /// Keep messages back for up to this long, to spread bursts [default: 0s]
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "value")]
    shape_delay: Option<Span>,
    /// Keep back blocks and their announcements, too
    #[arg(long)]
    shape_delay_blocks: bool,
    /// Timeout from the connection to the end of the handshake [default: 60s, as in Bitcoin Core]
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "value")]
    handshake: Option<Span>,
    /// Timeout for connecting to the node, a peer or a proxy [default: 20s]
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "value")]
    connect_timeout: Option<Span>,
    /// Timeout for a peer that sends nothing [default: 25m; nodes ping every 2 minutes]
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "value")]
    idle: Option<Span>,
    /// Maximum inbound connections [default: 20000, or fewer if the limit on open files is lower]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "value")]
    connections: Option<Count>,
    /// The same per address. This and the options that begin with connections-, connection-rate- and
    /// byte-rate- do not apply to loopback addresses, from which Tor delivers the peers of an onion
    /// service. An IPv6 /64 counts as one address [default: no limit]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "value")]
    connections_address: Option<Count>,
    /// The same per network group (an IPv4 /16 or an IPv6 /32) [default: no limit]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "value")]
    connections_group: Option<Count>,
    /// Maximum inbound connections that an address may begin per minute [default: no limit]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "value")]
    connection_rate_address: Option<Count>,
    /// The same per network group [default: no limit]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "value")]
    connection_rate_group: Option<Count>,
    /// Bytes per second from and to the inbound peers of an address. Data beyond it waits. Applies to
    /// connections that begin after it is set [default: no limit]
    #[arg(long, value_name = "BYTES")]
    #[serde(deserialize_with = "value")]
    byte_rate_address: Option<Bytes>,
    /// The same per network group [default: no limit]
    #[arg(long, value_name = "BYTES")]
    #[serde(deserialize_with = "value")]
    byte_rate_group: Option<Bytes>,
    /// Maximum connections of the node's own (--socks, --transparent). Inbound connections cannot
    /// use them up [default: 5000, or fewer if the limit on open files is lower]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "value")]
    outbound_connections: Option<Count>,
    /// Maximum inbound connections whose handshake is not done. Clients that have not shown the
    /// password of --socks-user have the same limits, with counts of their own [default: 10000]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "value")]
    half_open: Option<Count>,
    /// The same per address [default: 64]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "value")]
    half_open_address: Option<Count>,
    /// The same per network group (an IPv4 /16 or an IPv6 /32) [default: 2000]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "value")]
    half_open_group: Option<Count>,
    /// Maximum bytes queued for a side that does not read. Above it, the other side is not read
    /// [default: 1MiB]
    #[arg(long, value_name = "BYTES")]
    #[serde(deserialize_with = "value")]
    queued: Option<Bytes>,
    /// Maximum memory for data queued in all inbound connections. Above it, the
    /// connections that hold the most are closed [default: 1GiB]
    #[arg(long, value_name = "BYTES")]
    #[serde(deserialize_with = "value")]
    memory: Option<Bytes>,
    /// The same for the node's own connections [default: 256MiB]
    #[arg(long, value_name = "BYTES")]
    #[serde(deserialize_with = "value")]
    outbound_memory: Option<Bytes>,
    /// Timeout for a peer that reads nothing of what is queued for it [default: 20m, as in Bitcoin
    /// Core]
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "value")]
    stalled: Option<Span>,
    /// How long connections may continue after SIGTERM [default: 30s]
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "value")]
    drain: Option<Span>,
    /// Serve /metrics (Prometheus), /healthz and /peers (JSON) at this address. /peers requires a
    /// Host header with this HOST, an IP address or localhost
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<HostPort>,
    /// Publish peer events as JSON to NATS JetStream at this URL, such as nats://127.0.0.1:4222:
    /// subject packetlane.gateway.NAME, stream packetlane_gateway. User and password come from
    /// PACKETLANE_NATS_USER and PACKETLANE_NATS_PASSWORD
    #[arg(long, value_name = "URL")]
    nats: Option<String>,
    /// Name of this node in NATS subjects [default: the host name]
    #[arg(long)]
    name: Option<String>,
    /// Least level of the log: error, warn, info, debug or off [default: the variable RUST_LOG, or
    /// info]
    #[arg(long, value_name = "LEVEL")]
    #[serde(deserialize_with = "value")]
    log_level: Option<LevelFilter>,
    /// Format of the log on standard error [default: text]
    #[arg(long, value_name = "FORMAT")]
    log: Option<LogFormat>,
}

/// Parses NAME:PASSWORD.
fn credentials(text: &str) -> Result<Credentials, &'static str> {
    let both = text.split_once(':');
    both.and_then(|(name, password)| Credentials::new(name.as_bytes(), password.as_bytes()))
        .ok_or("expected NAME:PASSWORD, both of 1 to 255 bytes")
}

/// NAME:PASSWORD, whose text is wiped after it is parsed, and is not repeated in an error.
fn read_credentials<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Credentials>, D::Error> {
    let text = Zeroizing::new(String::deserialize(deserializer)?);
    let parsed = credentials(&text).map_err(serde::de::Error::custom)?;
    Ok(Some(parsed))
}

/// A TOML text, or a list of them, parsed as on the command line.
fn values<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: FromStr<Err: std::fmt::Display>,
    D: Deserializer<'de>,
{
    struct Texts;

    impl<'de> serde::de::Visitor<'de> for Texts {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a text or a list of texts")
        }

        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(vec![text.to_owned()])
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(
            self,
            texts: A,
        ) -> Result<Self::Value, A::Error> {
            Deserialize::deserialize(serde::de::value::SeqAccessDeserializer::new(texts))
        }
    }

    let texts = deserializer.deserialize_any(Texts)?;
    let parse = |text: &String| {
        let parsed = text.parse();
        parsed.map_err(|error| serde::de::Error::custom(format!("{text}: {error}")))
    };
    texts.iter().map(parse).collect()
}

/// Reads the networks of a file.
fn read_networks(file: &Path) -> Result<Vec<Network>, String> {
    let text = packetlane_files::read_text(file)
        .map_err(|error| format!("cannot read {}: {error}", Name(file)))?;
    let lines = text.lines().enumerate().map(|(number, line)| {
        let line = line.split('#').next().unwrap_or_default().trim();
        (number + 1, line)
    });
    let networks = lines.filter(|(_, line)| !line.is_empty());
    let parse = |(number, line): (usize, &str)| {
        let parsed = line.parse();
        parsed.map_err(|error| format!("{}: line {number}: {error}", Name(file)))
    };
    networks.map(parse).collect()
}

fn network<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<bitcoin::Network>, D::Error> {
    let name = String::deserialize(deserializer)?;
    match args::network(&name) {
        Some(network) => Ok(Some(network)),
        None => Err(serde::de::Error::custom(format!(
            "unknown network {name:?}"
        ))),
    }
}

/// An option that the command line may leave to the file.
trait OrFile {
    fn or_file(self, file: Self) -> Self;
}

impl<T> OrFile for Option<T> {
    fn or_file(self, file: Self) -> Self {
        self.or(file)
    }
}

impl<T> OrFile for Vec<T> {
    fn or_file(self, file: Self) -> Self {
        if self.is_empty() { file } else { self }
    }
}

impl OrFile for bool {
    fn or_file(self, file: Self) -> Self {
        self || file
    }
}

/// What is done with all options. The compiler finds one that is left out.
macro_rules! options {
    ($($option:ident)*) => {
        impl Options {
            /// Fills in the options that are not set from the file.
            pub(super) fn or(self, file: Self) -> Self {
                Self { $($option: self.$option.or_file(file.$option),)* }
            }

            /// The names of the options that differ.
            pub(super) fn changed(&self, other: &Self) -> Vec<String> {
                let all = [$((stringify!($option), self.$option != other.$option),)*];
                let changed = all.into_iter().filter(|(_, differs)| *differs);
                changed.map(|(name, _)| name.replace('_', "-")).collect()
            }
        }
    };
}

options! {
    listen node same_address spoof node_v6 send_proxy_protocol proxy_protocol socks socks_user
    transparent proxy proxy_user tor allow deny deny_file no_advertise external v2_only
    outbound_v2_only network workers turn shape shape_budget shape_delay shape_delay_blocks
    handshake connect_timeout idle connections connections_address connections_group
    connection_rate_address connection_rate_group byte_rate_address byte_rate_group outbound_connections half_open half_open_address
    half_open_group queued memory outbound_memory stalled drain http nats name log log_level
}

impl Options {
    /// Reads a TOML file.
    pub(super) fn read(file: &Path) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", Name(file));
        // The text may contain a password.
        let text = packetlane_files::read_text(file)
            .map_err(|error| format!("cannot read {}: {error}", Name(file)))?;
        let text = Zeroizing::new(text);
        toml::from_str(&text).map_err(|error| {
            // One line: where and what.
            let start = error.span().map_or(0, |span| span.start);
            let number = text[..start].matches('\n').count();
            let line = text.lines().nth(number).unwrap_or_default();
            let what = match line.split_once('=') {
                Some((key, _)) if !error.message().contains("unknown field") => {
                    format!("{}: {}", key.trim(), error.message())
                }
                _ => error.message().to_owned(),
            };
            failed(&format!("line {}: {what}", number + 1))
        })
    }

    /// Converts to settings, for a process that may have `files` open files, and the address of
    /// `--http`. Resolves names, IPv4 first, so this may block on a name server.
    pub(super) fn settings(&self, files: u64) -> Result<(Settings, Option<SocketAddr>), String> {
        let first = |name: &str, address: &HostPort| match address.resolve() {
            Ok(found) => Ok(found[0]),
            Err(error) => Err(format!("{name}: {error}")),
        };
        let resolve = |name: &str, address: &Option<HostPort>| {
            let found = address.as_ref().map(|address| first(name, address));
            found.transpose()
        };
        let socks = resolve("socks", &self.socks)?;
        let transparent = resolve("transparent", &self.transparent)?;
        let node_v6 = match (&self.node_v6, self.spoof) {
            (Some(node), true) => {
                let found = node
                    .resolve()
                    .map_err(|error| format!("node-v6: {error}"))?;
                let v6 = found.into_iter().find(SocketAddr::is_ipv6);
                Some(v6.ok_or_else(|| format!("node-v6: {node} is no IPv6 address"))?)
            }
            (Some(_), false) => return Err("--node-v6 needs --spoof".into()),
            (None, _) => None,
        };
        let mut inbound = Vec::new();
        for (index, (listen, node)) in self.places()?.into_iter().enumerate() {
            inbound.push(Inbound {
                listen: first("listen", listen)?,
                node: first("node", node)?,
                node_v6: node_v6.filter(|_| index == 0),
                source: self.source()?,
                proxy_protocol: self.proxy_protocol,
            });
        }
        if inbound.is_empty() && socks.is_none() && transparent.is_none() {
            return Err(
                "nothing to do: give --listen and --node, --socks, or --transparent".into(),
            );
        }
        self.check_effects(!inbound.is_empty(), socks.is_some(), transparent.is_some())?;
        let tor = resolve("tor", &self.tor)?;
        let proxy = resolve("proxy", &self.proxy)?;
        let http = resolve("http", &self.http)?;
        let set = |name, address: Option<SocketAddr>| Some((name, address?));
        let listeners = inbound.iter().map(|inbound| ("--listen", inbound.listen));
        let others = [
            set("--socks", socks),
            set("--transparent", transparent),
            set("--http", http),
        ];
        let listeners: Vec<_> = listeners.chain(others.into_iter().flatten()).collect();
        let nodes = inbound.iter().map(|inbound| ("--node", inbound.node));
        let others = [
            set("--node-v6", node_v6),
            set("--tor", tor),
            set("--proxy", proxy),
        ];
        let targets: Vec<_> = nodes.chain(others.into_iter().flatten()).collect();
        check_addresses(&listeners, &targets)?;
        let mut denied = self.deny.clone();
        if let Some(file) = &self.deny_file {
            denied.append(&mut read_networks(file)?);
        }
        let engine = Engine::detect().map_err(|error| error.to_string())?;
        let network = self.network.unwrap_or(bitcoin::Network::Mainnet);
        let default = Settings::new(network, engine);
        let workers = self.workers.map_or(default.workers, |workers| workers.0);
        // Each connection has two sockets. The rest is for HTTP clients, each worker's listeners
        // and queues, logs and name lookups.
        let others = (64 + crate::http::MAX_CLIENTS + 8 * workers.get()) as u64;
        let for_links = (files.saturating_sub(others) / 2) as usize;
        // Reserve descriptors for the node's own connections.
        let for_outbound = match (inbound.is_empty(), socks.or(transparent)) {
            (_, None) => 0,
            (true, Some(_)) => for_links,
            (false, Some(_)) => for_links / 2,
        };
        let span = |span: Option<Span>, default: Duration| span.map_or(default, |span| span.0);
        let limits = default.limits;
        let count = |count: Option<Count>, default| count.map_or(default, |count| count.0);
        let bytes = |bytes: Option<Bytes>, default| bytes.map_or(default, |bytes| bytes.0);
        let counts = |address, group, default: PerAddress| PerAddress {
            address: count(address, default.address),
            group: count(group, default.group),
        };
        let outbound = count(self.outbound_connections, limits.outbound_connections);
        let outbound = outbound.min(for_outbound);
        let connections = count(self.connections, limits.connections);
        let settings = Settings {
            inbound,
            socks,
            socks_user: self.socks_user.clone(),
            transparent,
            proxy,
            proxy_user: self.proxy_user.clone(),
            tor,
            allowed: match self.allow.is_empty() {
                true => None,
                false => Some(Arc::new(self.allow.iter().copied().collect())),
            },
            denied: Arc::new(denied.into_iter().collect()),
            advertise: !self.no_advertise,
            external: self.external.clone(),
            v2_only: self.v2_only.map(Into::into),
            outbound_v2_only: self.outbound_v2_only.map(Into::into),
            workers,
            turn: span(self.turn, Duration::ZERO),
            shape: self.shape(),
            limits: Limits {
                handshake: span(self.handshake, limits.handshake),
                connect: span(self.connect_timeout, limits.connect),
                half_open: count(self.half_open, limits.half_open),
                half_open_of: counts(
                    self.half_open_address,
                    self.half_open_group,
                    limits.half_open_of,
                ),
                connections_of: counts(
                    self.connections_address,
                    self.connections_group,
                    limits.connections_of,
                ),
                connection_rate: counts(
                    self.connection_rate_address,
                    self.connection_rate_group,
                    limits.connection_rate,
                ),
                byte_rate: PerAddress {
                    address: bytes(self.byte_rate_address, limits.byte_rate.address),
                    group: bytes(self.byte_rate_group, limits.byte_rate.group),
                },
                connections: connections.min(for_links - outbound).max(1),
                outbound_connections: outbound.max(1),
                queued: bytes(self.queued, limits.queued),
                memory: bytes(self.memory, limits.memory),
                outbound_memory: bytes(self.outbound_memory, limits.outbound_memory),
                stalled: span(self.stalled, limits.stalled),
                batch: limits.batch,
                idle: span(self.idle, limits.idle),
            },
            ..default
        };
        Ok((settings, http))
    }

    /// Where peers connect, and the node of each place.
    fn places(&self) -> Result<Vec<(&HostPort, &HostPort)>, String> {
        let (listen, node) = (&self.listen, &self.node);
        match (listen.len(), node.len()) {
            (0, 0) => Ok(Vec::new()),
            (places, _) if places > Settings::MAX_INBOUND => Err(format!(
                "{places} times --listen: at most {}",
                Settings::MAX_INBOUND
            )),
            (_, 0) => Err("--listen needs --node, the address of the node".into()),
            (0, _) => Err("--node needs --listen, the address to accept peers at".into()),
            (_, 1) => Ok(listen.iter().map(|listen| (listen, &node[0])).collect()),
            (places, nodes) if places == nodes => Ok(listen.iter().zip(node).collect()),
            (places, nodes) => Err(format!(
                "{places} times --listen, and {nodes} times --node: give one --node for all, or one \
                 for each"
            )),
        }
    }

    /// Refuses options that have no effect with the others.
    fn check_effects(&self, inbound: bool, socks: bool, transparent: bool) -> Result<(), String> {
        let of_inbound = [
            ("proxy-protocol", self.proxy_protocol),
            ("same-address", self.same_address),
            ("spoof", self.spoof),
            ("send-proxy-protocol", self.send_proxy_protocol),
            ("external", !self.external.is_empty()),
            ("v2-only", self.v2_only.is_some()),
            ("connections", self.connections.is_some()),
            ("connections-address", self.connections_address.is_some()),
            ("connections-group", self.connections_group.is_some()),
            (
                "connection-rate-address",
                self.connection_rate_address.is_some(),
            ),
            (
                "connection-rate-group",
                self.connection_rate_group.is_some(),
            ),
            ("byte-rate-address", self.byte_rate_address.is_some()),
            ("byte-rate-group", self.byte_rate_group.is_some()),
            ("memory", self.memory.is_some()),
            ("allow", !self.allow.is_empty()),
            ("deny", !self.deny.is_empty()),
            ("deny-file", self.deny_file.is_some()),
        ];
        let of_outbound = [
            ("proxy", self.proxy.is_some()),
            ("tor", self.tor.is_some()),
            ("outbound-v2-only", self.outbound_v2_only.is_some()),
            ("outbound-connections", self.outbound_connections.is_some()),
            ("outbound-memory", self.outbound_memory.is_some()),
        ];
        let of_shape = [
            ("shape-budget", self.shape_budget.is_some()),
            ("shape-delay", self.shape_delay.is_some()),
            ("shape-delay-blocks", self.shape_delay_blocks),
        ];
        for (needs, is_there, options) in [
            (
                "--shape pad, cover or constant",
                self.shape() != Shape::NONE,
                &of_shape[..],
            ),
            ("--listen", inbound, &of_inbound[..]),
            (
                "--socks or --transparent",
                socks || transparent,
                &of_outbound,
            ),
            (
                "--socks",
                socks,
                &[("socks-user", self.socks_user.is_some())],
            ),
            (
                "--proxy",
                self.proxy.is_some(),
                &[("proxy-user", self.proxy_user.is_some())],
            ),
        ] {
            let useless = options.iter().find(|(_, is_set)| *is_set && !is_there);
            if let Some((name, _)) = useless {
                return Err(format!("--{name} needs {needs}"));
            }
        }
        Ok(())
    }

    /// What the operator should know about settings that work: for the log and `--check-config`.
    pub(super) fn warnings(&self, settings: &Settings, files: u64) -> Vec<String> {
        let mut warnings = Vec::new();
        for (name, wanted, got) in [
            ("connections", self.connections, settings.limits.connections),
            (
                "outbound-connections",
                self.outbound_connections,
                settings.limits.outbound_connections,
            ),
        ] {
            if let Some(Count(wanted)) = wanted
                && got < wanted
            {
                warnings.push(format!(
                    "{name} = {wanted} is lowered to {got}: the process may open {files} files, and a \
                     connection takes two; raise the limit (systemd: LimitNOFILE)"
                ));
            }
        }
        let is_loopback = |node: SocketAddr| node.is_ipv4() && node.ip().is_loopback();
        let at_one_address = settings
            .inbound
            .iter()
            .filter(|inbound| inbound.source == PeerSource::Loopback && !is_loopback(inbound.node));
        for inbound in at_one_address {
            warnings.push(format!(
                "the node at {} sees all peers at one address, because it is not on an IPv4 loopback \
                 address; its limits and bans do not work per peer (--same-address if that is meant)",
                inbound.node
            ));
        }
        warnings
    }

    fn shape(&self) -> Shape {
        /// More than padding takes on any connection that was measured (docs/guide/privacy.md).
        const DEFAULT_BUDGET: u64 = 50_000_000;
        let budget = self.shape_budget.map_or(DEFAULT_BUDGET, |budget| budget.0);
        let delay = self.shape_delay.map_or(Duration::ZERO, |delay| delay.0);
        let shape = match self.shape {
            None | Some(ShapeName::None) => return Shape::NONE,
            Some(ShapeName::Pad) => Shape::pad(budget, delay),
            Some(ShapeName::Cover) => Shape::cover(budget, delay),
            Some(ShapeName::Constant) => Shape::constant(budget, delay),
        };
        Shape {
            delay_urgent: self.shape_delay_blocks,
            ..shape
        }
    }

    fn source(&self) -> Result<PeerSource, String> {
        match (self.same_address, self.spoof, self.send_proxy_protocol) {
            (false, false, false) => Ok(PeerSource::Loopback),
            (true, false, false) => Ok(PeerSource::Gateway),
            (false, true, false) => Ok(PeerSource::Real),
            (false, false, true) => Ok(PeerSource::ProxyProtocol),
            _ => Err("--same-address, --spoof and --send-proxy-protocol exclude each other".into()),
        }
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

    /// The least level of the log. The variable RUST_LOG may have a level, too.
    pub(super) fn log_level(&self) -> LevelFilter {
        let variable = || std::env::var("RUST_LOG").ok()?.parse().ok();
        self.log_level
            .or_else(variable)
            .unwrap_or(LevelFilter::INFO)
    }

    pub(super) fn log(&self) -> LogFormat {
        self.log.unwrap_or(LogFormat::Text)
    }

    pub(super) fn drain(&self) -> Duration {
        self.drain.map_or(Duration::from_secs(30), |span| span.0)
    }

    /// Keeps the addresses of listeners whose option did not change: a name may resolve differently
    /// by now, and port 0 may have been replaced by the system.
    pub(super) fn keep_listening(&self, old: &Self, settings: &mut Settings, before: &Settings) {
        if self.socks == old.socks {
            settings.socks = before.socks;
        }
        if self.transparent == old.transparent {
            settings.transparent = before.transparent;
        }
        if self.listen == old.listen {
            for (new, before) in settings.inbound.iter_mut().zip(&before.inbound) {
                new.listen = before.listen;
            }
        }
    }

    /// The names of the options that differ and cannot change at run time, except those in
    /// [`Settings`], which the gateway checks itself.
    pub(super) fn restart_required(&self, other: &Self) -> Vec<&'static str> {
        let options = [
            ("http", self.http != other.http),
            ("nats", self.nats != other.nats),
            ("name", self.name != other.name),
            ("log", self.log() != other.log()),
            ("log-level", self.log_level() != other.log_level()),
        ];
        let differ = options.into_iter().filter(|(_, differs)| *differs);
        differ.map(|(name, _)| name).collect()
    }
}

/// Refuses an address that is listened on twice, and connections of the gateway to itself.
fn check_addresses(
    listeners: &[(&str, SocketAddr)],
    targets: &[(&str, SocketAddr)],
) -> Result<(), String> {
    let both = |one: &str, other: &str, address: SocketAddr| {
        format!("{one} and {other} have the same address, {address}; give each its own")
    };
    for (index, (one, at)) in listeners.iter().enumerate() {
        let is_any = at.ip().is_unspecified();
        let is_port = |other: &SocketAddr| at.port() != 0 && at.port() == other.port();
        for (other, its) in &listeners[index + 1..] {
            let meets = is_any || its.ip().is_unspecified() || at.ip() == its.ip();
            if is_port(its) && meets && at.is_ipv4() == its.is_ipv4() {
                return Err(both(one, other, *at));
            }
        }
        for (target, to) in targets {
            if is_port(to) && (at.ip() == to.ip() || is_any && is_here(to.ip())) {
                return Err(both(one, target, *to));
            }
        }
    }
    Ok(())
}

/// Whether an address is this machine's.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn parse(text: &str) -> Options {
        toml::from_str(text).unwrap()
    }

    /// A name that resolves differently, and a port chosen by the system, are not changes.
    #[test]
    fn unchanged_options_keep_their_listeners() {
        let text = "listen = 'localhost:0'\nnode = '127.0.0.1:2'\nsocks = '127.0.0.1:0'";
        let old = parse(text);
        let mut before = old.settings(1000).unwrap().0;
        before.socks = Some("192.0.2.1:7".parse().unwrap());
        before.inbound[0].listen = "192.0.2.1:8".parse().unwrap();
        let mut settings = old.settings(1000).unwrap().0;
        parse(text).keep_listening(&old, &mut settings, &before);
        assert_eq!(settings.socks, before.socks);
        assert_eq!(settings.inbound[0].listen.port(), 8);
        let new = parse(&text.replace("socks = '127.0.0.1:0'", "socks = '127.0.0.1:9'"));
        let mut settings = new.settings(1000).unwrap().0;
        new.keep_listening(&old, &mut settings, &before);
        assert_eq!(settings.socks.unwrap().port(), 9);
        assert_eq!(settings.inbound[0].listen.port(), 8);
    }

    #[test]
    fn the_command_line_wins() {
        let file =
            parse("listen = '0.0.0.0:8333'\nnode = '127.0.0.1:8334'\nturn = '5ms'\nqueued = 7");
        let line = parse("turn = '1ms'\nnetwork = 'regtest'\nno-advertise = true\nworkers = 3");
        let settings = line.or(file).settings(1 << 20).unwrap().0;
        assert_eq!(settings.turn, Duration::from_millis(1));
        assert_eq!(settings.limits.queued, 7);
        assert_eq!(settings.network, bitcoin::Network::Regtest);
        assert!(!settings.advertise);
        let inbound = settings.inbound[0];
        assert_eq!(inbound.listen.port(), 8333);
        assert_eq!(settings.limits.handshake, Duration::from_secs(60));
        assert_eq!(settings.limits.connections, 20_000);
    }

    #[test]
    fn changed_options_are_named() {
        let old = parse("deny = '192.0.2.0/24'\nsocks-user = 'a:b'\nspoof = true\nidle = '1m'");
        let new =
            parse("deny = ['192.0.2.0/25']\nsocks-user = 'a:c'\nspoof = true\nhttp = '[::1]:1'");
        let expected = ["socks-user", "deny", "idle", "http"];
        assert_eq!(old.changed(&new), expected);
        assert!(old.changed(&old.clone()).is_empty());
    }

    #[test]
    fn limits_apply_to_all_threads_together() {
        let options = parse(
            "listen = '127.0.0.1:1'\nnode = '127.0.0.1:2'\nworkers = 8\nhalf-open = 64\n\
             connections = 100\nmemory = 1000\noutbound-connections = 50\noutbound-memory = 500\n\
             socks = '127.0.0.1:3'",
        );
        let limits = options.settings(1 << 20).unwrap().0.limits;
        assert_eq!((limits.half_open, limits.connections), (64, 100));
        assert_eq!((limits.memory, limits.outbound_memory), (1000, 500));
        assert_eq!(limits.outbound_connections, 50);
    }

    /// However few descriptors there are, inbound connections leave some for the node's own.
    #[test]
    fn few_descriptors_mean_few_connections() {
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
            let limits = options.settings(files).unwrap().0.limits;
            let found = (limits.connections, limits.outbound_connections);
            assert_eq!(found, expected, "{text}: {files}");
        }
        let options = parse(&format!("{both}workers = 1\noutbound-connections = 20"));
        assert_eq!(options.settings(512).unwrap().0.limits.connections, 168);
    }

    #[test]
    fn contradictory_settings_are_errors() {
        for (text, expected) in [
            ("", "nothing to do"),
            ("tor = '127.0.0.1:9050'", "nothing to do"),
            (
                "socks = '127.0.0.1:1'\nsame-address = true",
                "--same-address needs --listen",
            ),
            (
                "socks = '127.0.0.1:1'\nconnections = 5",
                "--connections needs --listen",
            ),
            (
                "listen = '127.0.0.1:1'\nnode = '127.0.0.1:2'\ntor = '127.0.0.1:3'",
                "--tor needs --socks or --transparent",
            ),
            (
                "listen = '0.0.0.0:8333'\nnode = '127.0.0.1:8333'",
                "--listen and --node have the same address, 127.0.0.1:8333",
            ),
            (
                "listen = '127.0.0.1:1'\nnode = '127.0.0.1:2'\nsocks = '127.0.0.1:1'",
                "--listen and --socks have the same address",
            ),
            (
                "listen = '127.0.0.1:1'\nnode = '127.0.0.1:2'\nhttp = '0.0.0.0:1'",
                "--listen and --http have the same address",
            ),
            (
                "socks = '127.0.0.1:9050'\ntor = '127.0.0.1:9050'",
                "--socks and --tor have the same address",
            ),
            (
                "socks = '127.0.0.1:1'\nproxy-protocol = true",
                "--proxy-protocol needs --listen",
            ),
            ("listen = '127.0.0.1:1'", "--listen needs --node"),
            ("node = '127.0.0.1:1'", "--node needs --listen"),
            (
                &format!(
                    "listen = [{}]\nnode = '127.0.0.1:1'",
                    "'[::1]:0', ".repeat(17)
                ),
                "17 times --listen: at most 16",
            ),
            (
                "listen = ['127.0.0.1:1', '127.0.0.1:2', '127.0.0.1:3']\nnode = ['127.0.0.1:4', '127.0.0.1:5']",
                "3 times --listen, and 2 times --node",
            ),
            (
                "listen = ['127.0.0.1:1', '127.0.0.1:1']\nnode = '127.0.0.1:4'",
                "--listen and --listen have the same address, 127.0.0.1:1",
            ),
            (
                "listen = ['127.0.0.1:1', '127.0.0.1:4']\nnode = ['127.0.0.1:4', '127.0.0.1:5']",
                "--listen and --node have the same address, 127.0.0.1:4",
            ),
            (
                "listen = '127.0.0.1:1'\nnode = 'localhost:1'",
                "the same address, 127.0.0.1:1",
            ),
            (
                "socks = 'no.such.name.invalid:1'",
                "socks: cannot resolve no.such.name.invalid:1: ",
            ),
            (
                "transparent = '127.0.0.1:1'\nsocks-user = 'a:b'",
                "--socks-user needs --socks",
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
            "idle = 25",
            "connections = 0",
            "workers = 0",
            "workers = 100000",
            "memory = '1 GiBi'",
            "memory = 0",
            "queued = -1",
            "half-open = true",
        ] {
            assert!(toml::from_str::<Options>(text).is_err(), "{text}");
        }
        let error = toml::from_str::<Options>("idle = 25").unwrap_err();
        assert!(error.message().contains("a time with its unit"), "{error}");
    }

    /// Each place has its own node, or all have one.
    #[test]
    fn listeners_and_nodes_are_pairs() {
        for (nodes, expected) in [
            ("['127.0.0.1:4', '127.0.0.1:5']", [4, 5]),
            ("'127.0.0.1:4'", [4, 4]),
        ] {
            let options = parse(&format!(
                "listen = ['127.0.0.1:1', '127.0.0.1:2']\nnode = {nodes}\nspoof = true\n\
                 node-v6 = '[::1]:6'\nbyte-rate-group = '1MiB'\nconnections-address = 3"
            ));
            let settings = options.settings(1 << 20).unwrap().0;
            let found: Vec<_> = settings
                .inbound
                .iter()
                .map(|one| (one.listen.port(), one.node.port()))
                .collect();
            assert_eq!(found, [(1, expected[0]), (2, expected[1])]);
            let v6 = settings.inbound.iter().map(|one| one.node_v6.is_some());
            assert!(v6.eq([true, false]));
            let limits = settings.limits;
            assert_eq!(
                (limits.byte_rate.group, limits.connections_of.address),
                (1 << 20, 3)
            );
            assert_eq!(
                (limits.byte_rate.address, limits.connections_of.group),
                (usize::MAX, usize::MAX)
            );
        }
    }

    #[test]
    fn bytes_have_units() {
        for (text, bytes) in [
            ("1", 1),
            ("500kB", 500_000),
            ("64 MiB", 64 << 20),
            ("1GiB", 1 << 30),
            ("7 B", 7),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
        }
        for wrong in [
            "",
            "MiB",
            "0",
            "0GiB",
            "1.5GiB",
            "-1",
            "99999999999GiB",
            "1 gib",
        ] {
            assert!(wrong.parse::<Bytes>().is_err(), "{wrong}");
        }
        assert_eq!(parse("memory = '64MiB'").memory, Some(Bytes(64 << 20)));
        assert_eq!(parse("memory = 7").memory, Some(Bytes(7)));
    }

    /// A limit that was asked for is not lowered in silence.
    #[test]
    fn warnings_name_the_setting() {
        let text = "listen = '127.0.0.1:1'\nnode = '127.0.0.1:2'\nconnections = 1000";
        for (text, files, expected) in [
            (text.to_owned(), 1 << 20, None),
            (
                text.to_owned(),
                512,
                Some("connections = 1000 is lowered to "),
            ),
            (
                text.replace("127.0.0.1:2", "10.0.0.1:2"),
                1 << 20,
                Some("at one address"),
            ),
        ] {
            let options = parse(&text);
            let settings = options.settings(files).unwrap().0;
            let warnings = options.warnings(&settings, files);
            match expected {
                Some(expected) => assert!(warnings.concat().contains(expected), "{warnings:?}"),
                None => assert!(warnings.is_empty(), "{warnings:?}"),
            }
        }
    }

    #[test]
    fn names_are_resolved() {
        let options = parse(
            "listen = 'localhost:1'\nnode = 'localhost:2'\nsocks = 'localhost:3'\n\
             transparent = 'localhost:4'\ntor = 'localhost:5'",
        );
        let settings = options.settings(1 << 20).unwrap().0;
        let inbound = settings.inbound[0];
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
