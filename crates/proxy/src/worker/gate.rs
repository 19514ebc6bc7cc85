//! The ready gate: what a Worker runs next is decided here, not by the runtime's queue.
//!
//! One root future drives every task of a Worker: accept loops, the mailbox and one Collaborator
//! for each connection. When a socket becomes ready, the runtime wakes the task's [`Signal`], which
//! files the task in the ready queue; the root then takes work from that queue in the order that
//! the queue decides. Today the order is first in, first out. Fairness between pods and classes
//! goes into [`ReadyQueue::pop`], without touching anything else: every task already carries the
//! [`WorkKey`] it would be judged by.
//!
//! A task is boxed once, when its connection is accepted, and serves every request of that
//! connection: nothing is spawned and nothing is allocated for a request.
//!
//! ```text
//!  spawn ──▶ queued ──▶ polled ──▶ finished (slot freed)
//!              ▲           │ pending
//!              └── woken ◀─┘
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use slab::Slab;

/// Whose account a piece of work is on: a row of the gate's cost table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkKey(pub(crate) u32);

impl WorkKey {
    /// Accept loops, the mailbox: work on nobody's account.
    pub(crate) const OWN: WorkKey = WorkKey(0);
}

/// A task's entry in the ready queue.
#[derive(Debug, Clone, Copy)]
struct Work {
    slot: u32,
    /// Guards against a wake that arrives after the slot was given to another task.
    generation: u64,
    key: WorkKey,
}

/// Ready work in the order it will run.
#[derive(Debug, Default)]
struct ReadyQueue {
    fifo: VecDeque<Work>,
}

impl ReadyQueue {
    fn push(&mut self, work: Work) {
        self.fifo.push_back(work);
    }

    fn pop(&mut self) -> Option<Work> {
        self.fifo.pop_front()
    }
}

/// The part of a gate that wakers reach from the gate's own thread.
struct Local {
    id: u64,
    ready: RefCell<ReadyQueue>,
    /// Wakes the root future; `None` while the root itself runs and will look at the queue anyway.
    root: RefCell<Option<Waker>>,
}

/// The part of a gate that wakers reach from any other thread. Off the request path: sockets and
/// timers of a Worker always wake on its own thread.
#[derive(Default)]
struct Remote {
    pending: AtomicBool,
    ready: Mutex<Vec<Work>>,
    root: Mutex<Option<Waker>>,
}

thread_local! {
    static LOCAL: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The waker of one task.
struct Signal {
    gate: u64,
    work: Work,
    /// Set while the task stands in the ready queue, so that it stands there once.
    queued: AtomicBool,
    remote: Arc<Remote>,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let local = LOCAL.with(|local| {
            let local = local.borrow();
            let local = local.as_ref().filter(|local| local.id == self.gate)?;
            local.ready.borrow_mut().push(self.work);
            if let Some(root) = local.root.borrow_mut().take() {
                root.wake();
            }
            Some(())
        });
        if local.is_none() {
            let mut ready = self.remote.ready.lock().unwrap_or_else(|e| e.into_inner());
            ready.push(self.work);
            drop(ready);
            self.remote.pending.store(true, Ordering::Release);
            let root = self
                .remote
                .root
                .lock()
                .unwrap_or_else(|e| e.into_inner())
                .clone();
            if let Some(root) = root {
                root.wake();
            }
        }
    }
}

type Job = Pin<Box<dyn Future<Output = ()>>>;

struct Task {
    /// `None` while the task is being polled.
    job: Option<Job>,
    signal: Arc<Signal>,
    /// Kept beside the signal so that polling does not make a waker anew.
    waker: Waker,
}

/// The tasks of one Worker and the queue of those that are ready.
pub(crate) struct Gate {
    local: Rc<Local>,
    remote: Arc<Remote>,
    tasks: RefCell<Slab<Task>>,
    generation: Cell<u64>,
    /// Time spent on each account, in nanoseconds; row 0 is [`WorkKey::OWN`].
    costs: RefCell<Vec<Cost>>,
}

/// What one account has used.
#[derive(Debug)]
struct Cost {
    owner: Arc<str>,
    spent_ns: u64,
}

impl Gate {
    /// A gate for the calling thread, which must be the one that runs it.
    pub(crate) fn new() -> Self {
        let local = Rc::new(Local {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            ready: RefCell::default(),
            root: RefCell::new(None),
        });
        LOCAL.with(|slot| *slot.borrow_mut() = Some(Rc::clone(&local)));
        Gate {
            local,
            remote: Arc::default(),
            tasks: RefCell::new(Slab::new()),
            generation: Cell::new(0),
            costs: RefCell::new(vec![Cost {
                owner: "heddle".into(),
                spent_ns: 0,
            }]),
        }
    }

    /// The account of `owner`, opened at first sight. There are as many as there are callers in
    /// the configuration.
    pub(crate) fn account(&self, owner: &Arc<str>) -> WorkKey {
        let mut costs = self.costs.borrow_mut();
        let row = costs
            .iter()
            .position(|cost| cost.owner == *owner)
            .unwrap_or_else(|| {
                costs.push(Cost {
                    owner: Arc::clone(owner),
                    spent_ns: 0,
                });
                costs.len() - 1
            });
        WorkKey(u32::try_from(row).unwrap_or(0))
    }

