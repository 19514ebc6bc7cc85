//! The streams of Envoys, and the catalog that they are told of.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use foldhash::HashMap;
use heddle_envoy::{Catalog, Gone, Kind, Own, Session, reached_by};
use heddle_model::{ServiceAccountName, ServiceName, WorkloadName};
use heddle_xds::delta::{Answer, Name, Request, Response, TooMany};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::dependencies::{Dependencies, Used};
use crate::{Board, Clock, Counters};

#[cfg(test)]
mod tests;

/// Changes of the mesh are collected for this time before Envoys are told: each change of a listener or of routes is one as a
/// whole.
const GATHER: Duration = Duration::from_millis(50);

/// How often it is looked for dependencies that are not used any more, at most and at least.
const LOOK_EVERY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3_600)];

/// The streams of Envoys. Clones share the same state.
#[derive(Debug, Clone, Default)]
pub struct Envoys {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    catalog: Mutex<Catalog>,
    open: Mutex<Open>,
    dependencies: Mutex<Dependencies>,
    /// When the last load report of an Envoy was noted, if that was a moment ago.
    reported: Mutex<HashMap<WorkloadName, Instant>>,
    /// After how many seconds without a use a dependency is forgotten; 0 for never.
    forget_after_s: AtomicU64,
    /// Told when the first stream opens: until then no mesh is followed.
    first: Notify,
}

#[derive(Debug, Default)]
struct Open {
    streams: HashMap<u64, Arc<Stream>>,
    /// The number of the last one.
    last: u64,
}

/// An Envoy that is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connected {
    /// Since when.
    pub since: Instant,
    /// When the certificate with which it has connected expires, in seconds since 1970.
    pub until: u64,
}

#[derive(Debug)]
struct Stream {
    workload: WorkloadName,
    connected: Connected,
    session: Mutex<Session>,
    woken: Notify,
    /// What was learned for it, and since when, until it uses that without a gateway.
    learning: Mutex<Vec<(Name, Instant)>>,
}

/// One Envoy's stream, open until it is dropped.
#[derive(Debug)]
pub(super) struct OpenStream {
    envoys: Envoys,
    number: u64,
    stream: Arc<Stream>,
}

/// An account that uses what is at an address.
pub(super) type Report = (ServiceAccountName, IpAddr);

/// What an Envoy that knows a Service has of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Clusters, their endpoints, and listeners.
    pub resources: usize,
    /// Bytes of these, as they are sent.
    pub bytes: usize,
}

/// What came of reports.
pub(super) struct Learned {
    /// Dependencies that were not known.
    pub(super) count: usize,
    /// Whether they are on the disk.
    pub(super) written: io::Result<()>,
}

impl Envoys {
    /// Goes on with the dependencies in a folder, keeps there what is learned, and forgets what was not used for a time. `now` is
    /// in seconds since 1970.
    ///
    /// # Errors
    /// When the file cannot be read, or not be written, which is tried again.
    pub(crate) fn keep_dependencies(
        &self,
        folder: &Path,
        forget_after: Duration,
        now: u64,
    ) -> io::Result<()> {
        let after = &self.shared.forget_after_s;
        after.store(forget_after.as_secs(), Relaxed);
        let (dependencies, written) = Dependencies::open(folder, now);
        let mut catalog = self.catalog();
        for account in dependencies.accounts() {
            catalog.set_learned(account, names(&dependencies, account));
        }
        drop(catalog);
        *self.dependencies() = dependencies;
        written
    }

    /// Whether some of these reports say something new. Quick: most do not.
    pub(super) fn has_news(&self, reports: &BTreeSet<Report>) -> bool {
        let catalog = self.catalog();
        let mut news = reports.iter().filter_map(|report| new_of(&catalog, report));
        news.next().is_some()
    }

    /// Learns what reports say of lazy callers. Blocks until it is on the disk; then the Envoys that it concerns are told.
    pub(super) fn learn(&self, reports: &BTreeSet<Report>, now: u64) -> Learned {
        let catalog = self.catalog();
        let news = reports.iter().filter_map(|report| new_of(&catalog, report));
        let news: Vec<(ServiceAccountName, ServiceName)> = news.collect();
        drop(catalog);
        let count = news.len();
        let mut dependencies = self.dependencies();
        let (accounts, written) = dependencies.learn(news, now);
        for account in &accounts {
            self.tell_learned(account, &dependencies);
        }
        Learned { count, written }
    }

