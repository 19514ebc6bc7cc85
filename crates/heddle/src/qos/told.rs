//! What is logged of something that fails again and again.

use std::time::Duration;

use tokio::time::Instant;

/// How long nothing else is told: what answers may be another program, with another text each time.
const PAUSE: Duration = Duration::from_secs(60);

/// What was told of one thing.
#[derive(Debug, Default)]
pub(super) struct Told {
    last: Option<(Instant, String)>,
    /// Whether it is so still.
    is_so: bool,
}

impl Told {
    /// Whether the log is to have this text: not that of the last time, and at most one a minute.
    pub(super) fn is_to_be_told(&mut self, text: &str, now: Instant) -> bool {
        let is_new = match &self.last {
            None => true,
            Some((at, known)) => {
                now.saturating_duration_since(*at) >= PAUSE && !(self.is_so && known == text)
            }
        };
        if is_new {
            self.last = Some((now, text.to_owned()));
            self.is_so = true;
        }
        is_new
    }

    /// It works again. Returns whether the log says that it does not.
    pub(super) fn is_over(&mut self) -> bool {
        std::mem::take(&mut self.is_so)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::Told;

    #[test]
    fn the_same_text_is_told_once_and_others_once_a_minute() {
        let began = Instant::now();
        let at = |second| began + Duration::from_secs(second);
        let mut told = Told::default();
        assert!(!told.is_over());
        assert!(told.is_to_be_told("a", at(0)));
        assert!(!told.is_to_be_told("a", at(100)));
        assert!(told.is_to_be_told("b", at(101)));
        // Another text each second.
        let texts =
            (102..222).filter(|second| told.is_to_be_told(&second.to_string(), at(*second)));
        assert_eq!(texts.count(), 2);
        // It fails and works in turn.
        assert!(told.is_over() && !told.is_over());
        assert!(!told.is_to_be_told("b", at(223)) && !told.is_over());
        assert!(told.is_to_be_told("b", at(300)) && told.is_over());
    }
}
