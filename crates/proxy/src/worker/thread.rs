//! A Worker's thread: its runtime, its root future, and the task that carries out orders.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Instant;
use std::{io, thread};

use heddle_intercept::PodId;
use heddle_model::Class;
use heddle_telemetry::{AccessLog, Registry, WorkerStats};
use heddle_transport::Identities;
use rustix::thread::gettid;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::timer::Timer;
use super::{Bound, Command, Listener, Looks, Receive, Scratch, Shown, Unproven, Worker};
use crate::clock::Millis;
use crate::env::{Env, EnvParts, SWEEP_MS, WorkKey, proof_holds, thread_cpu_ns};
use crate::heap::free_kept_blocks;
use crate::http2::Connections;
use crate::intake::{INTAKE_BOUND, Intake, OfflineWorkers, Sessions};
use crate::io::{count_in, leave_out_reset};
use crate::link::{Links, Places};
use crate::mailbox::Mailbox;
use crate::parcel::Arrival;
use crate::permits::Share;
use crate::place::Pods;
use crate::route::Snapshot;
use crate::settings::{LimitShare, Settings};
use crate::upstream::Upstreams;
use crate::worker::series::FlowSeries;

/// Task polls between two polls of the sockets.
const BUDGET: usize = 128;
/// Milliseconds to the next sweep when no alarm is set but something is left to clean up.
const TIDY_MS: Millis = 1000;
/// Nothing on a Worker recurses; the default of 2 MiB would only be reserved address space.
const STACK_BYTES: usize = 512 * 1024;
/// Added to the nice value of Workers for offline callers: the kernel takes the largest that there is.
const LEAST_NICE: i32 = 19;
/// How often connections that are cut may be woken before they are dropped: to give up their request, to give up
/// sending the answer that says so, and to give up waiting for the client to take it.
const CUT_ROUNDS: usize = 4;

/// The process's handle of a running Worker.
pub(crate) struct WorkerHandle {
    pub(crate) mailbox: Mailbox<Command>,
    pub(crate) intake: Intake,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) shown: Arc<Mutex<Shown>>,
    /// Resolves when the Worker has ended, with the number of connections that it cut.
    pub(crate) ended: oneshot::Receiver<usize>,
    pub(crate) thread: JoinHandle<()>,
    /// The kernel's ID of the thread; 0 until the thread runs.
    pub(crate) thread_id: Arc<AtomicI32>,
}

/// The parts from which a Worker is built.
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    pub(crate) registry: Arc<Registry>,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) log: Option<AccessLog>,
    /// The Worker that has each session with another node.
    pub(crate) sessions: Sessions,
    /// The Workers for offline callers.
    pub(crate) offline_workers: OfflineWorkers,
    /// The connection share that counts the links of calling nodes, of all Workers together.
    pub(crate) called_links: Arc<Share>,
    /// Seed of its random choices.
    pub(crate) seed: u64,
    /// The CPU to run on; `None` for any.
    pub(crate) cpu: Option<usize>,
    /// The function that carries arrivals.
    pub(crate) receive: Receive,
}

/// A runtime that may be dropped inside another runtime: if a Worker cannot be created completely, the Manager drops
/// it, which itself runs inside a runtime.
struct Guarded(Option<Runtime>);