    /// Tells the Envoys of an account's workloads what these use.
    fn tell_learned(&self, account: &ServiceAccountName, dependencies: &Dependencies) {
        let uses = names(dependencies, account);
        let mut catalog = self.catalog();
        let before = catalog.learned(account).cloned().unwrap_or_default();
        let changed = catalog.set_learned(account, uses.clone());
        drop(catalog);
        let now = Instant::now();
        for stream in self.streams() {
            if stream.session().is_of(account) {
                let new = uses.difference(&before).cloned();
                let mut learning = stream.learning();
                learning.retain(|(name, _)| uses.contains(name));
                learning.extend(new.map(|name| (name, now)));
            }
        }
        self.note(&changed);
    }

    /// Notes that a lazy Envoy uses these Services at this time. A dependency is in use where a Service is to which its routes
    /// lead.
    pub(super) fn note_uses(&self, workload: &WorkloadName, busy: &BTreeSet<Name>, now: u64) {
        let mesh = Arc::clone(self.catalog().mesh());
        let Some(known) = mesh.workload(workload).filter(|_| !busy.is_empty()) else {
            return;
        };
        // Nothing is locked while they are looked through.
        let mut used = self.uses(&known.service_account);
        used.retain(|service, _| {
            let name = Name::from(service.to_string());
            !reached_by(&mesh, &name, &workload.namespace).is_disjoint(busy)
        });
        let mut dependencies = self.dependencies();
        dependencies.note_uses(&known.service_account, used.keys(), now);
    }

    /// Whether a report of a workload's Envoy is to be noted: the last one was at least this long ago, in whatever call.
    pub(super) fn may_report(&self, workload: &WorkloadName, every: Duration) -> bool {
        let reported = self.shared.reported.lock();
        let mut reported = reported.unwrap_or_else(PoisonError::into_inner);
        reported.retain(|_, at| at.elapsed() < every);
        let is_due = !reported.contains_key(workload);
        if is_due {
            reported.insert(workload.clone(), Instant::now());
        }
        is_due
    }

    /// After how long without a use a dependency is forgotten.
    pub(super) fn forget_after(&self) -> Duration {
        Duration::from_secs(self.shared.forget_after_s.load(Relaxed))
    }

    /// Forgets from time to time what is not used any more. Never returns.
    pub(crate) async fn forget(&self, clock: Clock, counters: &Counters) {
        let after = self.forget_after();
        if after.is_zero() {
            return std::future::pending().await;
        }
        let [often, seldom] = LOOK_EVERY;
        let mut looks = tokio::time::interval((after / 10).clamp(often, seldom));
        loop {
            looks.tick().await;
            let (envoys, now) = (self.clone(), clock().as_secs());
            let forgetting = tokio::task::spawn_blocking(move || {
                let mut dependencies = envoys.dependencies();
                let (accounts, count, written) = dependencies.forget(after.as_secs(), now);
                for account in &accounts {
                    envoys.tell_learned(account, &dependencies);
                }
                (count, written)
            });
            // It fails only when the runtime ends.
            let Ok((count, written)) = forgetting.await else {
                continue;
            };
            let forgotten = &counters.dependencies_forgotten;
            forgotten.fetch_add(count as u64, Relaxed);
            if let Err(why) = written {
                tracing::error!("what was forgotten and used is not on the disk: {why}");
            }
        }
    }

    /// What the workloads of an account use.
    pub fn uses(&self, account: &ServiceAccountName) -> BTreeMap<ServiceName, Used> {
        self.dependencies().of(account)
    }

    /// What an Envoy that knows a Service has of it; nothing before the first Envoy is connected.
    pub fn cost(&self, service: &ServiceName) -> Cost {
        let (resources, bytes) = self.catalog().cost(&service.to_string());
        Cost { resources, bytes }
    }

    fn dependencies(&self) -> MutexGuard<'_, Dependencies> {
        let dependencies = self.shared.dependencies.lock();
        dependencies.unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the meshes of a board, as long as Envoys are connected. Never returns.
    pub(crate) async fn follow(&self, board: &Board) {
        let mut generations = board.generations();
        let mut followed = None;
        let mut rested = Instant::now();
        loop {
            if self.open().streams.is_empty() {
                self.shared.first.notified().await;
            }
            let newest = *generations.borrow_and_update();
            if followed != Some(newest)
                && let Some(mesh) = board.newest()
            {
                sleep_until(rested).await;
                rested = Instant::now() + GATHER;
                followed = Some(newest);
                let envoys = self.clone();
                let following = tokio::task::spawn_blocking(move || {
                    let changed = envoys.catalog().follow(mesh);
                    envoys.note(&changed);
                });
                // It fails only when the runtime ends.
                let _ended = following.await;
                continue;
            }
            tokio::select! {
                changed = generations.changed() => if changed.is_err() { return },
                () = self.shared.first.notified() => {}
            }
        }
    }

