//! The ready gate decides what a Worker runs next, instead of the runtime's queue.
//!
//! One root future drives every task of a Worker: accept loops, the mailbox and one Collaborator for each connection.
//! When a socket becomes ready, the runtime wakes the task's `Signal`, which puts the task into the ready queue. The
//! root then takes work in the order of that queue ([`ready`]): online callers before offline ones, with a floor for the
//! latter, and otherwise first in, first out. Every task carries the [`WorkKey`] by which it is judged. Where online
//! callers were served lately, sockets are polled after each piece of offline work, so that their work is seen in time.
//!
//! A task is boxed once, when its connection is accepted, and serves every request of that
//! connection: nothing is spawned and nothing is allocated for a request.
//!
//! ```text
//!  spawn ──▶ queued ──▶ polled ──▶ finished (slot freed)
//!              ▲           │ pending
//!              └── woken ◀─┘
//! ```

mod accounts;
mod band;
mod cpu;
mod ready;
mod signal;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use accounts::Accounts;
pub(crate) use accounts::WorkKey;
pub(crate) use band::{Band, BandMember, Part, Spent};
use cpu::CpuMeter;
pub(crate) use cpu::thread_cpu_ns;
use foldhash::fast::RandomState;
use heddle_model::Class;
use ready::Work;
use signal::{LOCAL, Local, NEXT_ID, Remote, Signal};
use slab::Slab;

/// Identifies a task of a gate, and is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TaskId {
    slot: u32,
    generation: u64,
}

/// Processor time that was used for an owner.
#[derive(Debug)]
pub(crate) struct Used {
    pub(crate) key: WorkKey,
    pub(crate) owner: Arc<str>,
    pub(crate) class: Class,
    pub(crate) ns: u64,
}

/// Longest time between two polls of the sockets, plus the piece of work that is under way.
const TURN_NS: u64 = 2_000_000;

/// For so long after online work, sockets are polled after each piece of offline work: more online work may be ready.
const ONLINE_NS: u64 = 50_000_000;

/// Capacity of a table up to which it is never shrunk.
const ROOMY: usize = 1_024;

/// Number of ready tasks from which the gate is crowded.
const CROWD: usize = 32;

/// A task's future with its waker, so that polling neither creates a waker nor counts a reference.
struct Job {
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
}

struct Task {
    /// `None` while the task is being polled.
    job: Option<Job>,
    signal: Arc<Signal>,
    /// The task's band and its part in it, if it belongs to one.
    member: Option<BandMember>,
    /// Nanoseconds of run time since the last [`Gate::fade`], and decayed run time from before.
    spent_ns: u64,
    recent_ns: u64,
}

impl Task {
    fn id(&self) -> TaskId {
        let Work {
            slot, generation, ..
        } = self.signal.work;
        TaskId { slot, generation }
    }

    /// A new waker of the task, which works even while the task is being polled.
    fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.signal))
    }
}

/// The tasks of one Worker, and the queue of ready tasks.
pub(crate) struct Gate {
    local: Rc<Local>,
    remote: Arc<Remote>,
    /// The root's waker that was last registered for other threads.
    registered: RefCell<Option<Waker>>,
    tasks: RefCell<Slab<Task>>,
    generation: Cell<u64>,
    /// The task that runs, or ran last.
    current: Cell<Option<TaskId>>,
    accounts: RefCell<Accounts>,
    cpu: CpuMeter,
    /// Decayed run time of ended tasks, by band, in nanoseconds.
    bands: RefCell<HashMap<Band, u64, RandomState>>,
    last_band: Cell<u64>,
    /// Owners of accounts whose work is offline.
    offline: RefCell<Arc<HashSet<Arc<str>>>>,
    /// When a piece of work of an online caller last ended.
    online_ns: Cell<u64>,
}

