//! Dates and times as people and Kubernetes write them (RFC 3339), in the Gregorian calendar.
//!
//! Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms"
//! (<https://howardhinnant.github.io/date_algorithms.html>): `civil_from_days` and `days_from_civil`.

/// The last second of the year 9999 since 1970: years beyond have no four digits.
const LAST: u64 = 253_402_300_799;

/// A time in seconds since 1970, such as `2024-05-01T12:00:00Z`.
pub fn utc(seconds: u64) -> String {
    if seconds > LAST {
        return format!("{seconds} s after 1970");
    }
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Seconds since 1970 of a time such as `2024-05-01T12:00:00Z`; a fraction is read past. `None` for anything else.
pub fn parse(text: &str) -> Option<i64> {
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

/// Year, month and day of a day that is `days` after 1970-01-01.
///
/// # Panics
/// In builds that check for overflow, when `days` is more than `u64::MAX - 719_468`.
pub fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

/// The opposite of [`civil`], before 1970 too.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{LAST, parse, utc};

    #[test]
    fn times_are_utc() {
        for (unix_s, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_800_000_000, "2027-01-15T08:00:00Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
            (LAST, "9999-12-31T23:59:59Z"),
            (LAST + 1, "253402300800 s after 1970"),
        ] {
            assert_eq!(utc(unix_s), expected);
        }
    }

    proptest! {
        #[test]
        fn every_second_is_read_again(seconds in 0..=LAST) {
            prop_assert_eq!(parse(&utc(seconds)), i64::try_from(seconds).ok());
        }
    }
}
