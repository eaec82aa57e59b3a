//! Arguments that several commands take.

use crate::node::Start;
use crate::wire::BlockHash;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use packetlane::bitcoin::Network;
use std::time::Duration;

pub(crate) const ADDRESS_HELP: &str =
    "HOST, HOST:PORT or [IPV6]:PORT; the network's port by default";

/// Reads a network's name.
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

/// The network of a name.
#[cfg(feature = "gateway")]
pub(crate) fn network(name: &str) -> Option<Network> {
    let mut all = Network::ALL.into_iter();
    all.find(|&network| network.name() == name || alias(network) == Some(name))
}

/// Another common name of a network.
fn alias(network: Network) -> Option<&'static str> {
    match network {
        Network::Mainnet => Some("mainnet"),
        // Bitcoin Core's.
        Network::Testnet3 => Some("test"),
        _ => None,
    }
}

/// Reads the first block to fetch: a height or a hash.
pub(crate) fn start(text: &str) -> Result<Start, String> {
    if let Some(hash) = BlockHash::parse(text) {
        return Ok(Start::Block(hash));
    }
    match text.parse::<u32>() {
        Ok(height) => Ok(Start::Height(height as usize)),
        Err(_) => Err("expected a height, or a block's hash of 64 hexadecimal digits".to_owned()),
    }
}

/// Reads a number of seconds from 0.001 to a year, with or without a fraction.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    const MAX_SECONDS: f64 = 365.0 * 24.0 * 3600.0;
    match text.parse() {
        Ok(seconds) if (0.001..=MAX_SECONDS).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err("expected a number of seconds from 0.001 to 31536000 (a year)".to_owned()),
    }
}
