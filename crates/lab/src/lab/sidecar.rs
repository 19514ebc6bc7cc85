//! The stock Envoys of pods whose manifests ask for one: the packet filters that lead a pod's connections to it, its
//! bootstrap, its process.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::file::Carried;
use super::heddle::{control_address, run};
use super::process::Note;
use super::{Lab, Pod, listening};

/// Ports on which an Envoy accepts what its pod sends and what comes to the pod.
const PORTS: [u16; 2] = [15_001, 15_006];
/// Leads all TCP of a pod to its Envoy, whose own packets have the mark 1337 (docs/envoy.md).
const FILTERS: &str = "table ip envoy {
  chain out {
    type nat hook output priority -100
    meta mark 1337 return
    ip daddr 127.0.0.0/8 return
    meta l4proto tcp redirect to :15001
  }
  chain in {
    type nat hook prerouting priority -100
    iif lo return
    tcp dport != 15006 redirect to :15006
  }
}
";

impl Lab {
    /// The pods with an Envoy that this lab runs.
    pub(super) fn pods_with_envoy(&self) -> impl Iterator<Item = Pod<'_>> {
        self.pods().filter(Pod::has_envoy)
    }

    /// Starts the Envoys of all pods that have one, and waits until they serve them.
    pub(super) fn start_envoys(&self) -> anyhow::Result<usize> {
        let pods: Vec<Pod<'_>> = self.pods_with_envoy().collect();
        start(&pods)?;
        Ok(pods.len())
    }

    fn envoy(&self) -> anyhow::Result<&Path> {
        let envoy = self.programs.envoy.as_deref();
        envoy.context(
            "a pod has an Envoy of its own, and there is none in PATH (scripts/envoy.sh installs one; --envoy PATH)",
        )
    }
}

/// Starts the Envoys of these pods, and waits until they serve them.
///
/// # Errors
/// There is no Envoy, it does not start, or does not serve in time.
pub(super) fn start(pods: &[Pod<'_>]) -> anyhow::Result<()> {
    let started = pods.iter().map(|pod| Ok((*pod, pod.start_envoy()?)));
    let started = started.collect::<anyhow::Result<Vec<_>>>()?;
    started
        .iter()
        .try_for_each(|(_, note)| listening::wait_for(note, &PORTS))
}

impl Pod<'_> {
    pub(super) fn has_envoy(&self) -> bool {
        self.plan.has_envoy && self.lab.plan.carried == Carried::Node
    }

    fn start_envoy(&self) -> anyhow::Result<Note> {
        self.filter()
            .with_context(|| format!("the packet filters of pod {}", self.plan.workload))?;
        self.write_bootstrap()?;
        let (what, name) = (self.envoy_what(), self.plan.envoy_name());
        self.lab.start_service(&what, &name, self.envoy_command()?)
    }

    /// Description of its Envoy for users.
    pub(super) fn envoy_what(&self) -> String {
        format!("the Envoy of pod {}", self.plan.workload)
    }

    pub(super) fn envoy_command(&self) -> anyhow::Result<Command> {
        let mut place = self.place();
        place.group = self.proxy_group();
        let mut command = place.service(self.lab.envoy()?)?;
        command.arg("-c").arg(self.folder().join("envoy.json"));
        command.args(["--concurrency", "1", "--disable-hot-restart"]);
        command.args(["--drain-time-s", "5", "-l", "warning"]);
        Ok(command)
    }

    fn filter(&self) -> anyhow::Result<()> {
        let mut nft = self.place().command("nft")?;
        let mut child = nft
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("nft is not installed, or cannot be run")?;
        let written = child
            .stdin
            .take()
            .map(|mut to| to.write_all(FILTERS.as_bytes()));
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("nft: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(written.transpose().map(drop)?)
    }

    /// It holds a private key.
    fn write_bootstrap(&self) -> anyhow::Result<()> {
        let mut command = Command::new(self.lab.heddle()?);
        command.args(["envoy", "bootstrap", &self.plan.workload.to_string()]);
        command.args(["--control", &control_address()]);
        command.arg("--socket").arg(self.lab.control_socket());
        let text = run(&mut command)?;
        let file = self.folder().join("envoy.json");
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options
            .open(&file)
            .and_then(|mut file| file.write_all(&text));
        written.with_context(|| file.display().to_string())
    }
}
