//! The Workers of one class: those that take connections, and those that retire.

mod leave;
mod orders;
mod place;

use std::io;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use heddle_intercept::Sockets;
use heddle_model::Class;
use heddle_telemetry::{AccessLog, Gauge, ManagerStats, Registry, Seldom, WorkerStats};
use heddle_transport::{Identities, Refusal};

use super::meter::Meter;
use super::steal::Loads;
use crate::intake::{Intake, OfflineWorkers, Sessions};
use crate::mailbox::Mailbox;
use crate::permits::{Permits, Share, ShareOwner};
use crate::place::Pods;
use crate::route::Snapshot;
use crate::settings::{LimitShare, Settings};
use crate::worker::{self, Command, Shown, WorkerHandle};

/// A Worker's state as the status shows it.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) class: Class,
    /// The kernel's ID of the thread; 0 until the thread runs.
    pub(crate) thread: Arc<AtomicI32>,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) shown: Arc<Mutex<Shown>>,
    pub(crate) retiring: bool,
    /// Busy ratio, smoothed, from 0 to 1.
    pub(crate) busy: f64,
}

/// The Workers of a crew as they are now.
pub(crate) type Roster = Arc<Mutex<Vec<View>>>;

struct CrewMember {
    handle: WorkerHandle,
    meter: Meter,
}

/// What the crews of both classes share.
pub(super) struct Common {
    pub(super) settings: Settings,
    registry: Arc<Registry>,
    log: Option<AccessLog>,
    seed: u64,
    /// The Worker that has each session with another node.
    sessions: Sessions,
    /// The Workers for offline callers.
    pub(super) offline_workers: OfflineWorkers,
    /// The connection share that counts the links of calling nodes, of all Workers together.
    called_links: Arc<Share>,
    stats: Arc<ManagerStats>,
    /// Permits of client connections, for all Workers.
    permits: Permits,
    /// Workers that take connections, for online and for offline callers.
    workers: [AtomicUsize; 2],
}

impl Common {
    pub(super) fn new(
        settings: Settings,
        registry: Arc<Registry>,
        log: Option<AccessLog>,
        seed: u64,
        permits: Permits,
    ) -> Arc<Self> {
        Arc::new(Common {
            stats: registry.manager(),
            called_links: permits.share(ShareOwner::Links),
            permits,
            settings,
            registry,
            log,
            seed,
            sessions: Sessions::default(),
            offline_workers: OfflineWorkers::default(),
            workers: Default::default(),
        })
    }
}

pub(super) struct Crew {
    common: Arc<Common>,
    /// The class of the callers whose connections these Workers carry.
    class: Class,
    snapshot: Option<Arc<Snapshot>>,
    identities: Option<Arc<Identities>>,
    pods: Arc<Pods>,
    sockets: Option<Sockets>,
    active: Vec<CrewMember>,
    /// Busy ratios of the active Workers at the last tick, not smoothed, in their order.
    busy: Vec<f64>,
    loads: Loads,
    /// Workers that hand over their connections, and then end.
    retiring: Vec<CrewMember>,
    /// Statistics of Workers that have ended, for new Workers to continue.
    spare: Vec<Arc<WorkerStats>>,
    roster: Roster,
    /// The number of active Workers that [`Common::workers`] includes.
    counted: usize,
    /// The numbers of Workers, of each class, among which the process's limits were divided last.
    sharing: [usize; 2],
    /// Limits how often accept errors are logged.
    pub(super) cannot_accept: Seldom,
    /// Limits how often it is logged that the connection limit is reached.
    full: Seldom<()>,
}

impl Crew {
    pub(super) fn new(common: Arc<Common>, class: Class, roster: Roster) -> Self {
        Crew {
            common,
            class,
            snapshot: None,
            identities: None,
            pods: Arc::default(),
            sockets: None,
            active: Vec::new(),
            busy: Vec::new(),
            loads: Loads::default(),
            retiring: Vec::new(),
            spare: Vec::new(),
            roster,
            counted: 0,
            sharing: [0; 2],
            cannot_accept: Seldom::default(),
            full: Seldom::default(),
        }
    }

    pub(super) fn stats(&self) -> &ManagerStats {
        &self.common.stats
    }

    pub(super) fn loads(&self) -> &Loads {
        &self.loads
    }

    /// The mailbox of the only Worker, if there is only one.
    pub(super) fn only(&self) -> Option<Mailbox<Command>> {
        match &*self.active {
            [only] => Some(only.handle.mailbox.clone()),
            _ => None,
        }
    }

    /// Adds a Worker: takes back one that was retiring, else starts a new one. Returns its number.
    ///
    /// # Errors
    /// When its thread or runtime cannot be created.
    pub(super) fn grow(&mut self) -> io::Result<usize> {
        let member = match self.retiring.pop() {
            Some(member) => {
                member.handle.mailbox.send(Command::Remain);
                member
            }
            None => self.start()?,
        };
        let id = member.handle.stats.id;
        self.active.push(member);
        self.loads.push();
        self.common.stats.workers_started.inc();
        self.changed();
        Ok(id)
    }