    /// Wakes the streams that a change concerns.
    fn note(&self, changed: &heddle_envoy::Changed) {
        for stream in self.streams() {
            if stream.session().note(changed) {
                stream.woken.notify_one();
            }
        }
    }

    /// The Envoys that are connected, by their workloads. Of one with several streams the newest counts.
    pub fn connected(&self) -> BTreeMap<WorkloadName, Connected> {
        let mut connected = BTreeMap::new();
        for stream in self.streams() {
            let known: &mut Connected = connected
                .entry(stream.workload.clone())
                .or_insert(stream.connected);
            if known.since < stream.connected.since {
                *known = stream.connected;
            }
        }
        connected
    }

    fn streams(&self) -> Vec<Arc<Stream>> {
        self.open().streams.values().cloned().collect()
    }

    /// Opens the stream of a workload's Envoy, whose certificate expires at this time, in seconds since 1970.
    pub(super) fn open_stream(&self, workload: WorkloadName, until: u64) -> OpenStream {
        let session = Session::new(Own::new(workload.clone()));
        let stream = Arc::new(Stream {
            workload,
            connected: Connected {
                since: Instant::now(),
                until,
            },
            session: Mutex::new(session),
            woken: Notify::new(),
            learning: Mutex::default(),
        });
        let mut open = self.open();
        open.last += 1;
        let number = open.last;
        open.streams.insert(number, Arc::clone(&stream));
        self.shared.first.notify_one();
        OpenStream {
            envoys: self.clone(),
            number,
            stream,
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Each change is one step, so a poisoned lock is safe to use.
        self.shared
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn catalog(&self) -> MutexGuard<'_, Catalog> {
        let catalog = self.shared.catalog.lock();
        catalog.unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a report says, if that is new.
fn new_of(catalog: &Catalog, (account, ip): &Report) -> Option<(ServiceAccountName, ServiceName)> {
    let name = catalog.service_at(*ip)?;
    let known = catalog.learned(account);
    let is_known = known.is_some_and(|known| known.contains(name));
    if is_known || !catalog.is_lazy(account) {
        return None;
    }
    Some((account.clone(), ServiceName::parse(name).ok()?))
}

fn names(dependencies: &Dependencies, account: &ServiceAccountName) -> BTreeSet<Name> {
    let of = dependencies.of(account);
    of.keys()
        .map(|service| Name::from(service.to_string()))
        .collect()
}

impl Stream {
    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learning(&self) -> MutexGuard<'_, Vec<(Name, Instant)>> {
        self.learning.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenStream {
    pub(super) fn session(&self) -> MutexGuard<'_, Session> {
        self.stream.session()
    }

    /// For each Service that was learned and that the Envoy now uses without a gateway: how long that took.
    pub(super) fn learned(&self) -> Vec<Duration> {
        let mut learning = self.stream.learning();
        if learning.is_empty() {
            return Vec::new();
        }
        let session = self.session();
        if !session.is_routed() {
            return Vec::new();
        }
        let direct = session.direct();
        let done = learning.extract_if(.., |(name, _)| direct.contains(name));
        done.map(|(_, since)| since.elapsed()).collect()
    }

    /// Takes a message about a type of resource.
    pub(super) fn receive(&self, kind: Kind, request: Request) -> Result<Answer, TooMany> {
        let catalog = self.envoys.catalog();
        self.session().receive(kind, request, &catalog)
    }

    /// The next message, if there is something to say; nothing before the first mesh.
    pub(super) fn respond(&self) -> Result<Option<(Kind, Response<Bytes>)>, Gone> {
        let catalog = self.envoys.catalog();
        match catalog.is_empty() {
            true => Ok(None),
            false => self.session().respond(&catalog),
        }
    }

    /// Completes when there may be something to send since the last completion.
    pub(super) async fn woken(&self) {
        self.stream.woken.notified().await;
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.envoys.open().streams.remove(&self.number);
    }
}
