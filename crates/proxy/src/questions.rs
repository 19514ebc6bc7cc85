//! What Workers ask about the mesh on a node that knows only what it uses: what is at an address, or by a name, about
//! which nothing was said yet.
//!
//! ```text
//!   Worker ── ask ──▶ waits ───────────────────────────▶ looks again, by the new configuration
//!                       │   ▲ refuse                       ▲ applied
//!   agent ──────────── take ─ to the control plane ─ mesh ─┘
//! ```
//!
//! Questions cost a lock; what is known costs nothing. Everything is bounded, for each caller and for the process: a pod
//! that scans all addresses takes no place of another pod.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use heddle_model::{Dependency, WorkloadName};
use tokio::sync::Notify;

use crate::failure::Reason;
use crate::sync::{Mutex, MutexGuard, lock};

#[cfg(test)]
mod tests;

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
    usage: Mutex<Usage>,
}

#[derive(Default)]
struct Open {
    questions: BTreeMap<Dependency, Vec<Waiter>>,
    callers: BTreeMap<WorkloadName, Asked>,
    waiting: usize,
    /// Questions that the agent has not taken yet, each with its caller.
    new: Vec<(Dependency, WorkloadName)>,
    next_waiter: u64,
    /// Whether the control plane has been away for so long that no answer is expected.
    is_away: bool,
}

/// What one caller asks.
#[derive(Default)]
struct Asked {
    questions: BTreeMap<Dependency, usize>,
    waiting: usize,
}

/// A connection or request that waits for an answer.
struct Waiter {
    id: u64,
    caller: WorkloadName,
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
    caller: WorkloadName,
    id: u64,
}

/// For the agent, which answers.
impl Questions {
    /// Waits until there may be something to take. It is cancel-safe.
    pub async fn changed(&self) {
        self.0.news.notified().await;
    }

    /// Takes what was asked since the last time, each with the workload that asks. Several workloads may ask the same.
    pub fn take(&self) -> Vec<(Dependency, WorkloadName)> {
        mem::take(&mut self.0.open().new)
    }

    /// Whether the caller still waits for the answer.
    pub fn is_open(&self, dependency: &Dependency, caller: &WorkloadName) -> bool {
        let open = self.0.open();
        let asked = open.callers.get(caller);
        asked.is_some_and(|asked| asked.questions.contains_key(dependency))
    }

    /// Tells a caller that there will be no answer.
    pub fn refuse(&self, dependency: &Dependency, caller: &WorkloadName, why: Reason) {
        let mut open = self.0.open();
        let waiters = open.questions.get_mut(dependency).into_iter().flatten();
        let ended = end(waiters.filter(|waiter| waiter.caller == *caller), Err(why));
        drop(open);
        ended.into_iter().for_each(Waker::wake);
    }

    /// Refuses all questions from now on, or none any more: the control plane is away, or back.
    pub fn set_away(&self, is_away: bool) {
        let mut open = self.0.open();
        open.is_away = is_away;
        let all = open.questions.values_mut().filter(|_| is_away).flatten();
        let ended = end(all, Err(Reason::DiscoveryUnavailable));
        drop(open);
        ended.into_iter().for_each(Waker::wake);
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
        caller: &WorkloadName,
        worker: u64,
    ) -> Result<Ticket, Reason> {
        let mut open = self.0.open();
        if open.is_away {
            return Err(Reason::DiscoveryUnavailable);
        }
        if open.waiting >= WAITING {
            return Err(Reason::DiscoveryOverflow);
        }
        let asked = open.callers.entry(caller.clone()).or_default();
        let is_new = !asked.questions.contains_key(&dependency);
        if asked.waiting >= WAITING_PER_CALLER
            || is_new && asked.questions.len() >= QUESTIONS_PER_CALLER
        {
            return Err(Reason::DiscoveryOverflow);
        }
        asked.waiting += 1;
        *asked.questions.entry(dependency.clone()).or_default() += 1;
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
        let answered = open.questions.iter_mut();
        let answered = answered.filter(|(dependency, _)| is_answered(dependency));
        let waiters = answered.flat_map(|(_, waiters)| waiters);
        let ended = end(waiters.filter(|waiter| waiter.worker == worker), Ok(()));
        drop(open);
        ended.into_iter().for_each(Waker::wake);
    }
}

/// Ends these waits. Returns whom to wake, once the lock is released.
fn end<'w>(waiters: impl Iterator<Item = &'w mut Waiter>, how: Result<(), Reason>) -> Vec<Waker> {
    let waiting = waiters.filter(|waiter| waiter.end.is_none());
    let wakers = waiting.filter_map(|waiter| {
        waiter.end = Some(how);
        waiter.waker.take()
    });
    wakers.collect()
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
        open.waiting -= 1;
        if let Some(waiters) = open.questions.get_mut(&self.dependency) {
            waiters.retain(|waiter| waiter.id != self.id);
            if waiters.is_empty() {
                open.questions.remove(&self.dependency);
            }
        }
        let Some(asked) = open.callers.get_mut(&self.caller) else {
            return;
        };
        asked.waiting -= 1;
        if let Some(waiting) = asked.questions.get_mut(&self.dependency) {
            *waiting -= 1;
            if *waiting == 0 {
                asked.questions.remove(&self.dependency);
            }
        }
        if asked.waiting == 0 {
            open.callers.remove(&self.caller);
        }
        // What the agent has not taken is not asked any more.
        let Open { new, callers, .. } = &mut *open;
        let asks = |(dependency, caller): &(Dependency, WorkloadName)| {
            let asked = callers.get(caller);
            asked.is_some_and(|asked| asked.questions.contains_key(dependency))
        };
        new.retain(asks);
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
