//! The Manager's list of Workers: those that take connections, and those that retire.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use heddle_intercept::Sockets;
use heddle_telemetry::{AccessLog, Gauge, ManagerStats, Registry, Seldom, WorkerStats};
use heddle_transport::{Identities, Refusal};
use tokio::sync::oneshot;

use super::meter::Meter;
use super::steal::{Loads, Taking};
use crate::door::Door;
use crate::intake::Intake;
use crate::intake::Sessions;
use crate::listener::{BATCH, Refusing};
use crate::mailbox::Mailbox;
use crate::parcel::{Arrival, Parcel};
use crate::permits::{Permits, Share, ShareOwner};
use crate::place::Pods;
use crate::route::Snapshot;
use crate::settings::Settings;
use crate::worker::{self, Command, Shown, WorkerHandle};

/// A Worker's state as the status shows it.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) shown: Arc<Mutex<Shown>>,
    pub(crate) retiring: bool,
    /// Busy ratio, smoothed, from 0 to 1.
    pub(crate) busy: f64,
}

struct CrewMember {
    handle: WorkerHandle,
    meter: Meter,
}

pub(super) struct Crew {
    settings: Settings,
    registry: Arc<Registry>,
    log: Option<AccessLog>,
    seed: u64,
    /// The Worker that has each session with another node.
    sessions: Sessions,
    /// The connection share that counts the links of calling nodes, of all Workers together.
    called_links: Arc<Share>,
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
    stats: Arc<ManagerStats>,
    /// Permits of client connections, for all Workers.
    permits: Permits,
    roster: Arc<Mutex<Vec<View>>>,
    /// Limits how often accept errors are logged.
    pub(super) cannot_accept: Seldom,
    /// Limits how often it is logged that the connection limit is reached.
    full: Seldom<()>,
}

impl Crew {
    pub(super) fn new(
        settings: Settings,
        registry: Arc<Registry>,
        log: Option<AccessLog>,
        seed: u64,
        roster: Arc<Mutex<Vec<View>>>,
        permits: Permits,
    ) -> Self {
        Crew {
            stats: registry.manager(),
            called_links: permits.share(ShareOwner::Links),
            permits,
            settings,
            registry,
            log,
            seed,
            sessions: Sessions::default(),
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
            cannot_accept: Seldom::default(),
            full: Seldom::default(),
        }
    }

    pub(super) fn stats(&self) -> &ManagerStats {
        &self.stats
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
        self.stats.workers_started.inc();
        self.changed();
        Ok(id)
    }

