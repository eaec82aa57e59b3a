//! Arguments that several commands take.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use packetlane::bitcoin::Network;
use std::time::Duration;

/// Reads a network's name.
pub(crate) fn network_parser() -> impl TypedValueParser<Value = Network> {
    let names = Network::ALL.map(|network| {
        let value = PossibleValue::new(network.name());
        match network {
            Network::Mainnet => value.alias(MAINNET),
            _ => value,
        }
    });
    PossibleValuesParser::new(names).map(|name| {
        let name = if name == MAINNET {
            Network::Mainnet.name()
        } else {
            &name
        };
        let mut all = Network::ALL.into_iter();
        all.find(|network| network.name() == name)
            .expect("the parser admits these names only")
    })
}

/// Another common name of the main network.
const MAINNET: &str = "mainnet";

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
