//! What all ways of seeing a node have in common.

use crate::record::Record;
use std::fmt;
use std::time::Duration;

/// A way of seeing what a node does for its peers.
pub trait Source {
    /// What it can tell, and what it cannot, in one sentence for a person.
    fn abilities(&self) -> &'static str;

    /// Watches the node for `window`, or until `go_on` says no, and gives what it saw to `take`,
    /// in order, the end of the window last.
    ///
    /// # Errors
    ///
    /// If the node has ended, or can no longer be seen. What was given until then is true.
    fn watch(
        &mut self,
        window: Duration,
        go_on: &dyn Fn() -> bool,
        take: &mut dyn FnMut(Record),
    ) -> Result<(), SourceError>;

    /// Takes away what watching has put into the node, until the next window. Without it that stays
    /// in the node: the next window begins where the last one has ended, and nothing is missed.
    fn rest(&mut self) {}
}

/// Why a node cannot be seen, or no longer.
#[derive(Debug)]
pub struct SourceError(Box<dyn std::error::Error + Send + Sync>);

impl SourceError {
    pub(crate) fn new(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self(Box::new(error))
    }

    /// The error of the source itself: a [`ProcessError`](crate::ProcessError), an
    /// [`RpcError`](crate::rpc::RpcError) or one of the probes.
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
