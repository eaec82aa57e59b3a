//! Times and lengths of time for keeping and reading recordings.

use packetlane_peers::{Period, Time};
use std::time::{Duration, SystemTime};

const DAY: u64 = 86_400;

/// Maximum length of time, in seconds: 100 years.
const MAX_SECONDS: u64 = 36_500 * DAY;

/// Parses a number of days, hours or minutes, such as "30d", "12h" or "90m"; not 0.
pub(super) fn span(text: &str) -> Result<Duration, &'static str> {
    let wrong = "expected a number of days, hours or minutes, such as 30d, 12h or 90m; not 0";
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "d" => DAY,
        "h" => 3600,
        "m" => 60,
        _ => return Err(wrong),
    };
    let number = digits.parse::<u64>().ok().filter(|number| *number > 0);
    let seconds = number.and_then(|number| number.checked_mul(unit));
    let seconds = seconds.filter(|seconds| *seconds <= MAX_SECONDS);
    seconds.map(Duration::from_secs).ok_or(wrong)
}

/// Minimum of --max-size: some minutes of a busy node.
const MIN_BYTES: u64 = 10_000_000;

/// Parses a number of bytes, such as "500MB" or "2GB"; at least 10 MB.
pub(super) fn bytes(text: &str) -> Result<u64, &'static str> {
    let wrong = "expected a number of bytes from 10MB, such as 500MB, 2GB or 1GiB";
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match text[digits.len()..].trim() {
        "" | "B" => 1,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(wrong),
    };
    let bytes = digits.parse::<u64>().ok();
    let bytes = bytes.and_then(|number| number.checked_mul(unit));
    bytes.filter(|bytes| *bytes >= MIN_BYTES).ok_or(wrong)
}

/// A moment: a time ago, or a date with or without a time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Ago(Duration),
    At(Time),
}

impl std::str::FromStr for Moment {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(ago) = span(text) {
            return Ok(Self::Ago(ago));
        }
        let text = text.strip_suffix('Z').unwrap_or(text);
        let whole = match text.len() {
            10 => format!("{text}T00:00:00"),
            // 2026-11-20T12:00.
            16 => format!("{text}:00"),
            _ => text.to_owned(),
        };
        let time = humantime::parse_rfc3339_weak(&whole).ok();
        let time = time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let time = time.and_then(|time| Time::try_from(time.as_micros()).ok());
        time.map(Self::At).ok_or(
            "expected a time ago, such as 7d, 12h or 90m, or a time in UTC, such as 2026-11-20 or \
             2026-11-20T12:00Z",
        )
    }
}

impl Moment {
    /// The time, if it is now `now`.
    fn time(self, now: SystemTime) -> Time {
        match self {
            Self::At(time) => time,
            Self::Ago(ago) => {
                let now = now.duration_since(SystemTime::UNIX_EPOCH);
                let time = now.unwrap_or_default().saturating_sub(ago);
                Time::try_from(time.as_micros()).unwrap_or(Time::MAX)
            }
        }
    }
}

/// The period between two moments.
///
/// # Errors
///
/// If it is empty.
pub(super) fn between(since: Option<Moment>, until: Option<Moment>) -> Result<Period, String> {
    let now = SystemTime::now();
    let time = |moment: Option<Moment>| moment.map(|moment| moment.time(now));
    let period = Period {
        since: time(since).unwrap_or(Period::ALL.since),
        until: time(until).unwrap_or(Period::ALL.until),
    };
    match period.since < period.until {
        true => Ok(period),
        false => Err("--since is not before --until".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes() {
        for (text, seconds) in [("30d", 30 * DAY), ("1h", 3600), ("90m", 5400)] {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)));
        }
        for text in [
            "",
            "d",
            "0d",
            "-1d",
            "1",
            "1.5h",
            "1 d",
            "36501d",
            "99999999999999999999d",
            "1é",
        ] {
            assert!(span(text).is_err(), "{text}");
        }
        for (text, expected) in [
            ("10MB", 10_000_000),
            ("2GB", 2_000_000_000),
            ("1 GiB", 1 << 30),
            ("10000000", 10_000_000),
        ] {
            assert_eq!(bytes(text), Ok(expected));
        }
        for text in [
            "",
            "GB",
            "0GB",
            "9MB",
            "1kB",
            "9999999",
            "2gb",
            "99999999999TB",
            "-1GB",
            "2GBé",
        ] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn moments() {
        let day = 1_795_132_800_000_000;
        for (text, time) in [
            ("2026-11-20", day),
            ("2026-11-20T12:00Z", day + 43_200_000_000),
            ("2026-11-20T12:00", day + 43_200_000_000),
            ("2026-11-20 12:00:01", day + 43_201_000_000),
            ("2026-11-20T12:00:01Z", day + 43_201_000_000),
            ("2026-11-20T12:00:00.5Z", day + 43_200_500_000),
            ("1970-01-01", 0),
        ] {
            assert_eq!(text.parse(), Ok(Moment::At(time)), "{text}");
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10 * DAY);
        let ago = |text: &str| text.parse::<Moment>().map(|moment| moment.time(now));
        assert_eq!(ago("7d"), Ok(3 * 86_400_000_000));
        assert_eq!(ago("100d"), Ok(0));
        for text in [
            "",
            "yesterday",
            "2026-11-31",
            "2026-13-01",
            "2026-11-20T24:00Z",
            "2026-11-20T12",
            "2026-11-20T12:00+01:00",
            "1969-12-31",
            "2026-11-2é",
            "2026-11-20T12:0éZ",
            "ééééééééZ",
        ] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
    }
}
