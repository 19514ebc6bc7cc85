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
use std::mem;
use std::time::{Duration, Instant};

use heddle_model::{Dependency, DependencyState};
use heddle_proxy::{Asker, Questions, Reason};
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
/// Names of one caller that wait before those are dropped that are not asked any more. A proxy lets it ask a quarter of
/// that at a time.
const WAITING: usize = 512;
/// Least time between two messages with names of one caller while an answer to it is outstanding: each answer is another
/// configuration of the node.
const PACE: Duration = Duration::from_millis(20);
/// Most turns that name something in that time, whatever callers they are for. So a caller waits for no answer to another
/// one as long as few ask.
const MESSAGES: usize = 4;
/// Longest and shortest time between two looks at what is used.
const LOOK: Duration = Duration::from_secs(10);
const SHORTEST_LOOK: Duration = Duration::from_millis(500);

/// What a node has learned, and learns.
pub(super) struct Learner {
    questions: Questions,
    learned: Learned,
    callers: BTreeMap<Asker, Caller>,
    /// How long something may be unused before it is forgotten.
    forget_after: Duration,
    look_every: Duration,
    look_at: Instant,
    /// When the last messages were sent, the newest last; none once all are answered.
    sent: VecDeque<Instant>,
    /// Connections to the control plane that have failed since it told this node something.
    failures: u32,
}

/// One of those that ask.
struct Caller {
    waiting: VecDeque<Dependency>,
    /// Names that may be sent now, in thousandths.
    tokens: u64,
    filled: Instant,
    /// When something was named for it last.
    named_at: Option<Instant>,
}

impl Caller {
    fn new(now: Instant) -> Self {
        Caller {
            waiting: VecDeque::new(),
            tokens: u64::from(BURST) * 1_000,
            filled: now,
            named_at: None,
        }
    }

    /// Until when nothing more is named for it if an answer is outstanding.
    fn rests_until(&self, now: Instant) -> Option<Instant> {
        let until = self.named_at.map(|at| at + PACE);
        until.filter(|until| now < *until)
    }

    /// When it may send a name by its rate.
    fn may_pay_at(&self, now: Instant) -> Instant {
        match self.tokens {
            1_000.. => now,
            tokens => {
                self.filled
                    + Duration::from_millis((1_000 - tokens).div_ceil(u64::from(PER_SECOND)))
            }
        }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_millis();
        // After a minute there is no room for more.
        let passed = u64::try_from(passed).unwrap_or(u64::MAX).min(60_000);
        let more = passed * u64::from(PER_SECOND);
        self.tokens = (self.tokens + more).min(u64::from(BURST) * 1_000);
        self.filled = match passed {
            60_000 => now,
            // What is left of a millisecond counts the next time.
            _ => self.filled + Duration::from_millis(passed),
        };
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
            sent: VecDeque::with_capacity(MESSAGES),
            failures: 0,
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
        // A question that comes meanwhile is named together with others.
        if self.full_until(now).is_some() {
            return tokio::time::sleep(next).await;
        }
        tokio::select! {
            () = self.questions.changed() => {}
            () = tokio::time::sleep(next) => {}
        }
    }

    /// When another message may be sent, if not now.
    fn full_until(&self, now: Instant) -> Option<Instant> {
        let oldest = self.sent.front().map(|at| *at + PACE);
        let is_full = self.sent.len() >= MESSAGES;
        oldest.filter(|until| is_full && now < *until)
    }

    /// When something may be named for a caller, if not now: a while after the last message, or when all is answered.
    fn paced_until(
        &self,
        (name, caller): (&Asker, &Caller),
        learned: &Book,
        now: Instant,
    ) -> Option<Instant> {
        let until = caller.rests_until(now);
        until.filter(|_| learned.share(name).unanswered > 0)
    }

    /// When something is to be done even if nothing is asked.
    fn next(&self, now: Instant) -> Instant {
        let learned = self.learned.lock();
        let may_be_named = || {
            let waiting = self.callers.iter();
            let waiting = waiting.filter(|(_, caller)| !caller.waiting.is_empty());
            let may = waiting.map(|one| {
                let paced = self.paced_until(one, &learned, now);
                paced.unwrap_or(now).max(one.1.may_pay_at(now))
            });
            may.min()
        };
        let next = self.full_until(now).or_else(may_be_named);
        next.map_or(self.look_at, |next| next.min(self.look_at))
    }

    /// Names what was asked, and forgets what is unused. The messages are in `mesh` then.
    pub(super) fn turn(&mut self, mesh: &mut NodeMesh, now: Instant) {
        let learned = self.learned.clone();
        let mut learned = learned.lock();
        for (dependency, caller) in self.questions.take() {
            // If it is named, the answer is on its way.
            if learned.note_use(&dependency, now) {
                continue;
            }
            let name = caller.clone();
            let caller = self.callers.entry(caller);
            let caller = caller.or_insert_with(|| Caller::new(now));
            // Most of a full queue was given up by those that had asked.
            if caller.waiting.len() >= WAITING {
                let questions = &self.questions;
                (caller.waiting).retain(|one| questions.is_open(one, &name));
            }
            caller.waiting.push_back(dependency);
        }
        if self.full_until(now).is_none() {
            self.name(&mut learned, mesh, now);
        }
        if now >= self.look_at {
            self.look_at = now + self.look_every;
            self.look(&mut learned, mesh, now);
        }
    }

