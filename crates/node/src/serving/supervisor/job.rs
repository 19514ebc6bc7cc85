//! Runs one workload's process from its first start to its end.

use std::time::Instant;

use heddle_model::Backoff;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::sync::watch;

use super::process::{Process, Spec};
use super::{Output, Policy};
use crate::status::ProcessStatus;

pub(super) struct Job {
    pub(super) spec: Spec,
    pub(super) policy: Policy,
    pub(super) output: Output,
    pub(super) status: watch::Sender<ProcessStatus>,
    /// Resolves (the sender is dropped) when the process is no longer wanted.
    pub(super) stop: oneshot::Receiver<()>,
}

impl Job {
    /// Returns once `stop` resolves and the process is gone.
    pub(super) async fn run(mut self) {
        let (shortest, longest) = (self.policy.restart_min, self.policy.restart_max);
        let longest = longest.max(shortest);
        let mut backoff = Backoff::new(shortest, longest);
        let mut has_run = false;
        // The job may be stopped while it still waits for its predecessor to end.
        while self.stop.try_recv() == Err(TryRecvError::Empty) {
            let began = Instant::now();
            let workload = self.spec.name.clone();
            let end = match Process::start(&self.spec, &self.output, self.policy.cpus) {
                Ok(mut process) => {
                    self.update(|status| {
                        status.pid = Some(process.id());
                        status.restarts += u64::from(has_run);
                        status.failed_starts = 0;
                    });
                    has_run = true;
                    tracing::info!(%workload, pid = process.id(), "started");
                    tokio::select! {
                        end = process.wait() => Ok(end),
                        _ = &mut self.stop => {
                            process.stop(self.policy.stop_grace).await;
                            tracing::info!(%workload, "stopped");
                            return;
                        }
                    }
                }
                Err(error) => Err(format!("cannot start {:?}: {error}", self.spec.program())),
            };
            // A run longer than the longest wait counts as healthy and resets the back-off.
            let wait = backoff.ended(began.elapsed(), longest);
            let wait_ms = wait.as_millis() as u64;
            match &end {
                Ok(end) => tracing::warn!(%workload, end, wait_ms, "ended, will restart"),
                Err(error) => tracing::warn!(%workload, wait_ms, "{error}; will try again"),
            }
            self.update(|status| {
                status.pid = None;
                status.failed_starts += u64::from(end.is_err());
                let (Ok(end) | Err(end)) = end;
                status.last_exit = Some(end);
            });
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = &mut self.stop => return,
            }
        }
    }

    fn update(&self, change: impl FnOnce(&mut ProcessStatus)) {
        self.status.send_modify(change);
    }
}
