//! Times and durations for people.

/// A time, in seconds since 1970, as RFC 3339 writes it.
pub(crate) fn utc(unix_s: u64) -> String {
    let (year, month, day) = civil(unix_s / 86_400);
    let (hour, minute, second) = (unix_s / 3_600 % 24, unix_s / 60 % 60, unix_s % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The two largest units: `3 d 4 h`, `5 min 6 s`.
pub(crate) fn duration(seconds: u64) -> String {
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

/// Year, month and day of a day counted from 1970-01-01: Howard Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html>).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::{duration, utc};

    #[test]
    fn times_are_utc() {
        for (unix_s, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_800_000_000, "2027-01-15T08:00:00Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
        ] {
            assert_eq!(utc(unix_s), expected);
        }
    }

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
}