    /// Names what callers wait for, in turn, as far as their rates allow.
    fn name(&mut self, learned: &mut Book, mesh: &mut NodeMesh, now: Instant) {
        let callers = self.callers.iter();
        let may = callers.filter(|one| self.paced_until(*one, learned, now).is_none());
        let mut due: VecDeque<Asker> = may.map(|(name, _)| name.clone()).collect();
        let mut is_any_named = false;
        while let Some(name) = due.pop_front() {
            let Some(caller) = self.callers.get_mut(&name) else {
                continue;
            };
            caller.fill(now);
            // Nothing waits for most of what a scanner has asked a moment ago.
            let questions = &self.questions;
            let is_over = |one: &Dependency| learned.has(one) || !questions.is_open(one, &name);
            while caller.waiting.front().is_some_and(is_over) {
                caller.waiting.pop_front();
            }
            if caller.waiting.is_empty() || !caller.take() {
                continue;
            }
            let Some(dependency) = caller.waiting.pop_front() else {
                continue;
            };
            caller.named_at = Some(now);
            if let Some(oldest) = in_the_way(learned, &name) {
                self.forget(learned, mesh, &oldest);
            }
            let mut is_named = mesh.want(&dependency);
            if !is_named && let Some(oldest) = of_the_largest(learned, &dependency) {
                self.forget(learned, mesh, &oldest);
                is_named = mesh.want(&dependency);
            }
            if is_named {
                learned.insert(dependency, Named::new(Some(name.clone()), now));
                self.learned.count_asked();
                is_any_named = true;
            } else {
                self.questions
                    .refuse(&dependency, &name, Reason::DiscoveryOverflow);
            }
            due.push_back(name);
        }
        if is_any_named {
            if self.sent.len() >= MESSAGES {
                self.sent.pop_front();
            }
            self.sent.push_back(now);
        }
        self.callers.retain(|_, caller| {
            caller.fill(now);
            let is_full = caller.tokens >= u64::from(BURST) * 1_000;
            !caller.waiting.is_empty() || !is_full || caller.rests_until(now).is_some()
        });
    }

    /// Forgets what was not used for long.
    fn look(&mut self, learned: &mut Book, mesh: &mut NodeMesh, now: Instant) {
        for used in self.questions.take_used() {
            learned.note_use(&used, now);
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

    /// Answers have come.
    pub(super) fn answered(&mut self, answers: &[(Dependency, DependencyState)]) {
        let mut learned = self.learned.lock();
        for (dependency, state) in answers {
            learned.answer(dependency, *state);
        }
        if !learned.is_any_unanswered() {
            self.sent.clear();
        }
    }

    /// Waits until a caller asks what the control plane has to answer, also one that is refused because that is away. It
    /// is cancel-safe.
    pub(super) async fn wanted(&self) {
        self.questions.wanted().await;
    }

    /// The control plane tells this node its part of the mesh: questions are answered.
    pub(super) fn connected(&mut self) {
        self.failures = 0;
        self.questions.set_away(false);
    }

    /// A connection to the control plane has failed. One that restarts is back at the next attempt: until then, questions
    /// wait. After that they are refused at once.
    pub(super) fn disconnected(&mut self) {
        self.failures = self.failures.saturating_add(1);
        if self.failures > 1 {
            self.questions.set_away(true);
        }
    }

    /// The control plane's answer cannot be used, perhaps because the node has named too much: a quarter of it, what was
    /// named last, is forgotten.
    pub(super) fn forget_newest(&mut self, mesh: &mut NodeMesh) {
        let learned = self.learned.clone();
        let mut learned = learned.lock();
        let mut newest: Vec<(Instant, Dependency)> = learned
            .iter()
            .map(|(one, named)| (named.since(), one.clone()))
            .collect();
        newest.sort_by(|one, other| other.cmp(one));
        newest.truncate(newest.len().div_ceil(4));
        for (_, one) in newest {
            self.forget(&mut learned, mesh, &one);
        }
    }

    /// The control plane is connected, and sends no mesh: no answer is expected.
    pub(super) fn without_mesh(&self) {
        self.questions.set_away(true);
    }
}

/// What is forgotten for another name of its kind, when the node has as many as it may: what was not used for longest, of
/// the caller that has the most. Names of an earlier run count as one caller's.
fn of_the_largest(learned: &Book, wanted: &Dependency) -> Option<Dependency> {
    let kind = mem::discriminant(wanted);
    let alike = || {
        learned
            .iter()
            .filter(|(one, _)| mem::discriminant(*one) == kind)
    };
    let mut counts: BTreeMap<Option<&Asker>, usize> = BTreeMap::new();
    for (_, named) in alike() {
        *counts.entry(named.by.as_ref()).or_default() += 1;
    }
    let (largest, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let of_largest = alike().filter(|(_, named)| named.by.as_ref() == largest);
    let oldest = of_largest.min_by_key(|(_, named)| named.used);
    oldest.map(|(dependency, _)| dependency.clone())
}

/// What a caller has not used for longest, if it has learned as much as it may.
fn in_the_way(learned: &Book, caller: &Asker) -> Option<Dependency> {
    let share = learned.share(caller);
    let must_be_absent = share.absent >= ABSENT_PER_CALLER;
    if !must_be_absent && share.all < PER_CALLER {
        return None;
    }
    let may_go = |(_, named): &(&Dependency, &Named)| {
        let is_absent = named.state == Some(DependencyState::Absent);
        named.by.as_ref() == Some(caller) && (is_absent || !must_be_absent)
    };
    let oldest = learned
        .iter()
        .filter(may_go)
        .min_by_key(|(_, named)| named.used);
    oldest.map(|(dependency, _)| dependency.clone())
}
