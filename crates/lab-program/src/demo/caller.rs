//! A caller that asks a service the same thing again and again, and remembers what it was told.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use anyhow::Context;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::asker::Asker;

/// Requests per second.
const RATE: u32 = 10;

/// Answers by what they said: the status, and the reason that a proxy gives when it refuses.
pub(super) type Answers = BTreeMap<String, u64>;

/// Answers in words.
pub(super) fn told(answers: &Answers) -> String {
    let each = answers.iter();
    let each = each.map(|(answer, times)| format!("{answer} ({times} times)"));
    each.collect::<Vec<_>>().join(", ")
}

/// Asks `url` once, and says what came: the status, with the proxy's reason if it gave one, or why nothing
/// came. `program` is `heddle-lab`, where the caller is.
///
/// # Errors
/// The program cannot be started.
pub(super) async fn ask(program: Command, url: &str) -> anyhow::Result<String> {
    let mut asker = Asker::start(program, url, &[])?;
    asker.next().await.context("heddle-lab ask said nothing")
}

/// A caller that asks; stops when dropped.
pub(super) struct Caller {
    task: JoinHandle<Answers>,
    enough: Arc<Notify>,
}

impl Caller {
    /// Asks `url` ten times a second from now on. `program` is `heddle-lab`, where the caller is.
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

    /// Stops when the request under way has its answer, and says what it was told.
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
