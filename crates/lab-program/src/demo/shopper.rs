//! A client that browses the bookstore, at an even rate, and remembers what it saw.

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

/// How many pages are opened at the same time at most.
const SHOPPERS: u32 = 10;
/// How many failures are told in words; the rest are only counted.
const TOLD_FAILURES: usize = 5;
/// How long the services may take to answer the first page.
const OPENING_LIMIT: Duration = Duration::from_secs(20);

/// What the shopper saw so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Pages with reviews v1, and with v2.
    pub(super) versions: [u64; 2],
    /// Pages that did not come as they should.
    pub(super) failures: u64,
    /// The first of those, in words.
    pub(super) told: Vec<String>,
    /// When the last of those failed.
    pub(super) failed_last: Option<Instant>,
    /// When the last page came.
    pub(super) came_last: Option<Instant>,
    /// The longest time without one, since an act [watches](Shopper::watch_gaps).
    pub(super) longest_gap: Duration,
}

impl Tally {
    /// What was seen since an earlier look.
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

    /// How many pages came.
    pub(super) fn pages(&self) -> u64 {
        self.versions.iter().sum()
    }

    /// Takes down what a page was: the version of its reviews, or why it did not come.
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
    /// Opens `page` `rate` times a second from now on. `program` is `heddle-lab`, where the shopper is.
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

    /// From now on the longest time between two pages is measured.
    pub(super) fn watch_gaps(&self) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.longest_gap = Duration::ZERO;
    }

    /// What it saw so far.
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

/// Waits until the bookstore's services have started and a page comes as it should. `program` makes
/// `heddle-lab` where the shopper is.
///
/// # Errors
/// What the last page said, when none came in time.
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
