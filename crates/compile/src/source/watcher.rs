//! A folder followed as it changes.
//!
//! inotify reports only *that* something happened; the content is found by reading the whole folder. Events are
//! therefore only wake-ups: they are merged, the watcher waits until the writer pauses, and a digest of the content
//! decides whether anything changed. So the way of writing does not matter: in place, by renaming a file, a link or a
//! whole folder, or by deleting and creating again. A lost event delays the change until the next slow look.
//!
//! ```text
//!            event or slow tick            quiet for 100 ms          content differs
//!   waiting ───────────────────► settling ─────────────────► reading ───────────────► returned
//!      ▲                                                        │ the same
//!      └────────────────────────────────────────────────────────┘
//! ```
//!
//! A registry followed beside the folder wakes the watcher, too. The folder is not read for that, unless it was refused as
//! a whole. Changes of the registry take effect even while the folder as a whole is refused: what is in force is compiled
//! with them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use heddle_model::Mesh;
use heddle_model::report::Report;
use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::folder::{self, Identity, Scan, Watched};
use super::serve::{Beside, Serving};
use crate::Options;
use crate::registered::Providers;

#[cfg(test)]
mod tests;

/// How long the folder must be quiet before it is read: editors and `cp` write in several steps.
const QUIET: Duration = Duration::from_millis(100);
/// Upper bound of the wait for a busy folder to become quiet.
const LONGEST_SETTLING: Duration = Duration::from_millis(400);
/// How often the folder is read without an event, in case one was lost.
const SLOW_LOOK: Duration = Duration::from_secs(5);
/// The same interval where the kernel grants no watches, so that a change still takes effect within about a second, and
/// where trials did not suffice for every provider.
const BLIND_LOOK: Duration = Duration::from_millis(800);
/// The longest rest of the registry after a compilation for it.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// How often one look extends the watches while new folders appear.
const MAX_EXTENSIONS: usize = 8;

/// Follows a folder of manifests.
pub struct Watcher {
    eyes: Arc<Mutex<Eyes>>,
    events: Receiver<()>,
    /// The registered providers, if a registry is followed.
    providers: Option<watch::Receiver<Arc<Providers>>>,
    /// The folder or the registry may have changed since the last look.
    stale: bool,
    /// Digest of the content returned last, and the registry's version with it.
    digest: Option<(u64, u64)>,
    generation: u64,
    /// Whether the last returned mesh has a Service or a workload.
    has_content: bool,
    /// How long to wait for an event before looking anyway.
    look_every: Duration,
    /// When the folder is read without an event.
    look_at: Instant,
    /// The value of `look_every` while every folder is watched.
    slow_look: Duration,
    /// When a change of the registry may take effect again.
    registry_at: Instant,
    /// When work on the last one began, until the owner asks for the next mesh.
    registry_since: Option<Instant>,
}

/// The part that accesses the file system, and so runs on a blocking thread.
struct Eyes {
    root: PathBuf,
    options: Options,
    /// `None` when the kernel grants no inotify instance.
    notify: Option<RecommendedWatcher>,
    /// Folders that the kernel watches: inode, and the path by which it was found.
    watched: BTreeMap<Identity, PathBuf>,
    filter: Arc<Mutex<Filter>>,
    /// Whether some folder could not be watched.
    blind: bool,
    serving: Serving,
}

/// Selects the relevant events. A busy parent such as /tmp has to be watched because the folder itself may come and go;
/// its other entries are irrelevant.
#[derive(Default)]
struct Filter {
    folders: BTreeMap<PathBuf, Option<BTreeSet<OsString>>>,
    /// Something was removed, perhaps a watched folder. The kernel drops the watch with it, and a new folder may get
    /// the old inode number, so every watch has to be set anew.
    removed: bool,
}

/// What a watcher was woken by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    /// An event of the folder, or the time to read it without one.
    ByFolder,
    /// The registry alone.
    ByRegistry,
}

impl Filter {
    fn takes(&self, event: &Event) -> bool {
        is_change(event.kind)
            && (event.paths.is_empty() || event.paths.iter().any(|path| self.matters(path)))
    }

    fn matters(&self, path: &Path) -> bool {
        let within = path.parent().and_then(|folder| self.folders.get(folder));
        let named = match (within, path.file_name()) {
            (Some(None), _) => true,
            (Some(Some(names)), Some(name)) => names.contains(name),
            _ => false,
        };
        named || self.folders.contains_key(path)
    }
}

impl Watcher {
    /// Follows `dir`, which need not exist yet, with default options.
    pub fn new(dir: &Path) -> Self {
        Self::with(dir, Options::default())
    }