impl Deref for Guarded {
    type Target = Runtime;
    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Starts a Worker.
///
/// # Errors
/// When the thread or its runtime cannot be created.
pub(crate) fn spawn(plan: Plan) -> io::Result<WorkerHandle> {
    let runtime = Guarded(Some(
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?,
    ));
    let timer = {
        let _within = runtime.enter();
        Timer::new()?
    };
    let mailbox = Mailbox::default();
    let (done, ended) = oneshot::channel();
    let inbox = mailbox.clone();
    let intake = Intake::new(INTAKE_BOUND);
    let arrivals = intake.clone();
    let shown: Arc<Mutex<Shown>> = Arc::default();
    let thread_id: Arc<AtomicI32> = Arc::default();
    let own_id = Arc::clone(&thread_id);
    let (outside_stats, outside_shown) = (Arc::clone(&plan.stats), Arc::clone(&shown));
    let thread = thread::Builder::new()
        .name(match plan.stats.class() {
            Class::Online => format!("worker-{}", plan.stats.id),
            Class::Offline => format!("offline-{}", plan.stats.id),
        })
        .stack_size(STACK_BYTES)
        .spawn(move || {
            own_id.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
            if let Some(cpu) = plan.cpu {
                pin(cpu);
            }
            if plan.stats.class() == Class::Offline {
                yield_to_others();
            }
            count_in(&plan.stats);
            let worker = Rc::new(Worker::new(plan, shown, arrivals.clone()));
            worker.gate.measure_by(thread_cpu_ns);
            let until_end = run(&worker, inbox, arrivals, timer);
            let cut = runtime.block_on(tokio::task::coop::unconstrained(until_end));
            worker.gate.clear();
            worker.settle_cpu();
            // An error means that the receiver is gone and no task waits.
            let _ = done.send(cut);
        })?;
    Ok(WorkerHandle {
        mailbox,
        intake,
        stats: outside_stats,
        shown: outside_shown,
        ended,
        thread,
        thread_id,
    })
}

impl Worker {
    fn new(plan: Plan, shown: Arc<Mutex<Shown>>, intake: Intake) -> Self {
        let Plan {
            settings,
            registry,
            stats,
            log,
            sessions,
            offline_workers,
            called_links,
            seed,
            receive,
            ..
        } = plan;
        let bounds = settings.bounds;
        let idle_ms = u64::try_from(settings.timeouts.upstream_idle.as_millis()).unwrap_or(0);
        let upstreams = Rc::new(Upstreams::new(bounds, idle_ms, Arc::clone(&stats)));
        let log = log.map(|log| RefCell::new(log.sink(Arc::clone(&stats))));
        // A tenth, so that several checks fit into the time after which the registry forgets a series that was
        // released.
        let series_unused = registry.bounds().unused / 10;
        let series_unused = u64::try_from(series_unused.as_millis()).unwrap_or(u64::MAX);
        // Several keys may have equal labels, for instance those of a workload's endpoints.
        let series_limit = registry.bounds().label_sets.saturating_mul(2);
        let env = Rc::new(Env::new(EnvParts {
            settings,
            stats,
            sessions,
            offline_workers,
            intake,
            called_links,
            seed,
        }));
        let pods = Arc::<Pods>::default();
        let bound = Bound::new(
            Arc::clone(&env.snapshot()),
            Arc::clone(&pods),
            Rc::clone(&upstreams),
        );
        let places = Rc::new(Places::new(Rc::clone(&env)));
        let unproven = Unproven::default();
        unproven.set_limit(bounds.handshakes);
        Worker {
            bound: RefCell::new(Rc::new(bound)),
            upstreams,
            links: Rc::new(Links::new(Rc::clone(&env), Rc::clone(&places))),
            http2: Rc::new(Connections::new(Rc::clone(&env), places)),
            pods: RefCell::new(pods),
            sockets: RefCell::default(),
            receive,
            looks: Looks::default(),
            unproven: Rc::new(unproven),
            scratch: RefCell::new(Scratch::new()),
            registry,
            log,
            tcp: FlowSeries::default(),
            cpu_used: RefCell::default(),
            series_due: Cell::new(0),
            series_unused,
            series_limit,
            cannot_accept: RefCell::default(),
            full: RefCell::default(),
            said_of_ports: RefCell::default(),
            wary: Cell::new(0),
            shown,
            env,
        }
    }

    fn apply(&self, snapshot: Arc<Snapshot>) {
        let generation = i64::try_from(snapshot.generation).unwrap_or(i64::MAX);
        let guards = &snapshot.guards;
        self.alarms
            .revoke(|door, flow| guards.allow_live(door, flow));
        self.gate.set_offline(&snapshot.offline);
        let before = self.bound();
        let bound = before.followed_by(snapshot);
        let has_all = bound.has_all_of(&before);
        drop(before);
        self.serve_by(bound);
        self.stats.config_generation.set(generation);
        self.asking
            .applied(self.settings.questions.as_ref(), &self.snapshot());
        // Requests that wait for an endpoint check whether there are other endpoints now.
        if self.stats.upstream_requests_waiting.get() > 0 {
            self.gate.wake_all();
        }
        // Tasks keep the series that they use. An identity may have another series from now on.
        self.tcp.clear();
        // Where ports have only been added, which is most often so while a node learns, nothing is unused now.
        if !has_all {
            self.forget_endpoints();
        }
    }

    /// From now on these workloads are dialled from inside their pods. Connections stay open, except idle ones into
    /// pods that are not in the table any more.
    fn enter_pods(&self, pods: Arc<Pods>) {
        let there: HashSet<PodId> = pods.0.values().copied().collect();
        let bound = self.bound().with_pods(Arc::clone(&pods));
        *self.pods.borrow_mut() = pods;
        self.upstreams.leave_pods(|pod| there.contains(&pod));
        self.serve_by(bound);
        self.forget_endpoints();
    }

