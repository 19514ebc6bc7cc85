//! The threads of this machine's proxy that work for offline callers: its admin socket tells which they are, and they
//! yield like offline pods.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use heddle_model::{ControlGroup, printable, shortened};
use heddle_node::admin::{self, ClientError, Limits, Location};
use heddle_node::exit::Failure;
use heddle_node::settings::QosSettings;
use heddle_node::table::count;
use heddle_qos::cgroup::Mounts;
use heddle_qos::remarks::NotDone;
use heddle_qos::threads::OfflineThreads;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::AgentPlan;
use super::told::Told;

/// How often the proxy is asked.
const EVERY: Duration = Duration::from_secs(1);
/// How often the group is looked at while nothing changes: another program may have changed it, or what was in the way is
/// gone.
const AGAIN: Duration = Duration::from_secs(60);
/// How long the proxy may take to answer, and how much it may say: the histograms of 10,000 pods have some 2 MiB.
pub(super) const ANSWER: Limits = Limits {
    time: Duration::from_secs(1),
    bytes: 4 << 20,
};
/// Most characters of an error that are logged: it may quote what another program has answered.
const MAX_SAID: usize = 400;

/// The proxy's threads, and the group that makes them yield. By default none are followed.
#[derive(Default)]
pub(super) struct ProxyThreads {
    followed: Option<Followed>,
}

struct Followed {
    threads: watch::Receiver<Threads>,
    place: Place,
    /// Why the threads do not yield that there are now, if that is so.
    why_not: Option<String>,
    /// When to look at the group next.
    again: Option<Instant>,
}

/// Where the threads are put.
enum Place {
    Group(OfflineThreads),
    /// What an earlier agent has left is in the way: it is in this state folder.
    Taken {
        state: PathBuf,
        group: ControlGroup,
    },
}

/// Threads of the proxy for offline callers, by their kernel IDs, and the process that says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Threads {
    ids: Vec<i32>,
    process: i32,
}

impl ProxyThreads {
    /// Follows the proxy's threads, unless the settings or the kernel have it otherwise. What an earlier agent has left
    /// is put back first; if it cannot be, the threads do not yield until it is.
    ///
    /// # Errors
    /// When there are no control groups.
    pub(super) fn follow(plan: &AgentPlan, settings: &QosSettings) -> Result<Self, Failure> {
        let left = put_threads_back(&plan.state);
        let mounts = Mounts::find().context("cannot find the control groups")?;
        let group = settings.proxy_group.clone();
        let (place, why_not) = match (left, settings.preemption) {
            (Err(error), _) => {
                let why = error.to_string();
                tracing::warn!("the proxy's threads for offline callers do not yield: {why}");
                let state = plan.state.clone();
                (Place::Taken { state, group }, Some(why))
            }
            (Ok(_), false) => return Ok(Self::default()),
            (Ok(_), true) => match OfflineThreads::new(&mounts, group, &plan.state) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    tracing::info!(
                        "the proxy's threads for offline callers stay in its group: {error}"
                    );
                    return Ok(Self::default());
                }
                group => {
                    let group = group.context("the group for the proxy's threads")?;
                    (Place::Group(group), None)
                }
            },
        };
        let threads = match settings.preemption {
            true => offline_threads(Location::new(settings.proxy_socket.clone())),
            // What was left is still to be put back.
            false => watch::channel(Threads::default()).1,
        };
        Ok(ProxyThreads {
            followed: Some(Followed {
                threads,
                place,
                again: why_not.as_ref().map(|_| Instant::now() + AGAIN),
                why_not,
            }),
        })
    }

    /// Resolves when there are other threads than before, or the group is to be looked at.
    pub(super) async fn changed(&mut self) {
        match &mut self.followed {
            Some(followed) => followed.changed().await,
            // No change will come.
            None => std::future::pending().await,
        }
    }

    /// Makes the threads yield that there are now.
    pub(super) fn place(&mut self) {
        if let Some(followed) = &mut self.followed {
            followed.place();
        }
    }

    /// What status says while the threads do not yield.
    pub(super) fn not_done(&self) -> Option<NotDone> {
        let why = self.followed.as_ref()?.why_not.as_ref()?;
        Some(NotDone {
            setting: "qos.proxy_group".to_owned(),
            why: format!(
                "the proxy's threads for offline callers do not yield: {why}; tried again in a minute"
            ),
        })
    }

    /// Puts the threads back, and returns whether that was done.
    pub(super) fn restore(&mut self) -> bool {
        let Some(followed) = &mut self.followed else {
            return true;
        };
        let restored = match &mut followed.place {
            Place::Group(group) => group.restore().map(drop),
            Place::Taken { state, .. } => put_threads_back(state).map(drop),
        };
        let Err(error) = restored else { return true };
        tracing::error!("the proxy's threads cannot be put back: {error}");
        false
    }
}

