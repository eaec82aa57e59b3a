//! Arguments shared by several commands.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use packetlane::bitcoin::Network;
use packetlane_p2p::node::Start;
use packetlane_p2p::payload::BlockHash;
#[cfg(any(feature = "gateway", feature = "peers"))]
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

pub(crate) const ADDRESS_HELP: &str =
    "Address: HOST, HOST:PORT or [IPV6]:PORT [default port: the network's]";

/// Parses the name of a network.
pub(crate) fn network_parser() -> impl TypedValueParser<Value = Network> {
    let names = Network::ALL.map(|network| {
        let value = PossibleValue::new(network.name());
        value.aliases(alias(network))
    });
    PossibleValuesParser::new(names).map(|name| {
        let mut all = Network::ALL.into_iter();
        all.find(|&network| network.name() == name || alias(network) == Some(&name))
            .expect("the parser admits these names only")
    })
}

/// The network with a name.
#[cfg(feature = "gateway")]
pub(crate) fn network(name: &str) -> Option<Network> {
    let mut all = Network::ALL.into_iter();
    all.find(|&network| network.name() == name || alias(network) == Some(name))
}

/// Another common name of a network.
fn alias(network: Network) -> Option<&'static str> {
    match network {
        Network::Mainnet => Some("mainnet"),
        // As in Bitcoin Core.
        Network::Testnet3 => Some("test"),
        _ => None,
    }
}

/// Parses a network's magic, in the byte order of a block file.
pub(crate) fn magic(text: &str) -> Result<[u8; 4], String> {
    let number = match text.len() {
        8 if text == "00000000" => {
            return Err(
                "zeros only fill the space between blocks, they are not a magic".to_owned(),
            );
        }
        8 if text.bytes().all(|digit| digit.is_ascii_hexdigit()) => u32::from_str_radix(text, 16),
        _ => return Err("expected 8 hexadecimal digits, such as f9beb4d9".to_owned()),
    };
    number
        .map(u32::to_be_bytes)
        .map_err(|error| error.to_string())
}

/// Parses the first block to fetch: a height or a hash.
pub(crate) fn start(text: &str) -> Result<Start, String> {
    if let Some(hash) = BlockHash::parse(text) {
        return Ok(Start::Block(hash));
    }
    match text.parse::<u32>() {
        Ok(height) => Ok(Start::Height(height as usize)),
        Err(_) => Err("expected a height, or a block's hash of 64 hexadecimal digits".to_owned()),
    }
}

/// Parses seconds from 0.001 to a year, with or without a fraction.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    const MAX_SECONDS: f64 = 365.0 * 24.0 * 3600.0;
    match text.parse() {
        Ok(seconds) if (0.001..=MAX_SECONDS).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err("expected a number of seconds from 0.001 to 31536000 (a year)".to_owned()),
    }
}

/// HOST:PORT, where HOST is an IPv4 address, an IPv6 address in brackets or a name.
#[cfg(any(feature = "gateway", feature = "peers"))]
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct HostPort(String);

#[cfg(any(feature = "gateway", feature = "peers"))]
impl HostPort {
    /// The host as given; an IPv6 address keeps its brackets.
    pub(crate) fn host(&self) -> &str {
        self.0.rsplit_once(':').map_or(&self.0, |(host, _)| host)
    }

    /// Resolves to at least one address, IPv4 first. May block on a name server.
    ///
    /// # Errors
    ///
    /// The name has no address.
    pub(crate) fn resolve(&self) -> Result<Vec<SocketAddr>, String> {
        let failed = |why: &dyn std::fmt::Display| format!("cannot resolve {self}: {why}");
        let found = self.0.to_socket_addrs().map_err(|error| failed(&error))?;
        let mut found: Vec<_> = found.collect();
        found.sort_by_key(SocketAddr::is_ipv6);
        match found.is_empty() {
            true => Err(failed(&"the name has no address")),
            false => Ok(found),
        }
    }
}

#[cfg(any(feature = "gateway", feature = "peers"))]
impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(any(feature = "gateway", feature = "peers"))]
impl std::str::FromStr for HostPort {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_name = |text: &str| match text.rsplit_once(':') {
            Some((host, port)) => {
                let in_name =
                    |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
                !host.is_empty() && host.chars().all(in_name) && port.parse::<u16>().is_ok()
            }
            None => false,
        };
        match text.parse::<SocketAddr>().is_ok() || is_name(text) {
            true => Ok(Self(text.to_owned())),
            false => {
                Err("expected HOST:PORT, such as 127.0.0.1:8333, [::1]:8333 or localhost:8333")
            }
        }
    }
}

#[cfg(any(feature = "gateway", feature = "peers"))]
impl TryFrom<String> for HostPort {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
#[cfg(any(feature = "gateway", feature = "peers"))]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        for (text, host) in [
            ("127.0.0.1:8333", "127.0.0.1"),
            ("[::1]:0", "[::1]"),
            ("[fe80::1%2]:1", "[fe80::1%2]"),
            ("localhost:65535", "localhost"),
            ("my_node-1.example.:1", "my_node-1.example."),
        ] {
            assert_eq!(text.parse::<HostPort>().unwrap().host(), host);
        }
        for text in [
            "",
            "8333",
            ":8333",
            "localhost",
            "localhost:",
            "localhost:65536",
            "::1:8333",
            "[localhost]:8333",
            "http://localhost:1",
            "a b:1",
            "\u{202e}:1",
        ] {
            let error = text.parse::<HostPort>().unwrap_err();
            assert!(error.starts_with("expected HOST:PORT"), "{text}");
        }
        let resolved = "localhost:8334".parse::<HostPort>().unwrap().resolve();
        assert_eq!(resolved.unwrap()[0], "127.0.0.1:8334".parse().unwrap());
        let unknown = "no.such.name.invalid:1".parse::<HostPort>().unwrap();
        let error = unknown.resolve().unwrap_err();
        let expected = "cannot resolve no.such.name.invalid:1: ";
        assert!(error.starts_with(expected), "{error}");
    }
}
