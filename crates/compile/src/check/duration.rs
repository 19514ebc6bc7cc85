//! Gateway API durations (GEP-2257).

use super::Flaw;

/// Reads a duration such as `10s` or `1h30m` into milliseconds.
pub(crate) fn duration_ms(text: &str) -> Result<u64, Flaw> {
    heddle_model::duration_ms(text).ok_or_else(|| {
        let is_bare = (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        if is_bare {
            let remedy = format!("write it with its unit: {text}s");
            return Flaw::new(format!("{text:?} is no duration"), remedy);
        }
        Flaw::new(
            format!("{text:?} is no duration"),
            "write up to four of <number>h, m, s or ms, with numbers of at most five digits: 1m30s",
        )
    })
}
