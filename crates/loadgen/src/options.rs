//! The options of a load and their limits.

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

/// Maximum number of peers. Each needs a file descriptor, and a process has 1024 by default.
pub const MAX_PEERS: usize = 500;

/// Maximum duration of a load.
pub const MAX_DURATION: Duration = Duration::from_secs(24 * 3600);

/// Maximum number of unsolicited messages per second, over all peers.
pub const MAX_RATE: f64 = 20_000.0;

/// The options of a load.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node.
    pub address: SocketAddr,
    /// Its network.
    pub network: Network,
    /// Number of peers that speak v1.
    pub v1: usize,
    /// Number of peers that speak v2.
    pub v2: usize,
    /// The proportions of the kinds, for both transports.
    pub mix: Mix,
    /// Whether one of the peers is [`Kind::Stalling`](crate::Kind::Stalling), whatever `mix` says:
    /// the first over v1, or over v2 if there are none over v1.
    pub stall: bool,
    /// How long to run.
    pub duration: Duration,
    /// What all peers together send.
    pub rates: Rates,
    /// Mean time between blocks, on regtest.
    pub block_every: Duration,
    /// Loads with the same seed send the same messages.
    pub seed: u64,
    /// Consent to a load on another machine. Requires `i_own_this_node` too.
    pub not_loopback: bool,
    /// See [`Options::not_loopback`].
    pub i_own_this_node: bool,
}

impl Options {
    /// Checks the options, as [`run`](crate::run) does.
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
            () if peers > MAX_PEERS => Err(TrafficError::TooManyPeers { peers }),
            () if duration > MAX_DURATION => Err(TrafficError::TooLong { duration }),
            () if per_second > MAX_RATE || per_second.is_nan() => {
                Err(TrafficError::TooFast { per_second })
            }
            () => Ok(()),
        }
    }
}

/// Why a load cannot run.
#[derive(Debug)]
#[non_exhaustive]
pub enum TrafficError {
    /// The node may belong to somebody else.
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// No peers requested.
    NoPeers,
    /// More than [`MAX_PEERS`] peers.
    TooManyPeers {
        /// Their number.
        peers: usize,
    },
    /// Longer than [`MAX_DURATION`].
    TooLong {
        /// The duration.
        duration: Duration,
    },
    /// More than [`MAX_RATE`] messages per second.
    TooFast {
        /// The rate.
        per_second: f64,
    },
    /// The environment requests a cipher backend that does not exist here.
    Backend(BackendError),
    /// The first connection failed.
    Connection(ConnectionError),
    /// The node's `headers` message is malformed.
    Headers,
    /// No blocks can be built on the node's chain.
    Chain(ChainError),
    /// The node did not accept the first blocks.
    BlocksRejected,
}

impl fmt::Display for TrafficError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoopback { address } => write!(
                f,
                "{address} is not a loopback address: a load on someone else's node is an attack. \
                 If the node is yours, confirm with --not-loopback and --i-own-this-node"
            ),
            Self::NoPeers => f.write_str("no peers: give --v1 N, --v2 N or both"),
            Self::TooManyPeers { peers } => {
                write!(
                    f,
                    "{peers} peers: the maximum is {MAX_PEERS} (--v1 and --v2 together)"
                )
            }
            Self::TooLong { duration } => {
                write!(
                    f,
                    "{duration:?} is too long: the maximum is {MAX_DURATION:?}"
                )
            }
            Self::TooFast { per_second } => write!(
                f,
                "{per_second:.0} messages per second are too many: the maximum is {MAX_RATE}; \
                 lower --factor"
            ),
            Self::Backend(error) => error.fmt(f),
            Self::Connection(error) => error.fmt(f),
            Self::Headers => f.write_str("the node's headers message is malformed"),
            Self::Chain(error) => error.fmt(f),
            Self::BlocksRejected => f.write_str(
                "the node did not accept the first blocks: see its log, and start it with an \
                 empty data directory",
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
