//! The Manager: decides how many Workers there are, and which of them carries which connections.
//!
//! ```text
//!                  ┌────────────────────── Manager (a thread) ───────────────────────┐
//!  Proxy ─ orders ▶│ crew: Workers, loads      tick: grow │ retire │ take from ─ to  │
//!                  │ entrance: listeners                                             │
//!                  └──┬───────────────────────┬───────────────────────┬──────────────┘
//!          accepted,  │ batch, wake once      │ orders                │
//!          two or more▼                       ▼                       ▼
//!                  Worker 0 ◀── moved ──── Worker 1 ──── moved ──▶ Worker 2
//! ```
//!
//! A single Worker accepts connections itself; the Manager then only observes it, ten times a second (once a second if
//! `max` is 1). With more Workers, the Manager accepts and hands each connection to the Worker that is expected to be
//! least loaded. [`elastic`] decides how many Workers there should be, [`steal`] evens out their loads.

mod crew;
mod ebb;
mod elastic;
mod entrance;
mod meter;
mod steal;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heddle_intercept::{PodId, Sockets};
use heddle_telemetry::{AccessLog, Registry, Seldom};
use heddle_transport::Identities;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use crate::Entry;
use crate::door::Door;
use crate::mailbox::{Mailbox, MailboxItem};
use crate::permits::Permits;
use crate::place::Pods;
use crate::route::Snapshot;
use crate::settings::{Elasticity, Settings};
use crew::Crew;
pub use ebb::give_back;
use ebb::{Ebb, MemoryUse, Resident};
use elastic::{Controller, CrewChange, Shortage};
use entrance::Entrance;
use steal::Stealing;

pub(crate) use crew::View;

/// Interval at which the Manager measures the Workers' loads.
const TICK: Duration = Duration::from_millis(100);
/// The same with `max` 1, where the loads are only shown and nothing is decided.
const SLOW_TICK: Duration = Duration::from_secs(1);

/// Orders of the rest of the process. They come from the configuration and from the operator, so the configuration
/// limits their number.
#[derive(Debug)]
pub(crate) enum Order {
    /// Use this configuration for new requests.
    Apply(Arc<Snapshot>),
    /// Use these identities, towards other nodes and for calls from them.
    Identify(Arc<Identities>),
    /// Dial these workloads from inside their pods.
    Pods(Arc<Pods>),
    /// Ask this holder for sockets inside pods.
    Sockets(Sockets),
    /// Accept connections from this socket.
    Listen {
        id: u64,
        socket: TcpListener,
        entry: Entry,
        pod: Option<PodId>,
    },
    /// Stop accepting from it. Connections that were accepted continue.
    Unlisten { id: u64 },
    /// The same, after `grace` and once the backlog is empty; then `done` is notified.
    UnlistenDrained {
        id: u64,
        grace: Duration,
        done: oneshot::Sender<()>,
    },
    /// Make every Worker hand its connections to the next one.
    Rotate,
    /// Accept nothing more, let each connection finish its request, and end by this time.
    Drain { until: Instant },
    /// Make every Worker panic: simulates a bug that no input is known to trigger.
    #[cfg(test)]
    Fault,
}

impl MailboxItem for Order {
    /// Of several configurations, identities or pod tables, only the newest matters.
    fn replaces(&self, before: &Self) -> bool {
        matches!(
            (self, before),
            (Order::Apply(_), Order::Apply(_))
                | (Order::Identify(_), Order::Identify(_))
                | (Order::Pods(_), Order::Pods(_))
        )
    }
}

/// The process's handle of a running Manager.
pub(crate) struct ManagerHandle {
    pub(crate) orders: Mailbox<Order>,
    /// The Workers as they are now.
    pub(crate) roster: Arc<Mutex<Vec<View>>>,
    /// Resolves when all Workers have ended, with the number of connections that were cut.
    pub(crate) ended: oneshot::Receiver<usize>,
    pub(crate) thread: JoinHandle<()>,
}

/// Starts the Manager and the minimum number of Workers.
///
/// # Errors
/// When a thread or a runtime cannot be created.
pub(crate) fn spawn(
    settings: Settings,
    registry: Arc<Registry>,
    log: Option<AccessLog>,
    seed: u64,
    permits: Permits,
) -> io::Result<ManagerHandle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let roster: Arc<Mutex<Vec<View>>> = Arc::default();
    let elasticity = settings.workers;
    let mut crew = Crew::new(settings, registry, log, seed, Arc::clone(&roster), permits);
    crew.stats()
        .workers_limit
        .set(i64::try_from(elasticity.most()).unwrap_or(i64::MAX));
    for _ in 0..elasticity.min.max(1) {
        crew.grow()?;
    }
    let orders = Mailbox::default();
    let inbox = orders.clone();
    let (done, ended) = oneshot::channel();
    let thread = thread::Builder::new()
        .name("manager".to_owned())
        .spawn(move || {
            let crew = Rc::new(RefCell::new(crew));
            let manager = Manager {
                entrance: Entrance::new(Rc::clone(&crew)),
                crew,
                controller: Controller::new(elasticity),
                shortage: Shortage::default(),
                stealing: Stealing::default(),
                ebb: Ebb::default(),
                resident: Resident::open(),
                since_resident: SLOW_TICK,
                looked: Instant::now(),
                wanted: elasticity,
                cannot_start: Seldom::default(),
            };
            let cut = LocalSet::new().block_on(&runtime, manager.run(inbox));
            // An error means that the receiver is gone and no task waits.
            let _ = done.send(cut);
        })?;
    Ok(ManagerHandle {
        orders,
        roster,
        ended,
        thread,
    })
}

