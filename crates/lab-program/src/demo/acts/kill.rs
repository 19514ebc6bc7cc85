//! The last act, only in pods: the proxy of a node is killed under load, and its holder starts another.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use crate::demo::mesh::NODES;
use crate::demo::shopper::Tally;
use crate::demo::stage::DemoStage;

/// Longest time without a page that is accepted.
pub(in crate::demo) const LIMIT: Duration = Duration::from_secs(10);
/// The act ends after this time without a failed page, and after [`PAGES_AGAIN`] new pages.
const CALM: Duration = Duration::from_secs(1);
const PAGES_AGAIN: u64 = 10;

/// Outcome of killing the proxy.
#[derive(Clone, Debug, Default)]
pub(in crate::demo) struct Killed {
    /// What the shopper saw since then.
    pub(in crate::demo) seen: Tally,
    /// The longest time without a page.
    pub(in crate::demo) gap: Duration,
}

/// Runs the act, if the mesh is in pods.
///
/// # Errors The proxy cannot be killed, or the holder starts no other.
pub(in crate::demo) async fn kill(stage: &mut DemoStage<'_>) -> anyhow::Result<Option<Killed>> {
    let Some(pods) = stage.mesh.pods() else {
        return Ok(None);
    };
    pods.are_there()?;
    let node = NODES[0];
    let old = stage.mesh.status(node).await?.pid;
    stage.shopper.watch_gaps();
    let before = stage.shopper.tally();
    let died = Instant::now();
    let pid = i32::try_from(old).ok().and_then(Pid::from_raw);
    kill_process(pid.context("no process has this id")?, Signal::KILL)?;
    let (new, ready_after) = loop {
        match stage.mesh.status(node).await {
            Ok(status) if status.ready && status.pid != old => break (status.pid, died.elapsed()),
            _ if died.elapsed() > LIMIT => bail!("{node} has no new proxy after {LIMIT:?}"),
            _ => sleep(Duration::from_millis(5)).await,
        }
    };
    ensure!(new != old, "the proxy of {node} still runs");
    settle(stage).await;
    let seen = stage.shopper.tally().since(&before);
    // Every other process has survived, the holder too.
    stage.mesh.pods().map_or(Ok(()), |pods| pods.are_there())?;
    let gap = seen.longest_gap;
    stage.screen.say(&format!(
        "the proxy of {node} was killed with SIGKILL under load: its holder, which keeps the sockets, started another, \
         ready after {} ms; {} of {} pages failed since; at worst {} ms passed between two pages",
        ready_after.as_millis(),
        seen.failures,
        seen.failures + seen.pages(),
        gap.as_millis()
    ));
    let reasons: BTreeSet<&String> = seen.told.iter().collect();
    for reason in reasons {
        stage.screen.quote(reason);
    }
    Ok(Some(Killed { seen, gap }))
}

/// Waits until pages come again and none has failed for a while; at most for [`LIMIT`].
async fn settle(stage: &DemoStage<'_>) {
    let ready = Instant::now();
    let before = stage.shopper.tally().pages();
    while ready.elapsed() < LIMIT {
        sleep(Duration::from_millis(20)).await;
        let seen = stage.shopper.tally();
        let since = seen.failed_last.map_or(ready, |failed| failed.max(ready));
        if since.elapsed() > CALM && seen.pages() >= before + PAGES_AGAIN {
            return;
        }
    }
}
