//! What a load is to be, its bounds, and why there is none.

use crate::chain::ChainError;
use crate::connection::ConnectionError;
use crate::kind::Mix;
use crate::payload;
use crate::rates::Rates;
use packetlane::BackendError;
use packetlane::bitcoin::Network;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// The most peers. Each takes a file descriptor, of which a process has 1024.
pub const MAX_PEERS: usize = 500;

/// The longest load.
pub const MAX_DURATION: Duration = Duration::from_secs(24 * 3600);

/// The most messages per second that the peers send of themselves, all together.
pub const MAX_RATE: f64 = 20_000.0;

/// What to do to which node.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node.
    pub address: SocketAddr,
    /// Its network.
    pub network: Network,
    /// How many peers speak v1.
    pub v1: usize,
    /// How many peers speak v2.
    pub v2: usize,
    /// The kinds of both.
    pub mix: Mix,
    /// How long.
    pub duration: Duration,
    /// What all peers send together.
    pub rates: Rates,
    /// The mean time from one block to the next, on regtest.
    pub block_every: Duration,
    /// Two loads with the same seed send the same.
    pub seed: u64,
    /// Consent to an address that is not this machine's: it needs both.
    pub not_loopback: bool,
    /// See [`Options::not_loopback`].
    pub i_own_this_node: bool,
}

impl Options {
    /// Whether [`run`](crate::run) would begin.
    ///
    /// # Errors
    ///
    /// See [`TrafficError`].
    pub fn check(&self) -> Result<(), TrafficError> {
        let address = self.address;
        let told_twice = self.not_loopback && self.i_own_this_node;
        if !payload::is_loopback(&address) && !told_twice {
            return Err(TrafficError::NotLoopback { address });
        }
        let peers = self.v1.saturating_add(self.v2);
        let duration = self.duration;
        let per_second = self.rates.total();
        match () {
            () if peers == 0 => Err(TrafficError::NoPeers),
            () if peers > MAX_PEERS => Err(TrafficError::ManyPeers { peers }),
            () if duration > MAX_DURATION => Err(TrafficError::Long { duration }),
            () if per_second > MAX_RATE || per_second.is_nan() => {
                Err(TrafficError::Fast { per_second })
            }
            () => Ok(()),
        }
    }
}

/// Why there is no load.
#[derive(Debug)]
#[non_exhaustive]
pub enum TrafficError {
    /// The node may be somebody else's.
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// No peers are asked for.
    NoPeers,
    /// More than [`MAX_PEERS`] peers.
    ManyPeers {
        /// How many.
        peers: usize,
    },
    /// Longer than [`MAX_DURATION`].
    Long {
        /// How long.
        duration: Duration,
    },
    /// More than [`MAX_RATE`] messages per second.
    Fast {
        /// How many.
        per_second: f64,
    },
    /// The cipher backend that the environment asks for does not exist here.
    Backend(BackendError),
    /// The first connection failed.
    Connection(ConnectionError),
    /// The node's `headers` message is malformed.
    Headers,
    /// There can be no blocks on the node's chain.
    Chain(ChainError),
    /// The node did not make the first blocks its best chain.
    BlocksRefused,
}

impl fmt::Display for TrafficError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoopback { address } => write!(
                f,
                "{address} is not a loopback address: a load on a node of others is an attack. \
                 If it is yours, say so with --not-loopback and --i-own-this-node"
            ),
            Self::NoPeers => f.write_str("no peers: give --v1 N, --v2 N or both"),
            Self::ManyPeers { peers } => {
                write!(f, "{peers} peers: {MAX_PEERS} are the most")
            }
            Self::Long { duration } => {
                write!(f, "{duration:?} is too long: {MAX_DURATION:?} is the most")
            }
            Self::Fast { per_second } => write!(
                f,
                "{per_second:.0} messages per second are too many: {MAX_RATE} are the most; \
                 lower --factor"
            ),
            Self::Backend(error) => error.fmt(f),
            Self::Connection(error) => error.fmt(f),
            Self::Headers => f.write_str("the node's headers message is malformed"),
            Self::Chain(error) => error.fmt(f),
            Self::BlocksRefused => f.write_str(
                "the node did not take the first blocks: see its log, and start it with an empty \
                 data directory",
            ),
        }
    }
}

impl std::error::Error for TrafficError {}

impl From<BackendError> for TrafficError {
    fn from(error: BackendError) -> Self {
        Self::Backend(error)
    }
}

impl From<ConnectionError> for TrafficError {
    fn from(error: ConnectionError) -> Self {
        Self::Connection(error)
    }
}

impl From<ChainError> for TrafficError {
    fn from(error: ChainError) -> Self {
        Self::Chain(error)
    }
}
