//! Names of enum variants, used in logs, as metric labels and in JSON.

use crate::budget::{Direction, Refusal};
use crate::close::Close;
use crate::event::{NodeState, Transport};
use strum::VariantNames;

macro_rules! names {
    ($($type:ident)*) => {$(
        impl $type {
            /// All values that [`Self::name`] returns.
            pub const NAMES: &'static [&'static str] = <Self as VariantNames>::VARIANTS;

            /// The name used in logs, metrics and JSON.
            #[must_use]
            pub fn name(&self) -> &'static str {
                self.into()
            }
        }
    )*};
}

names! { Close Direction NodeState Refusal Transport }

#[cfg(test)]
mod tests {
    use super::*;

    /// Alerts, dashboards and programs know these names: they must not change with a variant's.
    #[test]
    fn names_stay() {
        assert_eq!(Direction::NAMES, ["inbound", "outbound"]);
        assert_eq!(NodeState::NAMES, ["unknown", "up", "down"]);
        assert_eq!(Transport::NAMES, ["unknown", "v1", "v2", "node-v2"]);
        let refusals = [
            "connections",
            "half-open",
            "half-open-address",
            "half-open-group",
            "connections-address",
            "connections-group",
            "connection-rate-address",
            "connection-rate-group",
            "denied",
            "files",
        ];
        assert_eq!(Refusal::NAMES, refusals);
        let closes = [
            "peer",
            "node",
            "proxy-protocol",
            "protocol",
            "node-protocol",
            "socks",
            "name",
            "resolved",
            "no-tor",
            "no-handshake",
            "peer-socket",
            "node-socket",
            "node-refused",
            "v1",
            "denied",
            "handshake",
            "idle",
            "stalled",
            "memory",
            "stopped",
        ];
        assert_eq!(Close::NAMES, closes);
        assert_eq!(Close::NodeRefused.name(), "node-refused");
        assert_eq!(Refusal::RateGroup.name(), "connection-rate-group");
    }
}
