//! The last act, in pods: the proxy of a node is killed under load, and its holder starts another.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use crate::demo::mesh::NODES;
use crate::demo::shopper::Tally;
use crate::demo::stage::DemoStage;

/// How long pages may be missing.
pub(in crate::demo) const LIMIT: Duration = Duration::from_secs(10);
/// How long no page may have failed, and how many have to come, until no more failures are expected.
const CALM: Duration = Duration::from_secs(1);
const PAGES_AGAIN: u64 = 10;

/// What was seen of the proxy's death.
#[derive(Clone, Debug, Default)]
pub(in crate::demo) struct Killed {
    /// What the shopper saw from then on.
    pub(in crate::demo) seen: Tally,
    /// The longest time in which no page came.
    pub(in crate::demo) gap: Duration,
}

/// Plays it, where there are pods.
///
/// # Errors
/// The proxy cannot be killed, or no other takes its place.
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
    ensure!(new != old, "the proxy of {node} lives on");
    settle(stage).await;
    let seen = stage.shopper.tally().since(&before);
    // Its holder, and nothing else, outlives it.
    stage.mesh.pods().map_or(Ok(()), |pods| pods.are_there())?;
    let gap = seen.longest_gap;
    stage.screen.say(&format!(
        "the proxy of {node} killed with -9, under load: its holder has another, ready after {} ms; {} of {} \
         pages failed, the others waited, for {} ms none came",
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

/// Waits until pages come again and none has failed for a while, which ends in any case.
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
