//! When a node that has lost the control plane tries to reach it again.
//!
//! By itself it waits longer after each failed attempt. A caller of something that the node does not know brings the next
//! attempt forward, since it is refused until the control plane is back. Such attempts are a few seconds apart, at random,
//! because callers on thousands of nodes may ask at once; and they leave the back-off as it is.

use std::time::Duration;

use heddle_model::{Backoff, Random};
use tokio::time::{Instant, sleep_until};

#[cfg(test)]
mod tests;

/// Shortest and longest back-off between two attempts to connect.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A connection that lasted this long resets the back-off.
const GOOD: Duration = Duration::from_secs(60);
/// Least time from a failed attempt to one that a caller brings forward …
const ASKED_WAIT: Duration = Duration::from_secs(2);
/// … which comes up to so much later, at random: callers on many nodes may ask at the same time.
const ASKED_SPREAD_MS: u64 = 2_000;

/// The waits between attempts to connect.
pub(super) struct Apart {
    backoff: Backoff,
    random: Random,
    /// When the next attempt is due by itself. One that was brought forward does not change it.
    due: Option<Instant>,
}

impl Apart {
    pub(super) fn new(random: Random) -> Self {
        Apart {
            backoff: Backoff::new(SHORTEST_WAIT, LONGEST_WAIT),
            random,
            due: None,
        }
    }

    /// Waits until the next attempt is due, after one that failed or a connection that ended; it `took` so long. `asked` is
    /// ready when a caller asks what only the control plane can answer.
    pub(super) async fn wait(&mut self, took: Duration, asked: impl Future<Output = ()>) {
        let ended = Instant::now();
        if took >= GOOD {
            self.backoff.succeeded();
            self.due = None;
        }
        // An attempt that a caller has brought forward by a moment takes the place of the one that was due.
        let is_ahead = |due: &Instant| *due > ended + ASKED_WAIT;
        let due = match self.due.filter(is_ahead) {
            Some(due) => due,
            None => ended + self.random.spread(self.backoff.failed()),
        };
        self.due = Some(due);
        let spread = Duration::from_millis(self.random.below(ASKED_SPREAD_MS));
        let brought_forward = async {
            asked.await;
            sleep_until(Instant::now().max(ended + ASKED_WAIT) + spread).await;
        };
        tokio::select! {
            () = sleep_until(due) => {}
            () = brought_forward => {}
        }
    }
}
