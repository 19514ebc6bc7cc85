//! The mesh in a lab: two nodes, and every workload in a pod whose programs know nothing of the mesh.

#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{NODES, SETTINGS};
use crate::demo::program::Program;
use crate::lab::{Lab, LabName, Plan, Programs, down, labs};

/// There is only one such lab, since only one demo runs at a time.
pub(in crate::demo) const LAB: &str = "heddledemo";
/// Lines of a log quoted in an error.
const LAST_LINES: usize = 15;
/// How long a node may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A lab of the demo's own; taken down when dropped.
pub(in crate::demo) struct Pods {
    lab: Lab,
}

impl Pods {
    /// Brings it up from the manifests in `dir`. The pods in `later` are made too, but not enrolled yet. First
    /// removes what a killed demo has left: no running process has a lab of this name now. Blocks for seconds.
    ///
    /// # Errors
    /// A requirement is missing, or a part of the lab does not get ready.
    pub(in crate::demo) fn up(
        heddle: &Program,
        dir: &Path,
        later: &[&str],
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Self> {
        let name = LabName::parse(LAB)?;
        if labs().contains(&name) {
            down(&name).context("cannot remove the lab of an earlier demo")?;
        }
        let scratch = dir.parent().context("the manifests are in a folder")?;
        let (file, settings) = (scratch.join("lab.yaml"), scratch.join("control.yaml"));
        fs::write(&settings, SETTINGS)?;
        fs::write(&file, text(dir, &settings, later))?;
        let mut programs = Programs::find()?;
        programs.heddle = Some(std::path::absolute(heddle.path())?);
        let lab = Lab::up_with(&Plan::read(&file)?, &programs, progress)?;
        Ok(Self { lab })
    }

    /// The folder that its control plane serves: copies with addresses, which the demo edits.
    pub(in crate::demo) fn manifests(&self) -> PathBuf {
        self.lab.folder().join("manifests")
    }

    /// The addresses of a Service, the same for every pod.
    pub(in crate::demo) fn addresses_of(&self, service: &str) -> Vec<IpAddr> {
        let services = &self.lab.plan().services;
        let found = services.iter().find(|one| one.name.to_string() == service);
        found.map_or_else(Vec::new, |one| one.cluster_addresses.clone())
    }

    pub(super) fn control_socket(&self) -> PathBuf {
        self.lab.control_socket()
    }

    pub(super) fn node_sockets(&self) -> anyhow::Result<Vec<PathBuf>> {
        let nodes = NODES.into_iter();
        nodes
            .map(|name| Ok(self.lab.node(name)?.admin_socket()))
            .collect()
    }

    /// # Errors
    /// A process has ended.
    pub(in crate::demo) fn are_there(&self) -> anyhow::Result<()> {
        match self.lab.processes().iter().find(|note| !note.runs()) {
            Some(note) => bail!("{} ended by itself", note.what),
            None => Ok(()),
        }
    }

    /// A command in the pod of a workload.
    ///
    /// # Errors
    /// No pod has that name.
    pub(in crate::demo) fn command(
        &self,
        workload: &str,
        program: impl AsRef<OsStr>,
    ) -> anyhow::Result<Command> {
        self.lab.pod(workload)?.command(program)
    }

    /// Enrolls a pod in the mesh, and waits until it is served.
    ///
    /// # Errors It is not served in time.
    pub(super) fn enroll(&self, workload: &str) -> anyhow::Result<()> {
        self.lab.pod(workload)?.enroll()
    }

    /// Connects from the underlay, outside the mesh, in a thread that enters its namespace and then ends.
    pub(super) fn connect(&self, address: SocketAddr) -> anyhow::Result<TcpStream> {
        let network = self.lab.underlay_network();
        let network = File::open(&network).with_context(|| network.display().to_string())?;
        let connected = thread::spawn(move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(network.as_fd(), kind).context("setns")?;
            let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT)?;
            stream.set_nonblocking(true)?;
            anyhow::Ok(stream)
        });
        let connected = connected.join();
        connected.unwrap_or_else(|_| Err(anyhow!("a thread of the demo panicked")))
    }

    pub(super) fn last_words(&self) -> String {
        let words = self.lab.processes().into_iter().map(|note| {
            let ended = if note.runs() { "" } else { ", which ended" };
            let said = note.last_words(LAST_LINES);
            format!("-- {}{ended}\n{said}", note.what)
        });
        words.collect::<Vec<_>>().join("\n")
    }

    /// # Errors
    /// A process had ended by itself, or something cannot be removed.
    pub(in crate::demo) fn stop(self) -> anyhow::Result<()> {
        self.are_there().and(self.lab.down())
    }
}

/// The file of the lab.
fn text(dir: &Path, settings: &Path, later: &[&str]) -> String {
    let nodes = NODES.join(", ");
    // Debug quotes are valid in YAML.
    let mut text = format!(
        "name: {LAB}\nnodes: [{nodes}]\nmanifests: {dir:?}\nsettings: {settings:?}\npods:\n"
    );
    for workload in later {
        text.push_str(&format!("  {workload}: {{enrolled: false}}\n"));
    }
    text
}

/// The command that runs something in a pod, to be typed in another terminal.
pub(in crate::demo) fn typed(workload: &str, command: &str) -> String {
    let lab = std::env::current_exe().unwrap_or_else(|_| "heddle-lab".into());
    let here = std::env::current_dir().unwrap_or_default();
    let lab = match lab.strip_prefix(here) {
        Ok(below) => Path::new(".").join(below),
        Err(_) => lab.clone(),
    };
    let lab = lab.display();
    format!("{lab} exec --lab {LAB} {workload} -- {command}")
}
