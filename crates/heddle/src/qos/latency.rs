//! The latency loop's ends: the proxy's admin socket tells how long requests take, and a file beside the journal tells
//! `heddle qos status` what the loop does.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heddle_node::admin::{self, Location};
use heddle_node::status;
use heddle_qos::agent::{Latencies, LatencyStatus};
use heddle_qos::state;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::proxy::{ANSWER, not_understood, unanswered};
use super::told::Told;

/// How often the proxy is asked.
const EVERY: Duration = Duration::from_secs(1);
/// Buckets, and pods, that an answer may have.
const MAX_BUCKETS: usize = 256;
const MAX_PODS: usize = 10_000;
/// The file that tells what the loop does, in the folder of the journal.
const FILE: &str = "latency.json";
/// Most bytes of it that are read.
const MAX_FILE: u64 = 4 * 1024 * 1024;

/// What the proxy has seen, again and again, while a pod has an objective.
pub(super) struct Seen {
    is_wanted: watch::Sender<bool>,
    answers: mpsc::Receiver<Latencies>,
}

impl Seen {
    /// Asks at this socket once [`Seen::want`] says so.
    pub(super) fn at(socket: Option<PathBuf>) -> Self {
        let (is_wanted, wanted) = watch::channel(false);
        let (sender, answers) = mpsc::channel(1);
        tokio::spawn(follow(Location::new(socket), wanted, sender));
        Seen { is_wanted, answers }
    }

    /// Whether the proxy is asked from now on.
    pub(super) fn want(&self, is_wanted: bool) {
        self.is_wanted.send_if_modified(|known| {
            let is_new = *known != is_wanted;
            *known = is_wanted;
            is_new
        });
    }

    /// The next answer.
    pub(super) async fn next(&mut self) -> Latencies {
        match self.answers.recv().await {
            Some(answer) => answer,
            // None will come.
            None => std::future::pending().await,
        }
    }
}

async fn follow(at: Location, mut wanted: watch::Receiver<bool>, answers: mpsc::Sender<Latencies>) {
    let mut told = Told::default();
    while wanted.wait_for(|is_wanted| *is_wanted).await.is_ok() {
        let at = at.clone();
        // A thread of its own: a proxy that hangs must not hold up the agent.
        match tokio::task::spawn_blocking(move || ask(&at)).await {
            Ok(Ok(answer)) => {
                if told.is_over() {
                    tracing::info!("the proxy tells the p99 of online pods again");
                }
                if answers.send(answer).await.is_err() {
                    return;
                }
            }
            Ok(Err(error)) => {
                if told.is_to_be_told(&error, Instant::now()) {
                    tracing::warn!("the p99 of online pods is not known: {error}");
                }
            }
            Err(_) => {}
        }
        sleep(EVERY).await;
    }
}

fn ask(at: &Location) -> Result<Latencies, String> {
    let answer = admin::get_within(at, "/latencies", ANSWER).map_err(|error| unanswered(&error))?;
    parsed(&answer).map_err(|why| not_understood(at, &why))
}

fn parsed(answer: &str) -> Result<Latencies, String> {
    let status::Latencies {
        bounds_us,
        workloads,
    } = serde_json::from_str(answer).map_err(|error| error.to_string())?;
    let rises = bounds_us.windows(2).all(|two| two[0] < two[1]);
    let fits = workloads
        .values()
        .all(|counts| counts.len() == bounds_us.len() + 1);
    let is_bounded = bounds_us.len() < MAX_BUCKETS && workloads.len() <= MAX_PODS;
    match rises && fits && is_bounded && !bounds_us.is_empty() {
        true => Ok(Latencies {
            bounds_us,
            pods: workloads,
        }),
        false => Err("its histograms are not understood".to_owned()),
    }
}

/// The file that tells what the loop does.
pub(super) struct StatusFile {
    /// None in a dry run.
    folder: Option<PathBuf>,
    last: Option<LatencyStatus>,
}

impl StatusFile {
    /// In the folder of the journal. What an earlier agent has left goes.
    pub(super) fn new(folder: Option<&Path>) -> Self {
        let file = StatusFile {
            folder: folder.map(Path::to_owned),
            last: None,
        };
        file.remove();
        file
    }

    /// Writes what is new. A file that cannot be written only leaves `heddle qos status` without it.
    pub(super) fn follow(&mut self, now: Option<LatencyStatus>) {
        if self.last == now {
            return;
        }
        match (&self.folder, &now) {
            (Some(folder), Some(now)) => {
                if let Err(error) = write(folder, now) {
                    tracing::debug!("{FILE} cannot be written: {error}");
                }
            }
            (_, None) => self.remove(),
            (None, _) => {}
        }
        self.last = now;
    }

    fn remove(&self) {
        if let Some(folder) = &self.folder {
            let _gone = std::fs::remove_file(folder.join(FILE));
        }
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        self.remove();
    }
}

fn write(folder: &Path, status: &LatencyStatus) -> io::Result<()> {
    state::replace(&folder.join(FILE), &serde_json::to_vec(status)?)
}

/// What the loop of the agent with this folder does; `None` when no pod has an objective.
///
/// # Errors
/// When the file cannot be read, or is not understood.
pub(crate) fn status(folder: &Path) -> io::Result<Option<LatencyStatus>> {
    let path = folder.join(FILE);
    let Some(text) = state::read(&path, MAX_FILE)? else {
        return Ok(None);
    };
    let understood = serde_json::from_slice(&text);
    understood.map(Some).map_err(|error| {
        let what = format!("{}: {error}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

#[cfg(test)]
mod tests {
    use super::parsed;

    #[test]
    fn an_answer_that_does_not_fit_together_is_refused() {
        let good = r#"{"bounds_us":[50,100],"workloads":{"a/b":[1,2,3]},"more":1}"#;
        assert_eq!(parsed(good).expect("read").pods["a/b"], [1, 2, 3]);
        for wrong in [
            "",
            "null",
            "{}",
            r#"{"bounds_us":[],"workloads":{"a/b":[1]}}"#,
            r#"{"bounds_us":[50,50],"workloads":{}}"#,
            r#"{"bounds_us":[50,100],"workloads":{"a/b":[1,2]}}"#,
            r#"{"bounds_us":[50,100],"workloads":{"a/b":[1,2,-3]}}"#,
            r#"{"bounds_us":[50,100],"workloads":{"a/b":[1,2,3.5]}}"#,
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
