//! How long something should last, as people write it.

use std::time::Duration;

/// Reads `90s`, `15m`, `1h`, `30d`.
///
/// # Errors
/// What is expected, for anything else.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
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
    // A sign is no digit.
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(expected());
    }
    let number: u64 = digits.parse().map_err(|_| expected())?;
    let seconds = number.checked_mul(seconds).ok_or_else(expected)?;
    Ok(Duration::from_secs(seconds))
}

/// The same the other way round, in the largest unit that says it roughly: `3 h`.
pub(crate) fn roughly(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::{parse, roughly};

    #[test]
    fn a_number_and_a_unit() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("1h", 3_600), ("30d", 2_592_000)] {
            assert_eq!(
                parse(text).map(|life| life.as_secs()),
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

    #[test]
    fn a_length_of_time_is_shown_roughly() {
        for (seconds, shown) in [
            (0, "0 s"),
            (119, "119 s"),
            (150, "2 min"),
            (86_400, "24 h"),
            (172_800, "2 days"),
        ] {
            assert_eq!(roughly(seconds), shown);
        }
    }
}
