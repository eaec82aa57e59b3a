//! Figures as text.

use crate::record::Time;
use serde::Serialize;
use std::fmt::Write as _;

/// Replaces all characters of a JSON text that are not printable ASCII, as its strings may contain a
/// peer's control characters.
#[must_use]
pub fn printable_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            ' '..='~' | '\n' => text.push(character),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
        }
    }
    text
}

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

/// Indented JSON, with [`printable_json`]'s characters only.
pub(crate) fn json(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value);
    printable_json(&text.expect("only strings, numbers and lists")) + "\n"
}

/// Formats a number of things: `what` is their singular.
#[must_use]
pub fn plural(count: u64, what: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {what}{ending}")
}

/// Formats a number of bytes.
pub(crate) fn bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e6 => format!("{} MB", digits(bytes / 1e6)),
        bytes if bytes >= 1e3 => format!("{} kB", digits(bytes / 1e3)),
        bytes => format!("{} B", digits(bytes)),
    }
}

/// Formats a time, in microseconds since 1970, to the minute (UTC).
pub(crate) fn minute(time: Time) -> String {
    let minutes = time / 60_000_000;
    let (day, minute) = (minutes / 1440, minutes % 1440);
    format!("{} {:02}:{:02}", date(day), minute / 60, minute % 60)
}

/// The date of a day, from its number since 1970, in the Gregorian calendar.
pub(crate) fn date(number: u64) -> String {
    // Years that begin in March, so that a leap day is the last day of its year. Eras of 400 years
    // have 146,097 days; 1 March of the year 0 is 719,468 days before 1970.
    let number = number.saturating_add(719_468);
    let (era, day) = (number / 146_097, number % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = match month {
        0..10 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    format!("{:04}-{month:02}-{day:02}", 400 * era + year + carry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (number, expected) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (789, "1972-02-29"),
            (10_956, "1999-12-31"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_777, "2026-11-20"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
            (106_751_991, "294247-01-10"),
        ] {
            assert_eq!(date(number), expected);
        }
        assert_eq!(minute(1_790_000_000_000_000), "2026-09-21 14:13");
    }

    #[test]
    fn json_controls_no_terminal() {
        let json = "{\"a\": \"\u{9b}31m \u{202e}\u{7f}\u{1f600}\"}\n";
        let shown = printable_json(json);
        assert_eq!(
            shown,
            "{\"a\": \"\\u009b31m \\u202e\\u007f\\ud83d\\ude00\"}\n"
        );
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(json), read(&shown));
    }
}
