//! The trait that describes an instruction set to the kernels.

use crate::job::{Job, Key, Outcome};
use crate::kernels::poly1305::Field;
use crate::kernels::secp256k1;
use crate::kernels::sha256::Serial;
use crate::vector::{Rows, U32Lanes};

/// An instruction set: the vectors that each algorithm uses. A value proves that this CPU supports
/// it.
pub(crate) trait InstructionSet: Copy {
    /// For ChaCha20, one block per lane. Its [`Narrow`](U32Lanes::Narrow) has half as many lanes;
    /// two interleaved vectors, [`Pair`](crate::vector::Pair), are built from that.
    type Lanes: U32Lanes;

    /// For ChaCha20, a few consecutive blocks.
    type Rows: Rows;

    /// For Poly1305, one message per lane.
    type Field: Field;

    /// For Poly1305, one message over all lanes. Has half as many lanes, because each lane costs a
    /// power of r.
    type HalfField: Field;

    /// For secp256k1, one key per lane.
    type Curve: secp256k1::field::Field;

    /// For SHA-256, one message per lane.
    type Hash: U32Lanes;

    /// The same for half as many messages, if fewer lanes are faster; otherwise
    /// [`InstructionSet::Hash`].
    type HalfHash: U32Lanes;

    /// Maximum number of vectors of rows that are interleaved: 2 or 3.
    const INTERLEAVED_ROWS: usize;

    /// Whether more consecutive blocks of one packet than rows hold are computed in lanes, with
    /// rows interleaved. True if few registers are available for rows, because rows take more
    /// instructions than lanes.
    const ROWS_IN_LANES: bool = false;

    /// Whether Poly1305 in general registers is stitched into the rounds of the rows.
    const STITCHED: bool = false;

    /// The time of one step of all lanes of [`InstructionSet::Field`], in tenths of a step of one
    /// message in general registers. Start with 10, and keep the value for which `packetlane lab
    /// bip324.packet` is fastest.
    const TAG_STEP: usize;

    /// How many packets [`InstructionSet::short`] takes at a time; 0 if there is no such kernel.
    const SHORT_LANES: usize = 0;

    /// Minimum number of packets for which [`InstructionSet::short`] is faster than other
    /// strategies. Fewer leave most of its lanes idle.
    const MIN_SHORT: usize = usize::MAX;

    /// Whether there is [`InstructionSet::stitched_lanes`].
    const STITCHES_LANES: bool = false;

    /// How many packets [`InstructionSet::lockstep`] takes; 0 if there is no such kernel.
    const LOCKSTEP_LANES: usize = 0;

    /// Whether this CPU supports the instruction set.
    fn is_available() -> bool;

    /// Returns a proof that this CPU supports the instruction set.
    ///
    /// # Safety
    ///
    /// This CPU must support it.
    unsafe fn assume() -> Self;

    /// See [`InstructionSet::Lanes`].
    fn lanes(self) -> Self::Lanes;

    /// See [`InstructionSet::Rows`].
    fn rows(self) -> Self::Rows;

    /// See [`InstructionSet::Field`].
    fn field(self) -> Self::Field;

    /// See [`InstructionSet::HalfField`].
    fn half_field(self) -> Self::HalfField;

    /// See [`InstructionSet::Curve`].
    fn curve(self) -> Self::Curve;

    /// See [`InstructionSet::Hash`].
    fn hash(self) -> Self::Hash;

    /// See [`InstructionSet::HalfHash`].
    fn half_hash(self) -> Self::HalfHash;

    /// Returns the kernels that hash one SHA-256 message, or two interleaved.
    fn serial_hash() -> &'static Serial;

    /// See [`crate::kernels::chacha20poly1305::short`].
    #[inline(always)]
    fn short(self, _: &mut [u8], _: &[Key], _: &[Job], _: Option<&mut [Outcome]>) {
        unreachable!("SHORT_LANES is 0: there is no kernel for short packets")
    }

    /// See [`crate::kernels::stitched_lanes::stitched_lanes`].
    #[inline(always)]
    fn stitched_lanes(self, _: &mut [u8], _: &[Key], _: &[Job], _: Option<&mut [Outcome]>) {
        unreachable!("STITCHES_LANES is false: there is no kernel for stitched lanes")
    }

    /// See [`crate::kernels::chacha20poly1305::lockstep`].
    #[inline(always)]
    fn lockstep(self, _: &mut [u8], _: &[Key], _: &[Job], _: &[&[u8]], _: Option<&mut [Outcome]>) {
        unreachable!("LOCKSTEP_LANES is 0: there is no kernel for packets in lockstep")
    }
}
