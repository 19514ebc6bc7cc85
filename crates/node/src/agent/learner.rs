//! Learns what this node uses: names to the control plane what Workers ask about, and forgets what is not used any more.
//!
//! ```text
//!             asked, within the caller's rate        a mark answers
//!   unknown ──────────────────────────────▶ named ──────────────────▶ known ──┐
//!      ▲                                                                       │ not used for long, or the caller
//!      └───────────────────────────────────────────────────────────────────────┘ has learned too much
//! ```
//!
//! No I/O and no clock: its owner carries messages and passes the time in.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use heddle_model::{Dependency, DependencyState, Mesh, WorkloadName};
use heddle_proxy::{Questions, Reason};
use heddle_xds::NodeMesh;

use super::learned::{Book, Learned, Named};

#[cfg(test)]
mod tests;

/// Names of one caller that are sent to the control plane, in a second …
const PER_SECOND: u32 = 100;
/// … and at once after a pause.
const BURST: u32 = 200;
/// What one caller may have learned. Beyond that, what it has not used for longest is forgotten.
const PER_CALLER: usize = 2_500;
/// How many of these may be names and addresses that do not exist: a caller that tries them all keeps few.
const ABSENT_PER_CALLER: usize = 512;
/// Longest and shortest time between two looks at what is used.
const LOOK: Duration = Duration::from_secs(10);
const SHORTEST_LOOK: Duration = Duration::from_millis(500);

/// What a node has learned, and learns.
pub(super) struct Learner {
    questions: Questions,
    learned: Learned,
    callers: BTreeMap<WorkloadName, Caller>,
    /// How long something may be unused before it is forgotten.
    forget_after: Duration,
    look_every: Duration,
    look_at: Instant,
}

/// One workload that asks.
struct Caller {
    waiting: VecDeque<Dependency>,
    /// Names that may be sent now, in thousandths.
    tokens: u64,
    filled: Instant,
}

impl Caller {
    fn new(now: Instant) -> Self {
        Caller {
            waiting: VecDeque::new(),
            tokens: u64::from(BURST) * 1_000,
            filled: now,
        }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        if passed > 0 {
            let more = passed.saturating_mul(u64::from(PER_SECOND));
            self.tokens = (self.tokens.saturating_add(more)).min(u64::from(BURST) * 1_000);
            self.filled = now;
        }
    }

    fn take(&mut self) -> bool {
        let left = self.tokens.checked_sub(1_000);
        self.tokens = left.unwrap_or(self.tokens);
        left.is_some()
    }
}

impl Learner {
    /// Begins with what was known in the last run, which `mesh` names at once.
    pub(super) fn new(
        questions: Questions,
        learned: Learned,
        forget_after: Duration,
        now: Instant,
    ) -> Self {
        let look_every = (forget_after / 10).clamp(SHORTEST_LOOK, LOOK);
        Learner {
            questions,
            learned,
            callers: BTreeMap::new(),
            forget_after,
            look_every,
            look_at: now + look_every,
        }
    }

    /// Goes on with what was known in an earlier run.
    pub(super) fn recall(
        &mut self,
        known: &[(Dependency, DependencyState)],
        mesh: &mut NodeMesh,
        now: Instant,
    ) {
        let mut learned = self.learned.lock();
        for (dependency, state) in known {
            if mesh.want(dependency) {
                let mut named = Named::new(None, now);
                named.state = Some(*state);
                learned.insert(dependency.clone(), named);
            }
        }
    }

    /// Waits until there is something to do. It is cancel-safe.
    pub(super) async fn due(&self, now: Instant) {
        let next = self.next(now).saturating_duration_since(now);
        tokio::select! {
            () = self.questions.changed() => {}
            () = tokio::time::sleep(next) => {}
        }
    }

    /// When something is to be done even if nothing is asked.
    fn next(&self, now: Instant) -> Instant {
        let is_waiting = self.callers.values().any(|one| !one.waiting.is_empty());
        let token = now + Duration::from_millis(u64::from(1_000 / PER_SECOND));
        match is_waiting {
            true => token.min(self.look_at),
            false => self.look_at,
        }
    }

