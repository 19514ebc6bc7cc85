//! Times as Kubernetes writes them (RFC 3339).

use super::Flaw;

/// Seconds since 1970 of `2024-05-01T12:00:00Z`; a fraction is read past.
pub(crate) fn timestamp(text: &str) -> Result<i64, Flaw> {
    parse(text).ok_or_else(|| {
        Flaw::new(
            format!("{text:?} is no time"),
            "write it like 2024-05-01T12:00:00Z, or leave it out",
        )
    })
}

fn parse(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| digits.parse().ok())?
    };
    let byte = |at: usize| text.as_bytes().get(at).copied();
    let punctuated = byte(4) == Some(b'-')
        && byte(7) == Some(b'-')
        && matches!(byte(10), Some(b'T' | b't'))
        && byte(13) == Some(b':')
        && byte(16) == Some(b':');
    if !punctuated {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let days_in_month = match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=days_in_month).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut rest = text.get(19..)?;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        rest = fraction.get(digits..)?;
    }
    let offset = match rest.as_bytes() {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let start = text.len() - 5;
            let (hours, minutes) = (number(start, start + 2)?, number(start + 3, start + 5)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let seconds = (hours * 60 + minutes) * 60;
            if *sign == b'+' { seconds } else { -seconds }
        }
        _ => return None,
    };
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar (H. Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms", `days_from_civil`).
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}
