//! A Worker's thread: its runtime, its root future, and the task that obeys the mailbox.

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
use heddle_telemetry::{AccessLog, Registry, WorkerStats};
use heddle_transport::Identities;
use rustix::thread::gettid;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::timer::Timer;
use super::{Bound, Command, Listener, Looks, Receive, Scratch, Shown, Unproven, Worker};
use crate::clock::Millis;
use crate::env::{Env, EnvParts, SWEEP_MS, WorkKey, proof_holds};
use crate::http2::Connections;
use crate::intake::{INTAKE_BOUND, Intake, Sessions};
use crate::io::{count_in, leave_out_reset};
use crate::link::{Links, Places};
use crate::mailbox::Mailbox;
use crate::parcel::Arrival;
use crate::permits::Share;
use crate::place::Pods;
use crate::route::Snapshot;
use crate::settings::Settings;
use crate::upstream::Upstreams;
use crate::worker::series::FlowSeries;

/// Pieces of work between two looks at the sockets.
const BUDGET: usize = 128;
/// Milliseconds to the next sweep when nothing is waited for but something is left to tidy up.
const TIDY_MS: Millis = 1000;
/// Nothing on a Worker recurses; the default of 2 MiB would only be reserved.
const STACK_BYTES: usize = 512 * 1024;
/// How often those that are cut may be told before they are dropped: to give up their request, to
/// give up sending the answer that says so, and to give up waiting for the client to take it.
const CUT_ROUNDS: usize = 4;

/// A running Worker as the rest of the process sees it.
pub(crate) struct WorkerHandle {
    pub(crate) mailbox: Mailbox<Command>,
    pub(crate) intake: Intake,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) shown: Arc<Mutex<Shown>>,
    /// Resolves when the Worker has ended, with the number of connections it had to cut.
    pub(crate) ended: oneshot::Receiver<usize>,
    pub(crate) thread: JoinHandle<()>,
    /// What the kernel calls the thread; 0 until it runs.
    pub(crate) thread_id: Arc<AtomicI32>,
}

/// What a Worker is made from.
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    pub(crate) registry: Arc<Registry>,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) log: Option<AccessLog>,
    /// Which Worker has which session with another node.
    pub(crate) sessions: Sessions,
    /// What the links by which other nodes call count to, those of all Workers together.
    pub(crate) called_links: Arc<Share>,
    /// Of its random choices.
    pub(crate) seed: u64,
    /// The processor to run on; `None` for any.
    pub(crate) cpu: Option<usize>,
    /// How connections are carried.
    pub(crate) receive: Receive,
}