struct Manager {
    crew: Rc<RefCell<Crew>>,
    entrance: Entrance,
    controller: Controller,
    shortage: Shortage,
    stealing: Stealing,
    ebb: Ebb,
    resident: Resident,
    /// Time since resident memory was read last.
    since_resident: Duration,
    /// When the loads were measured last.
    looked: Instant,
    wanted: Elasticity,
    /// Limits how often failures to start a Worker are logged.
    cannot_start: Seldom,
}

impl Manager {
    /// Carries out orders until one says to drain. Returns how many connections were cut.
    async fn run(mut self, orders: Mailbox<Order>) -> usize {
        // Takes the base reading, before the first connection.
        self.ebb(Duration::ZERO);
        let elastic = self.wanted.max > 1;
        let mut ticks = tokio::time::interval(if elastic { TICK } else { SLOW_TICK });
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.entrance.follow();
        loop {
            tokio::select! {
                order = poll_fn(|cx| orders.poll_next(cx)) => match order {
                    Order::Apply(snapshot) => self.crew.borrow_mut().apply(snapshot),
                    Order::Identify(identities) => self.crew.borrow_mut().identify(identities),
                    Order::Pods(pods) => self.crew.borrow_mut().enter_pods(pods),
                    Order::Sockets(sockets) => self.crew.borrow_mut().ask_for_sockets(sockets),
                    Order::Listen { id, socket, entry, pod } => {
                        let port = socket.local_addr().map_or(0, |address| address.port());
                        let door = Door::new(entry, port, pod, self.crew.borrow().permits());
                        self.entrance.listen(id, socket, door);
                    }
                    Order::Unlisten { id } => self.entrance.unlisten(id),
                    Order::UnlistenDrained { id, grace, done } => {
                        self.entrance.unlisten_drained(id, grace, done);
                    }
                    Order::Rotate => self.crew.borrow().rotate(),
                    Order::Drain { until } => return self.drain(until).await,
                    #[cfg(test)]
                    Order::Fault => self.crew.borrow().fault(),
                },
                _ = ticks.tick() => self.tick(),
            }
        }
    }

    async fn drain(mut self, until: Instant) -> usize {
        self.entrance.close();
        let ended = self.crew.borrow_mut().drain(until);
        let mut cut = 0;
        for ended in ended {
            // An error means that the Worker has ended already.
            cut += ended.await.unwrap_or(0);
        }
        self.crew.borrow_mut().join();
        cut
    }

    /// Measures the Workers, decides, and carries the decision out.
    fn tick(&mut self) {
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(self.looked);
        self.looked = now;
        let mut crew = self.crew.borrow_mut();
        crew.tidy();
        crew.observe(elapsed);
        let decision = self.controller.observe(elapsed, crew.busy());
        let busy_percent = percent(crew.mean_busy());
        match decision {
            CrewChange::Grow => match crew.grow() {
                Ok(id) => tracing::info!(
                    worker = id,
                    busy_percent,
                    grow_above_percent = percent(self.wanted.grow_above),
                    workers = crew.count(),
                    "a worker was added: the others are busy"
                ),
                Err(error) => {
                    if self.cannot_start.is_due(&error, now) {
                        tracing::error!(%error, "a worker cannot be started");
                    }
                }
            },
            CrewChange::Retire(index) => {
                if let Some(id) = crew.retire(index) {
                    tracing::info!(
                        worker = id,
                        busy_percent,
                        retire_below_percent = percent(self.wanted.retire_below),
                        workers = crew.count(),
                        "a worker retires: the others are enough, and take over its connections"
                    );
                }
            }
            CrewChange::Stay if self.wanted.steal => {
                if let Some(taking) = self.stealing.observe(elapsed, crew.loads()) {
                    crew.take(taking);
                }
            }
            CrewChange::Stay => {}
        }
        if self.shortage.observe(elapsed, self.controller.is_short()) {
            tracing::warn!(
                busy_percent,
                workers = crew.count(),
                "all workers are busy, and their limit is reached: see proxy.workers.max"
            );
        }
        drop(crew);
        self.entrance.follow();
        self.ebb(elapsed);
    }

    /// Checks once a second whether memory is to be returned to the machine.
    fn ebb(&mut self, elapsed: Duration) {
        self.since_resident += elapsed;
        if self.since_resident < SLOW_TICK {
            return;
        }
        let since = std::mem::take(&mut self.since_resident);
        let (connections, blocks) = self.crew.borrow().held();
        let resident = self.resident.read();
        let held = resident.map(|resident| MemoryUse::new(resident, connections, blocks));
        if held.is_some_and(|held| self.ebb.observe(since, held)) {
            give_back();
        }
    }
}

/// A ratio in whole percent, for log messages.
fn percent(ratio: f64) -> u32 {
    (ratio * 100.0).round() as u32
}
