//! The keeper of a lab is what a service manager is on a machine: it starts the control plane and the nodes of the
//! mesh again when they end, as systemd does with `Restart=always`.
//!
//! ```text
//!   runs ── ends ──▶ waits 0.1 s, and twice as long each time that it ends early ──▶ started again ──▶ runs
//! ```
//!
//! It is a process of the lab, since `heddle-lab up` returns. `down` ends it first.

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

/// What its log and its note are called.
pub(super) const NAME: &str = "keeper";
/// The shortest wait before a service is started again, systemd's `RestartSec`, and the longest.
const WAIT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A service that lived for so long did not die of its start.
const LIVED: Duration = Duration::from_secs(1);

/// What `heddle-lab keep` is told.
#[derive(Args)]
pub struct KeepOptions {
    /// The lab whose services it keeps.
    #[arg(long)]
    lab: LabName,
}

/// Keeps the services of a lab running until it is ended itself.
///
/// # Errors
/// There is no such lab, or nothing can be waited for.
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

/// Sleeps until a service ends, or one is to be started.
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

/// A process of the mesh that is to run for as long as the lab is up.
pub(super) enum SupervisedService {
    /// The control plane.
    Control,
    /// A node: the holder, whose child the proxy is.
    Node(Box<MeshNode>),
}

impl SupervisedService {
    /// What it is called, as `heddle-lab restart` takes it.
    pub(super) fn name(&self) -> &str {
        match self {
            SupervisedService::Control => CONTROL,
            SupervisedService::Node(node) => node.name().as_str(),
        }
    }

    /// The note of its process, if it was ever started.
    pub(super) fn note(&self, lab: &Lab) -> Option<Note> {
        Note::read(&lab.folder.notes(), &self.file())
    }

    /// Starts it again in the place of a process that has ended.
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

    /// What it is, for people.
    pub(super) fn what(&self) -> String {
        match self {
            SupervisedService::Control => "heddle control".to_owned(),
            SupervisedService::Node(node) => node.what(),
        }
    }

    /// What its log and its note are called.
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
    /// The services that a keeper keeps running.
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
        let what = "the keeper, which starts again what of the mesh has ended";
        self.start_service(what, NAME, command).map(drop)
    }

    /// Whether there is a keeper.
    pub(super) fn is_kept(&self) -> bool {
        Note::read(&self.folder.notes(), NAME).is_some_and(|note| note.runs())
    }
}

/// A service, and how it is doing.
struct Kept<'s> {
    service: &'s SupervisedService,
    /// While it runs.
    process: Option<Process>,
    /// When it is to be started.
    due: Option<Instant>,
    restarts: Restarts,
}

impl<'s> Kept<'s> {
    fn new(service: &'s SupervisedService, lab: &Lab) -> Self {
        let now = Instant::now();
        let process = service.note(lab).and_then(|note| note.open());
        Self {
            // It may have ended before it was looked at.
            due: process.is_none().then_some(now),
            service,
            process,
            restarts: Restarts::new(now),
        }
    }

    /// Notices that it has ended.
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
                    self.later(now, "it has ended at once");
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

/// How long a service that has ended waits. Has no clock.
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

    /// It has ended, or could not be started: how long it waits.
    fn ended(&mut self, now: Instant) -> Duration {
        let ran = now.saturating_duration_since(self.started);
        self.backoff.ended(ran, LIVED)
    }
}
