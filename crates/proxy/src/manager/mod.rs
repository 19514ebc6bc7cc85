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
//! Callers of each class have Workers, listeners and controllers of their own: a [`team`]. The offline team exists only
//! while a workload of this node is offline.
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
mod team;

use std::collections::HashSet;
use std::future::poll_fn;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heddle_intercept::{PodId, Sockets};
use heddle_model::Class;
use heddle_telemetry::{AccessLog, Registry};
use heddle_transport::Identities;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use crate::Entry;
use crate::door::Door;
use crate::heap::give_back_heap;
use crate::intake::OfflineWorkers;
use crate::io::tell_effort;
use crate::mailbox::{Mailbox, MailboxItem};
use crate::permits::Permits;
use crate::place::Pods;
use crate::route::Snapshot;
use crate::settings::{Elasticity, Settings};
use crew::{Common, Crew};
use ebb::{Ebb, MemoryUse, Resident};
use team::Team;

pub(crate) use crew::{Roster, View};

/// Interval at which the Manager measures the Workers' loads.
const TICK: Duration = Duration::from_millis(100);
/// The same with `max` 1, where the loads are only shown and nothing is decided.
const SLOW_TICK: Duration = Duration::from_secs(1);

/// How often connections are sorted after a class has changed: at once, and at the next tick.
const SORTS: u8 = 2;

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
    /// The Workers of each class as they are now.
    pub(crate) rosters: [Roster; 2],
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
    let rosters: [Roster; 2] = Default::default();
    let elasticity = settings.workers;
    let common = Common::new(settings, registry, log, seed, permits);
    let offline_workers = common.offline_workers.clone();
    let [for_online, for_offline] = rosters.clone();
    let mut online = Crew::new(Arc::clone(&common), Class::Online, for_online);
    let offline = Crew::new(common, Class::Offline, for_offline);
    online
        .stats()
        .workers_limit
        .set(i64::try_from(elasticity.most()).unwrap_or(i64::MAX));
    for _ in 0..elasticity.min.max(1) {
        online.grow()?;
    }
    let orders = Mailbox::default();
    let inbox = orders.clone();
    let (done, ended) = oneshot::channel();
    let thread = thread::Builder::new()
        .name("manager".to_owned())
        .spawn(move || {
            let manager = Manager {
                online: Team::new(online, elasticity),
                // One Worker is enough to begin with, whatever online callers are given.
                offline: Team::new(
                    offline,
                    Elasticity {
                        min: 1,
                        ..elasticity
                    },
                ),
                offline_callers: Arc::default(),
                offline_workers,
                sorts_due: 0,
                ebb: Ebb::default(),
                resident: Resident::open(),
                since_resident: SLOW_TICK,
                looked: Instant::now(),
                is_elastic: elasticity.max > 1,
            };
            let cut = LocalSet::new().block_on(&runtime, manager.run(inbox));
            // An error means that the receiver is gone and no task waits.
            let _ = done.send(cut);
        })?;
    Ok(ManagerHandle {
        orders,
        rosters,
        ended,
        thread,
    })
}

struct Manager {
    online: Team,
    offline: Team,
    /// Names of the workloads of this node that are offline.
    offline_callers: Arc<HashSet<Arc<str>>>,
    /// Where Workers ask for one of the offline team.
    offline_workers: OfflineWorkers,
    /// How often connections are still to be sorted by class.
    sorts_due: u8,
    ebb: Ebb,
    resident: Resident,
    /// Time since resident memory was read last.
    since_resident: Duration,
    /// When the loads were measured last.
    looked: Instant,
    /// Whether there may be several Workers.
    is_elastic: bool,
}

