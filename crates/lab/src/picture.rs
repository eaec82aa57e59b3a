//! Descriptions of an experiment's pictures, independent of any figures.

/// A picture that answers a question. One is drawn for each combination of values of `facets`.
pub(crate) struct Picture {
    /// The metric shown.
    pub(crate) metric: &'static str,
    /// The title.
    pub(crate) title: &'static str,
    /// The bottom axis. `None` for bars.
    pub(crate) x: Option<Bottom>,
    /// Keys whose values distinguish one picture from the next.
    pub(crate) facets: &'static [&'static str],
    /// Keys fixed at this value, or the nearest one measured.
    pub(crate) held: &'static [(&'static str, &'static str)],
    /// What each line represents.
    pub(crate) lines: Lines,
    /// How a figure is converted to a height.
    pub(crate) y: Y,
    /// Whether the left axis is logarithmic.
    pub(crate) log_y: bool,
    /// Whether to draw bars if the bottom axis has only one value.
    pub(crate) or_bars: bool,
    /// The source whose published figures get their own line: the first word of their cases. The
    /// rest of such a case must contain the key of the bottom axis.
    pub(crate) published: Option<&'static str>,
    /// A metric whose figure, for the same facets, is marked on the bottom axis.
    pub(crate) mark: Option<&'static str>,
    /// Names for implementations in the legend, if they differ from the implementation's name.
    pub(crate) rename: Option<fn(&str) -> String>,
}

/// A bottom axis.
#[derive(Clone, Copy)]
pub(crate) struct Bottom {
    /// The key whose values it shows.
    pub(crate) key: &'static str,
    /// The label.
    pub(crate) label: &'static str,
    /// The unit of its ticks, such as `bytes`.
    pub(crate) unit: &'static str,
    /// Whether the scale is logarithmic.
    pub(crate) log: bool,
}

/// What a line represents.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Lines {
    /// An implementation.
    Implementations,
    /// Our own implementation at one value of this key.
    OursBy(&'static str),
}

/// How a figure is converted to a height.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Y {
    /// Unchanged.
    AsMeasured,
    /// Payload bytes per second, from the time of a packet.
    Goodput,
    /// Speed relative to the leftmost point of the line.
    SpeedUp,
    /// Speed relative to this competitor in the same case.
    Against(&'static str),
}

impl Picture {
    /// Bars of `metric`, one for each implementation.
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

    /// Share of decoys in per cent.
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