/// A runtime that may be dropped anywhere: when something else of a Worker cannot be made, it is dropped
/// by the Manager, which itself runs within a runtime.
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
/// When the thread or its runtime cannot be made.
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
        .name(format!("worker-{}", plan.stats.id))
        .stack_size(STACK_BYTES)
        .spawn(move || {
            own_id.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
            if let Some(cpu) = plan.cpu {
                pin(cpu);
            }
            count_in(&plan.stats);
            let worker = Rc::new(Worker::new(plan, shown, arrivals.clone()));
            let until_end = run(&worker, inbox, arrivals, timer);
            let cut = runtime.block_on(tokio::task::coop::unconstrained(until_end));
            worker.gate.clear();
            // No task waits any more when the receiver is gone.
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
            called_links,
            seed,
            receive,
            ..
        } = plan;
        let bounds = settings.bounds;
        let idle_ms = u64::try_from(settings.timeouts.upstream_idle.as_millis()).unwrap_or(0);
        let upstreams = Upstreams::new(bounds, idle_ms, Arc::clone(&stats));
        let log = log.map(|log| RefCell::new(log.sink(Arc::clone(&stats))));
        // Several looks fit into the time after which the registry forgets what it was given back.
        let series_unused = registry.bounds().unused / 10;
        let series_unused = u64::try_from(series_unused.as_millis()).unwrap_or(u64::MAX);
        let env = Rc::new(Env::new(EnvParts {
            settings,
            stats,
            sessions,
            intake,
            called_links,
            seed,
        }));
        let pods = Arc::<Pods>::default();
        let bound = Rc::new(Bound::new(Arc::clone(&env.snapshot()), &pods, &upstreams));
        let places = Rc::new(Places::new(Rc::clone(&env)));
        let unproven = Unproven::default();
        unproven.set_limit(bounds.handshakes);
        Worker {
            bound: RefCell::new(bound),
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
            series_due: Cell::new(0),
            series_unused,
            cannot_accept: RefCell::default(),
            full: RefCell::default(),
            said_of_ports: RefCell::default(),
            wary: Cell::new(0),
            shown,
            env,
        }
    }

    fn apply(&self, snapshot: Arc<Snapshot>) {
        self.stats
            .config_generation
            .set(i64::try_from(snapshot.generation).unwrap_or(i64::MAX));
        let guards = &snapshot.guards;
        self.alarms
            .revoke(|door, flow| guards.allow_live(door, flow));
        let bound = Bound::new(snapshot, &self.pods.borrow(), &self.upstreams);
        bound.remember(&self.bound());
        self.serve_by(bound);
        // Requests that wait for an endpoint look whether there are others now.
        if self.stats.upstream_requests_waiting.get() > 0 {
            self.gate.wake_all();
        }
        // Series that are in use are kept by the tasks that use them. Those of an identity may have another now.
        self.tcp.clear();
        self.upstreams.forget_unused();
    }

    /// Reaches these workloads from within their pods from now on. Connections stay, but for idle ones into
    /// pods that are none any more.
    fn enter_pods(&self, pods: Arc<Pods>) {
        let there: HashSet<PodId> = pods.0.values().copied().collect();
        let bound = self.bound().with_pods(&pods, &self.upstreams);
        *self.pods.borrow_mut() = pods;
        self.upstreams.leave_pods(|pod| there.contains(&pod));
        self.serve_by(bound);
        self.upstreams.forget_unused();
    }

    /// Serves requests by this from now on.
    fn serve_by(&self, bound: Bound) {
        self.env.configure(Arc::clone(&bound.snapshot));
        // Dropped outside the borrow.
        let old = self.bound.replace(Rc::new(bound));
        drop(old);
    }

    /// Calls, and is called, as these from now on.
    fn call_as(&self, identities: Arc<Identities>) {
        (self.upstreams).distrust(|proof| proof_holds(proof, &identities));
        self.env.identify(identities);
    }

    /// What is done now and then, off the path of any request.
    fn sweep(&self) {
        let now = self.clock.now_ms();
        self.alarms.sweep(now);
        self.expire(now);
        self.gate.fade();
        self.gate.tidy();
        self.moves.tidy(&self.gate);
        self.upstreams.sweep(now, self.clock.now());
        self.upstreams.forget_unused();
        self.trim_blocks();
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
    /// One of this many Workers: what is bounded for the process is shared among them.
    fn share(&self, workers: usize) {
        let workers = workers.max(1);
        self.upstreams.share(workers);
        let unproven = self.settings.bounds.handshakes.div_ceil(workers);
        self.unproven.set_limit(unproven);
        self.share_blocks(workers);
    }

    /// Hands over what is left when the last connection has gone; false when another one has come
    /// meanwhile.
    fn part(self: &Rc<Self>, intake: &Intake) -> bool {
        let late = intake.close();
        if !late.is_empty() {
            intake.open();
            late.into_iter().for_each(|arrival| self.receive(arrival));
            return self.connections() == 0 && self.part(intake);
        }
        let heirs = self.moves.heirs();
        // Not so many that there is no room left for clients.
        let idle = self
            .upstreams
            .let_all_go(|key| self.gate.owner(key))
            .into_iter();
        let idle = idle.take(heirs.len() * INTAKE_BOUND / 4);
        for (idle, heir) in idle.zip(heirs.iter().cycle()) {
            // One that finds no room is closed: it was only kept to save time.
            let _ = heir.put(Arrival::Upstream(idle));
        }
        heirs.iter().for_each(Intake::wake);
        true
    }

    /// Takes in what waits to be taken, after which nothing more comes. Returns whether there was anything.
    fn take_last(self: &Rc<Self>, intake: &Intake) -> bool {
        let late = intake.close();
        let any = !late.is_empty();
        late.into_iter().for_each(|arrival| self.receive(arrival));
        any
    }

    /// When the Worker has something to do even if nothing happens until then.
    fn next_look(&self, until: Option<Instant>) -> Option<Instant> {
        let now = self.clock.now_ms();
        let alarms = self.alarms.next_sweep().map(|ms| ms.min(now + SWEEP_MS));
        // Pooled connections, blocks and log lines are given up even when no client calls.
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

/// Drives every task of the Worker until it is told to end. Returns how many connections were
/// still open.
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
            // What has come and was not taken yet: no other Worker sees to it.
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
            // Where there is more to do the next turn comes at once, and looks at the time by itself.
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

/// Ends the requests that are not over: each is counted and logged, and its client told if that
/// takes no waiting.
fn cut_requests(worker: &Rc<Worker>, cx: &Context<'_>) {
    worker.cut();
    for _ in 0..CUT_ROUNDS {
        worker.alarms.ring_all();
        // Each has as many turns as it needs, and none can keep us here.
        let budget = BUDGET + 4 * worker.connections();
        worker.gate.run(cx, budget, 0, || 0);
        if worker.connections() == 0 {
            return;
        }
    }
}

/// Keeps the calling thread on one processor.
fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    if cpu < rustix::thread::CpuSet::MAX_CPU {
        set.set(cpu);
    }
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(cpu, %error, "a worker cannot be kept on its processor");
    }
}

/// Takes in the connections that come from other threads.
async fn receive(worker: Rc<Worker>, intake: Intake) {
    let mut batch = Vec::new();
    loop {
        poll_fn(|cx| intake.poll_take(cx, &mut batch)).await;
        // What is new may have waited for long, and been reset meanwhile.
        let abandoned = leave_out_reset(&mut batch, Arrival::new_client);
        worker.count_abandoned(abandoned);
        batch.drain(..).for_each(|arrival| worker.receive(arrival));
    }
}

/// Does what the mailbox says.
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
            Command::Retire { to } => worker.retire(to),
            Command::Remain => worker.moves.cancel(),
            Command::Share { workers } => worker.share(workers),
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
