//! AVX-512 F, BW and VL with IFMA, whose 52-bit multiplication makes Poly1305 faster, and VBMI2,
//! which shifts two numbers as one. All CPUs with IFMA except Cannon Lake have VBMI2.

use super::avx512::{Avx512, Call, Proof, U64x8};
use super::set::InstructionSet;
use super::sha_ni;
use crate::job::{Job, Key, Outcome};
use crate::kernels::chacha20poly1305;
use crate::kernels::poly1305::Radix44;
use crate::kernels::secp256k1::radix52::Radix52;
use crate::kernels::sha256::Serial;
use crate::vector::{Limbs44, Limbs52, Pair, U32Lanes};
use core::arch::x86_64::*;

/// A value of this type proves that the CPU has AVX-512 F, BW, VL, IFMA and VBMI2.
#[derive(Clone, Copy)]
pub(crate) struct Ifma(Avx512);

cpufeatures::new!(ifma_and_vbmi2, "avx512ifma", "avx512vbmi2");

impl InstructionSet for Ifma {
    type Lanes = Pair<Avx512>;
    type Rows = Avx512;
    type Field = Radix44<Pair<U64x8<Ifma>>>;
    type HalfField = Radix44<U64x8<Ifma>>;
    type Curve = Radix52<U64x8<Ifma>>;
    type Hash = Avx512;
    type HalfHash = <Avx512 as InstructionSet>::HalfHash;

    const INTERLEAVED_ROWS: usize = 2;
    const TAG_STEP: usize = 16;
    const SHORT_LANES: usize = <Avx512 as U32Lanes>::LANES;
    const MIN_SHORT: usize = 9;
    const LOCKSTEP_LANES: usize = <Self::Lanes as U32Lanes>::LANES;

    fn is_available() -> bool {
        Avx512::is_available() && ifma_and_vbmi2::get()
    }

    unsafe fn assume() -> Self {
        // SAFETY: the caller guarantees that this CPU has AVX-512 F, BW, VL, IFMA and VBMI2.
        Self(unsafe { Avx512::assume() })
    }

    #[inline(always)]
    fn lanes(self) -> Self::Lanes {
        Pair(self.0)
    }

    #[inline(always)]
    fn rows(self) -> Self::Rows {
        self.0
    }

    #[inline(always)]
    fn field(self) -> Self::Field {
        Radix44(Pair(U64x8(self)))
    }

    #[inline(always)]
    fn half_field(self) -> Self::HalfField {
        Radix44(U64x8(self))
    }

    #[inline(always)]
    fn curve(self) -> Self::Curve {
        Radix52(U64x8(self))
    }

    #[inline(always)]
    fn hash(self) -> Self::Hash {
        self.0
    }

    #[inline(always)]
    fn half_hash(self) -> Self::HalfHash {
        self.0.half_hash()
    }

    fn serial_hash() -> &'static Serial {
        sha_ni::best_serial()
    }

    #[inline(always)]
    fn short(self, bytes: &mut [u8], keys: &[Key], jobs: &[Job], outcomes: Option<&mut [Outcome]>) {
        let lanes = self.lanes().narrow();
        chacha20poly1305::short(lanes, self.field(), bytes, keys, jobs, outcomes);
    }

    #[inline(always)]
    fn lockstep(
        self,
        bytes: &mut [u8],
        keys: &[Key],
        jobs: &[Job],
        sources: &[&[u8]],
        outcomes: Option<&mut [Outcome]>,
    ) {
        let lanes = self.lanes().narrow();
        let packets = (keys, jobs, sources);
        chacha20poly1305::lockstep(lanes, self.field(), bytes, packets, outcomes);
    }
}

kernels!(Ifma, "avx512f,avx512bw,avx512vl,avx512ifma,avx512vbmi2");

impl Proof for Ifma {}

impl Limbs44 for U64x8<Ifma> {
    #[inline(always)]
    fn bits_from_44(self, low: __m512i, high: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512 VBMI2.
        unsafe { _mm512_shrdi_epi64::<44>(low, high) }
    }
}

impl Limbs52 for U64x8<Ifma> {
    #[inline(always)]
    fn multiply_add_low(self, sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512 IFMA.
        unsafe { _mm512_madd52lo_epu64(sum, a, b) }
    }

    #[inline(always)]
    fn multiply_add_high(self, sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512 IFMA.
        unsafe { _mm512_madd52hi_epu64(sum, a, b) }
    }
}

impl Call for Ifma {
    #[inline(always)]
    fn call<A, R>(
        lanes: U64x8<Self>,
        argument: A,
        function: impl FnOnce(U64x8<Self>, A) -> R,
    ) -> R {
        call!(
            "avx512f,avx512bw,avx512vl,avx512ifma,avx512vbmi2",
            U64x8<Ifma>,
            lanes,
            argument,
            function
        )
    }
}
