//! The commands of LocalWorkloads: started, watched, restarted, stopped.
//!
//! ```text
//!            ┌────────── wait, twice as long each time ◄─────────┐
//!            ▼                                                   │
//!  wanted ─► running ── ends or cannot start ────────────────────┘
//!            │
//!            └─ no longer wanted, or changed ─► SIGTERM ─ grace ─► SIGKILL ─► gone
//! ```
//!
//! One task runs per workload. A changed command starts after the old process has ended, since both use the same port.
//! A workload's environment is built when the workload first appears, and not changed later, as in Kubernetes.

mod environment;
mod job;
mod process;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use heddle_model::{Command, Mesh, WorkloadName};
use rustix::thread::CpuSet;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::console::Console;
use crate::status::{ListenerStatus, ProcessStatus};
pub(crate) use environment::environment;

/// Timing and placement of the processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// Time from SIGTERM to SIGKILL.
    pub(crate) stop_grace: Duration,
    /// Wait before the first restart.
    pub(crate) restart_min: Duration,
    /// Longest wait before a restart.
    pub(crate) restart_max: Duration,
    /// Processors that the processes run on; `None` for all.
    pub(crate) cpus: Option<CpuSet>,
}

/// Destinations of the processes' output.
#[derive(Clone)]
pub struct Output {
    /// Standard output.
    pub stdout: Console,
    /// Standard error, where the log goes as well.
    pub stderr: Console,
}

/// All processes. Dropping it kills them without a grace period.
pub(crate) struct Supervisor {
    policy: Policy,
    output: Output,
    jobs: BTreeMap<WorkloadName, JobHandle>,
    /// Jobs of removed workloads whose processes have not ended yet.
    ending: BTreeMap<WorkloadName, JoinHandle<()>>,
}

struct JobHandle {
    command: Command,
    status: watch::Receiver<ProcessStatus>,
    /// Dropped to stop the job.
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Supervisor {
    pub(crate) fn new(policy: Policy, output: Output) -> Self {
        Supervisor {
            policy,
            output,
            jobs: BTreeMap::new(),
            ending: BTreeMap::new(),
        }
    }

    /// Starts the processes that the mesh wants, and stops those that it no longer wants. New processes find the
    /// `listeners` in their environment.
    pub(crate) fn follow(&mut self, mesh: &Mesh, listeners: &[ListenerStatus]) {
        self.ending.retain(|_, task| !task.is_finished());
        let wanted: BTreeMap<&WorkloadName, &Command> = mesh
            .workloads
            .iter()
            .filter_map(|workload| Some((&workload.name, workload.command.as_ref()?)))
            .collect();
        let unwanted = self
            .jobs
            .extract_if(.., |name, job| wanted.get(name) != Some(&&job.command));
        for (name, job) in unwanted {
            drop(job.stop);
            self.ending.insert(name, job.task);
        }
        for (name, command) in wanted {
            if self.jobs.contains_key(name) {
                continue;
            }
            let spec = process::Spec {
                name: name.clone(),
                command: command.clone(),
                environment: environment(name, mesh, listeners),
            };
            let previous = self.ending.remove(name);
            self.jobs.insert(name.clone(), self.start(spec, previous));
        }
    }

    /// Status of a workload's process; `None` when the workload has no command.
    pub(crate) fn status(&self, name: &WorkloadName) -> Option<ProcessStatus> {
        Some(self.jobs.get(name)?.status.borrow().clone())
    }

    /// Stops every process and waits until all are gone: little longer than `stop_grace`.
    pub(crate) async fn stop(self) {
        let mut tasks: Vec<JoinHandle<()>> = self.ending.into_values().collect();
        for (_, job) in self.jobs {
            drop(job.stop);
            tasks.push(job.task);
        }
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a workload was not stopped");
            }
        }
    }

    fn start(&self, spec: process::Spec, after: Option<JoinHandle<()>>) -> JobHandle {
        let (stop, stopped) = oneshot::channel();
        let (update, status) = watch::channel(ProcessStatus::default());
        let command = spec.command.clone();
        let job = job::Job {
            spec,
            policy: self.policy,
            output: self.output.clone(),
            status: update,
            stop: stopped,
        };
        let task = tokio::spawn(async move {
            if let Some(previous) = after {
                let _its_panic_is_its_own = previous.await;
            }
            job.run().await;
        });
        JobHandle {
            command,
            status,
            stop,
            task,
        }
    }
}
