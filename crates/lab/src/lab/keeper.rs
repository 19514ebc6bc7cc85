//! The keeper plays the part of a service manager: it restarts ended processes of the mesh, the control plane and the
//! nodes, as systemd does with `Restart=always`.
//!
//! ```text
//!   runs ── ends ──▶ waits 0.1 s, twice as long after each early end ──▶ started again ──▶ runs
//! ```
//!
//! It is a process of its own, since `heddle-lab up` returns. `down` ends it first.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use heddle_model::Backoff;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::heddle::{CONTROL, MeshNode};
use super::process::{Note, Process};
use super::{Lab, LabName};

#[cfg(test)]
mod tests;

/// Name of its log and its note.
pub(super) const NAME: &str = "keeper";
/// The shortest wait before a restart, systemd's default `RestartSec`, and the longest.
const WAIT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A run at least this long is not an early end.
const LIVED: Duration = Duration::from_secs(1);

/// Options of `heddle-lab keep`.
#[derive(Args)]
pub struct KeepOptions {
    /// The lab whose services it restarts.
    #[arg(long)]
    lab: LabName,
}

/// Restarts ended services of a lab until it is ended itself.
///
/// # Errors
/// The lab does not exist, or waiting for processes fails.
pub(super) fn keep(options: &KeepOptions) -> anyhow::Result<()> {
    let lab = Lab::open(&options.lab)?;
    let services = lab.services()?;
    let mut all: Vec<Kept<'_>> = services.iter().map(|one| Kept::new(one, &lab)).collect();
    println!("keeps {} services running", all.len());
    loop {
        for kept in &mut all {
            kept.look(Instant::now());
            kept.start_if_due(&lab);
        }
        wait(&all)?;
    }
}

/// Sleeps until a service ends, or a restart is due.
fn wait(all: &[Kept<'_>]) -> anyhow::Result<()> {
    let due = all.iter().filter_map(|kept| kept.due).min();
    let left = due.map(|due| due.saturating_duration_since(Instant::now()));
    let left = left.map(Timespec::try_from).transpose()?;
    let processes = all.iter().filter_map(|kept| kept.process.as_ref());
    let mut polled: Vec<PollFd<'_>> = processes
        .map(|process| PollFd::from_borrowed_fd(process.fd(), PollFlags::IN))
        .collect();
    match poll(&mut polled, left.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait for processes"),
    }
}

/// A process of the mesh that runs for as long as the lab is up.
pub(super) enum SupervisedService {
    Control,
    /// A node's holder, the parent of its proxy.
    Node(Box<MeshNode>),
}

impl SupervisedService {
    /// The name that `heddle-lab restart` accepts.
    pub(super) fn name(&self) -> &str {
        match self {
            SupervisedService::Control => CONTROL,
            SupervisedService::Node(node) => node.name().as_str(),
        }
    }

    pub(super) fn note(&self, lab: &Lab) -> Option<Note> {
        Note::read(&lab.folder.notes(), &self.file())
    }

    /// Starts it again after its process has ended.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start_again(&self, lab: &Lab) -> anyhow::Result<Note> {
        let restarts = self.note(lab).map_or(0, |note| note.restarts);
        let again = (&*self.file(), restarts.saturating_add(1));
        let folders = (lab.folder.logs(), lab.folder.notes());
        Note::start(
            &self.what(),
            self.command(lab)?,
            again,
            (&folders.0, &folders.1),
        )
    }

    /// Description for users.
    pub(super) fn what(&self) -> String {
        match self {
            SupervisedService::Control => "heddle control".to_owned(),
            SupervisedService::Node(node) => node.what(),
        }
    }

    /// Name of its log and its note.
    fn file(&self) -> String {
        match self {
            SupervisedService::Control => CONTROL.to_owned(),
            SupervisedService::Node(node) => node.service(),
        }
    }

    fn command(&self, lab: &Lab) -> anyhow::Result<Command> {
        match self {
            SupervisedService::Control => lab.control_command(),
            SupervisedService::Node(node) => lab.node_command(node),
        }
    }
}

impl Lab {
    /// The services that the keeper restarts.
    pub(super) fn services(&self) -> anyhow::Result<Vec<SupervisedService>> {
        let nodes = self.mesh_nodes()?.into_iter().map(Box::new);
        let nodes = nodes.map(SupervisedService::Node);
        Ok(std::iter::once(SupervisedService::Control)
            .chain(nodes)
            .collect())
    }

    pub(super) fn start_keeper(&self) -> anyhow::Result<()> {
        let mut command = self.underlay_place().service(&self.programs.lab)?;
        command.args(["keep", "--lab", self.plan.name.as_str()]);
        let what = "the keeper, which restarts ended processes of the mesh";
        self.start_service(what, NAME, command).map(drop)
    }

    /// Whether a keeper runs.
    pub(super) fn is_kept(&self) -> bool {
        Note::read(&self.folder.notes(), NAME).is_some_and(|note| note.runs())
    }
}

/// A service and its state.
struct Kept<'s> {
    service: &'s SupervisedService,
    /// `None` while it does not run.
    process: Option<Process>,
    /// When to start it again; `None` while it runs.
    due: Option<Instant>,
    restarts: Restarts,
}

impl<'s> Kept<'s> {
    fn new(service: &'s SupervisedService, lab: &Lab) -> Self {
        let now = Instant::now();
        let process = service.note(lab).and_then(|note| note.open());
        Self {
            // It may have ended before the keeper started.
            due: process.is_none().then_some(now),
            service,
            process,
            restarts: Restarts::new(now),
        }
    }

    /// Schedules a restart if the process has ended.
    fn look(&mut self, now: Instant) {
        let Some(ended) = self.process.take_if(|process| process.ends_by(now)) else {
            return;
        };
        self.later(now, &format!("process {} has ended", ended.id()));
    }

    fn start_if_due(&mut self, lab: &Lab) {
        let now = Instant::now();
        if self.due.take_if(|due| *due <= now).is_none() {
            return;
        }
        self.restarts.started(now);
        match self.service.start_again(lab) {
            Ok(note) => {
                println!("{}: started again as process {}", note.what, note.pid);
                self.process = note.open();
                if self.process.is_none() {
                    self.later(now, "it ended at once");
                }
            }
            Err(error) => self.later(now, &format!("{error:#}")),
        }
    }

    fn later(&mut self, now: Instant, why: &str) {
        let wait = self.restarts.ended(now);
        let what = self.service.what();
        println!("{what}: {why}; it is started again in {wait:?}");
        self.due = Some(now + wait);
    }
}

/// Calculates the wait before a restart. The caller passes the time.
#[derive(Debug)]
struct Restarts {
    backoff: Backoff,
    started: Instant,
}

impl Restarts {
    fn new(now: Instant) -> Self {
        Self {
            backoff: Backoff::new(WAIT.0, WAIT.1),
            started: now,
        }
    }

    fn started(&mut self, now: Instant) {
        self.started = now;
    }

    /// It has ended or could not be started; returns the wait before the next start.
    fn ended(&mut self, now: Instant) -> Duration {
        let ran = now.saturating_duration_since(self.started);
        self.backoff.ended(ran, LIVED)
    }
}
