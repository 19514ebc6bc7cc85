//! Judges the outcomes of all acts. No I/O and no clock.

#[cfg(test)]
mod tests;

use std::fmt;

use anyhow::bail;

use super::acts::{Guarded, Killed, MISSED_LIMIT, Rotated};
use super::shopper::Tally;

/// Allowed error of a share, in standard deviations of a random draw: exceeded by chance once in 16,000.
const DEVIATIONS: f64 = 4.0;
/// The intruder's response while the policy is in effect.
const REFUSED: &str = "403 policy_denied";

/// Pages of the shopper during one split of the route.
#[derive(Debug)]
pub(super) struct Phase {
    pub(super) seen: Tally,
    /// The expected share of readers with reviews v2.
    pub(super) expected: f64,
}

impl Phase {
    fn pages(&self) -> u64 {
        self.seen.versions.iter().sum()
    }

    /// The actual share of readers with reviews v2.
    fn share(&self) -> f64 {
        self.seen.versions[1] as f64 / self.pages().max(1) as f64
    }

    fn followed(&self) -> bool {
        let pages = self.pages().max(1) as f64;
        let deviation = (self.expected * (1.0 - self.expected) / pages).sqrt();
        self.pages() > 0 && (self.share() - self.expected).abs() <= DEVIATIONS * deviation
    }
}

impl Guarded {
    /// Everything that went wrong.
    fn complaints(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.before != "200" {
            all.push(format!(
                "the intruder got {} before there was a policy",
                self.before
            ));
        }
        let refused = self.after.get(REFUSED).copied().unwrap_or(0);
        if refused == 0 || self.after.len() != 1 {
            all.push(format!(
                "the intruder should have got only {REFUSED}, but got {:?}",
                self.after
            ));
        }
        if self.counted != refused {
            let counted = self.counted;
            all.push(format!(
                "the intruder was refused {refused} times, {counted} were counted"
            ));
        }
        for expected in ["refused at", "AuthorizationPolicy bookstore/details"] {
            if !self.explained.contains(expected) {
                all.push(format!("heddle explain does not say {expected:?}"));
            }
        }
        for turned in &self.strangers {
            let (words, reason) = (turned.stranger.words(), turned.stranger.reason());
            if turned.answer > 0 {
                all.push(format!("{words} to a node was answered"));
            }
            if turned.counted != 1 {
                let counted = turned.counted;
                all.push(format!(
                    "{words} to a node was counted {counted} times as {reason}"
                ));
            }
        }
        all
    }
}

impl Rotated {
    /// Everything that went wrong.
    fn complaints(&self) -> Vec<String> {
        let mut all = Vec::new();
        let [old, new] = &self.roots;
        if old == new || self.stage != "switched" {
            all.push(format!(
                "the root was not replaced: the rotation is {}",
                self.stage
            ));
        }
        if self.trusted.iter().any(|roots| *roots != 2) {
            let trusted = &self.trusted;
            all.push(format!("nodes trust {trusted:?} roots instead of both"));
        }
        if self.newcomers.as_ref() != Some(new) {
            all.push("the newcomer's certificate is not signed by the new root".to_owned());
        }
        let is_answered = self.answers.get("200").is_some_and(|times| *times > 0);
        if !is_answered || self.answers.len() != 1 {
            all.push(format!(
                "the workload added afterwards got {:?} from the other node",
                self.answers
            ));
        }
        all
    }
}

impl Killed {
    /// What went wrong.
    fn complaint(&self) -> Option<String> {
        if self.seen.pages() == 0 {
            let told = self.seen.told.join("; ");
            return Some(format!(
                "no page came after the proxy was killed; first: {told}"
            ));
        }
        (self.gap > MISSED_LIMIT).then(|| {
            let gap = self.gap;
            format!("no page came for {gap:?} when the proxy was killed")
        })
    }
}

/// The result of the demo.
#[derive(Debug)]
pub(super) struct Verdict {
    all: Tally,
    /// Requests that failed anywhere in the mesh, as counted by the nodes.
    failed_inside: u64,
    phases: [Phase; 2],
    guarded: Guarded,
    rotated: Rotated,
    /// `None` on loopback.
    killed: Option<Killed>,
}

impl Verdict {
    /// Judges everything the shopper saw until a proxy was killed, failures inside the mesh, and the acts.
    pub(super) fn new(
        all: Tally,
        failed_inside: u64,
        phases: [Phase; 2],
        guarded: Guarded,
        rotated: Rotated,
        killed: Option<Killed>,
    ) -> Self {
        Self {
            all,
            failed_inside,
            phases,
            guarded,
            rotated,
            killed,
        }
    }

    /// # Errors
    /// A page failed, a request behind a page failed, the traffic did not follow the route, or the policy or the new
    /// root did not work.
    pub(super) fn result(&self) -> anyhow::Result<()> {
        let mut complaints = Vec::new();
        if self.all.failures > 0 {
            complaints.push(format!(
                "{} pages failed, first: {}",
                self.all.failures,
                self.all.told.join("; ")
            ));
        }
        if self.failed_inside > 0 {
            let failed = self.failed_inside;
            complaints.push(format!("{failed} requests failed inside the mesh"));
        }
        for phase in self.phases.iter().filter(|phase| !phase.followed()) {
            complaints.push(format!(
                "of {} pages {:.1} % had reviews v2 where the route says {:.0} %",
                phase.pages(),
                phase.share() * 100.0,
                phase.expected * 100.0
            ));
        }
        complaints.extend(self.guarded.complaints());
        complaints.extend(self.rotated.complaints());
        complaints.extend(self.killed.as_ref().and_then(Killed::complaint));
        if !complaints.is_empty() {
            bail!("{}", complaints.join("\n"));
        }
        Ok(())
    }
}

impl fmt::Display for Verdict {
    /// A line for each act: what happened, and what was refused on purpose.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages: u64 = self.all.versions.iter().sum();
        let [before, after] = &self.phases;
        let asked: u64 = self.guarded.after.values().sum();
        let refused = self.guarded.after.get(REFUSED).copied().unwrap_or(0);
        let strangers = self.guarded.strangers.iter();
        let strangers: Vec<&str> = strangers.map(|turned| turned.stranger.words()).collect();
        writeln!(f, "what happened:")?;
        writeln!(
            f,
            "  pages      the shopper read {pages}, {} failed; of the calls between services behind them {} failed",
            self.all.failures, self.failed_inside
        )?;
        writeln!(
            f,
            "  route      was edited: pages with reviews v2 went from {:.1} % to {:.1} %",
            before.share() * 100.0,
            after.share() * 100.0,
        )?;
        writeln!(
            f,
            "  policy     refused the intruder {refused} of {asked} times once it was written, on purpose"
        )?;
        writeln!(
            f,
            "  strangers  were refused at the mesh address, on purpose: {}",
            strangers.join(", ")
        )?;
        write!(
            f,
            "  root       was replaced under traffic: the old one is trusted until its certificates have run out"
        )?;
        if let Some(killed) = &self.killed {
            let (failed, gap) = (killed.seen.failures, killed.gap.as_millis());
            write!(
                f,
                "\n  proxy      of a node was killed, on purpose: {failed} pages failed, at worst {gap} ms passed between two"
            )?;
        }
        match self.result() {
            Ok(()) => write!(f, "\nAll as expected."),
            Err(_) => write!(f, "\nNot as expected: see the error below."),
        }
    }
}