    /// Who has used how much of this Worker's time, in nanoseconds, in place of what `out` held.
    pub(crate) fn costs(&self, out: &mut Vec<(Arc<str>, u64)>) {
        let costs = self.costs.borrow();
        out.clear();
        out.extend(
            costs
                .iter()
                .map(|cost| (Arc::clone(&cost.owner), cost.spent_ns)),
        );
    }

    /// Adds a task; it runs for the first time when the root next takes work.
    pub(crate) fn spawn(&self, key: WorkKey, job: impl Future<Output = ()> + 'static) {
        let generation = self.generation.get() + 1;
        self.generation.set(generation);
        let mut tasks = self.tasks.borrow_mut();
        let entry = tasks.vacant_entry();
        // A Worker holds far fewer than 2^32 tasks: its connections are bounded.
        let slot = u32::try_from(entry.key()).expect("the number of tasks is bounded");
        let signal = Arc::new(Signal {
            gate: self.local.id,
            work: Work {
                slot,
                generation,
                key,
            },
            queued: AtomicBool::new(false),
            remote: Arc::clone(&self.remote),
        });
        let waker = Waker::from(Arc::clone(&signal));
        waker.wake_by_ref();
        entry.insert(Task {
            job: Some(Box::pin(job)),
            signal,
            waker,
        });
    }

    /// Runs at most `budget` pieces of ready work, beginning at `started`. `now` reads the clock; it
    /// is called once after each piece, which is also the time at which the next one starts.
    ///
    /// Returns whether work is left, in which case the root was woken and will be called again
    /// after the runtime has looked at its sockets.
    pub(crate) fn run(
        &self,
        cx: &Context<'_>,
        budget: usize,
        mut started: Instant,
        mut now: impl FnMut() -> Instant,
    ) -> bool {
        self.local.root.borrow_mut().take();
        for _ in 0..budget {
            if self.remote.pending.load(Ordering::Acquire) {
                self.collect_remote();
            }
            let Some(work) = self.local.ready.borrow_mut().pop() else {
                self.rest(cx);
                return false;
            };
            self.poll_one(work);
            let ended = now();
            self.charge(work.key, ended.saturating_duration_since(started));
            started = ended;
        }
        cx.waker().wake_by_ref();
        true
    }

    /// Leaves the root's waker where the next signal finds it.
    fn rest(&self, cx: &Context<'_>) {
        *self.local.root.borrow_mut() = Some(cx.waker().clone());
        let mut remote = self.remote.root.lock().unwrap_or_else(|e| e.into_inner());
        if !remote
            .as_ref()
            .is_some_and(|root| root.will_wake(cx.waker()))
        {
            *remote = Some(cx.waker().clone());
            drop(remote);
            // A signal between the last look and the registration would have woken nobody.
            if self.remote.pending.load(Ordering::Acquire) {
                cx.waker().wake_by_ref();
            }
        }
    }

    fn collect_remote(&self) {
        self.remote.pending.store(false, Ordering::Release);
        let mut remote = self.remote.ready.lock().unwrap_or_else(|e| e.into_inner());
        let mut ready = self.local.ready.borrow_mut();
        remote.drain(..).for_each(|work| ready.push(work));
    }

    fn poll_one(&self, work: Work) {
        let (mut job, waker) = {
            let mut tasks = self.tasks.borrow_mut();
            let Some(task) = tasks.get_mut(work.slot as usize) else {
                return;
            };
            if task.signal.work.generation != work.generation {
                return;
            }
            task.signal.queued.store(false, Ordering::Release);
            let Some(job) = task.job.take() else { return };
            (job, task.waker.clone())
        };
        let done = job.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(());
        let mut tasks = self.tasks.borrow_mut();
        if done {
            let task = tasks.remove(work.slot as usize);
            drop(tasks);
            // Dropped outside the borrow: a task may hold what spawns or wakes others.
            drop((task, job));
        } else if let Some(task) = tasks.get_mut(work.slot as usize) {
            task.job = Some(job);
        }
    }

    fn charge(&self, key: WorkKey, spent: Duration) {
        if let Some(cost) = self.costs.borrow_mut().get_mut(key.0 as usize) {
            cost.spent_ns += u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        }
    }

    /// Lets every task look at the world again.
    pub(crate) fn wake_all(&self) {
        let wakers: Vec<Waker> = self
            .tasks
            .borrow()
            .iter()
            .map(|(_, task)| task.waker.clone())
            .collect();
        wakers.iter().for_each(Waker::wake_by_ref);
    }

    /// Drops every task, closing what they hold.
    pub(crate) fn clear(&self) {
        // Taken out first: a task may hold what refers to the gate.
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        drop(tasks);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.clear();
        LOCAL.with(|slot| {
            let mut slot = slot.borrow_mut();
            if slot.as_ref().is_some_and(|local| local.id == self.local.id) {
                *slot = None;
            }
        });
    }
}

#[cfg(test)]
mod tests;
