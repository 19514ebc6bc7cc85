//! Parses durations of command-line flags.

use std::time::Duration;

/// Parses `90s`, `15m`, `1h` or `30d`.
///
/// # Errors
/// When the text is anything else; the message says what is expected.
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
    use super::parse;

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
}
