//! BIP324 packets by all competitors: connections that are checked against each other and ready to
//! be timed.

use crate::experiment::{Bench, Task};
use crate::measure::{Contender, in_turn};
use crate::record::{Metric, record};
use crate::report::Case;
use crate::rivals::bip324::{Implementation, Peer, implementations};
use crate::rivals::ours::ours;
use crate::traffic::Turn;
use std::slice;

/// Contents, in bytes.
pub(crate) const SIZES: [usize; 11] = [
    8, 33, 61, 128, 250, 512, 1024, 4096, 16_384, 65_536, 1_048_576,
];

/// Batch sizes, in packets.
pub(crate) const BATCHES: [usize; 8] = [1, 2, 4, 16, 64, 256, 1024, 4096];

/// Minimum number of packets in a case on a profile, so that long and short ones occur in the
/// profile's proportions.
const PROFILE_PACKETS: usize = 1024;

/// Approximate memory of the prepared inputs for opening, so that they stay in the second-level
/// cache, as bytes just written by a socket do.
pub(crate) const PREPARED_BYTES: usize = 512 << 10;

/// Both ends of every implementation, after `turns` were sent from the first to the second.
///
/// # Panics
///
/// If two implementations produce different wire bytes, or extract different contents from them.
pub(crate) fn connected<'a>(
    implementations: &'a [Implementation],
    turns: &[Turn],
) -> Vec<(&'a Implementation, [Box<dyn Peer>; 2])> {
    let mut expected: Option<Vec<u8>> = None;
    let connect = |implementation: &'a Implementation| {
        let [mut from, mut to] = implementation.connect();
        let mut wire = Vec::new();
        for turn in turns {
            let mut genuine = turn.genuine();
            from.seal(turn, &mut |sealed| {
                wire.extend_from_slice(sealed);
                to.open(sealed, &mut |contents| {
                    assert!(
                        genuine.next() == Some(contents),
                        "{}: wrong contents",
                        implementation.name
                    );
                });
            });
            assert!(
                genuine.next().is_none(),
                "{}: packets are missing",
                implementation.name
            );
        }
        let expected = expected.get_or_insert_with(|| wire.clone());
        assert!(
            *expected == wire,
            "{}: other bytes on the wire",
            implementation.name
        );
        (implementation, [from, to])
    };
    implementations.iter().map(connect).collect()
}

/// Contenders that seal all `turns` per call, one after the other.
pub(crate) fn sealing<'a>(
    implementations: &'a [Implementation],
    turns: &'a [Turn],
) -> Vec<Contender<'a>> {
    connected(implementations, turns)
        .into_iter()
        .map(|(implementation, [mut from, _])| {
            Contender::new(&implementation.name, implementation.backend, move || {
                let mut len = 0;
                for turn in turns {
                    from.seal(turn, &mut |sealed| len += sealed.len());
                }
                len
            })
        })
        .collect()
}

/// Contenders that open one turn per call, from the bytes that a socket would return.
pub(crate) fn opening<'a>(
    implementations: &'a [Implementation],
    turn: &'a Turn,
) -> Vec<Contender<'a>> {
    let calls = (PREPARED_BYTES / turn.wire_len()).clamp(1, 4096);
    connected(implementations, slice::from_ref(turn))
        .into_iter()
        .map(|(implementation, [mut from, mut to])| {
            Contender::with_input(
                &implementation.name,
                implementation.backend,
                vec![Vec::new(); calls],
                calls,
                move |wires: &mut Vec<Vec<u8>>, calls| {
                    for wire in &mut wires[..calls] {
                        wire.clear();
                        from.seal(turn, &mut |sealed| wire.extend_from_slice(sealed));
                    }
                },
                move |wires, call| {
                    let mut len = 0;
                    to.open(&wires[call], &mut |contents| len += contents.len());
                    len
                },
            )
        })
        .collect()
}

/// A task that seals or opens packets of one size.
pub(crate) fn uniform<'a>(
    bench: &'a Bench,
    case: Case,
    op: &'static str,
    bytes: usize,
    batch: usize,
) -> Task<'a> {
    Task::new(case, move |case, plan, report| {
        let implementations = rivals(bench);
        let turn = Turn::uniform(batch, bytes);
        let mut contenders = match op {
            "seal" => sealing(&implementations, slice::from_ref(&turn)),
            _ => opening(&implementations, &turn),
        };
        let samples = in_turn(&mut contenders, plan);
        let metrics = [Metric::time("time_per_packet", "ns", batch)];
        record(report, case, &metrics, &samples);
    })
}

/// Number of turns with `batch` packets that a case on a profile sends.
pub(crate) fn turns_of(batch: usize) -> usize {
    PROFILE_PACKETS.div_ceil(batch)
}

/// All implementations of whole packets, ours first.
pub(crate) fn rivals(bench: &Bench) -> Vec<Implementation> {
    implementations(&ours(bench.engine, bench.quick))
}