    fn start(&mut self) -> io::Result<CrewMember> {
        let stats = match self.spare.pop() {
            Some(stats) => {
                stats.begin_again();
                stats
            }
            None => self.common.registry.worker(&Refusal::CODES),
        };
        stats.set_class(self.class);
        let common = &self.common;
        let cpus = &common.settings.cpus;
        let cpu = (!cpus.is_empty()).then(|| cpus[stats.id % cpus.len()]);
        let handle = worker::spawn(worker::Plan {
            settings: common.settings.clone(),
            registry: Arc::clone(&common.registry),
            stats: Arc::clone(&stats),
            log: common.log.clone(),
            sessions: common.sessions.clone(),
            offline_workers: common.offline_workers.clone(),
            called_links: Arc::clone(&common.called_links),
            seed: common.seed.wrapping_add(stats.id as u64),
            cpu,
            receive: crate::carry::receive,
        });
        let handle = match handle {
            Ok(handle) => handle,
            Err(error) => {
                self.keep(stats);
                return Err(error);
            }
        };
        if let Some(identities) = &self.identities {
            let identities = Arc::clone(identities);
            handle.mailbox.send(Command::Identify(identities));
        }
        if let Some(sockets) = &self.sockets {
            handle.mailbox.send(Command::Sockets(sockets.clone()));
        }
        if !self.pods.0.is_empty() {
            handle.mailbox.send(Command::Pods(Arc::clone(&self.pods)));
        }
        if let Some(snapshot) = &self.snapshot {
            handle.mailbox.send(Command::Apply(Arc::clone(snapshot)));
        }
        Ok(CrewMember {
            handle,
            meter: Meter::default(),
        })
    }

    /// Measures how busy each Worker was during the elapsed time.
    pub(super) fn observe(&mut self, elapsed: Duration) {
        let elapsed_ns = elapsed.as_nanos().max(1) as f64;
        let mut connections = 0;
        self.busy.clear();
        for member in &mut self.active {
            let stats = &member.handle.stats;
            connections += usize::try_from(stats.connections_active.get()).unwrap_or(0);
            let spent = member.meter.since_last(&member.handle.thread_id, stats);
            self.busy.push((spent as f64 / elapsed_ns).min(1.0));
        }
        self.loads.observe(&self.busy, connections);
        let mut roster = self.roster.lock().unwrap_or_else(PoisonError::into_inner);
        for (view, busy) in roster.iter_mut().zip(self.loads.smooth()) {
            view.busy = *busy;
        }
    }

    /// The number of client connections, and the bytes of the buffer blocks that are in use.
    pub(super) fn held(&self) -> (usize, usize) {
        let members = self.active.iter().chain(&self.retiring);
        let level = |gauge: &Gauge| usize::try_from(gauge.get()).unwrap_or(0);
        let (connections, blocks) = members
            .map(|member| &member.handle.stats)
            .map(|stats| {
                let connections = level(&stats.connections_active);
                (connections, level(&stats.buffer_blocks_active))
            })
            .fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        (
            connections,
            blocks.saturating_mul(self.common.settings.bounds.block_bytes),
        )
    }

    /// Each Worker's busy ratio at the last tick, from 0 to 1.
    pub(super) fn busy(&self) -> &[f64] {
        &self.busy
    }

    /// Their mean, smoothed over a few ticks.
    pub(super) fn mean_busy(&self) -> f64 {
        let smooth = self.loads.smooth();
        smooth.iter().sum::<f64>() / smooth.len().max(1) as f64
    }

    /// The number of Workers that take connections.
    pub(super) fn count(&self) -> usize {
        self.active.len()
    }

    pub(super) fn permits(&self) -> &Permits {
        &self.common.permits
    }

    /// Whether the Workers have neither clients nor links.
    pub(super) fn is_idle(&self) -> bool {
        let mut stats = self.active.iter().map(|member| &member.handle.stats);
        stats.all(|stats| stats.connections_active.get() + stats.links_active.get() == 0)
    }

    /// Whether no Worker is left, not even one that retires.
    pub(super) fn is_gone(&self) -> bool {
        self.active.is_empty() && self.retiring.is_empty()
    }

    /// The intakes of the Workers that take connections.
    pub(super) fn intakes(&self) -> Vec<Intake> {
        let active = self.active.iter();
        active.map(|member| member.handle.intake.clone()).collect()
    }

    /// The set of Workers has changed: counts them, and rewrites the roster.
    fn changed(&mut self) {
        let workers = self.active.len();
        let stats = &self.common.stats;
        let before = std::mem::replace(&mut self.counted, workers);
        let level = |workers: usize| i64::try_from(workers).unwrap_or(0);
        stats.workers_active.add(level(workers) - level(before));
        // The difference may be negative: addition wraps.
        let difference = workers.wrapping_sub(before);
        let [online, offline] = &self.common.workers;
        let of_class = match self.class {
            Class::Online => online,
            Class::Offline => offline,
        };
        of_class.fetch_add(difference, Ordering::Relaxed);
        self.sharing = [0; 2];
        self.share();
        if self.class == Class::Offline {
            self.common.offline_workers.set(self.intakes());
        }
        let class = self.class;
        let view = |member: &CrewMember, retiring, busy| View {
            class,
            thread: Arc::clone(&member.handle.thread_id),
            stats: Arc::clone(&member.handle.stats),
            shown: Arc::clone(&member.handle.shown),
            retiring,
            busy,
        };
        let smooth = self.loads.smooth().iter().chain(std::iter::repeat(&0.0));
        let active = self.active.iter().zip(smooth);
        let active = active.map(|(member, busy)| view(member, false, *busy));
        let retiring = self.retiring.iter().map(|member| view(member, true, 0.0));
        let mut roster = self.roster.lock().unwrap_or_else(PoisonError::into_inner);
        *roster = active.chain(retiring).collect();
    }

    /// Sends each Worker its share of the process's limits, if that has changed.
    pub(super) fn share(&mut self) {
        let workers = [0, 1].map(|class| self.common.workers[class].load(Ordering::Relaxed));
        if std::mem::replace(&mut self.sharing, workers) != workers {
            let limits = LimitShare::of_worker(self.class, workers);
            let workers = workers.iter().sum();
            for member in &self.active {
                member
                    .handle
                    .mailbox
                    .send(Command::Share { workers, limits });
            }
        }
    }
}
