//! State shared by the peers of a load.

use crate::chain::Chain;
use crate::rates::Rates;
use crate::totals::Totals;
use packetlane::Engine;
use packetlane::bitcoin::Network;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// State shared by the peers.
pub(crate) struct Load {
    pub(crate) address: SocketAddr,
    pub(crate) network: Network,
    pub(crate) engine: Engine,
    pub(crate) seed: u64,
    pub(crate) rates: Rates,
    /// Number of peers that relay transactions, and of peers that send anything.
    pub(crate) relaying: usize,
    pub(crate) talking: usize,
    /// Whether there is a [`Kind::Stalling`](crate::Kind::Stalling) peer.
    pub(crate) stalling: bool,
    pub(crate) makes_blocks: bool,
    /// Changes with each block that we make.
    pub(crate) new_block: watch::Receiver<()>,
    pub(crate) world: Mutex<World>,
}

pub(crate) struct World {
    pub(crate) chain: Chain,
    pub(crate) totals: Totals,
}

impl Load {
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        // Safe after a panic: the contents are counts and an append-only chain.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
