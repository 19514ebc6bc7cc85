//! `heddle qos run` for pods that are control groups of the lab.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::child::{Child, Confinement, words};
use crate::node::group::LabGroup;
use crate::node::scene::Scene;

/// How long the agent may take to do what the pods ask for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A pod, and what it asks for.
pub(super) struct AgentPod {
    pub(super) group: LabGroup,
    pub(super) wish: Wish,
}

/// What a pod asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// It is batch work.
    Offline,
    /// Nothing: it is online.
    Nothing,
    /// Quota turbo, and that it may save up so many microseconds of quota.
    Turbo { burst_us: u64 },
}

impl AgentPod {
    /// A pod of batch work.
    pub(super) fn offline(group: LabGroup) -> AgentPod {
        AgentPod {
            group,
            wish: Wish::Offline,
        }
    }

    fn manifest(&self, number: usize) -> String {
        let (labels, annotations) = match self.wish {
            Wish::Offline => ("volcano.sh/preemptable: \"true\"", String::new()),
            Wish::Nothing => ("", String::new()),
            Wish::Turbo { burst_us } => {
                let burst = format!(
                    "volcano.sh/quota-turbo: \"true\", volcano.sh/quota-burst-time: \"{burst_us}\", "
                );
                ("", burst)
            }
        };
        format!(
            "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata:\n  name: pod{number}\n  labels: \
             {{{labels}}}\n  annotations: {{{annotations}heddle.dev/cgroup: {}}}\nspec: {{}}\n",
            self.group.path().display()
        )
    }

    /// Whether the agent has done what can be seen at once.
    fn is_served(&self) -> bool {
        match self.wish {
            Wish::Offline => self.group.is_idle(),
            Wish::Nothing => true,
            Wish::Turbo { burst_us } => self.group.burst_us().is_ok_and(|us| us == burst_us),
        }
    }
}

/// The agent, which can be started again and again.
pub(super) struct Agent {
    heddle: PathBuf,
    folder: tempfile::TempDir,
    pods: Vec<AgentPod>,
    /// Its own group, beside that of all pods, as on any node: outside of the lab, whose weight is the highest, batch
    /// work would leave it hardly any time.
    home: LabGroup,
    /// The admin socket of the node's proxy.
    proxy_socket: PathBuf,
    /// The group for the proxy's threads.
    proxy_group: LabGroup,
}

/// Where the agent runs.
const HOME: &str = "node-one/agent";
/// Where the proxy's threads for offline callers run: beside the groups of the proxy and of all pods.
const PROXY: &str = "node-one/offline";

impl Agent {
    /// Writes the manifests for an agent in the lab. `settings` is the section `qos` of the settings' file, indented by two.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(super) fn new(
        scene: &Scene,
        heddle: &Path,
        pods: Vec<AgentPod>,
        settings: &str,
    ) -> anyhow::Result<Agent> {
        let folder = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        let manifests = folder.path().join("pods");
        fs::create_dir(&manifests)?;
        for (number, pod) in pods.iter().enumerate() {
            fs::write(
                manifests.join(format!("{number}.yaml")),
                pod.manifest(number),
            )?;
        }
        fs::write(
            folder.path().join("heddle.yaml"),
            format!("qos:\n  memory: true\n{settings}"),
        )?;
        let home = scene.group(HOME);
        home.create()?;
        Ok(Agent {
            home,
            proxy_socket: scene.admin_socket()?,
            proxy_group: scene.group(PROXY),
            heddle: heddle.to_owned(),
            folder,
            pods,
        })
    }

    /// The folder of its journal, made if it is missing.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn state(&self) -> anyhow::Result<PathBuf> {
        let state = self.folder().join("state");
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&state)?;
        Ok(state)
    }

    /// A folder for logs, as long as the agent's.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts it, and waits until it has done what the pods ask for. Dropping it stops it, and it puts everything back.
    ///
    /// # Errors
    /// When it does not.
    pub(super) fn start(&self) -> anyhow::Result<Child> {
        let folder = self.folder.path();
        let mut command = words([self.heddle.as_os_str()]);
        command.extend(words(["qos", "run"]));
        command.push(folder.join("pods").into());
        command.extend(words(["--state"]));
        command.push(folder.join("state").into());
        command.extend(words(["--config"]));
        command.push(folder.join("heddle.yaml").into());
        command.extend(words(["--proxy-socket"]));
        command.push(self.proxy_socket.clone().into());
        command.extend(words(["--proxy-group"]));
        command.push(self.proxy_group.path().into());
        let log = folder.join("qos.log");
        let place = Confinement {
            groups: self.home.folders()?,
            ..Confinement::default()
        };
        let mut agent = Child::start("heddle qos", &place, &command, &log, false)?;
        let all_served = || self.pods.iter().all(AgentPod::is_served).then_some(());
        agent.wait_until(PATIENCE, all_served)?;
        Ok(agent)
    }
}
