//! Request counters by HTTP status.

use std::sync::atomic::{AtomicU16, Ordering};

use crate::Counter;

/// Number of statuses per series with a counter of their own. An application may use any of 500 statuses; those that
/// come after the first 12 are counted by class.
const EXACT: usize = 12;
/// Index 0 is for requests without a response, 1 to 5 for the classes of status.
const CLASSES: usize = 6;

/// Requests of one series by status: the first [`EXACT`] statuses by number, the others by class. Single writer.
#[derive(Debug, Default)]
pub(crate) struct Statuses {
    /// In order of first appearance, 0 for a free slot. The most frequent status is mostly the first one.
    codes: [AtomicU16; EXACT],
    counts: [Counter; EXACT],
    /// Requests without a response, and statuses beyond the first [`EXACT`] by class.
    classes: [Counter; CLASSES],
}

impl Statuses {
    /// Counts a response with `status`. A number outside 100 to 599 counts as no response. Only the owning thread may
    /// call this.
    #[inline]
    pub(crate) fn inc(&self, status: u16) {
        if !(100..600).contains(&status) {
            return self.classes[0].inc();
        }
        for (code, count) in self.codes.iter().zip(&self.counts) {
            let known = code.load(Ordering::Relaxed);
            if known == status {
                return count.inc();
            }
            if known == 0 {
                count.inc();
                // Release: a reader that sees the code also sees the count.
                return code.store(status, Ordering::Release);
            }
        }
        self.classes[usize::from(status / 100)].inc();
    }

    /// Each status with its count: 0 for no response, 1 to 5 for a class without the statuses listed by number. Any
    /// thread may call this.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        let exact = self.codes.iter().zip(&self.counts);
        let exact = exact.map(|(code, count)| (code.load(Ordering::Acquire), count.get()));
        let exact = exact.filter(|(code, _)| *code != 0);
        let classes = (0..).zip(self.classes.iter().map(Counter::get));
        exact.chain(classes.filter(|(_, count)| *count > 0))
    }
}

/// The label value of a key of [`Statuses::iter`]: the number, the class such as `5xx`, or `none` for no response.
pub(crate) fn written(status: u16) -> String {
    match status {
        0 => "none".to_owned(),
        class @ 1..=5 => format!("{class}xx"),
        status => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(statuses: impl IntoIterator<Item = u16>) -> Vec<(String, u64)> {
        let counts = Statuses::default();
        statuses.into_iter().for_each(|status| counts.inc(status));
        counts
            .iter()
            .map(|(status, count)| (written(status), count))
            .collect()
    }

    #[test]
    fn each_status_is_counted_by_its_number() {
        let counts = counted([200, 503, 200, 404, 0, 99, 600, u16::MAX]);
        let expected = [("200", 2), ("503", 1), ("404", 1), ("none", 4)];
        let expected: Vec<(String, u64)> = expected.map(|(s, n)| (s.to_owned(), n)).into();
        assert_eq!(counts, expected);
    }

    #[test]
    fn an_application_that_answers_with_every_status_has_some_by_their_class() {
        let counts = counted(100..600);
        // The first twelve, 100 to 111, are counted by number.
        assert_eq!(counts.len(), 12 + 5);
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 500);
        assert_eq!(counts[11], ("111".to_owned(), 1));
        assert_eq!(counts[12], ("1xx".to_owned(), 88));
        assert_eq!(counts[16], ("5xx".to_owned(), 100));
    }
}