impl Gate {
    /// A gate for the calling thread, which must also be the thread that runs it.
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
            registered: RefCell::default(),
            tasks: RefCell::new(Slab::new()),
            generation: Cell::new(0),
            current: Cell::new(None),
            accounts: RefCell::new(Accounts::new()),
            cpu: CpuMeter::default(),
            bands: RefCell::default(),
            last_band: Cell::new(0),
            offline: RefCell::default(),
            online_ns: Cell::new(0),
        }
    }

    /// From now on the work of these owners is offline, and that of all others online.
    pub(crate) fn set_offline(&self, owners: &Arc<HashSet<Arc<str>>>) {
        *self.offline.borrow_mut() = Arc::clone(owners);
        let mut ready = self.local.ready.borrow_mut();
        ready.forget_offline();
        if !owners.is_empty() {
            for (owner, key) in self.accounts.borrow().open_ones() {
                ready.set_offline(key, owners.contains(owner));
            }
        }
    }

    /// The account of `owner`, opened if it does not exist yet.
    pub(crate) fn account(&self, owner: &Arc<str>) -> WorkKey {
        let key = self.accounts.borrow_mut().open(owner);
        let offline = self.offline.borrow();
        if !offline.is_empty() {
            let mut ready = self.local.ready.borrow_mut();
            ready.set_offline(key, offline.contains(owner));
        }
        key
    }

    /// The owner of an account, unless the account was closed.
    pub(crate) fn owner(&self, key: WorkKey) -> Option<Arc<str>> {
        self.accounts.borrow().owner(key).cloned()
    }

    /// Accounts for processor time from now on, as this function reads it in nanoseconds.
    pub(crate) fn measure_by(&self, clock: fn() -> u64) {
        self.cpu.set_clock(clock);
    }

    /// Divides the processor time of the thread since the last call among the owners of the work, and adds each owner's
    /// part to `out`.
    pub(crate) fn settle(&self, out: &mut Vec<Used>) {
        let ready = self.local.ready.borrow();
        let mut accounts = self.accounts.borrow_mut();
        accounts.settle(self.cpu.since_settled(), |key, owner, ns| {
            out.push(Used {
                key,
                owner: Arc::clone(owner),
                class: ready.class(key),
                ns,
            });
        });
    }

    /// Replaces `out` by the processor time of this Worker that each owner has used, in nanoseconds, up to the last call of
    /// [`Gate::settle`].
    pub(crate) fn costs(&self, out: &mut Vec<(Arc<str>, u64)>) {
        let accounts = self.accounts.borrow();
        out.clear();
        out.extend(accounts.costs().map(|(owner, ns)| (Arc::clone(owner), ns)));
        out.shrink_to(2 * out.len());
    }

    /// Closes unused accounts, if there are many accounts.
    pub(crate) fn forget_accounts(&self) {
        let mut accounts = self.accounts.borrow_mut();
        if accounts.are_many() {
            let tasks = self.tasks.borrow();
            accounts.forget_unused(tasks.iter().map(|(_, task)| task.signal.work.key));
        }
    }

    /// Adds a task, which first runs when the root next takes work.
    pub(crate) fn spawn(&self, key: WorkKey, job: impl Future<Output = ()> + 'static) {
        self.spawn_as(key, None, job);
    }

    /// Adds a task that may belong to a band.
    pub(crate) fn spawn_as(
        &self,
        key: WorkKey,
        member: Option<BandMember>,
        job: impl Future<Output = ()> + 'static,
    ) {
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
        let future = Box::pin(job);
        entry.insert(Task {
            job: Some(Job { future, waker }),
            signal,
            member,
            spent_ns: 0,
            recent_ns: 0,
        });
    }

    /// Runs at most `budget` pieces of ready work, and none that would begin later than [`TURN_NS`] after `started_ns`,
    /// at which the first begins. `now_ns` reads a clock in nanoseconds; it is called once after each piece, which is
    /// also the start time of the next.
    ///
    /// Returns whether work is left. In that case the root was woken and will be called again after the runtime has
    /// polled its sockets.
    pub(crate) fn run(
        &self,
        cx: &Context<'_>,
        budget: usize,
        mut started_ns: u64,
        mut now_ns: impl FnMut() -> u64,
    ) -> bool {
        self.local.root.borrow_mut().take();
        let turn_ends_ns = started_ns.saturating_add(TURN_NS);
        for _ in 0..budget {
            if self.remote.pending.load(Ordering::Acquire) {
                self.collect_remote();
            }
            let Some(work) = self.local.ready.borrow_mut().pop() else {
                self.rest(cx);
                return false;
            };
            let over = self.poll_one(work);
            let ended_ns = now_ns();
            let spent_ns = ended_ns.saturating_sub(started_ns);
            self.charge(work, spent_ns);
            let was_offline = self.local.ready.borrow_mut().ran(work.key, spent_ns);
            if !was_offline && work.key != WorkKey::OWN {
                self.online_ns.set(ended_ns);
            }
            if let Some(band) = over {
                self.add_ended(band, spent_ns);
            }
            started_ns = ended_ns;
            let is_awaited = was_offline && ended_ns < self.online_ns.get() + ONLINE_NS;
            if ended_ns >= turn_ends_ns || is_awaited {
                break;
            }
        }
        cx.waker().wake_by_ref();
        true
    }

    /// Whether much work waits, so that optional work should not begin.
    pub(crate) fn is_crowded(&self) -> bool {
        self.local.ready.borrow().len() >= CROWD
    }

    /// Stores the root's waker for the next signal.
    fn rest(&self, cx: &Context<'_>) {
        *self.local.root.borrow_mut() = Some(cx.waker().clone());
        let mut registered = self.registered.borrow_mut();
        let knows = |root: &Waker| root.will_wake(cx.waker());
        // The lock is for other threads: it is taken only if the waker has changed.
        if registered.as_ref().is_some_and(knows) {
            return;
        }
        *registered = Some(cx.waker().clone());
        let mut remote = self.remote.root.lock().unwrap_or_else(|e| e.into_inner());
        *remote = Some(cx.waker().clone());
        drop(remote);
        // A signal between the last check and the registration would not have woken the Worker.
        if self.remote.pending.load(Ordering::Acquire) {
            cx.waker().wake_by_ref();
        }
    }

    fn collect_remote(&self) {
        self.remote.pending.store(false, Ordering::Release);
        let mut remote = self.remote.ready.lock().unwrap_or_else(|e| e.into_inner());
        let mut ready = self.local.ready.borrow_mut();
        remote.drain(..).for_each(|work| ready.push(work));
    }

    /// Polls a task once. Returns its band if the task has ended.
    fn poll_one(&self, work: Work) -> Option<Band> {
        let mut job = {
            let mut tasks = self.tasks.borrow_mut();
            let task = tasks.get_mut(work.slot as usize)?;
            if task.signal.work.generation != work.generation {
                return None;
            }
            task.signal.queued.store(false, Ordering::Release);
            let job = task.job.take()?;
            self.current.set(Some(task.id()));
            job
        };
        let mut context = Context::from_waker(&job.waker);
        let done = job.future.as_mut().poll(&mut context).is_ready();
        let mut tasks = self.tasks.borrow_mut();
        if done {
            let task = tasks.remove(work.slot as usize);
            drop(tasks);
            let band = task.member.map(|member| member.band);
            if let Some(band) = band {
                self.add_ended(band, task.recent_ns + task.spent_ns);
            }
            // Dropped outside the borrow: dropping a task may spawn or wake other tasks.
            drop((task, job));
            return band;
        }
        if let Some(task) = tasks.get_mut(work.slot as usize) {
            task.job = Some(job);
        }
        None
    }

    fn charge(&self, work: Work, spent_ns: u64) {
        let used_ns = self.cpu.charge(spent_ns);
        self.accounts.borrow_mut().charge(work.key, used_ns);
        if let Some(task) = self.tasks.borrow_mut().get_mut(work.slot as usize) {
            task.spent_ns += spent_ns;
        }
    }

    pub(crate) fn current(&self) -> Option<TaskId> {
        self.current.get()
    }

    /// Halves the weight of earlier run time, and adds the time since the last call to it.
    pub(crate) fn fade(&self) {
        for (_, task) in &mut *self.tasks.borrow_mut() {
            task.recent_ns = task.recent_ns / 2 + task.spent_ns;
            task.spent_ns = 0;
        }
        self.bands
            .borrow_mut()
            .values_mut()
            .for_each(|ended| *ended /= 2);
    }

    /// Shrinks tables that have become far too large.
    pub(crate) fn tidy(&self) {
        let mut tasks = self.tasks.borrow_mut();
        if is_roomy(tasks.len(), tasks.capacity()) {
            tasks.shrink_to_fit();
        }
        drop(tasks);
        self.local.ready.borrow_mut().tidy();
    }

    /// All tasks of callers that belong to no band, so that each can move by itself.
    pub(crate) fn callers(&self) -> Vec<TaskId> {
        let tasks = self.tasks.borrow();
        let callers = tasks
            .iter()
            .filter(|(_, task)| task.signal.work.key != WorkKey::OWN && task.member.is_none());
        callers.map(|(_, task)| task.id()).collect()
    }

    /// All tasks of callers of this class that belong to no band.
    pub(crate) fn callers_of(&self, class: Class) -> Vec<TaskId> {
        let (tasks, ready) = (self.tasks.borrow(), self.local.ready.borrow());
        let is_of = |task: &Task| {
            let key = task.signal.work.key;
            key != WorkKey::OWN && task.member.is_none() && ready.class(key) == class
        };
        let callers = tasks.iter().filter(|(_, task)| is_of(task));
        callers.map(|(_, task)| task.id()).collect()
    }

    /// Whether the task still exists.
    pub(crate) fn has(&self, id: TaskId) -> bool {
        let tasks = self.tasks.borrow();
        tasks
            .get(id.slot as usize)
            .is_some_and(|task| task.id() == id)
    }

    /// Wakes a task, so that it checks its state again.
    pub(crate) fn wake(&self, id: TaskId) {
        let tasks = self.tasks.borrow();
        let task = tasks.get(id.slot as usize).filter(|task| task.id() == id);
        let waker = task.map(Task::waker);
        drop(tasks);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes every task.
    pub(crate) fn wake_all(&self) {
        let wakers: Vec<Waker> = self
            .tasks
            .borrow()
            .iter()
            .map(|(_, task)| task.waker())
            .collect();
        wakers.iter().for_each(Waker::wake_by_ref);
    }

    /// Drops every task, which closes its connections.
    pub(crate) fn clear(&self) {
        // Taken out first: dropping a task may access the gate.
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

/// Whether a table's capacity is far larger than its content.
pub(super) fn is_roomy(len: usize, capacity: usize) -> bool {
    capacity > ROOMY && len < capacity / 4
}

#[cfg(test)]
mod tests;
