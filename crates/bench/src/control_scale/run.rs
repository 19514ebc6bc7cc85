//! One run: changes at an even pace for a while, and what became of them.

use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::time::sleep;

use super::Times;
use super::common::Traffic;
use super::ledger::{Ledger, quantile_ms};
use super::registry;
use super::schedule::Schedule;
use super::stage::Stage;
use super::usage::{Usage, UsageWatch};
use crate::account;
use crate::child::Child;

/// Until the first change is due: the writer connects first.
const BEGINS_IN: Duration = Duration::from_millis(300);
/// How often it is looked whether all changes have come.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const SAY_EVERY: Duration = Duration::from_secs(10);

/// What a run found.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Changes a second.
    pub(super) rate: u32,
    /// Time of a push: from when a change was due until the last node that uses its Service has marked it.
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) max_ms: Option<f64>,
    /// Changes of the window, those that did not come to every node, and nodes that each goes to, on average.
    pub(super) changes: usize,
    pub(super) missed: usize,
    pub(super) nodes: f64,
    /// Changes that came to nodes, those that came with a later one of the same pod, and those that came to nodes that
    /// do not use the Service.
    pub(super) delivered: u64,
    pub(super) merged: u64,
    pub(super) strangers: u64,
    pub(super) traffic: Traffic,
    /// Until etcd had a change.
    pub(super) written_p50_ms: Option<f64>,
    pub(super) written_p99_ms: Option<f64>,
    pub(super) usage: Usage,
    /// Private memory of the control plane before, in MiB.
    pub(super) rest_mib: f64,
    /// Nodes that did not have what they should have had at the end.
    pub(super) wrong: usize,
}

impl Found {
    /// Bytes about one change to one node that uses the Service.
    pub(super) fn bytes_per_node_change(&self) -> Option<f64> {
        let bytes = self.traffic.owed_bytes as f64 / self.delivered as f64;
        bytes.is_finite().then_some(bytes)
    }
}

/// Makes changes for so long, and waits until they have come. Nothing is expected of nodes that are `left_out`.
///
/// # Errors
/// When a process ends, etcd does not take a change, or the call of a healthy node ends.
pub(super) async fn run(
    stage: &mut Stage,
    times: &Times,
    left_out: &[usize],
) -> anyhow::Result<Found> {
    let common = std::rc::Rc::clone(&stage.fleet.0);
    let control = stage.control.pid();
    let store = stage.store.iter().map(Child::pid).collect();
    let rest_mib = account::memory(control)?.private_kib as f64 / 1024.0;
    let begins = Instant::now() + BEGINS_IN;
    let first = stage.next_change;
    let window = (times.warm_up, times.window);
    let sizes = (stage.shape.pods, stage.rate);
    let schedule = Schedule::new(begins, first, window, sizes);
    stage.next_change += schedule.count;
    let ledger = Ledger::new(schedule, &stage.shape, common.told, left_out);
    common.ledger.replace(Some(ledger));
    let before = common.traffic.get();
    let usage = UsageWatch::begin((control, store), schedule.window())?;
    let shape = std::sync::Arc::clone(&stage.shape);
    let mut writing = registry::write_changes((stage.etcd_at, stage.write), schedule, shape)?;

    let mut said = Instant::now();
    let mut written = None;
    let (_, ends) = schedule.window();
    let open = loop {
        sleep(LOOK_EVERY).await;
        stage.check()?;
        if written.is_none()
            && let Ok(done) = writing.try_recv()
        {
            written = Some(done.context("changes")?);
        }
        let open = common.ledger.borrow().as_ref().map_or(0, Ledger::open);
        let is_late = Instant::now() > ends + times.drain;
        if written.is_some() && (open == 0 || is_late) {
            break open;
        }
        if said.elapsed() > SAY_EVERY {
            said = Instant::now();
            eprintln!("  {open} of {} changes are not everywhere", schedule.count);
        }
    };
    let usage = usage.end()?;
    if open == 0 {
        stage.fleet.quiet().await?;
    }
    let ledger = common.ledger.take().context("the ledger")?;
    let written = written.context("what was written")?;
    let pushed = ledger.pushed();
    Ok(Found {
        rate: schedule.rate,
        p50_ms: quantile_ms(&pushed.took, 0.5),
        p99_ms: quantile_ms(&pushed.took, 0.99),
        max_ms: quantile_ms(&pushed.took, 1.0),
        changes: pushed.took.len() + pushed.missed,
        missed: pushed.missed,
        nodes: pushed.nodes,
        delivered: ledger.delivered,
        merged: ledger.merged,
        strangers: ledger.strangers,
        traffic: common.traffic.get() - before,
        written_p50_ms: quantile_ms(&written, 0.5),
        written_p99_ms: quantile_ms(&written, 0.99),
        usage,
        rest_mib,
        wrong: stage.fleet.wrong(),
    })
}
