//! Checks now and then whether tables of the hooks were full, and logs it at a low rate.

use std::time::{Duration, Instant};

use crate::hooks::FullTables;

/// Minimum time between two checks. The holder wakes up at least as often, to ping its proxy.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Minimum time between two warnings.
const SAY_EVERY: Duration = Duration::from_secs(600);

/// Counts of the last check and of the last warning. The caller passes the time.
#[derive(Debug, Default)]
pub(super) struct FullSeen {
    seen: FullTables,
    /// Counts at the last warning.
    said: FullTables,
    looked: Option<Instant>,
    warned: Option<Instant>,
}

impl FullSeen {
    /// Counts at the last check.
    pub(super) fn seen(&self) -> FullTables {
        self.seen
    }

    /// Checks if it is due, and logs counts that were not logged yet. Returns the counts if they have changed.
    pub(super) fn look(
        &mut self,
        now: Instant,
        read: impl FnOnce() -> FullTables,
    ) -> Option<FullTables> {
        let is_past = |last: Option<Instant>, every| {
            last.is_none_or(|last| now.saturating_duration_since(last) >= every)
        };
        if !is_past(self.looked, LOOK_EVERY) {
            return None;
        }
        self.looked = Some(now);
        let found = read();
        if found != self.said && is_past(self.warned, SAY_EVERY) {
            self.warned = Some(now);
            let handshakes = found.handshakes.saturating_sub(self.said.handshakes);
            let visits = found.visits.saturating_sub(self.said.visits);
            tracing::warn!(
                handshakes,
                visits,
                "tables of the hooks were full: those of pods that dial too many at once are \
                 refused (handshakes), and calls of the proxy to a program with its clients' addresses come back to the \
                 proxy (visits): too many are without an answer at once"
            );
            self.said = found;
        }
        (std::mem::replace(&mut self.seen, found) != found).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_looked_at_once_a_second_and_told_when_it_changes() {
        let mut seen = FullSeen::default();
        let (began, one) = (
            Instant::now(),
            FullTables {
                handshakes: 0,
                visits: 1,
            },
        );
        let at = |ms| began + Duration::from_millis(ms);
        assert_eq!(seen.look(at(0), FullTables::default), None);
        assert_eq!(seen.look(at(999), || panic!("too soon")), None);
        assert_eq!(seen.look(at(1_000), || one), Some(one));
        assert_eq!(seen.look(at(2_000), || one), None, "nothing is new");
        assert_eq!(seen.seen(), one);
    }

    #[test]
    fn it_is_said_once_in_ten_minutes_and_nothing_is_left_unsaid() {
        let mut seen = FullSeen::default();
        let began = Instant::now();
        let mut warned = Vec::new();
        for second in 0..1_300 {
            let visits = second.min(900);
            let full = FullTables {
                handshakes: 0,
                visits,
            };
            let before = seen.warned;
            seen.look(began + Duration::from_secs(second), || full);
            if seen.warned != before {
                warned.push((second, seen.said.visits));
            }
        }
        assert_eq!(warned, [(1, 1), (601, 601), (1201, 900)]);
    }
}
