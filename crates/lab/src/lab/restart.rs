//! `heddle-lab restart`: ends a node or the control plane, which is then started again, as `systemctl restart` does.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use rustix::process::Signal;

use super::heddle::{EnrolledPod, START_LIMIT, Starting};
use super::keeper::SupervisedService;
use super::process::{Note, wait_until};
use super::which::only;
use super::{Lab, LabName};

/// How long a process may take to drain and end; after that it is killed.
const STOP_WITHIN: Duration = Duration::from_secs(40);

/// Options of `heddle-lab restart`.
#[derive(Args)]
pub struct RestartOptions {
    /// A node of the mesh, or `control` for the control plane
    #[arg(value_name = "NODE|control")]
    service: String,
    /// The lab [default: the only one that is up]
    #[arg(long, value_name = "NAME")]
    lab: Option<LabName>,
    /// Kill it with SIGKILL, as a crash does, instead of draining it
    #[arg(long)]
    kill: bool,
}

/// Restarts a service, and returns when it is ready and serves its pods.
///
/// # Errors
/// No service has that name, it does not end, or does not get ready.
pub(super) fn restart(options: &RestartOptions) -> anyhow::Result<()> {
    let lab = Lab::open(&only(options.lab.as_ref(), "--lab NAME")?)?;
    let services = lab.services()?;
    let name = &options.service;
    let service = services.iter().find(|service| service.name() == *name);
    let service = service.with_context(|| {
        let names: Vec<&str> = services.iter().map(SupervisedService::name).collect();
        format!(
            "{name:?} cannot be restarted; choose one of: {}",
            names.join(", ")
        )
    })?;
    let before = service.note(&lab);
    let ended = before
        .as_ref()
        .map_or(Ok(()), |note| end(note, options.kill));
    ended?;
    let since = Instant::now();
    let note = match lab.is_kept() {
        true => by_keeper(&lab, service, before.as_ref())?,
        false => service.start_again(&lab)?,
    };
    let (what, pid) = (note.what.clone(), note.pid);
    lab.wait_until_ready(service, note)?;
    let took = since.elapsed().as_secs_f64();
    println!("{what}: process {pid} is ready, {took:.1} s after the one before had ended");
    Ok(())
}

fn end(note: &Note, kill: bool) -> anyhow::Result<()> {
    let Some(process) = note.open() else {
        return Ok(());
    };
    if !kill {
        process.signal(Signal::TERM);
        if process.ends_by(Instant::now() + STOP_WITHIN) {
            return Ok(());
        }
    }
    process.signal(Signal::KILL);
    match process.ends_by(Instant::now() + STOP_WITHIN) {
        true => Ok(()),
        false => bail!("{} does not end, process {}", note.what, note.pid),
    }
}

/// Waits until the keeper has started the service again.
fn by_keeper(
    lab: &Lab,
    service: &SupervisedService,
    before: Option<&Note>,
) -> anyhow::Result<Note> {
    let mut again = None;
    let is_new = |note: &Note| before.is_none_or(|before| before.restarts != note.restarts);
    let started = wait_until(START_LIMIT, || {
        again = service.note(lab).filter(is_new);
        again.is_some()
    });
    let what = service.what();
    started.with_context(|| {
        format!(
            "{what} is not started again (heddle-lab status says where the log of the keeper is)"
        )
    })?;
    again.with_context(|| format!("{what} is not started again"))
}

impl Lab {
    fn wait_until_ready(&self, service: &SupervisedService, note: Note) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        match service {
            SupervisedService::Control => {
                let socket = self.control_socket();
                self.wait_for(&[Starting { note, socket }], deadline)
            }
            SupervisedService::Node(node) => {
                let (socket, holder) = (node.socket(), node.holder_socket());
                self.wait_for(&[Starting { note, socket }], deadline)?;
                // The holder answers only after it has recovered its pods.
                let is_served = |pods: Vec<EnrolledPod>| pods.iter().all(EnrolledPod::is_served);
                let served = || self.ask_pods(&holder).is_ok_and(is_served);
                let served = wait_until(START_LIMIT, served);
                served.context("its pods are not served in time (heddle pods says why)")
            }
        }
    }
}
