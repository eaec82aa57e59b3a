//! Double SHA-256 by all competitors: checked, then measured.

use crate::measure::{Contender, Plan, in_turn};
use crate::picture::Bottom;
use crate::record::{Metric, record};
use crate::report::{Case, Report};
use crate::rivals::hashes::{Hashes, implementations};
use packetlane::Engine;
use packetlane::sha256d::Hash;

/// Lets all implementations do `work`, which fills this many `digests`. Checks that all produce the
/// same hashes, and measures.
pub(crate) fn compare(
    engine: Engine,
    (case, plan, report): (&Case, &Plan, &mut Report),
    metric: Metric,
    digests: usize,
    work: &dyn Fn(&dyn Hashes, &mut [Hash]),
) {
    let implementations = implementations(engine);
    let mut expected: Option<Vec<Hash>> = None;
    let mut contenders = Vec::new();
    for (name, backend, hashes) in &implementations {
        let mut digests = vec![Hash::default(); digests];
        work(&**hashes, &mut digests);
        let expected = expected.get_or_insert_with(|| digests.clone());
        assert!(*expected == digests, "{name}: other hashes");
        contenders.push(Contender::new(name, *backend, move || {
            work(&**hashes, &mut digests);
        }));
    }
    let samples = in_turn(&mut contenders, plan);
    record(report, case, &[metric], &samples);
}

/// The bottom axis of pictures by batch size.
pub(crate) const MESSAGES_AT_A_TIME: Bottom = Bottom::log("batch", "messages at a time");
