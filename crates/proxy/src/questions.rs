//! What Workers ask about the mesh on a node that knows only what it uses: what is at an address, or by a name, about
//! which nothing was said yet.
//!
//! ```text
//!   Worker ── ask ──▶ waits ───────────────────────────▶ looks again, by the new configuration
//!                       │   ▲ refuse                       ▲ applied
//!   agent ──────────── take ─ to the control plane ─ mesh ─┘
//! ```
//!
//! Questions cost a lock; what is known costs nothing. Everything is bounded, for each caller and for the process: it takes
//! several callers to use up the places of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use heddle_model::Dependency;
use tokio::sync::Notify;

use crate::failure::Reason;
use crate::sync::{Mutex, MutexGuard, lock};

mod asker;
#[cfg(test)]
mod tests;

pub use asker::Asker;

/// Most things that one caller may ask about at a time …
const QUESTIONS_PER_CALLER: usize = 128;
/// … with this many connections and requests that wait …
const WAITING_PER_CALLER: usize = 1_024;
/// … and those of all callers together.
const WAITING: usize = 8_192;

/// The open questions of a proxy. Clones share them.
#[derive(Clone, Default)]
pub struct Questions(Arc<Shared>);

#[derive(Default)]
struct Shared {
    open: Mutex<Open>,
    news: Notify,
    /// For [`Questions::wanted`]. It is another one than `news`, which each wakes one task once.
    want: Notify,
    usage: Mutex<Usage>,
}

#[derive(Default)]
struct Open {
    questions: BTreeMap<Dependency, Vec<Waiter>>,
    callers: BTreeMap<Asker, CallerQuestions>,
    waiting: usize,
    /// Questions that the agent has not taken yet, each with its caller.
    new: Vec<(Dependency, Asker)>,
    next_waiter: u64,
    /// Whether the control plane has been away for so long that no answer is expected.
    is_away: bool,
    /// Whether something was refused for that reason since the agent looked last.
    is_missed: bool,
}

/// What one caller asks.
#[derive(Default)]
struct CallerQuestions {
    /// Each with the number of those that wait for its answer.
    open: BTreeMap<Dependency, usize>,
    /// Those that wait, and those whose wait has ended and that have not looked yet.
    waiting: usize,
}

/// A connection or request that waits for an answer.
struct Waiter {
    id: u64,
    caller: Asker,
    /// The Worker that carries it.
    worker: u64,
    waker: Option<Waker>,
    end: Option<Result<(), Reason>>,
}

/// Takes what was used of one configuration since the last time.
type TakeUsed = Box<dyn Fn() -> BTreeSet<Dependency> + Send>;

/// What callers have used of the named dependencies.
#[derive(Default)]
struct Usage {
    newest: Option<TakeUsed>,
    /// By earlier configurations.
    used: BTreeSet<Dependency>,
}

/// A place among those that wait for an answer. Dropping it leaves without a trace.
pub struct Ticket {
    shared: Arc<Shared>,
    dependency: Dependency,
    caller: Asker,
    id: u64,
}

/// For the agent, which answers.
impl Questions {
    /// Waits until there may be something to take. It is cancel-safe.
    pub async fn changed(&self) {
        self.0.news.notified().await;
    }

    /// Takes what was asked since the last time, each with who asks. Several may ask the same.
    pub fn take(&self) -> Vec<(Dependency, Asker)> {
        mem::take(&mut self.0.open().new)
    }

    /// Whether the caller still waits for the answer.
    pub fn is_open(&self, dependency: &Dependency, caller: &Asker) -> bool {
        let open = self.0.open();
        let asked = open.callers.get(caller);
        asked.is_some_and(|asked| asked.open.contains_key(dependency))
    }

    /// Tells a caller that there will be no answer.
    pub fn refuse(&self, dependency: &Dependency, caller: &Asker, why: Reason) {
        let mut open = self.0.open();
        let ended = open.end(Err(why), |asked, waiter| {
            asked == dependency && waiter.caller == *caller
        });
        drop(open);
        ended.into_iter().for_each(Waker::wake);
    }

    /// Refuses all questions from now on, or none any more: the control plane is away, or back.
    pub fn set_away(&self, is_away: bool) {
        let mut open = self.0.open();
        open.is_away = is_away;
        open.is_missed &= is_away;
        let ended = open.end(Err(Reason::DiscoveryUnavailable), |_, _| is_away);
        drop(open);
        ended.into_iter().for_each(Waker::wake);
    }

    /// Waits until something waits for an answer, or was refused since the last time because the control plane is away.
    /// It is cancel-safe.
    pub async fn wanted(&self) {
        while !self.0.open().take_wanted() {
            self.0.want.notified().await;
        }
    }

    /// The named dependencies that were used since the last time: connections and requests went there, or asked for it.
    pub fn take_used(&self) -> BTreeSet<Dependency> {
        let mut usage = lock(&self.0.usage);
        let newest = usage.newest.as_ref();
        let mut used = newest.map_or_else(BTreeSet::new, |take_used| take_used());
        used.append(&mut usage.used);
        used
    }
}

/// For the proxy, which asks.
impl Questions {
    /// From now on another configuration is used, of which this takes what was used.
    pub(crate) fn serves(&self, take_used: impl Fn() -> BTreeSet<Dependency> + Send + 'static) {
        let mut usage = lock(&self.0.usage);
        let before = usage.newest.replace(Box::new(take_used));
        let used = before.map_or_else(BTreeSet::new, |before| before());
        usage.used.extend(used);
    }

