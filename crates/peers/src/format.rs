//! Figures as text.

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

/// Formats a number of bytes.
pub(crate) fn bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e6 => format!("{} MB", digits(bytes / 1e6)),
        bytes if bytes >= 1e3 => format!("{} kB", digits(bytes / 1e3)),
        bytes => format!("{} B", digits(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
