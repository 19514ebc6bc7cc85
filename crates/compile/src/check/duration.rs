//! Gateway API durations (GEP-2257).

use super::Flaw;

/// Reads a duration such as `10s` or `1h30m` into milliseconds.
///
/// The format is `([0-9]{1,5}(h|m|s|ms)){1,4}`: whole numbers only, no sign, no fraction.
pub(crate) fn duration_ms(text: &str) -> Result<u64, Flaw> {
    let flaw = || {
        let is_bare = (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        if is_bare {
            let remedy = format!("write it with its unit: {text}s");
            return Flaw::new(format!("{text:?} is no duration"), remedy);
        }
        Flaw::new(
            format!("{text:?} is no duration"),
            "write up to four of <number>h, m, s or ms, with numbers of at most five digits: 1m30s",
        )
    };
    let mut rest = text;
    let mut total = 0;
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at_checked(digits).ok_or_else(flaw)?;
        if !(1..=5).contains(&digits) || parts == 4 {
            return Err(flaw());
        }
        let number: u64 = number.parse().map_err(|_| flaw())?;
        let units = [("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
        let (tail, factor) = units
            .iter()
            .find_map(|(unit, factor)| Some((tail.strip_prefix(unit)?, factor)))
            .ok_or_else(flaw)?;
        total += number * factor;
        parts += 1;
        rest = tail;
    }
    if parts == 0 { Err(flaw()) } else { Ok(total) }
}