    /// Names what was asked, and forgets what is unused. The messages are in `mesh` then.
    pub(super) fn turn(&mut self, mesh: &mut NodeMesh, now: Instant) {
        let learned = self.learned.clone();
        let mut learned = learned.lock();
        for (dependency, caller) in self.questions.take() {
            match learned.get_mut(&dependency) {
                // The answer is on its way.
                Some(named) => named.used = now,
                None => {
                    let caller = self.callers.entry(caller);
                    let caller = caller.or_insert_with(|| Caller::new(now));
                    caller.waiting.push_back(dependency);
                }
            }
        }
        self.name(&mut learned, mesh, now);
        if now >= self.look_at {
            self.look_at = now + self.look_every;
            self.look(&mut learned, mesh, now);
        }
    }

    /// Names what callers wait for, in turn, as far as their rates allow.
    fn name(&mut self, learned: &mut Book, mesh: &mut NodeMesh, now: Instant) {
        let mut due: VecDeque<WorkloadName> = self.callers.keys().cloned().collect();
        while let Some(name) = due.pop_front() {
            let Some(caller) = self.callers.get_mut(&name) else {
                continue;
            };
            caller.fill(now);
            // Nothing waits for most of what a scanner has asked a moment ago.
            let questions = &self.questions;
            let is_named = |one: &Dependency| learned.contains_key(one);
            let is_over = |one: &Dependency| is_named(one) || !questions.is_open(one, &name);
            while caller.waiting.front().is_some_and(is_over) {
                caller.waiting.pop_front();
            }
            if caller.waiting.is_empty() || !caller.take() {
                continue;
            }
            let Some(dependency) = caller.waiting.pop_front() else {
                continue;
            };
            if let Some(oldest) = in_the_way(learned, &name) {
                self.forget(learned, mesh, &oldest);
            }
            if mesh.want(&dependency) {
                learned.insert(dependency, Named::new(Some(name.clone()), now));
                self.learned.count_asked();
            } else {
                self.questions
                    .refuse(&dependency, &name, Reason::DiscoveryOverflow);
            }
            due.push_back(name);
        }
        self.callers.retain(|_, caller| {
            caller.fill(now);
            !caller.waiting.is_empty() || caller.tokens < u64::from(BURST) * 1_000
        });
    }

    /// Forgets what was not used for long.
    fn look(&mut self, learned: &mut Book, mesh: &mut NodeMesh, now: Instant) {
        for used in self.questions.take_used() {
            if let Some(named) = learned.get_mut(&used) {
                named.used = now;
            }
        }
        let is_unused =
            |named: &Named| now.saturating_duration_since(named.used) >= self.forget_after;
        let unused = learned.iter().filter(|(_, named)| is_unused(named));
        let unused: Vec<Dependency> = unused.map(|(one, _)| one.clone()).collect();
        for one in unused {
            self.forget(learned, mesh, &one);
        }
    }

    fn forget(&self, learned: &mut Book, mesh: &mut NodeMesh, dependency: &Dependency) {
        learned.remove(dependency);
        mesh.forget(dependency);
        self.learned.count_forgotten();
    }

    /// A mesh has come.
    pub(super) fn answered(&mut self, mesh: &Mesh) {
        let mut learned = self.learned.lock();
        for (dependency, state) in mesh.named.iter().flatten() {
            if let Some(named) = learned.get_mut(dependency) {
                named.state = Some(*state);
            }
        }
    }

    /// Whether the control plane is away. While it is, nothing is forgotten.
    pub(super) fn set_away(&self, is_away: bool) {
        self.questions.set_away(is_away);
    }
}

/// What a caller has not used for longest, if it has learned as much as it may.
fn in_the_way(learned: &Book, caller: &WorkloadName) -> Option<Dependency> {
    let of_caller = |(_, named): &(&Dependency, &Named)| named.by.as_ref() == Some(caller);
    let is_absent =
        |(_, named): &(&Dependency, &Named)| named.state == Some(DependencyState::Absent);
    let all = || learned.iter().filter(of_caller);
    let absent = || all().filter(is_absent);
    let oldest = if absent().count() >= ABSENT_PER_CALLER {
        absent().min_by_key(|(_, named)| named.used)
    } else if all().count() >= PER_CALLER {
        all().min_by_key(|(_, named)| named.used)
    } else {
        None
    };
    oldest.map(|(dependency, _)| dependency.clone())
}
