//! Published figures of others, and their caveats.
//!
//! This program measures none of them. They come from other machines, and some from different work
//! than their name suggests. The report shows them in a separate table, never in a row with our
//! figures, and always with their caveats. The figures are defined with their experiments; this
//! file has the sources and caveats that several of them share.
//!
//! The GPU figures come from a message to the Bitcoin development mailing list. As its source code
//! shows, its "BIP324" is the AEAD with a different framing, and the build behind its fastest
//! figures encrypted incorrectly. The figures from our own notes are of programs that cannot be
//! linked into this one, on a machine that is probably different from yours.

use crate::report::Published;

/// The message about the GPU.
pub(crate) const MAIL: &str = "\
    V. Chkheidze, \"BIP324 transport performance: CPU baseline, GPU offload, batching and \
    latency tradeoffs\", bitcoindev mailing list, 23 March 2026 (UltrafastSecp256k1; CPU x86-64, \
    GPU RTX 5060 Ti), https://groups.google.com/g/bitcoindev/c/SZZftdsfFNs";

/// Our own notes.
pub(crate) const NOTES: &str = "\
    Packetlane's own notes of November 2026: one pinned core of an Intel Emerald Rapids VM at \
    about 3.0 GHz, median of three runs";

/// Bitcoin Core's own benchmark.
pub(crate) const CORE: &str =
    "Bitcoin Core's own benchmark, as bllvm's comparison of 8 November 2025 quotes it";

/// Caveat for all packet figures of the message.
pub(crate) const NOT_BIP324: &str = "\
    Not BIP324: no length cipher, no header byte, no rekey, no garbage, no network magic in the \
    key derivation, one key for everything; the official vectors fail.";

/// Caveat for the message's byte rates.
pub(crate) const MEBIBYTES: &str =
    "Its MB/s and GB/s are MiB/s and GiB/s: in powers of ten, the figure is 5 or 7 % higher.";

/// Caveat for its GPU figures.
pub(crate) const KERNELS: &str = "GPU kernels only, and one random key and nonce for each packet.";

/// Caveat for its GPU figures in experiments where copies matter.
#[cfg(feature = "cuda")]
pub(crate) const NO_TRAVEL: &str = "\
    Left out: the copies to the device and back, and what the host does before and after. \
    Packets in the order of their arrival, which keeps 13.5 % of the lanes busy.";

/// Caveat for its first build.
pub(crate) const WRONG_TAGS: &str =
    "The GPU's tags are wrong unless the length is a multiple of 16.";

/// Caveat for its second build.
pub(crate) const WRONG_OUTPUT: &str = "\
    The build produced a wrong keystream and wrong tags; its own changelog calls the results \
    invalid.";

/// Caveat for the figures of [`CORE`].
pub(crate) const PER_BYTE: &str = "\
    Bitcoin Core's benchmark counts ns per byte, which bllvm reads as ns per hash (5.1 and \
    1.55); this is per hash.";

/// QUIC figures of 2018.
pub(crate) const WINQUIC: &str = "Published 2018, of WinQuic in user mode";

/// QUIC figures of 2018.
pub(crate) const QUICLY: &str = "Published 2018, of quicly with OpenSSL";

/// Caveat for Intel's multi-buffer library.
pub(crate) const MASKS_ALONE: &str =
    "Its AEAD seals one packet after another: only the header masks are computed together.";

/// Caveat for figures from another machine.
pub(crate) const ANOTHER_MACHINE: &str = "Another machine.";

/// The caveats of most figures from [`WINQUIC`], [`QUICLY`] and [`NOTES`].
pub(crate) const FROM_ANOTHER_MACHINE: &[&str] = &[ANOTHER_MACHINE];

/// The time of one packet.
pub(crate) fn time_per_packet(nanos: f64) -> Quantity {
    ("time_per_packet", nanos, "ns")
}

/// The time of one hash.
pub(crate) fn time_per_hash(nanos: f64) -> Quantity {
    ("time_per_hash", nanos, "ns")
}

/// Packets per second.
pub(crate) fn packets_per_second(rate: f64) -> Quantity {
    ("packets_per_second", rate, "packets/s")
}

/// Payload bytes per second.
pub(crate) fn goodput(rate: f64) -> Quantity {
    ("goodput", rate, "MB/s")
}

/// Metric, value, unit.
pub(crate) type Quantity = (&'static str, f64, &'static str);

/// The published figures of one experiment.
pub(crate) struct Figures {
    experiment: &'static str,
    figures: Vec<Published>,
}

impl Figures {
    /// The figures that `add` adds for `experiment`.
    pub(crate) fn of(experiment: &'static str, add: fn(&mut Self)) -> Vec<Published> {
        let mut figures = Self {
            experiment,
            figures: Vec::new(),
        };
        add(&mut figures);
        figures.figures
    }

    /// Adds a figure: what was run, the result, the source, and why it is not comparable with ours.
    pub(crate) fn add(
        &mut self,
        case: &str,
        (metric, value, unit): Quantity,
        source: &str,
        caveats: &[&str],
    ) {
        self.figures.push(Published {
            experiment: self.experiment.to_owned(),
            case: case.to_owned(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            value,
            source: source.to_owned(),
            caveat: caveats.join(" "),
        });
    }
}
