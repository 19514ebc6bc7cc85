//! The wait before etcd is tried again.

use std::time::Duration;

use heddle_model::{Backoff, Random};

/// Upper bound of the first wait, and of every wait.
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(5);

/// Waits that double, randomised so that clients that lost the same etcd do not all come back at once.
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

    /// Starts over with the first wait.
    pub(super) fn succeeded(&mut self) {
        self.backoff.succeeded();
    }

    /// The wait after one more failure.
    pub(super) fn failed(&mut self) -> Duration {
        self.random.spread(self.backoff.failed())
    }
}
