//! QUIC packets of one shape, checked and ready to be timed.

use crate::measure::Contender;
use crate::rivals::quic::{Implementation, Seals, Shape};

/// Approximate memory of the prepared inputs for opening, so that they stay in the second-level
/// cache, as bytes just written by a socket do.
const PREPARED_BYTES: usize = 512 << 10;

/// Payloads in a quick run, in bytes.
pub(crate) const QUICK_SIZES: [usize; 2] = [64, 1280];

/// Payloads, in bytes: those of the published table, and 1280 for the largest datagram that every
/// path supports.
pub(crate) const SIZES: [usize; 9] = [4, 16, 64, 256, 600, 1000, 1200, 1280, 1450];

/// The batch size where the experiment does not vary it.
pub(crate) const BATCH: usize = 16;

/// Lets all implementations seal the same packets and open each other's. Returns the sealed
/// packets.
///
/// # Panics
///
/// If two implementations differ.
pub(crate) fn checked(implementations: &[Implementation], shape: Shape) -> Vec<u8> {
    let payloads = shape.payloads();
    let mut expected: Option<Vec<u8>> = None;
    for who in implementations {
        let mut sealer = who.sealer(shape);
        sealer.seal(Some(&payloads));
        let expected = expected.get_or_insert_with(|| sealer.wire().to_vec());
        let same = *expected == sealer.wire();
        assert!(same, "{}: other bytes on the wire", who.name());
    }
    let wire = expected.unwrap_or_default();
    if shape.masked {
        for who in implementations {
            let mut opener = who.opener(shape, 1);
            opener.receive(0, &wire);
            let mut opened = Vec::new();
            opener.open(0, &mut |payload| opened.extend_from_slice(payload));
            assert!(opened == payloads, "{}: wrong contents", who.name());
        }
    }
    wire
}

/// A sealer whose memory holds the payloads.
pub(crate) fn filled(who: &Implementation, shape: Shape) -> Box<dyn Seals> {
    let mut sealer = who.sealer(shape);
    sealer.seal(Some(&shape.payloads()));
    sealer
}

/// A contender that seals one batch per call.
pub(crate) fn sealing(who: &Implementation, shape: Shape) -> Contender<'static> {
    let mut sealer = filled(who, shape);
    Contender::new(who.name(), who.backend(), move || sealer.seal(None))
}

/// A contender that opens one batch per call.
pub(crate) fn opening<'a>(who: &Implementation, shape: Shape, wire: &'a [u8]) -> Contender<'a> {
    let calls = (PREPARED_BYTES / wire.len()).clamp(1, 4096);
    Contender::with_input(
        who.name(),
        who.backend(),
        who.opener(shape, calls),
        calls,
        |opener, calls| (0..calls).for_each(|call| opener.receive(call, wire)),
        |opener, call| {
            let mut len = 0;
            opener.open(call, &mut |payload| len += payload.len());
            len
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::ours::ours;
    use crate::rivals::quic::{HEADER_LEN, with_libraries};
    use packetlane::Engine;
    use packetlane::quic::Suite;

    /// Packets of many shapes.
    #[test]
    fn all_agree() {
        let implementations = with_libraries(ours(Engine::detect().unwrap(), false));
        for suite in Suite::ALL {
            for bytes in [4, 64, 1280] {
                for batch in [1, 5] {
                    for masked in [true, false] {
                        let shape = Shape {
                            suite,
                            bytes,
                            batch,
                            masked,
                        };
                        let wire = checked(&implementations, shape);
                        assert_eq!(wire.len(), shape.packet_len() * batch);
                    }
                }
            }
        }
    }

    #[test]
    fn all_refuse_a_damaged_packet() {
        let shape = Shape {
            suite: Suite::Aes128Gcm,
            bytes: 64,
            batch: 3,
            masked: true,
        };
        let implementations = with_libraries(ours(Engine::detect().unwrap(), true));
        let mut wire = checked(&implementations, shape);
        wire[shape.packet_len() + HEADER_LEN + 40] ^= 1;
        for who in &implementations {
            let mut opener = who.opener(shape, 1);
            opener.receive(0, &wire);
            let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                opener.open(0, &mut |_| {});
            }));
            assert!(opened.is_err(), "{}", who.name());
        }
    }
}