    /// Uses this configuration for new requests.
    fn serve_by(&self, bound: Bound) {
        self.env.configure(Arc::clone(&bound.snapshot));
        // Dropped after the borrow has ended.
        let old = self.bound.replace(Rc::new(bound));
        drop(old);
    }

    /// Uses these identities from now on, towards other nodes and for calls from them.
    fn call_as(&self, identities: Arc<Identities>) {
        (self.upstreams).distrust(|proof| proof_holds(proof, &identities));
        self.env.identify(identities);
    }

    /// Forgets endpoints that nothing refers to. After many of them, what the C library keeps for this thread is given
    /// back too: mostly small parts of configurations, which the main thread's heap holds.
    fn forget_endpoints(&self) {
        if self.upstreams.forget_unused() {
            let _ends = free_kept_blocks();
        }
    }

    /// Periodic work outside of any request.
    fn sweep(&self) {
        let now = self.clock.now_ms();
        self.alarms.sweep(now);
        self.expire(now);
        self.gate.fade();
        self.gate.tidy();
        self.moves.tidy(&self.gate);
        self.upstreams.sweep(now, self.clock.now());
        self.forget_endpoints();
        self.trim_blocks();
        self.settle_cpu();
        self.forget_series(now);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        self.gate.costs(&mut shown.costs);
        self.show_peers(&mut shown.peers);
        drop(shown);
        if let Some(log) = &self.log {
            log.borrow_mut().flush();
        }
    }
}

impl Worker {
    /// Sets this Worker's share of the process's limits, as one of `workers` Workers.
    fn share(&self, workers: usize, limits: LimitShare) {
        self.upstreams.share(workers, limits);
        let unproven = limits.at_least_one(self.settings.bounds.handshakes);
        self.unproven.set_limit(unproven);
        self.share_blocks(limits);
    }

    /// Hands over the idle upstream connections after the last client connection has gone. Returns false if another
    /// arrival has come in the meantime.
    fn part(self: &Rc<Self>, intake: &Intake) -> bool {
        let late = intake.close();
        if !late.is_empty() {
            intake.open();
            late.into_iter().for_each(|arrival| self.receive(arrival));
            return self.connections() == 0 && self.part(intake);
        }
        let heirs = self.moves.heirs();
        // A limited number, so that room for clients is left.
        let idle = self
            .upstreams
            .let_all_go(|key| self.gate.owner(key))
            .into_iter();
        let idle = idle.take(heirs.len() * INTAKE_BOUND / 4);
        for (idle, heir) in idle.zip(heirs.iter().cycle()) {
            // If it finds no room it is closed: it was only kept to save time.
            let _ = heir.put(Arrival::Upstream(idle));
        }
        heirs.iter().for_each(Intake::wake);
        true
    }

    /// Closes the intake and carries the arrivals that are left in it. Returns whether there were any.
    fn take_last(self: &Rc<Self>, intake: &Intake) -> bool {
        let late = intake.close();
        let any = !late.is_empty();
        late.into_iter().for_each(|arrival| self.receive(arrival));
        any
    }

