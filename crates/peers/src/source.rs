//! The common interface of all sources.

use crate::record::Record;
use std::fmt;
use std::time::Duration;

/// A way to observe what a node does for its peers.
pub trait Source {
    /// One sentence for the user: what the source measures and what it cannot.
    fn abilities(&self) -> &'static str;

    /// Observes the node for `window`, or until `go_on` returns false. Passes each record to `take`
    /// in order, the end of the window last.
    ///
    /// # Errors
    ///
    /// If the node has ended or can no longer be observed. Records passed before that are valid.
    fn watch(
        &mut self,
        window: Duration,
        go_on: &dyn Fn() -> bool,
        take: &mut dyn FnMut(Record),
    ) -> Result<(), SourceError>;

    /// Reads what has been seen since the last window. To be called every second or so between
    /// windows: otherwise a source that sees something there may lose it.
    fn between(&mut self) {}

    /// Detaches from the node until the next window. Without this call, the source stays attached:
    /// the next window begins where the last one ended, and nothing is missed.
    fn rest(&mut self) {}
}

/// Why a node cannot be observed, or no longer.
#[derive(Debug)]
pub struct SourceError(Box<dyn std::error::Error + Send + Sync>);

impl SourceError {
    pub(crate) fn new(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self(Box::new(error))
    }

    /// The underlying error: a [`ProcessError`](crate::ProcessError), an
    /// [`RpcError`](crate::rpc::RpcError), or one of the probes.
    #[must_use]
    pub fn cause(&self) -> &(dyn std::error::Error + 'static) {
        &*self.0
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for SourceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}
