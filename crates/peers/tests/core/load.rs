//! Runs a load on a node, in a background thread.

use super::Core;
use super::rates::listening;
use packetlane::bitcoin::Network;
use packetlane_loadgen::{Options, Outcome, Rate, run};
use std::thread::JoinHandle;
use std::time::Duration;

/// Options for a load: number of peers (half of them over v2), their kinds, and duration.
pub(crate) fn options(node: &Core, peers: usize, kinds: &str, duration: Duration) -> Options {
    let rates = listening(20.0).map(|(message_type, per_second, mean_payload)| {
        let rate = Rate {
            per_second,
            mean_payload,
        };
        (message_type, rate)
    });
    Options {
        address: node.listening,
        network: Network::Regtest,
        v1: peers / 2,
        v2: peers - peers / 2,
        mix: kinds.parse().unwrap(),
        stall: false,
        duration,
        rates: rates.collect(),
        block_every: Duration::from_secs(8),
        seed: 1,
        not_loopback: false,
        i_own_this_node: false,
    }
}

/// Starts the load.
pub(crate) fn start(options: Options) -> JoinHandle<Outcome> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let load = run(&options, std::future::pending(), |_| {});
        runtime.block_on(load).unwrap()
    })
}
