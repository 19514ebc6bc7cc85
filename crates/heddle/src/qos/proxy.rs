//! The threads of this machine's proxy that work for offline callers: its admin socket tells which they are, and they
//! yield like offline pods.

use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use heddle_node::admin::{self, ClientError, Limits, Location};
use heddle_node::exit::Failure;
use heddle_node::settings::QosSettings;
use heddle_node::table::count;
use heddle_qos::cgroup::Mounts;
use heddle_qos::threads::OfflineThreads;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::sleep;

use super::AgentPlan;

/// How often the proxy is asked.
const EVERY: Duration = Duration::from_secs(1);
/// How long it may take to answer, and how much it may say: the histograms of 10,000 pods have some 2 MiB.
pub(super) const ANSWER: Limits = Limits {
    time: Duration::from_secs(1),
    bytes: 4 << 20,
};

/// The proxy's threads, and the group that makes them yield. By default none are followed.
#[derive(Default)]
pub(super) struct ProxyThreads {
    followed: Option<(watch::Receiver<Vec<i32>>, OfflineThreads)>,
}

impl ProxyThreads {
    /// Follows the proxy's threads, unless the settings or the kernel have it otherwise. What an earlier agent has left
    /// is put back first.
    ///
    /// # Errors
    /// When that fails.
    pub(super) fn follow(plan: &AgentPlan, settings: &QosSettings) -> Result<Self, Failure> {
        put_threads_back(&plan.state)?;
        if !settings.preemption {
            return Ok(Self::default());
        }
        let mounts = Mounts::find().context("cannot find the control groups")?;
        let group = settings.proxy_group.clone();
        let group = match OfflineThreads::new(&mounts, group, &plan.state) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                tracing::info!(
                    "the proxy's threads for offline callers stay in its group: {error}"
                );
                return Ok(Self::default());
            }
            group => group.context("the group for the proxy's threads")?,
        };
        let threads = offline_threads(Location::new(settings.proxy_socket.clone()));
        Ok(ProxyThreads {
            followed: Some((threads, group)),
        })
    }

    /// Resolves when there are other threads than before.
    pub(super) async fn changed(&mut self) {
        let changed = match &mut self.followed {
            Some((threads, _)) => threads.changed().await.is_ok(),
            None => false,
        };
        if !changed {
            // No change will come.
            std::future::pending::<()>().await;
        }
    }

    /// Makes the threads yield that there are now.
    pub(super) fn place(&mut self) {
        let Some((threads, group)) = &mut self.followed else {
            return;
        };
        match group.place(&threads.borrow_and_update()) {
            Ok(0) => {}
            Ok(placed) => {
                let threads = count(placed, "thread");
                tracing::info!("{threads} of the proxy for offline callers from now on yield");
            }
            Err(error) => {
                tracing::warn!("the proxy's threads for offline callers do not yield: {error}");
            }
        }
    }

    /// Puts the threads back, and returns whether that was done.
    pub(super) fn restore(&mut self) -> bool {
        let restored = self.followed.as_mut().map(|(_, group)| group.restore());
        let Some(Err(error)) = restored else {
            return true;
        };
        tracing::error!("the proxy's threads cannot be put back: {error}");
        false
    }
}

/// Puts back the proxy's threads that an agent has left in a group of their own.
///
/// # Errors
/// When the kernel refuses, or the state folder cannot be read.
pub(crate) fn put_threads_back(state: &Path) -> Result<(), Failure> {
    let mounts = Mounts::find().context("cannot find the control groups")?;
    let left = OfflineThreads::left(&mounts, state)
        .and_then(|left| left.map_or(Ok(()), |mut left| left.restore()));
    Ok(left.context("the group for the proxy's threads")?)
}

/// Why the proxy's socket does not answer. The flag that names the socket is another one here.
pub(super) fn unanswered(error: &ClientError) -> String {
    let said = error.to_string();
    said.replace("--socket", "--proxy-socket (qos.proxy_socket)")
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
fn offline_threads(at: Location) -> watch::Receiver<Vec<i32>> {
    let (sender, threads) = watch::channel(Vec::new());
    tokio::spawn(async move {
        let mut said = None;
        while !sender.is_closed() {
            let at = at.clone();
            // A thread of its own: a proxy that hangs must not hold up the agent.
            let asked = tokio::task::spawn_blocking(move || ask(&at)).await;
            match asked {
                Ok(Ok(threads)) => {
                    said = None;
                    sender.send_if_modified(|known| {
                        let is_new = *known != threads;
                        *known = threads;
                        is_new
                    });
                }
                Ok(Err(error)) if said.as_ref() != Some(&error) => {
                    tracing::warn!("the proxy's threads are not known: {error}");
                    said = Some(error);
                }
                Ok(Err(_)) | Err(_) => {}
            }
            sleep(EVERY).await;
        }
    });
    threads
}

/// The threads; none without a proxy at the default place.
fn ask(at: &Location) -> Result<Vec<i32>, String> {
    let answer = match admin::get_within(at, "/workers", ANSWER) {
        Err(ClientError::NotRunning(at, _)) if !at.is_given => return Ok(Vec::new()),
        answer => answer.map_err(|error| unanswered(&error))?,
    };
    let workers: Workers = serde_json::from_str(&answer)
        .map_err(|error| format!("heddle at {}: {error}", at.path.display()))?;
    let workers = workers.workers.into_iter();
    let offline = workers.filter(|worker| worker.class == heddle_model::Class::Offline);
    Ok(offline.map(|worker| worker.thread).collect())
}