impl Manager {
    /// Carries out orders until one says to drain. Returns how many connections were cut.
    async fn run(mut self, orders: Mailbox<Order>) -> usize {
        // Takes the base reading, before the first connection.
        self.ebb(Duration::ZERO);
        let mut ticks = tokio::time::interval(if self.is_elastic { TICK } else { SLOW_TICK });
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.online.entrance.follow();
        let offline = self.offline_workers.clone();
        loop {
            tokio::select! {
                order = poll_fn(|cx| orders.poll_next(cx)) => match order {
                    Order::Drain { until } => return self.drain(until).await,
                    order => self.obey(order),
                },
                () = offline.wanted() => self.offline.want(Instant::now()),
                _ = ticks.tick() => self.tick(),
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Apply(snapshot) => self.apply(&snapshot),
            Order::Identify(identities) => {
                self.each(|crew| crew.identify(Arc::clone(&identities)));
            }
            Order::Pods(pods) => self.each(|crew| crew.enter_pods(Arc::clone(&pods))),
            Order::Sockets(sockets) => self.each(|crew| crew.ask_for_sockets(sockets.clone())),
            Order::Listen {
                id,
                socket,
                entry,
                pod,
            } => {
                if matches!(entry, Entry::Mesh) {
                    tell_effort(&socket);
                }
                let port = socket.local_addr().map_or(0, |address| address.port());
                let door = Door::new(entry, port, pod, self.online.crew().permits());
                self.online.entrance.unlisten(id);
                self.offline.entrance.unlisten(id);
                self.adopt(id, Arc::new(socket), door);
            }
            Order::Unlisten { id } => {
                self.online.entrance.unlisten(id);
                self.offline.entrance.unlisten(id);
            }
            Order::UnlistenDrained { id, grace, done } => {
                let team = match self.offline.entrance.has(id) {
                    true => &mut self.offline,
                    false => &mut self.online,
                };
                team.entrance.unlisten_drained(id, grace, done);
            }
            Order::Rotate => self.each(|crew| crew.rotate()),
            // The loop carries it out.
            Order::Drain { .. } => {}
            #[cfg(test)]
            Order::Fault => self.each(|crew| crew.fault()),
        }
    }

    fn each(&mut self, mut order: impl FnMut(&mut Crew)) {
        order(&mut self.online.crew_mut());
        order(&mut self.offline.crew_mut());
    }

    /// Accepts from a socket, by Workers of its caller's class.
    fn adopt(&mut self, id: u64, socket: Arc<TcpListener>, door: Arc<Door>) {
        let left = match is_offline(&self.offline_callers, &door) {
            true => self.offline.adopt(id, socket, door).err(),
            false => Some((socket, door)),
        };
        // Workers of the other class are better than none.
        if let Some((socket, door)) = left {
            self.online.entrance.adopt(id, socket, door);
        }
    }

    /// Uses a configuration from now on. Listeners and connections go to Workers of their callers' class, if that has
    /// changed.
    fn apply(&mut self, snapshot: &Arc<Snapshot>) {
        let callers = Arc::clone(&snapshot.offline);
        self.each(|crew| crew.apply(Arc::clone(snapshot)));
        if callers == self.offline_callers {
            return;
        }
        self.offline_callers = Arc::clone(&callers);
        let (online, offline) = (&mut self.online.entrance, &mut self.offline.entrance);
        let mut moved = online.release(|door| is_offline(&callers, door));
        moved.extend(offline.release(|door| !is_offline(&callers, door)));
        for (id, socket, door) in moved {
            self.adopt(id, socket, door);
        }
        self.sorts_due = SORTS;
        self.sort();
    }

    /// Sends connections to Workers of their callers' class, after a class has changed. Connections that were on their
    /// way to a Worker at the first time are found by the second.
    fn sort(&mut self) {
        if self.sorts_due == 0 {
            return;
        }
        self.sorts_due -= 1;
        let online = self.online.crew().intakes();
        let offline = self.offline.crew().intakes();
        self.online.crew().sort(&offline);
        self.offline.crew().sort(&online);
    }

    async fn drain(mut self, until: Instant) -> usize {
        self.online.entrance.close();
        self.offline.entrance.close();
        let mut ended = self.online.crew_mut().drain(until);
        ended.extend(self.offline.crew_mut().drain(until));
        let mut cut = 0;
        for ended in ended {
            // An error means that the Worker has ended already.
            cut += ended.await.unwrap_or(0);
        }
        self.each(Crew::join);
        cut
    }

    /// Measures the Workers of each class, decides, and carries the decisions out.
    fn tick(&mut self) {
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(self.looked);
        self.looked = now;
        self.online.tick(elapsed, now, &[]);
        if !self.offline.crew().is_gone() {
            let elsewhere = self.online.crew().intakes();
            self.offline.tick(elapsed, now, &elsewhere);
        }
        self.sort();
        self.ebb(elapsed);
    }

    /// Checks once a second whether memory is to be returned to the machine.
    fn ebb(&mut self, elapsed: Duration) {
        self.since_resident += elapsed;
        if self.since_resident < SLOW_TICK {
            return;
        }
        let since = std::mem::take(&mut self.since_resident);
        let (online, offline) = (self.online.crew().held(), self.offline.crew().held());
        let (connections, blocks) = (online.0 + offline.0, online.1 + offline.1);
        let resident = self.resident.read();
        let held = resident.map(|resident| MemoryUse::new(resident, connections, blocks));
        if held.is_some_and(|held| self.ebb.observe(since, held)) {
            give_back_heap();
        }
    }
}

/// Whether a listener's connections are those of an offline workload of this node.
fn is_offline(callers: &HashSet<Arc<str>>, door: &Door) -> bool {
    door.entry.caller().is_some() && callers.contains(&door.owner)
}
