//! How long to wait before etcd is asked again.

use std::time::Duration;

use heddle_model::{Backoff, Random};

/// The first wait at most, and the longest.
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(5);

/// Waits that double, spread so that those who lost the same etcd do not all come back at once.
#[derive(Debug)]
pub(super) struct Pause {
    backoff: Backoff,
    random: Random,
}

impl Pause {
    pub(super) fn new() -> Self {
        Pause {
            backoff: Backoff::new(FIRST, LONGEST),
            random: Random::from_system(),
        }
    }

    /// All is well again.
    pub(super) fn succeeded(&mut self) {
        self.backoff.succeeded();
    }

    /// The wait after one more failure.
    pub(super) fn failed(&mut self) -> Duration {
        self.random.spread(self.backoff.failed())
    }
}
