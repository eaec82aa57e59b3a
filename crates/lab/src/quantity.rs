//! Formatting of numbers: three significant digits, times in a suitable unit, MB as 10^6 bytes.

/// Converts a JSON name to words: `time_per_packet` becomes `time per packet`.
pub(crate) fn words(metric: &str) -> String {
    metric.replace('_', " ")
}

/// Formats a figure with its unit: `518 ns`, `3.42 ms`, `3.10 M packets/s`, `1.01 GB/s`.
pub(crate) fn quantity(value: f64, unit: &str) -> String {
    let (scale, shown) = scaled(value, unit);
    format!("{}{shown}", digits(value * scale))
}

/// Formats a published figure with its original number of digits: `21.37 M packets/s`.
pub(crate) fn as_published(value: f64, unit: &str) -> String {
    let (scale, shown) = scaled(value, unit);
    // Scaling leaves rounding errors in the last digits.
    let value = (value * scale * 1e4).round() / 1e4;
    format!("{value}{shown}")
}

/// Formats a range with one unit for both ends: `510-533 ns`.
pub(crate) fn range(min: f64, max: f64, unit: &str) -> String {
    let (scale, shown) = scaled(max, unit);
    let (min, max) = (digits(min * scale), digits(max * scale));
    if min == max {
        format!("{max}{shown}")
    } else {
        format!("{min}-{max}{shown}")
    }
}

/// Whether a unit is too long to repeat in every cell: `packets/s`.
pub(crate) fn bare_unit(unit: &str) -> bool {
    unit.ends_with("/s") && unit != "MB/s"
}

/// Removes the unit from a quantity if a title or an axis shows it: `3.10 M`.
pub(crate) fn bare(quantity: String, unit: &str) -> String {
    if bare_unit(unit) {
        quantity.trim_end_matches(unit).trim_end().to_owned()
    } else {
        quantity
    }
}

/// Formats a ratio: `0.62x`, `1.9x`, `12x`. Near 1 it has two decimals, so that rounding does not
/// hide a difference.
pub(crate) fn times(ratio: f64) -> String {
    match ratio.abs() {
        r if r < 1.095 => format!("{ratio:.2}x"),
        r if r < 9.95 => format!("{ratio:.1}x"),
        _ => format!("{ratio:.0}x"),
    }
}

/// The factor and the unit's text (with a leading space) that suit a value.
fn scaled(value: f64, unit: &str) -> (f64, String) {
    let ladder: &[(&str, f64)] = match unit {
        "ns" | "us" | "ms" | "s" => &[("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)],
        "MB/s" => &[("kB/s", 1e-3), ("MB/s", 1.0), ("GB/s", 1e3)],
        _ if unit.ends_with("/s") => &[("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)],
        _ => {
            return (
                1.0,
                if unit.is_empty() {
                    String::new()
                } else {
                    format!(" {unit}")
                },
            );
        }
    };
    let own = ladder
        .iter()
        .find(|step| step.0 == unit)
        .map_or(1.0, |step| step.1);
    // 999.5 would round to 1000 of the smaller unit.
    let fits = |step: &&(&str, f64)| (value * own / step.1).abs() >= 0.9995;
    let step = ladder.iter().rev().find(fits).unwrap_or(&ladder[0]);
    let shown = match unit {
        "ns" | "us" | "ms" | "s" | "MB/s" => step.0.to_owned(),
        _ if step.0.is_empty() => unit.to_owned(),
        _ => format!("{} {unit}", step.0),
    };
    (own / step.1, format!(" {shown}"))
}

/// Three significant digits, or all digits before the decimal point.
fn digits(value: f64) -> String {
    match value.abs() {
        v if v < 5e-4 => "0".to_owned(),
        v if v < 0.9995 => format!("{value:.3}"),
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Formats a number of bytes: `61 B`, `16 KiB`.
pub(crate) fn bytes(count: f64) -> String {
    const KIB: f64 = 1024.0;
    match count {
        c if c >= KIB * KIB && c % (KIB * KIB) == 0.0 => format!("{} MiB", c / KIB / KIB),
        c if c >= KIB && c % KIB == 0.0 => format!("{} KiB", c / KIB),
        c => format!("{c} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_fitting_unit() {
        for (value, unit, text) in [
            (41.04, "ns", "41.0 ns"),
            (3420000.0, "ns", "3.42 ms"),
            (999.7, "ns", "1.00 us"),
            (172.0, "us", "172 us"),
            (0.286, "us", "286 ns"),
            (715e3, "packets/s", "715 k packets/s"),
            (21.37e6, "packets/s", "21.4 M packets/s"),
            (221.0, "MB/s", "221 MB/s"),
            (6600.0, "MB/s", "6.60 GB/s"),
            (5.5, "%", "5.50 %"),
            (0.0, "%", "0 %"),
            (4096.0, "packets", "4096 packets"),
        ] {
            assert_eq!(quantity(value, unit), text);
        }
        assert_eq!(as_published(21.37e6, "packets/s"), "21.37 M packets/s");
        assert_eq!(as_published(2798.0, "ns"), "2.798 us");
        assert_eq!(range(950.0, 1050.0, "ns"), "0.950-1.05 us");
        assert_eq!(range(4.0, 4.0, "%"), "4.00 %");
        assert_eq!(
            [times(0.617), times(1.02), times(1.94), times(12.6)],
            ["0.62x", "1.02x", "1.9x", "13x"]
        );
    }
}
