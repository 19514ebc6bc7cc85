//! The pods of a kubelet, for `heddle qos run`: the shell around [`heddle_qos::kubelet`], which decides.

mod client;
mod tls;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use heddle_node::exit::{Exit, Failure};
use heddle_node::settings::KubeletSettings;
use heddle_node::table::count;
use heddle_qos::agent::Pod;
use heddle_qos::cgroup::System;
use heddle_qos::kubelet::{Answer, Follower, LOOK, PATIENCE, Tree, pods_of};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::sleep;

use self::client::{Client, Trouble};
use super::metrics::KubeletAnswers;

#[cfg(test)]
mod tests;

/// Messages about pods that are remembered as said. Then they are said again.
const MAX_SAID: usize = 1_024;

/// The pods of a kubelet, and what came of questions to it.
type Followed = (Receiver<Vec<Pod>>, Arc<KubeletAnswers>);

/// Follows the kubelet, if the settings name one. The pods come once it has answered, and whenever they have changed; what
/// came of questions is counted.
///
/// # Errors
/// When the settings name no path of a control group.
pub(super) fn followed(
    settings: &KubeletSettings,
    groups: System,
) -> Result<Option<Followed>, Failure> {
    let Some(client) = Client::new(settings) else {
        return Ok(None);
    };
    let tree = Tree::new(&settings.cgroup_root).map_err(|reason| {
        let remedy = "write the kubelet's --cgroup-root, such as / or /kubelet";
        Failure::new(
            Exit::Refused,
            anyhow!("qos.kubelet.cgroup_root: {reason}: {remedy}"),
        )
    })?;
    let every = Duration::from_secs(settings.interval_s.get());
    let (sender, pods) = channel(1);
    let answers = Arc::new(KubeletAnswers::default());
    let source = Source {
        client,
        groups,
        follower: Follower::new(tree, every),
        began: Instant::now(),
        said: BTreeSet::new(),
        trouble: None,
        has_answered: false,
        answers: Arc::clone(&answers),
    };
    tokio::spawn(source.run(sender));
    Ok(Some((pods, answers)))
}

struct Source {
    client: Client,
    /// Only looked at: the agent has its own.
    groups: System,
    follower: Follower,
    began: Instant,
    /// What was said about pods.
    said: BTreeSet<String>,
    /// Why the kubelet is not heard, as it was said.
    trouble: Option<String>,
    /// Whether it has ever answered: that it has no pod is not known before.
    has_answered: bool,
    answers: Arc<KubeletAnswers>,
}

impl Source {
    async fn run(mut self, sender: Sender<Vec<Pod>>) {
        let mut last = None;
        loop {
            let groups = &self.groups;
            // A group that is not there has none below it.
            self.follower
                .look(|group| groups.children(group).unwrap_or_default());
            if self.follower.is_due(self.began.elapsed()) {
                self.ask().await;
            }
            let pods = self.follower.pods(self.began.elapsed());
            if self.has_answered && last.as_ref() != Some(&pods) {
                if sender.send(pods.clone()).await.is_err() {
                    return;
                }
                last = Some(pods);
            }
            sleep(LOOK).await;
        }
    }

    async fn ask(&mut self) {
        self.follower.asks(self.began.elapsed());
        let answer = self.client.pods().await.and_then(|bytes| {
            pods_of(&bytes).map_err(|error| Trouble::new(format!("its answer: {error}")))
        });
        let count = match answer {
            Ok(_) => &self.answers.ok,
            Err(_) => &self.answers.failed,
        };
        count.fetch_add(1, Relaxed);
        match answer {
            Ok(answer) => self.answered(answer),
            Err(trouble) => self.is_missing(&trouble.to_string()),
        }
    }

    fn answered(&mut self, answer: Answer) {
        self.has_answered = true;
        let now = self.began.elapsed();
        let left_out = answer.left_out;
        let was_away = self.follower.answered(now, answer);
        if was_away {
            tracing::info!("the kubelet answers again");
        }
        self.trouble = None;
        let mut said = Vec::new();
        if left_out > 0 {
            let what = count(left_out, "pod");
            said.push(format!(
                "the kubelet lists {what} without a valid name or UID: left alone"
            ));
        }
        for pod in self.follower.described() {
            for fault in &pod.faults {
                let (field, key) = (fault.field, fault.key);
                let (reason, remedy) = (&fault.reason, &fault.remedy);
                said.push(format!(
                    "{}: {field}.{key}: {reason}: it is passed over ({remedy})",
                    pod.name
                ));
            }
        }
        for name in self.follower.stuck(now) {
            let seconds = PATIENCE.as_secs();
            said.push(format!(
                "{name}: its resize has not ended within {seconds} s: it yields again, and is let go of again in ten minutes"
            ));
        }
        if self.said.len() > MAX_SAID {
            self.said.clear();
        }
        for text in said {
            if self.said.insert(text.clone()) {
                tracing::warn!("{text}");
            }
        }
    }

    fn is_missing(&mut self, why: &str) {
        self.follower.is_missing();
        if self.trouble.as_deref() == Some(why) {
            return;
        }
        let pods = match self.follower.described().len() {
            0 => "no pod is known yet".to_owned(),
            known => format!("{} stay as they were", count(known, "pod")),
        };
        tracing::error!("the kubelet at {}: {why}: {pods}", self.client);
        self.trouble = Some(why.to_owned());
    }
}