impl Followed {
    async fn changed(&mut self) {
        let again = self.again;
        let threads = &mut self.threads;
        let is_due = async {
            match again {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let is_other = async {
            if threads.changed().await.is_err() {
                // No change will come.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = is_due => {}
            () = is_other => {}
        }
    }

    fn place(&mut self) {
        let wanted = self.threads.borrow_and_update().clone();
        let placed = self.try_to_place(&wanted);
        let is_over = placed.is_ok() && wanted.ids.is_empty();
        self.again = (!is_over).then(|| Instant::now() + AGAIN);
        match placed {
            Ok(0) => {}
            Ok(placed) => {
                let threads = count(placed, "thread");
                tracing::info!("{threads} of the proxy for offline callers from now on yield");
            }
            Err(ref why) => {
                tracing::warn!("the proxy's threads for offline callers do not yield: {why}");
            }
        }
        self.why_not = placed.err();
    }

    fn try_to_place(&mut self, wanted: &Threads) -> Result<usize, String> {
        if let Place::Taken { state, group } = &self.place {
            put_threads_back(state).map_err(|error| error.to_string())?;
            let mounts = Mounts::find().map_err(|error| error.to_string())?;
            match OfflineThreads::new(&mounts, group.clone(), state) {
                // With version 2 there is nothing more to do.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(0),
                group => self.place = Place::Group(group.map_err(|error| error.to_string())?),
            }
        }
        let Place::Group(group) = &mut self.place else {
            return Ok(0);
        };
        if !wanted.ids.is_empty() && wanted.process <= 0 {
            return Err("the process at the proxy's socket is in another PID namespace".to_owned());
        }
        let placed = group.place(&wanted.ids, wanted.process);
        placed.map_err(|error| error.to_string())
    }
}

/// Puts back the proxy's threads that an agent has left in a group of their own. Returns the group, if it was there, and
/// how many threads were put back.
///
/// # Errors
/// When the kernel refuses, another program has put something into the group, or the state folder cannot be read.
pub(crate) fn put_threads_back(state: &Path) -> io::Result<Option<(ControlGroup, usize)>> {
    let mounts = Mounts::find()?;
    let put_back = |mut left: OfflineThreads| {
        let found = left.is_there().then(|| left.group().clone());
        let back = left.restore()?;
        Ok(found.map(|group| (group, back)))
    };
    OfflineThreads::left(&mounts, state)?.map_or(Ok(None), put_back)
}

/// The group in which a killed agent has left the proxy's threads, if there is one.
///
/// # Errors
/// When the state folder cannot be read, or names no group.
pub(crate) fn threads_left(state: &Path) -> io::Result<Option<ControlGroup>> {
    let Ok(mounts) = Mounts::find() else {
        return Ok(None);
    };
    let left = OfflineThreads::left(&mounts, state)?;
    let left = left.filter(OfflineThreads::is_there);
    Ok(left.map(|left| left.group().clone()))
}

/// Why the proxy's socket does not answer. The flag that names the socket is another one here.
pub(super) fn unanswered(error: &ClientError) -> String {
    let said = error.to_string();
    said.replace("--socket", "--proxy-socket (qos.proxy_socket)")
}

/// What is wrong with an answer. The error may quote it.
pub(super) fn not_understood(at: &Location, why: &str) -> String {
    let said = format!("heddle at {}: {why}", at.path.display());
    printable(&shortened(&said, MAX_SAID)).into_owned()
}

/// The part of the answer to `GET /workers` that is used here.
#[derive(Deserialize)]
struct Workers {
    workers: Vec<WorkerClass>,
}

#[derive(Deserialize)]
struct WorkerClass {
    class: heddle_model::Class,
    /// The kernel's ID of its thread.
    thread: i32,
}

/// Asks the proxy again and again. The receiver has the threads of its Workers for offline callers, as of the last
/// answer.
fn offline_threads(at: Location) -> watch::Receiver<Threads> {
    let (sender, threads) = watch::channel(Threads::default());
    tokio::spawn(async move {
        let mut told = Told::default();
        while !sender.is_closed() {
            let at = at.clone();
            // A thread of its own: a proxy that hangs must not hold up the agent.
            let asked = tokio::task::spawn_blocking(move || ask(&at)).await;
            match asked {
                Ok(Ok(threads)) => {
                    told.is_over();
                    sender.send_if_modified(|known| {
                        let is_new = *known != threads;
                        *known = threads;
                        is_new
                    });
                }
                Ok(Err(error)) => {
                    if told.is_to_be_told(&error, Instant::now()) {
                        tracing::warn!("the proxy's threads are not known: {error}");
                    }
                }
                Err(_) => {}
            }
            sleep(EVERY).await;
        }
    });
    threads
}

/// The threads; none without a proxy at the default place.
fn ask(at: &Location) -> Result<Threads, String> {
    let reply = match admin::reply_within(at, "/workers", ANSWER) {
        Err(ClientError::NotRunning(at, _)) if !at.is_given => return Ok(Threads::default()),
        reply => reply.map_err(|error| unanswered(&error))?,
    };
    let workers: Workers = serde_json::from_str(&reply.body)
        .map_err(|error| not_understood(at, &error.to_string()))?;
    let workers = workers.workers.into_iter();
    let offline = workers.filter(|worker| worker.class == heddle_model::Class::Offline);
    Ok(Threads {
        ids: offline.map(|worker| worker.thread).collect(),
        process: reply.process,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use heddle_model::ControlGroup;
    use heddle_qos::cgroup::Mounts;
    use tokio::sync::watch;
    use tokio::time::{Instant, timeout};

    use super::{AGAIN, Followed, Place, Threads};

    /// Given something in the way, when it is gone, then the threads are placed after a minute at most.
    #[tokio::test(start_paused = true)]
    async fn what_could_not_be_done_is_tried_again() {
        if Mounts::find().is_err() {
            heddle_skips::skipped("no control groups");
            return;
        }
        let state = tempfile::tempdir().expect("a folder");
        let file = state.path().join("threads");
        fs::write(&file, "../x").expect("written");
        let (sender, threads) = watch::channel(Threads::default());
        let mut followed = Followed {
            threads,
            place: Place::Taken {
                state: state.path().to_owned(),
                group: ControlGroup::new("heddle-test-again").expect("a path"),
            },
            why_not: None,
            again: None,
        };
        followed.place();
        let why = followed.why_not.clone().expect("in the way");
        assert!(why.contains("/threads: "), "{why}");
        fs::remove_file(&file).expect("removed");
        let began = Instant::now();
        followed.changed().await;
        assert_eq!(began.elapsed(), AGAIN);
        followed.place();
        assert_eq!(followed.why_not, None);
        // Nothing is wanted, so nothing is looked at until that changes.
        let hour = Duration::from_secs(3_600);
        assert!(timeout(hour, followed.changed()).await.is_err());
        let threads = Threads {
            ids: vec![1],
            process: 0,
        };
        sender.send(threads).expect("followed");
        followed.changed().await;
    }
}
