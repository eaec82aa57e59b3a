//! What a picture of an experiment shows, before there are figures to draw.

/// A question that a picture answers. One picture is drawn for each combination of the
/// values of `facets`.
pub(crate) struct Picture {
    /// The metric that is drawn.
    pub(crate) metric: &'static str,
    /// What the picture shows.
    pub(crate) title: &'static str,
    /// The bottom axis; none for bars.
    pub(crate) x: Option<Bottom>,
    /// Keys whose values tell one picture from the next.
    pub(crate) facets: &'static [&'static str],
    /// Keys held at one value: this one, or the nearest that was measured.
    pub(crate) held: &'static [(&'static str, &'static str)],
    /// What one line stands for.
    pub(crate) lines: Lines,
    /// How a figure becomes a height.
    pub(crate) y: Y,
    /// Whether the left axis is logarithmic.
    pub(crate) log_y: bool,
    /// Whether to draw bars where the bottom axis has one value only.
    pub(crate) or_bars: bool,
    /// Whose published figures are a line of their own: the first word of their cases. The
    /// rest of such a case has the key of the bottom axis.
    pub(crate) published: Option<&'static str>,
    /// The metric whose figure, for the same facets, is marked on the bottom axis.
    pub(crate) mark: Option<&'static str>,
    /// The legend's name of an implementation, if it is not its own.
    pub(crate) rename: Option<fn(&str) -> String>,
}

/// A bottom axis.
#[derive(Clone, Copy)]
pub(crate) struct Bottom {
    /// The key whose values it shows.
    pub(crate) key: &'static str,
    /// What it counts.
    pub(crate) label: &'static str,
    /// The unit of its ticks, such as `bytes`.
    pub(crate) unit: &'static str,
    /// Whether equal distances are equal factors.
    pub(crate) log: bool,
}

/// What one line stands for.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Lines {
    /// One implementation.
    Implementations,
    /// Our own implementation at one value of this key.
    OursBy(&'static str),
}

/// How a figure becomes a height.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Y {
    /// It is the height.
    AsMeasured,
    /// Bytes of contents per second, from the time of one packet.
    Goodput,
    /// How many times as fast as at the leftmost point of the line.
    SpeedUp,
    /// How many times as fast as this rival in the same case.
    Against(&'static str),
}

impl Picture {
    /// The figures of `metric` as bars, one for each implementation.
    pub(crate) const fn new(metric: &'static str, title: &'static str) -> Self {
        Self {
            metric,
            title,
            x: None,
            facets: &[],
            held: &[],
            lines: Lines::Implementations,
            y: Y::AsMeasured,
            log_y: false,
            or_bars: true,
            published: None,
            mark: None,
            rename: None,
        }
    }
}

impl Bottom {
    /// Lengths in bytes.
    pub(crate) const BYTES: Self = Self {
        unit: "bytes",
        ..Self::log("bytes", "length")
    };

    /// Packets in a batch.
    pub(crate) const BATCH: Self = Self::log("batch", "packets in a batch");

    /// Decoys in per cent.
    pub(crate) const DECOYS: Self = Self::linear("decoys", "share of packets that are decoys, %");

    /// A logarithmic axis.
    pub(crate) const fn log(key: &'static str, label: &'static str) -> Self {
        Self {
            log: true,
            ..Self::linear(key, label)
        }
    }

    /// A linear axis.
    pub(crate) const fn linear(key: &'static str, label: &'static str) -> Self {
        Self {
            key,
            label,
            unit: "",
            log: false,
        }
    }
}