    /// Follows `dir`, which need not exist yet, with these options.
    pub fn with(dir: &Path, options: Options) -> Self {
        let (sender, events) = mpsc::channel(1);
        let filter = Arc::new(Mutex::new(Filter::default()));
        let handlers = Arc::clone(&filter);
        let notify = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let mut filter = handlers.lock().unwrap_or_else(PoisonError::into_inner);
            let event = event.unwrap_or_else(|_| Event::new(EventKind::Other));
            if filter.takes(&event) {
                filter.removed |= event.kind.is_remove();
                // A full channel already holds a wake-up.
                let _ = sender.try_send(());
            }
        });
        let eyes = Eyes {
            root: dir.to_path_buf(),
            options,
            blind: notify.is_err(),
            notify: notify.ok(),
            watched: BTreeMap::new(),
            filter,
            serving: Serving::default(),
        };
        Self {
            eyes: Arc::new(Mutex::new(eyes)),
            events,
            providers: None,
            stale: true,
            digest: None,
            generation: 0,
            has_content: false,
            look_every: SLOW_LOOK,
            look_at: Instant::now(),
            slow_look: SLOW_LOOK,
            registry_at: Instant::now(),
            registry_since: None,
        }
    }

    /// Goes on with the last good version of each object that an earlier process has saved. What is not valid is not
    /// used. Returns how many lines that are.
    pub fn recall(&mut self, saved: &[u8]) -> usize {
        let mut eyes = self.eyes.lock().unwrap_or_else(PoisonError::into_inner);
        let Eyes { serving, root, .. } = &mut *eyes;
        serving.recall(saved, root)
    }

    /// Saves the last good version of each object, now and whenever they change. Blocks while it does.
    ///
    /// # Errors
    /// When they cannot be saved now. Later that is a problem of the report.
    pub fn save_by(
        &mut self,
        save: impl Fn(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let mut eyes = self.eyes.lock().unwrap_or_else(PoisonError::into_inner);
        let Eyes { serving, root, .. } = &mut *eyes;
        serving.save_by(Box::new(save), root)
    }

    /// Also compiles the providers of a registry, beside the folder.
    #[must_use]
    pub fn beside(mut self, providers: watch::Receiver<Arc<Providers>>) -> Self {
        self.providers = Some(providers);
        self
    }

    /// Waits for the folder's content to differ from what was returned last, and compiles it.
    ///
    /// The first call returns the present content at once. The result has a mesh unless the folder as a whole is refused:
    /// an object with an error is refused by itself, which the report says, and its last good version stays in force, or
    /// something that opens nothing. Where a registry is followed there is a mesh even then, of what is in force, if
    /// there is anything.
    ///
    /// A folder without a manifest is an error once a mesh with content was returned: most likely it was emptied or
    /// unmounted by mistake. The mesh's generation counts the meshes that this watcher returned. Dropping the future
    /// loses nothing: the next call finds the same change. Needs a tokio runtime with time.
    pub async fn next(&mut self) -> (Option<Mesh>, Report) {
        if let Some(began) = self.registry_since.take() {
            // What the owner has done with the mesh counts, too.
            let rest = began.elapsed().min(LONGEST_REST);
            self.registry_at = self.registry_at.max(Instant::now() + rest);
        }
        loop {
            let woken = match self.stale {
                true => Woken::ByFolder,
                false => self.wait().await,
            };
            self.stale = true;
            let began = Instant::now();
            let eyes = Arc::clone(&self.eyes);
            let (last, had_content) = (self.digest, self.has_content);
            let providers = self.providers.as_mut();
            let providers = providers.map(|providers| Arc::clone(&providers.borrow_and_update()));
            let look = move || {
                let mut eyes = eyes.lock().unwrap_or_else(PoisonError::into_inner);
                let version = providers.as_ref().map_or(0, |providers| providers.version);
                if let (Woken::ByRegistry, Some((folder, before))) = (woken, last)
                    && before != version
                    && let Some(read) = eyes.read_beside(folder, providers.as_deref())
                {
                    let is_unfinished = eyes.serving.is_unfinished();
                    return ((folder, version), Some(read), eyes.blind, is_unfinished);
                }
                let scan = eyes.look();
                let digest = (scan.digest(), version);
                let read = (last != Some(digest))
                    .then(|| eyes.read((&scan, digest.0), providers.as_deref(), had_content));
                (digest, read, eyes.blind, eyes.serving.is_unfinished())
            };
            let Ok((digest, read, blind, is_unfinished)) = tokio::task::spawn_blocking(look).await
            else {
                // The runtime is shutting down, or reading panicked: look again later.
                self.stale = false;
                continue;
            };
            self.stale = false;
            self.look_every = match blind || is_unfinished {
                true => BLIND_LOOK,
                false => self.slow_look,
            };
            let next = Instant::now() + self.look_every;
            self.look_at = match woken {
                Woken::ByFolder => next,
                Woken::ByRegistry => self.look_at.min(next),
            };
            if woken == Woken::ByRegistry {
                // A provider whose changes need much work, again and again, takes half of a processor at most.
                self.registry_at = Instant::now() + began.elapsed().min(LONGEST_REST);
                self.registry_since = read.is_some().then_some(began);
            }
            // Forgetting the digest makes the next look try the remaining providers, even without a change.
            self.digest = (!is_unfinished).then_some(digest);
            if let Some((mut mesh, report)) = read {
                if let Some(mesh) = &mut mesh {
                    self.generation += 1;
                    mesh.generation = self.generation;
                    self.has_content = !(mesh.services.is_empty() && mesh.workloads.is_empty());
                }
                return (mesh, report);
            }
        }
    }

    /// Waits for the registry, for an event of the folder and for its writer to pause, or until the folder is due.
    async fn wait(&mut self) -> Woken {
        // A registry that always has something new must not hide an event that was lost.
        if Instant::now() >= self.look_at {
            return Woken::ByFolder;
        }
        match timeout_at(self.look_at, self.event()).await {
            Err(_) => return Woken::ByFolder,
            // The registry is passed on at intervals, so it needs no pause.
            Ok(Woken::ByRegistry) => return Woken::ByRegistry,
            Ok(Woken::ByFolder) => {}
        }
        // From here on dropping the future must not lose the event.
        self.stale = true;
        let settled_at = Instant::now() + LONGEST_SETTLING;
        while Instant::now() < settled_at {
            if timeout(QUIET, self.events.recv()).await.is_err() {
                break;
            }
        }
        Woken::ByFolder
    }

    /// Waits for a wake-up from the folder or the registry.
    async fn event(&mut self) -> Woken {
        let registry = async {
            sleep_until(self.registry_at).await;
            // A closed channel sends no more changes.
            if let Some(providers) = &mut self.providers
                && providers.changed().await.is_ok()
            {
                return;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = self.events.recv() => Woken::ByFolder,
            () = registry => Woken::ByRegistry,
        }
    }
}

impl Eyes {
    /// Sets every watch before the final read of the folder, so that no change is missed.
    fn look(&mut self) -> Scan {
        let mut scan = folder::scan(&self.root);
        for _ in 0..MAX_EXTENSIONS {
            if !self.watch(&scan.folders) {
                break;
            }
            scan = folder::scan(&self.root);
        }
        scan
    }

    fn read(
        &mut self,
        content: (&Scan, u64),
        providers: Option<&Providers>,
        had_content: bool,
    ) -> (Option<Mesh>, Report) {
        let beside = Beside {
            dir: &self.root,
            options: &self.options,
            providers,
        };
        self.serving.read(content, beside, had_content)
    }

    /// Compiles the providers of now beside the folder as it was read last; `None` if the folder has to be read.
    fn read_beside(
        &mut self,
        folder: u64,
        providers: Option<&Providers>,
    ) -> Option<(Option<Mesh>, Report)> {
        let beside = Beside {
            dir: &self.root,
            options: &self.options,
            providers,
        };
        self.serving.read_beside(folder, beside)
    }

    /// Watches exactly these folders; returns whether one of them is new.
    fn watch(&mut self, folders: &BTreeMap<Identity, Watched>) -> bool {
        let Some(notify) = &mut self.notify else {
            return false;
        };
        let removed = {
            let mut filter = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
            let folders = folders.values();
            filter.folders = folders.map(|f| (f.path.clone(), f.names.clone())).collect();
            std::mem::take(&mut filter.removed)
        };
        self.watched.retain(|identity, path| {
            let keep = folders
                .get(identity)
                .is_some_and(|folder| folder.path == *path)
                && !removed;
            if !keep {
                // Fails if the kernel has dropped the watch already.
                let _ = notify.unwatch(path);
            }
            keep
        });
        let mut is_new = false;
        self.blind = false;
        for (identity, folder) in folders {
            if self.watched.contains_key(identity) {
                continue;
            }
            match notify.watch(&folder.path, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert(*identity, folder.path.clone());
                    is_new = true;
                }
                Err(_) => self.blind = true,
            }
        }
        is_new
    }
}

/// Whether an event can mean a change of content. A read is not one: the watcher's own would wake it for ever.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}
