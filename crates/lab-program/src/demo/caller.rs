//! A caller that sends the same request again and again, and counts the responses.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use anyhow::Context;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::asker::Asker;

/// Requests per second.
const RATE: u32 = 10;

/// Number of responses by status and, if a proxy refused, its reason.
pub(super) type Answers = BTreeMap<String, u64>;

/// Responses in words.
pub(super) fn told(answers: &Answers) -> String {
    let each = answers.iter();
    let each = each.map(|(answer, times)| format!("{answer} ({times} times)"));
    each.collect::<Vec<_>>().join(", ")
}

/// Requests `url` once; returns the status with the proxy's reason if there is one, or the error. `program` is
/// `heddle-lab` as run by the caller.
///
/// # Errors
/// The program cannot be started.
pub(super) async fn ask(program: Command, url: &str) -> anyhow::Result<String> {
    let mut asker = Asker::start(program, url, &[])?;
    asker.next().await.context("heddle-lab ask said nothing")
}

/// A running caller; stops when dropped.
pub(super) struct Caller {
    task: JoinHandle<Answers>,
    enough: Arc<Notify>,
}

impl Caller {
    /// Requests `url` ten times a second from now on. `program` is `heddle-lab` as run by the caller.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(super) fn start(program: Command, url: &str) -> anyhow::Result<Self> {
        let rate = ["--rate".to_owned(), RATE.to_string()];
        let mut asker = Asker::start(program, url, &rate)?;
        let enough = Arc::new(Notify::new());
        let told = Arc::clone(&enough);
        let task = tokio::spawn(async move {
            let mut answers = Answers::new();
            loop {
                let answer = tokio::select! {
                    answer = asker.next() => answer,
                    () = told.notified() => {
                        asker.enough();
                        continue;
                    }
                };
                let Some(answer) = answer else {
                    asker.ended().await;
                    return answers;
                };
                *answers.entry(answer).or_default() += 1;
            }
        });
        Ok(Self { task, enough })
    }

    /// Stops after its pending request; returns all responses.
    pub(super) async fn finish(mut self) -> Answers {
        self.enough.notify_one();
        (&mut self.task).await.unwrap_or_default()
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.task.abort();
    }
}
