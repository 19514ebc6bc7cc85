//! A client that requests pages of the bookstore at a constant rate, and records the outcomes.

#[cfg(test)]
mod tests;

use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::asker::Asker;
use super::page::VERSIONS;

/// Limit of pages requested at the same time.
const SHOPPERS: u32 = 10;
/// Limit of failures recorded in words; the others are only counted.
const TOLD_FAILURES: usize = 5;
/// Timeout until the services deliver the first page.
const OPENING_LIMIT: Duration = Duration::from_secs(20);

/// What the shopper has seen so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Pages with reviews v1 and v2.
    pub(super) versions: [u64; 2],
    /// Failed or wrong pages.
    pub(super) failures: u64,
    /// The first failures, in words.
    pub(super) told: Vec<String>,
    /// Time of the last failure.
    pub(super) failed_last: Option<Instant>,
    /// Time of the last page.
    pub(super) came_last: Option<Instant>,
    /// The longest time between two pages since [`Shopper::watch_gaps`].
    pub(super) longest_gap: Duration,
}

impl Tally {
    /// The difference to an earlier tally.
    pub(super) fn since(&self, earlier: &Tally) -> Tally {
        let is_new = self.failures > earlier.failures;
        Tally {
            versions: [0, 1].map(|index| self.versions[index] - earlier.versions[index]),
            failures: self.failures - earlier.failures,
            told: self
                .told
                .get(earlier.told.len()..)
                .unwrap_or_default()
                .to_vec(),
            failed_last: self.failed_last.filter(|_| is_new),
            came_last: self.came_last,
            longest_gap: self.longest_gap,
        }
    }

    pub(super) fn pages(&self) -> u64 {
        self.versions.iter().sum()
    }

    /// Records the version of a page's reviews, or the reason of a failure.
    fn record(&mut self, said: String, now: Instant) {
        match VERSIONS.iter().position(|version| *version == said) {
            Some(version) => {
                self.versions[version] += 1;
                let gap = self.came_last.map_or(Duration::ZERO, |last| now - last);
                self.longest_gap = self.longest_gap.max(gap);
                self.came_last = Some(now);
            }
            None => {
                self.failures += 1;
                self.failed_last = Some(now);
                if self.told.len() < TOLD_FAILURES {
                    self.told.push(said);
                }
            }
        }
    }
}

/// A running shopper; stops when dropped.
pub(super) struct Shopper {
    tally: Arc<Mutex<Tally>>,
    task: JoinHandle<()>,
}

impl Shopper {
    /// Requests `page` `rate` times a second from now on. `program` is `heddle-lab` as run by the shopper.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(super) fn start(program: Command, page: &str, rate: u32) -> anyhow::Result<Self> {
        let tally = Arc::new(Mutex::new(Tally::default()));
        let more = [
            "--pages",
            "--rate",
            &rate.to_string(),
            "--callers",
            &SHOPPERS.to_string(),
        ];
        let mut asker = Asker::start(program, page, &more.map(str::to_owned))?;
        let kept = Arc::clone(&tally);
        let task = tokio::spawn(async move {
            let record = |said| {
                let mut tally = kept.lock().unwrap_or_else(PoisonError::into_inner);
                tally.record(said, Instant::now());
            };
            while let Some(said) = asker.next().await {
                record(said);
            }
            record("the shopper ended by itself".to_owned());
        });
        Ok(Self { tally, task })
    }

    /// Starts measuring the longest time between two pages.
    pub(super) fn watch_gaps(&self) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.longest_gap = Duration::ZERO;
    }

    /// What the shopper has seen so far.
    pub(super) fn tally(&self) -> Tally {
        self.tally
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Shopper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits until the bookstore's services have started and a correct page comes. `program` makes the command
/// `heddle-lab` as run by the shopper.
///
/// # Errors No page came in time; the error is the last response.
pub(super) async fn first_page(
    page: &str,
    program: impl Fn() -> anyhow::Result<Command>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + OPENING_LIMIT;
    loop {
        let mut asker = Asker::start(program()?, page, &["--pages".to_owned()])?;
        let said = asker.next().await.unwrap_or_default();
        if VERSIONS.contains(&said.as_str()) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{said}");
        }
        sleep(Duration::from_millis(50)).await;
    }
}
