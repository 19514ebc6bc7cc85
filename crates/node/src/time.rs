//! Durations as people write and read them.

use std::time::Duration;

/// The two largest units: `3 d 4 h`, `5 min 6 s`.
pub fn duration(seconds: u64) -> String {
    match (
        seconds / 86_400,
        seconds / 3_600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    ) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, min, s) => format!("{min} min {s} s"),
        (0, h, min, _) => format!("{h} h {min} min"),
        (d, h, _, _) => format!("{d} d {h} h"),
    }
}

/// Parses `90s`, `15m`, `1h` or `30d`.
///
/// # Errors
/// When the text is anything else; the message says what is expected.
pub fn parse(text: &str) -> Result<Duration, String> {
    let expected =
        || format!("`{text}` is no length of time, expected such as 90s, 15m, 1h or 30d");
    let unit = text.chars().last().ok_or_else(expected)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(expected()),
    };
    let digits = text.strip_suffix(unit).unwrap_or_default();
    // `u64::parse` would accept a `+`.
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(expected());
    }
    let number: u64 = digits.parse().map_err(|_| expected())?;
    let seconds = number.checked_mul(seconds).ok_or_else(expected)?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::{duration, parse};

    #[test]
    fn durations_have_two_units() {
        for (seconds, expected) in [
            (0, "0 s"),
            (61, "1 min 1 s"),
            (3_660, "1 h 1 min"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(duration(seconds), expected);
        }
    }

    #[test]
    fn a_number_and_a_unit() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("1h", 3_600), ("30d", 2_592_000)] {
            assert_eq!(
                parse(text).map(|time| time.as_secs()),
                Ok(seconds),
                "{text}"
            );
        }
        let long = format!("{}d", u64::MAX);
        for text in ["", "h", "1", "1 h", "-1h", "+1h", "1.5h", "1w", "1é", &long] {
            assert!(
                parse(text).is_err_and(|said| said.contains("such as 90s")),
                "{text}"
            );
        }
    }
}