    /// When the Worker has to run next even if no event wakes it.
    fn next_look(&self, until: Option<Instant>) -> Option<Instant> {
        let now = self.clock.now_ms();
        let alarms = self.alarms.next_sweep().map(|ms| ms.min(now + SWEEP_MS));
        // Pooled connections, blocks and log lines are released even when no client calls.
        let left = self.upstreams.has_idle()
            || (self.is_identified() && self.alarms.has_any())
            || self.peers.is_stale()
            || self.has_blocks_left()
            || self
                .log
                .as_ref()
                .is_some_and(|log| log.borrow().has_lines());
        let sweep = alarms.or_else(|| left.then_some(now + TIDY_MS));
        let series = self.series_due();
        let sweep = sweep.into_iter().chain(series).min();
        sweep
            .map(|ms| self.clock.instant(ms))
            .into_iter()
            .chain(until)
            .min()
    }
}

/// Drives every task of the Worker until it has to end. Returns how many connections were still open.
async fn run(
    worker: &Rc<Worker>,
    mailbox: Mailbox<Command>,
    intake: Intake,
    mut timer: Timer,
) -> usize {
    let until = Rc::new(Cell::new(None));
    worker
        .gate
        .spawn(WorkKey::OWN, receive(Rc::clone(worker), intake.clone()));
    worker.gate.spawn(
        WorkKey::OWN,
        obey(Rc::clone(worker), mailbox, Rc::clone(&until)),
    );
    poll_fn(|cx| {
        let began = Instant::now();
        worker.clock.set(began);
        worker.looks.begin();
        if worker.pace.begin_turn() {
            cx.waker().wake_by_ref();
        }
        if timer.is_due(began) {
            worker.sweep();
        }
        let began_ns = worker.clock.now_ns();
        let more = worker.gate.run(cx, BUDGET, began_ns, || {
            worker.clock.set(Instant::now());
            worker.clock.now_ns()
        });
        if worker.looks.is_awaited() {
            cx.waker().wake_by_ref();
        }
        worker.stats.busy_ns.add(worker.clock.now_ns() - began_ns);
        if let Some(until) = until.get()
            && (worker.connections() == 0 || worker.clock.now() >= until)
        {
            // Arrivals that were not taken yet: no other Worker takes them.
            if worker.take_last(&intake) && worker.clock.now() < until {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            return Poll::Ready(());
        }
        if worker.moves.is_retiring() && worker.connections() == 0 && worker.part(&intake) {
            return Poll::Ready(());
        }
        if let Some(next) = worker.next_look(until.get()) {
            // With more work left, the next turn comes at once and checks the time itself.
            if more {
                timer.note(next);
            } else {
                timer.plan(worker.clock.now(), next, cx);
            }
        }
        Poll::Pending
    })
    .await;
    let cut = worker.connections();
    if cut > 0 {
        poll_fn(|cx| {
            cut_requests(worker, cx);
            Poll::Ready(())
        })
        .await;
    }
    cut
}

/// Ends the requests that are not finished. Each is counted and logged, and its client gets an answer if that takes no
/// waiting.
fn cut_requests(worker: &Rc<Worker>, cx: &Context<'_>) {
    worker.cut();
    for _ in 0..CUT_ROUNDS {
        worker.alarms.ring_all();
        // Each connection has as many turns as it needs, but none can block the end.
        let budget = BUDGET + 4 * worker.connections();
        worker.gate.run(cx, budget, 0, || 0);
        if worker.connections() == 0 {
            return;
        }
    }
}

/// Pins the calling thread to one CPU.
fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    if cpu < rustix::thread::CpuSet::MAX_CPU {
        set.set(cpu);
    }
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(cpu, %error, "a worker cannot be pinned to its CPU");
    }
}

/// Makes the calling thread go last among those of its control group (`setpriority(2)`: Linux keeps a nice value for
/// each thread).
fn yield_to_others() {
    if let Err(error) = rustix::process::nice(LEAST_NICE) {
        tracing::warn!(%error, "a worker for offline callers cannot lower its priority");
    }
}

/// Takes in the connections that other threads hand over.
async fn receive(worker: Rc<Worker>, intake: Intake) {
    let mut batch = Vec::new();
    loop {
        poll_fn(|cx| intake.poll_take(cx, &mut batch)).await;
        // A new client may have waited for long, and may have reset its connection in the meantime.
        let abandoned = leave_out_reset(&mut batch, Arrival::new_client);
        worker.count_abandoned(abandoned);
        batch.drain(..).for_each(|arrival| worker.receive(arrival));
    }
}

/// Carries out the orders of the mailbox.
async fn obey(worker: Rc<Worker>, mailbox: Mailbox<Command>, until: Rc<Cell<Option<Instant>>>) {
    let mut listeners: HashMap<u64, Rc<Listener>> = HashMap::new();
    loop {
        match poll_fn(|cx| mailbox.poll_next(cx)).await {
            Command::Apply(snapshot) => worker.apply(snapshot),
            Command::Identify(identities) => worker.call_as(identities),
            Command::Pods(pods) => worker.enter_pods(pods),
            Command::Sockets(sockets) => *worker.sockets.borrow_mut() = Some(sockets),
            Command::Listen { id, socket, door } => match Listener::open(&worker, socket, door) {
                Ok(listener) => {
                    worker.stats.listeners.inc();
                    if let Some(old) = listeners.insert(id, listener) {
                        worker.stats.listeners.dec();
                        old.close();
                    }
                }
                Err(error) => tracing::error!(%error, "a listener cannot be served"),
            },
            Command::Unlisten { id } => {
                if let Some(listener) = listeners.remove(&id) {
                    worker.stats.listeners.dec();
                    listener.close();
                }
            }
            Command::Give { to, share } => worker.give(&to, share),
            Command::Sort { to } => worker.sort(&to),
            Command::Retire { to } => worker.retire(to),
            Command::Remain => worker.moves.cancel(),
            Command::Share { workers, limits } => worker.share(workers, limits),
            #[cfg(test)]
            Command::Fault => panic!("a fault, for a test"),
            Command::Drain { until: by } => {
                for (_, listener) in listeners.drain() {
                    worker.stats.listeners.dec();
                    listener.close();
                }
                worker.drain();
                until.set(Some(by));
            }
        }
    }
}

#[cfg(test)]
mod tests;
