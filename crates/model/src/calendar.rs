//! Dates and times in the form of RFC 3339, as people and Kubernetes write them, in the Gregorian calendar.

use time::format_description::well_known::Rfc3339;
use time::{Date, OffsetDateTime};

/// Formats a time given in seconds since 1970, as in `2024-05-01T12:00:00Z`. Years beyond 9999 do not have four digits.
pub fn utc(seconds: u64) -> String {
    at(seconds)
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| format!("{seconds} s after 1970"))
}

/// Seconds since 1970, for a time such as `2024-05-01T12:00:00Z`; a fraction is ignored. `None` for anything else.
///
/// A leap second counts as the first second of the minute after it.
pub fn parse(text: &str) -> Option<i64> {
    // `time` accepts any byte instead of the T.
    if !matches!(text.as_bytes().get(10), Some(b'T' | b't')) {
        return None;
    }
    // It accepts leap seconds only at the ends of months, and maps them to the second before.
    let mut text = text.to_owned();
    let is_leap = text.get(16..19) == Some(":60");
    if is_leap {
        text.replace_range(17..19, "59");
    }
    let time = OffsetDateTime::parse(&text, &Rfc3339).ok()?;
    Some(time.unix_timestamp() + i64::from(is_leap))
}

/// Year, month and day of the day `days` after 1970-01-01; the last day of the year 9999 if it is beyond.
pub fn civil(days: u64) -> (u64, u64, u64) {
    let date = days
        .checked_mul(86_400)
        .and_then(at)
        .map_or(Date::MAX, OffsetDateTime::date);
    let year = u64::try_from(date.year()).unwrap_or(0);
    (year, u8::from(date.month()).into(), date.day().into())
}

fn at(seconds: u64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{civil, parse, utc};

    /// The last second of the year 9999.
    const LAST: u64 = 253_402_300_799;

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
            (u64::MAX, "18446744073709551615 s after 1970"),
        ] {
            assert_eq!(utc(unix_s), expected);
        }
    }

    #[test]
    fn days_have_dates() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
            (LAST / 86_400, (9999, 12, 31)),
            (LAST / 86_400 + 1, (9999, 12, 31)),
            (u64::MAX, (9999, 12, 31)),
        ] {
            assert_eq!(civil(days), expected, "{days}");
        }
    }

    #[test]
    fn times_of_all_kinds_are_read() {
        for (text, expected) in [
            ("1970-01-01t00:00:00z", 0),
            ("1970-01-01T00:00:00-00:00", 0),
            ("0000-01-01T00:00:00+23:59", -62_167_305_540),
            ("9999-12-31T23:59:59-23:59", 253_402_387_139),
            // Leap seconds: a real one in two time zones; one with a fraction; one that never occurred.
            ("2016-12-31T23:59:60Z", 1_483_228_800),
            ("2017-01-01T00:59:60+01:00", 1_483_228_800),
            ("2016-12-31T23:59:60.5Z", 1_483_228_800),
            ("2024-05-01T12:00:60Z", 1_714_564_860),
            ("9999-12-31T23:59:60Z", 253_402_300_800),
            // Fractions, also before 1970 and of any length.
            ("1969-12-31T23:59:59.999Z", -1),
            ("1970-01-01T00:00:00.999999999999999999999999999999Z", 0),
            ("2000-02-29T12:34:56.7-12:30", 951_872_696),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn anything_else_is_no_time() {
        for text in [
            "",
            "1970-01-01",
            "1970-01-01T00:00:00",
            "1970-01-01 00:00:00Z",
            "1970-01-01\u{0}00:00:00Z",
            "1970-01-01é0:00:00Z",
            "1970-01-01T00:00Z",
            "1970-01-01T00:00:00ZZ",
            " 1970-01-01T00:00:00Z",
            "1970-01-01T00:00:00Z\n",
            "1970-01-01T00:00:61Z",
            "1970-01-01T00:60:00Z",
            "1970-01-01T24:00:00Z",
            "1970-00-01T00:00:00Z",
            "1970-01-00T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "10000-01-01T00:00:00Z",
            "+9999-01-01T00:00:00Z",
            "-001-01-01T00:00:00Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00,5Z",
            "1970-01-01T00:00:00.5",
            "1970-01-01T00:00:00+24:00",
            "1970-01-01T00:00:00+00:60",
            "1970-01-01T00:00:00+0000",
            "1970-01-01T00:00:00+00",
            "1970-01-01T00:00:00\u{2212}00:00",
            "１970-01-01T00:00:00Z",
            "1970-01-01T00:00:60",
            "1970-01-01T00:00:60é",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_second_is_read_again(seconds in 0..=LAST) {
            prop_assert_eq!(parse(&utc(seconds)), i64::try_from(seconds).ok());
        }

        #[test]
        fn no_text_is_too_much(text in any::<String>(), near in "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9é:.+Zz-]{0,24}") {
            for text in [text, near] {
                if let Some(seconds) = parse(&text) {
                    prop_assert!((-62_200_000_000..=253_500_000_000).contains(&seconds), "{text:?}");
                }
            }
        }
    }
}
