//! RFC 3339 timestamps without a calendar computation per request.

use heddle_model::calendar::civil;

/// Formats times as `2026-01-31T23:59:59.042Z`. The text up to the second is kept and computed anew only when the
/// second changes.
#[derive(Debug)]
pub(super) struct Clock {
    second: u64,
    text: [u8; LEN],
}

const LEN: usize = "2026-01-31T23:59:59.042Z".len();

impl Clock {
    pub(super) fn new() -> Self {
        let mut clock = Clock {
            second: 0,
            text: *b"0000-00-00T00:00:00.000Z",
        };
        clock.set_second(0);
        clock
    }

    /// Formats `unix_ms`, milliseconds since 1970. Years beyond 9999 are written as 9999.
    pub(super) fn format(&mut self, unix_ms: u64) -> &[u8] {
        let second = unix_ms / 1_000;
        if second != self.second {
            self.set_second(second);
        }
        digits(&mut self.text[20..23], unix_ms % 1_000);
        &self.text
    }

    fn set_second(&mut self, second: u64) {
        self.second = second;
        let (year, month, day) = civil(second / 86_400);
        digits(&mut self.text[0..4], year.min(9_999));
        digits(&mut self.text[5..7], month);
        digits(&mut self.text[8..10], day);
        digits(&mut self.text[11..13], second / 3_600 % 24);
        digits(&mut self.text[14..16], second / 60 % 60);
        digits(&mut self.text[17..19], second % 60);
    }
}

fn digits(out: &mut [u8], mut value: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn known_times() {
        let mut clock = Clock::new();
        for (unix_ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_001, "2024-02-29T23:59:59.001Z"),
            (1_767_225_600_042, "2026-01-01T00:00:00.042Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(String::from_utf8_lossy(clock.format(unix_ms)), expected);
        }
    }

    #[test]
    fn no_time_overflows() {
        assert!(Clock::new().format(u64::MAX).starts_with(b"9999-"));
    }
}