    fn start(&mut self) -> io::Result<CrewMember> {
        let stats = match self.spare.pop() {
            Some(stats) => {
                stats.begin_again();
                stats
            }
            None => self.registry.worker(&Refusal::CODES),
        };
        let cpus = &self.settings.cpus;
        let cpu = (!cpus.is_empty()).then(|| cpus[stats.id % cpus.len()]);
        let handle = worker::spawn(worker::Plan {
            settings: self.settings.clone(),
            registry: Arc::clone(&self.registry),
            stats: Arc::clone(&stats),
            log: self.log.clone(),
            sessions: self.sessions.clone(),
            called_links: Arc::clone(&self.called_links),
            seed: self.seed.wrapping_add(stats.id as u64),
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

    /// Makes a Worker hand over its connections and end. Returns its number; `None` if it has to stay.
    pub(super) fn retire(&mut self, index: usize) -> Option<usize> {
        if self.active.len() < 2 || index >= self.active.len() {
            return None;
        }
        let member = self.active.remove(index);
        let id = member.handle.stats.id;
        self.loads.remove(index);
        member
            .handle
            .mailbox
            .send(Command::Retire { to: self.intakes() });
        self.retiring.push(member);
        self.stats.workers_retired.inc();
        self.changed();
        Some(id)
    }

    /// Makes one Worker give connections to another.
    pub(super) fn take(&mut self, taking: Taking) {
        let (Some(from), Some(to)) = (self.active.get(taking.from), self.active.get(taking.to))
        else {
            return;
        };
        from.handle.mailbox.send(Command::Give {
            to: to.handle.intake.clone(),
            share: taking.share,
        });
        self.stats.takings.inc();
    }

    /// Makes every Worker hand its connections to the next one.
    pub(super) fn rotate(&self) {
        let next = self.active.iter().cycle().skip(1);
        for (member, next) in self.active.iter().zip(next) {
            let to = next.handle.intake.clone();
            member.handle.mailbox.send(Command::Give { to, share: 1.0 });
        }
    }

    /// Makes every Worker panic.
    #[cfg(test)]
    pub(super) fn fault(&self) {
        for member in &self.active {
            member.handle.mailbox.send(Command::Fault);
        }
    }

    /// Removes retired Workers that have ended, and replaces active ones that have.
    pub(super) fn tidy(&mut self) {
        if !self.retiring.is_empty() {
            self.see_off();
        }
        for index in 0..self.active.len() {
            if self.active[index].handle.thread.is_finished() {
                self.replace(index);
            }
        }
    }

    /// Forgets retired Workers that have ended. Sends the order to retire again to the others: it reaches connections
    /// that found no room before, or have come since.
    fn see_off(&mut self) {
        let heirs = self.intakes();
        let (gone, left) = std::mem::take(&mut self.retiring)
            .into_iter()
            .partition(|member| member.handle.thread.is_finished());
        self.retiring = left;
        for member in &self.retiring {
            let to = heirs.clone();
            member.handle.mailbox.send(Command::Retire { to });
        }
        let gone: Vec<CrewMember> = gone;
        if !gone.is_empty() {
            for member in gone {
                if self.bury(member).is_err() {
                    self.stats.workers_died.inc();
                }
            }
            self.changed();
        }
    }

    /// Starts a new Worker in place of one that has ended: because of a panic, or because it was told to remain after
    /// it had handed over everything.
    fn replace(&mut self, index: usize) {
        match self.start() {
            Ok(fresh) => {
                let ended = std::mem::replace(&mut self.active[index], fresh);
                if self.bury(ended).is_err() {
                    self.stats.workers_died.inc();
                }
                self.changed();
            }
            Err(error) => tracing::error!(%error, "a worker that has ended cannot be replaced"),
        }
    }

    /// Joins the thread, which has ended, and keeps the statistics for the next Worker.
    ///
    /// # Errors
    /// When it ended by a panic.
    fn bury(&mut self, member: CrewMember) -> thread::Result<()> {
        let stats = Arc::clone(&member.handle.stats);
        let ended = member.handle.thread.join();
        if ended.is_err() {
            tracing::error!(worker = stats.id, "a worker panicked");
        }
        self.keep(stats);
        ended
    }

    /// Keeps the statistics of a Worker that has ended, or could not start, for the next one.
    fn keep(&mut self, stats: Arc<WorkerStats>) {
        stats.end();
        self.spare.push(stats);
        // `pop` returns the lowest number first.
        self.spare.sort_by_key(|stats| std::cmp::Reverse(stats.id));
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
            blocks.saturating_mul(self.settings.bounds.block_bytes),
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

    pub(super) fn apply(&mut self, snapshot: Arc<Snapshot>) {
        for member in self.active.iter().chain(&self.retiring) {
            let snapshot = Arc::clone(&snapshot);
            member.handle.mailbox.send(Command::Apply(snapshot));
        }
        self.snapshot = Some(snapshot);
    }

    pub(super) fn identify(&mut self, identities: Arc<Identities>) {
        for member in self.active.iter().chain(&self.retiring) {
            let identities = Arc::clone(&identities);
            member.handle.mailbox.send(Command::Identify(identities));
        }
        self.identities = Some(identities);
    }

    pub(super) fn enter_pods(&mut self, pods: Arc<Pods>) {
        for member in self.active.iter().chain(&self.retiring) {
            member.handle.mailbox.send(Command::Pods(Arc::clone(&pods)));
        }
        self.pods = pods;
    }

    pub(super) fn ask_for_sockets(&mut self, sockets: Sockets) {
        for member in self.active.iter().chain(&self.retiring) {
            let sockets = sockets.clone();
            member.handle.mailbox.send(Command::Sockets(sockets));
        }
        self.sockets = Some(sockets);
    }

    pub(super) fn permits(&self) -> &Permits {
        &self.permits
    }

    /// Whether some Worker has room for a whole batch of accepted connections.
    pub(super) fn has_room(&self) -> bool {
        let mut active = self.active.iter();
        active.any(|member| member.handle.intake.room() >= BATCH)
    }

    /// Places an accepted connection with a Worker, or refuses it. Returns the Worker to wake.
    pub(super) fn accepted(
        &mut self,
        door: &Arc<Door>,
        client: TcpStream,
        peer: SocketAddr,
    ) -> Option<Intake> {
        match door.permit(peer) {
            Ok(permit) => self.place(Parcel::new(door, client, peer, permit)),
            Err(spent) => {
                let refusing = Refusing {
                    refused: &self.stats.connections_refused,
                    over_share: &self.stats.connections_over_share,
                    full: &mut self.full,
                    most: self.settings.bounds.connections,
                    now: Instant::now(),
                };
                refusing.turn_away(door, (&client, peer), spent);
                None
            }
        }
    }

    /// Gives a connection to the Worker that is expected to be least loaded, or to the next one if that has no room. If
    /// none has room, although `has_room` was checked before, the connection is closed. Returns the Worker to wake.
    fn place(&mut self, parcel: Parcel) -> Option<Intake> {
        let mut full: Vec<usize> = Vec::new();
        let mut arrival = Arrival::Client(parcel);
        loop {
            let Some(index) = self.loads.place(|index| full.contains(&index)) else {
                self.stats.connections_refused.inc();
                self.stats.connections_unplaced.inc();
                return None;
            };
            let intake = &self.active[index].handle.intake;
            match intake.put(arrival) {
                Ok(()) => return Some(intake.clone()),
                Err(back) => {
                    arrival = back;
                    full.push(index);
                }
            }
        }
    }

    /// Makes every Worker drain. Each returned receiver resolves when its Worker has ended, with the number of
    /// connections that it cut.
    pub(super) fn drain(&mut self, until: Instant) -> Vec<oneshot::Receiver<usize>> {
        let members = self.active.iter_mut().chain(&mut self.retiring);
        members
            .map(|member| {
                member.handle.mailbox.send(Command::Drain { until });
                let (_, none) = oneshot::channel();
                std::mem::replace(&mut member.handle.ended, none)
            })
            .collect()
    }

    /// Joins the threads of Workers that have ended.
    pub(super) fn join(&mut self) {
        for member in self.active.drain(..).chain(self.retiring.drain(..)) {
            if member.handle.thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
        self.changed();
    }

    fn intakes(&self) -> Vec<Intake> {
        let active = self.active.iter();
        active.map(|member| member.handle.intake.clone()).collect()
    }

    /// The set of Workers has changed: sends each its new share of the limits, and rewrites the roster.
    fn changed(&mut self) {
        let workers = self.active.len();
        self.stats
            .workers_active
            .set(i64::try_from(workers).unwrap_or(0));
        for member in &self.active {
            member.handle.mailbox.send(Command::Share { workers });
        }
        let view = |member: &CrewMember, retiring, busy| View {
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
}
