//! What the peers of a load share.

use crate::chain::Chain;
use crate::rates::Rates;
use crate::totals::Totals;
use packetlane::Engine;
use packetlane::bitcoin::Network;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// What the peers share.
pub(crate) struct Load {
    pub(crate) address: SocketAddr,
    pub(crate) network: Network,
    pub(crate) engine: Engine,
    pub(crate) seed: u64,
    pub(crate) rates: Rates,
    /// How many peers relay transactions, and how many send anything.
    pub(crate) relaying: usize,
    pub(crate) talking: usize,
    pub(crate) makes_blocks: bool,
    /// Changes with each block of ours.
    pub(crate) new_block: watch::Receiver<()>,
    pub(crate) world: Mutex<World>,
}

pub(crate) struct World {
    pub(crate) chain: Chain,
    pub(crate) totals: Totals,
}

impl Load {
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        // What is in it are counts and a chain that grows at its end.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
