//! The cost of the probes themselves.

/// Maximum factor by which the cost of a call's probes is scaled up.
const MAX_TIMES: f64 = 3.0;

/// Cost of the probes of a call, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallCost {
    /// The part that is measured as time of the call.
    pub(super) inside_ns: u64,
    /// The rest.
    pub(super) outside_ns: u64,
}

impl CallCost {
    /// Upper limit of [`Self::outside_ns`] of a single call in a node. Longer times include an
    /// interrupt or steal time. An entry and a return take 3 us on a server's CPU, and 60 us on an
    /// emulated one.
    pub(super) fn limit_ns(self) -> u64 {
        const MIN_NS: u64 = 20_000;
        (6 * self.outside_ns).max(MIN_NS)
    }

    /// The cost in a node where `outside_ns` was measured. A node's data competes for the caches,
    /// so both parts are slower there, never faster. The inside part is scaled by the same factor;
    /// this also covers the node's own slowdown from cache lines that the probes evict
    /// (`tests/real_node.rs` compares a node with and without probes).
    pub(super) fn with_outside(self, outside_ns: u64) -> Self {
        let times = outside_ns as f64 / self.outside_ns.max(1) as f64;
        Self {
            inside_ns: (self.inside_ns as f64 * times.clamp(1.0, MAX_TIMES)) as u64,
            outside_ns,
        }
    }
}

/// Cost of all probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProbeCost {
    pub(super) call: CallCost,
    /// Cost of a tracepoint's probe in nanoseconds, excluding its program, which measures itself.
    pub(super) hit_ns: u64,
}
