//! Figures as text.

/// Formats a time in microseconds with its unit and three significant digits.
#[must_use]
pub fn time(us: f64) -> String {
    let (value, unit) = match us {
        us if us >= 1e6 => (us / 1e6, "s"),
        us if us >= 1e3 => (us / 1e3, "ms"),
        us => (us, "us"),
    };
    format!("{} {unit}", digits(value))
}

/// Formats a number with three significant digits.
pub(crate) fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        0.0 => "0".to_owned(),
        value => format!("{value:.2}"),
    }
}

/// Formats a number of bytes.
pub(crate) fn bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e6 => format!("{} MB", digits(bytes / 1e6)),
        bytes if bytes >= 1e3 => format!("{} kB", digits(bytes / 1e3)),
        bytes => format!("{} B", digits(bytes)),
    }
}
