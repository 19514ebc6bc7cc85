//! Whether the demo showed what it says. No I/O and no clock.

#[cfg(test)]
mod tests;

use std::fmt;

use anyhow::bail;

use super::shopper::Tally;

/// How far a share may be off, in standard deviations of a fair draw: by chance once in 16,000.
const DEVIATIONS: f64 = 4.0;

/// What the shopper saw while the route had one split.
#[derive(Debug)]
pub(super) struct Phase {
    pub(super) seen: Tally,
    /// The share of readers that should get reviews v2.
    pub(super) expected: f64,
}

impl Phase {
    fn pages(&self) -> u64 {
        self.seen.versions.iter().sum()
    }

    /// The share of readers that got reviews v2.
    fn share(&self) -> f64 {
        self.seen.versions[1] as f64 / self.pages().max(1) as f64
    }

    fn followed(&self) -> bool {
        let pages = self.pages().max(1) as f64;
        let deviation = (self.expected * (1.0 - self.expected) / pages).sqrt();
        self.pages() > 0 && (self.share() - self.expected).abs() <= DEVIATIONS * deviation
    }
}

/// What is to be said in the end.
#[derive(Debug)]
pub(super) struct Verdict {
    all: Tally,
    /// Requests that failed anywhere in the mesh, by the proxy's own count.
    failed_inside: u64,
    phases: [Phase; 2],
}

impl Verdict {
    /// Judges by everything that the shopper saw, what failed inside, and the two phases.
    pub(super) fn new(all: Tally, failed_inside: u64, phases: [Phase; 2]) -> Self {
        Self {
            all,
            failed_inside,
            phases,
        }
    }

    /// # Errors
    /// A page failed, a request failed behind a page, or the traffic did not follow the route.
    pub(super) fn into_result(self) -> anyhow::Result<()> {
        if self.all.failures > 0 {
            bail!(
                "{} pages failed, first: {}",
                self.all.failures,
                self.all.told.join("; ")
            );
        }
        if self.failed_inside > 0 {
            bail!("{} requests failed inside the mesh", self.failed_inside);
        }
        for phase in &self.phases {
            if !phase.followed() {
                bail!(
                    "of {} pages {:.1} % had reviews v2 where the route says {:.0} %",
                    phase.pages(),
                    phase.share() * 100.0,
                    phase.expected * 100.0
                );
            }
        }
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages: u64 = self.all.versions.iter().sum();
        let [before, after] = &self.phases;
        write!(
            f,
            "{pages} pages, {} failed; reviews v2 went from {:.1} % to {:.1} %",
            self.all.failures,
            before.share() * 100.0,
            after.share() * 100.0
        )
    }
}
