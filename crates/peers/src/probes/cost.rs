//! What the probes themselves cost.

/// The parts of a call's cost do not grow together beyond this.
const MAX_TIMES: f64 = 3.0;

/// What the probes of a call cost, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallCost {
    /// The part that is measured as the call's.
    pub(super) inside_ns: u64,
    /// The other part.
    pub(super) outside_ns: u64,
}

impl CallCost {
    /// The cost in a node, of which `outside_ns` is known. There the caches hold other things too,
    /// which makes both parts longer, and not shorter. What the probes push out of the caches makes
    /// the node's own code slower; with the inside part as much longer as the outside part, that is
    /// in it (`tests/real_node.rs` compares the node with probes and without).
    pub(super) fn with_outside(self, outside_ns: u64) -> Self {
        let times = outside_ns as f64 / self.outside_ns.max(1) as f64;
        Self {
            inside_ns: (self.inside_ns as f64 * times.clamp(1.0, MAX_TIMES)) as u64,
            outside_ns,
        }
    }
}

/// What the probes cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProbeCost {
    pub(super) call: CallCost,
    /// What a tracepoint's probe takes beside the time of its program, which the program measures,
    /// in nanoseconds.
    pub(super) hit_ns: u64,
}
