//! Gateway API durations (GEP-2257).

/// Reads a duration such as `10s` or `1h30m` into milliseconds; `None` if it is none.
///
/// The format is `([0-9]{1,5}(h|m|s|ms)){1,4}`: whole numbers only, no sign, no fraction.
pub fn duration_ms(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total = 0;
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at_checked(digits)?;
        if !(1..=5).contains(&digits) || parts == 4 {
            return None;
        }
        let number: u64 = number.parse().ok()?;
        let units = [("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
        let (tail, factor) = units
            .iter()
            .find_map(|(unit, factor)| Some((tail.strip_prefix(unit)?, factor)))?;
        total += number * factor;
        parts += 1;
        rest = tail;
    }
    (parts > 0).then_some(total)
}
