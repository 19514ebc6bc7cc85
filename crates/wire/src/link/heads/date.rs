//! HTTP dates, `Sun, 06 Nov 1994 08:49:37 GMT` (IMF-fixdate, RFC 9110 section 5.6.7), as seconds since 1970.

/// Length of a date, in bytes.
pub(super) const LENGTH: usize = 29;
/// The first second that cannot be written: the start of the year 10000.
pub(super) const END: u64 = 253_402_300_800;
/// The date of second 0.
pub(super) const EPOCH: [u8; LENGTH] = *b"Thu, 01 Jan 1970 00:00:00 GMT";

const DAY_NAMES: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];
const DAY_S: u64 = 86_400;
/// Days from 1 March of the year 0 to 1 January 1970. With years that begin in March, the leap day comes last.
const EPOCH_DAY: u64 = 719_468;
const ERA_DAYS: u64 = 146_097;

/// The seconds since 1970 of a date, if it is exactly in the form of [`write()`].
pub(super) fn parse(value: &[u8]) -> Option<u64> {
    let value: &[u8; LENGTH] = value.try_into().ok()?;
    let number = |at: usize, digits: usize| {
        value[at..at + digits].iter().try_fold(0u64, |sum, byte| {
            byte.is_ascii_digit()
                .then(|| 10 * sum + u64::from(byte - b'0'))
        })
    };
    let month = MONTHS.iter().position(|&month| month == &value[8..11])?;
    let days = day_number(number(12, 4)?, month as u64, number(5, 2)?)?;
    let seconds = days * DAY_S + number(17, 2)? * 3600 + number(20, 2)? * 60 + number(23, 2)?;
    // Any other error (a day that the month does not have, a wrong weekday) shows as a difference here.
    (seconds < END && write(seconds) == *value).then_some(seconds)
}

/// Days since 1970; `month` counts from 0.
fn day_number(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = if month < 2 {
        year.checked_sub(1)?
    } else {
        year
    };
    let (era, of_era) = (year / 400, year % 400);
    let march_day = (153 * ((month + 10) % 12) + 2) / 5 + day.checked_sub(1)?;
    let days = era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + march_day;
    days.checked_sub(EPOCH_DAY)
}

/// The date of a second before [`END`].
pub(super) fn write(seconds: u64) -> [u8; LENGTH] {
    let (day, of_day) = (seconds / DAY_S, seconds % DAY_S);
    let since_era = day + EPOCH_DAY;
    let (era, of_era) = (since_era / ERA_DAYS, since_era % ERA_DAYS);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let month = (march_month + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);

    let mut out = EPOCH;
    out[..3].copy_from_slice(DAY_NAMES[(day % 7) as usize]);
    put_two(&mut out, 5, of_year - (153 * march_month + 2) / 5 + 1);
    out[8..11].copy_from_slice(MONTHS[month as usize]);
    put_two(&mut out, 12, year / 100);
    put_two(&mut out, 14, year % 100);
    put_two(&mut out, 17, of_day / 3600);
    put_two(&mut out, 20, of_day / 60 % 60);
    put_two(&mut out, 23, of_day % 60);
    out
}

fn put_two(out: &mut [u8; LENGTH], at: usize, number: u64) {
    out[at] = b'0' + (number / 10) as u8;
    out[at + 1] = b'0' + (number % 10) as u8;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_dates() {
        let known: [(u64, &[u8; LENGTH]); 5] = [
            (0, &EPOCH),
            (784_111_777, b"Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, b"Tue, 29 Feb 2000 00:00:00 GMT"),
            (4_107_542_400, b"Mon, 01 Mar 2100 00:00:00 GMT"),
            (END - 1, b"Fri, 31 Dec 9999 23:59:59 GMT"),
        ];
        for (seconds, text) in known {
            assert_eq!(
                String::from_utf8_lossy(&write(seconds)),
                String::from_utf8_lossy(text)
            );
            assert_eq!(parse(text), Some(seconds));
        }
    }

    #[test]
    fn what_is_written_differently_is_none() {
        for text in [
            &b"Mon, 06 Nov 1994 08:49:37 GMT"[..],
            b"Sun, 06 nov 1994 08:49:37 GMT",
            b"Sun, 06 Nov 1994 08:49:60 GMT",
            b"Sun, 06 Nov 1994 24:00:00 GMT",
            b"Sun, 6 Nov 1994 08:49:37 GMT ",
            b"Sun, 00 Nov 1994 08:49:37 GMT",
            b"Wed, 31 Dec 1969 23:59:59 GMT",
            b"Sat, 01 Jan 0000 00:00:00 GMT",
            b"Thu, 29 Feb 2001 00:00:00 GMT",
            b"Sun, 06 Nov 1994 08:49:37 UTC",
            b"Sunday, 06-Nov-94 08:49:37 GM",
            b"",
        ] {
            assert_eq!(parse(text), None, "{}", String::from_utf8_lossy(text));
        }
    }

    proptest! {
        #[test]
        fn every_second_is_read_again(seconds in 0..END) {
            prop_assert_eq!(parse(&write(seconds)), Some(seconds));
        }
    }
}
