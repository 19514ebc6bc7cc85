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
//! One task per workload. A changed command waits for the end of the old one, since both want
//! the same port. A workload's environment is made when it is first wanted and not changed later,
//! as Kubernetes does it.

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

/// How processes are treated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// From SIGTERM to SIGKILL.
    pub(crate) stop_grace: Duration,
    /// Wait before the first restart.
    pub(crate) restart_min: Duration,
    /// Longest wait before a restart.
    pub(crate) restart_max: Duration,
    /// Processors that they run on; `None` for any.
    pub(crate) cpus: Option<CpuSet>,
}

/// Where the processes' output goes.
#[derive(Clone)]
pub struct Output {
    /// Standard output.
    pub stdout: Console,
    /// Standard error, where the log goes as well.
    pub stderr: Console,
}

/// All processes. Dropping it stops them without grace.
pub(crate) struct Supervisor {
    policy: Policy,
    output: Output,
    jobs: BTreeMap<WorkloadName, JobHandle>,
    /// Jobs of workloads that are gone, until their processes are.
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
    /// No processes yet.
    pub(crate) fn new(policy: Policy, output: Output) -> Self {
        Supervisor {
            policy,
            output,
            jobs: BTreeMap::new(),
            ending: BTreeMap::new(),
        }
    }

    /// Starts what the mesh wants and does not run, stops what it does not want. The processes
    /// find the `listeners` in their environment.
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

    /// How the process of a workload is doing; none when it has no command.
    pub(crate) fn status(&self, name: &WorkloadName) -> Option<ProcessStatus> {
        Some(self.jobs.get(name)?.status.borrow().clone())
    }

    /// Stops every process and waits until all are gone, little longer than the grace.
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
