//! The Workers of this machine's proxy that carry offline callers, as its admin socket tells.

use std::time::Duration;

use heddle_node::admin::{self, ClientError, Location};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::sleep;

/// How often the proxy is asked.
const EVERY: Duration = Duration::from_secs(1);
/// How long it may take to answer.
const LIMIT: Duration = Duration::from_secs(1);

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
pub(super) fn offline_threads(at: Location) -> watch::Receiver<Vec<i32>> {
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
    let answer = match admin::get_within(at, "/workers", LIMIT) {
        Err(ClientError::NotRunning(at, _)) if !at.is_given => return Ok(Vec::new()),
        answer => answer.map_err(|error| error.to_string())?,
    };
    let workers: Workers = serde_json::from_str(&answer)
        .map_err(|error| format!("heddle at {}: {error}", at.path.display()))?;
    let workers = workers.workers.into_iter();
    let offline = workers.filter(|worker| worker.class == heddle_model::Class::Offline);
    Ok(offline.map(|worker| worker.thread).collect())
}