    /// Asks for a caller whose connection or request waits, on one of the threads of the proxy.
    ///
    /// # Errors
    /// When too much is asked already, or the control plane is away.
    pub fn ask(
        &self,
        dependency: Dependency,
        caller: &Asker,
        worker: u64,
    ) -> Result<Ticket, Reason> {
        let mut open = self.0.open();
        if open.is_away {
            let was_missed = mem::replace(&mut open.is_missed, true);
            drop(open);
            // Once for each attempt to reach the control plane.
            if !was_missed {
                self.0.want.notify_one();
                tracing::warn!(
                    %caller, %dependency,
                    "a call is refused: the node does not know its destination, and the control plane is away"
                );
            }
            return Err(Reason::DiscoveryUnavailable);
        }
        if open.waiting >= WAITING {
            return Err(Reason::DiscoveryOverflow);
        }
        let asked = open.callers.entry(caller.clone()).or_default();
        let is_new = !asked.open.contains_key(&dependency);
        if asked.waiting >= WAITING_PER_CALLER || is_new && asked.open.len() >= QUESTIONS_PER_CALLER
        {
            return Err(Reason::DiscoveryOverflow);
        }
        asked.waiting += 1;
        *asked.open.entry(dependency.clone()).or_default() += 1;
        open.waiting += 1;
        let id = open.next_waiter;
        open.next_waiter += 1;
        let waiters = open.questions.entry(dependency.clone()).or_default();
        waiters.push(Waiter {
            id,
            caller: caller.clone(),
            worker,
            waker: None,
            end: None,
        });
        if is_new {
            open.new.push((dependency.clone(), caller.clone()));
        }
        drop(open);
        if is_new {
            self.0.news.notify_one();
            self.0.want.notify_one();
        }
        Ok(Ticket {
            shared: Arc::clone(&self.0),
            dependency,
            caller: caller.clone(),
            id,
        })
    }

    /// A Worker uses another configuration: what of its questions is answered by it looks again.
    pub(crate) fn applied(&self, worker: u64, is_answered: impl Fn(&Dependency) -> bool) {
        let mut open = self.0.open();
        let ended = open.end(Ok(()), |dependency, waiter| {
            waiter.worker == worker && is_answered(dependency)
        });
        drop(open);
        ended.into_iter().for_each(Waker::wake);
    }
}

impl Open {
    /// Whether an answer is wanted; what was refused counts once.
    fn take_wanted(&mut self) -> bool {
        let is_waited_for = self.callers.values().any(|asked| !asked.open.is_empty());
        mem::take(&mut self.is_missed) || is_waited_for
    }

    /// Ends the waits for which `ends` holds. Returns the wakers, to be called once the lock is released.
    fn end(
        &mut self,
        how: Result<(), Reason>,
        ends: impl Fn(&Dependency, &Waiter) -> bool,
    ) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for (dependency, waiters) in &mut self.questions {
            for waiter in waiters {
                if waiter.end.is_none() && ends(dependency, waiter) {
                    waiter.end = Some(how);
                    wakers.extend(waiter.waker.take());
                    close(&mut self.callers, &mut self.new, dependency, &waiter.caller);
                }
            }
        }
        wakers
    }
}

/// One fewer of a caller's connections and requests waits for an answer. With the last one the question is not asked any
/// more.
fn close(
    callers: &mut BTreeMap<Asker, CallerQuestions>,
    new: &mut Vec<(Dependency, Asker)>,
    dependency: &Dependency,
    caller: &Asker,
) {
    let open = callers.get_mut(caller).map(|asked| &mut asked.open);
    let Some(open) = open else { return };
    let Some(waiting) = open.get_mut(dependency) else {
        return;
    };
    *waiting -= 1;
    if *waiting == 0 {
        open.remove(dependency);
        let is_it = |one: &(Dependency, Asker)| one.0 == *dependency && one.1 == *caller;
        if let Some(at) = new.iter().position(is_it) {
            new.remove(at);
        }
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, Open> {
        lock(&self.open)
    }
}

impl Ticket {
    /// Ready when the Worker's configuration has the answer, or with the reason why there will be none.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<(), Reason>> {
        let mut open = self.shared.open();
        let mut waiters = open
            .questions
            .get_mut(&self.dependency)
            .into_iter()
            .flatten();
        // It is there until the ticket is dropped.
        let Some(waiter) = waiters.find(|waiter| waiter.id == self.id) else {
            return Poll::Ready(Ok(()));
        };
        match waiter.end {
            Some(end) => Poll::Ready(end),
            None => {
                waiter.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut open = self.shared.open();
        let Open {
            questions,
            callers,
            waiting,
            new,
            ..
        } = &mut *open;
        *waiting -= 1;
        if let Some(waiters) = questions.get_mut(&self.dependency) {
            let own = waiters.iter().position(|waiter| waiter.id == self.id);
            if own.is_some_and(|own| waiters.swap_remove(own).end.is_none()) {
                close(callers, new, &self.dependency, &self.caller);
            }
            if waiters.is_empty() {
                questions.remove(&self.dependency);
            }
        }
        if let Some(asked) = callers.get_mut(&self.caller) {
            asked.waiting -= 1;
            if asked.waiting == 0 {
                callers.remove(&self.caller);
            }
        }
    }
}

impl fmt::Debug for Questions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.0.open().waiting;
        f.debug_struct("Questions")
            .field("waiting", &waiting)
            .finish()
    }
}

impl PartialEq for Questions {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
