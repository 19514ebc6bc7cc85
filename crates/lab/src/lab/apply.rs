//! Applying changed manifests to a lab that is up: pods and Services are added and removed, programs are restarted.
//!
//! ```text
//!   changed pods: removed ──▶ networks of new pods ──▶ manifests ──▶ missing pods: removed
//!                                                                           │
//!                           programs of new and changed pods ◀── new pods: enrolled
//! ```
//!
//! Everything that stays keeps its addresses. If something fails on the way, the next call continues from there: an
//! unfinished pod is made anew.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use heddle_model::{Mesh, NodeName, WorkloadName};
use serde::Deserialize;

use super::file::Carried;
use super::heddle::ask;
use super::making::connect_pods;
use super::namespace::{self, Namespace};
use super::plan::{Plan, PodPlan};
use super::process::{self, Note};
use super::{Lab, Pod, REMOVE_WITHIN, etc, listening, network, sidecar};

#[cfg(test)]
mod tests;
mod watch;

pub(super) use watch::{ApplyOptions, run};

/// Timeout until the control plane serves the written manifests, and until each node has them.
const SERVED_WITHIN: Duration = Duration::from_secs(10);

/// After this time the control plane, which watches the folder, must have read the files.
const LOOKED_AT_WITHIN: Duration = Duration::from_secs(2);

/// The part of `heddle config dump` that is needed.
#[derive(Deserialize)]
struct Config {
    mesh: Mesh,
}

/// The part of a control plane's status that is needed.
#[derive(Deserialize)]
struct ControlStatus {
    config: ConfigStatus,
    /// Counts nodes that come and go, too.
    mesh_generation: u64,
    nodes: Vec<NodeStatus>,
}

#[derive(Deserialize)]
struct ConfigStatus {
    /// The manifests' generation, once nodes are told its mesh.
    generation: u64,
}

/// What a node has of the mesh.
#[derive(Deserialize)]
struct NodeStatus {
    name: String,
    /// The generation of which it has its part.
    mesh_generation: Option<u64>,
    /// The generation of the last change of its part.
    changed_generation: Option<u64>,
}

/// Differences between a running lab and its manifests.
#[derive(Debug, Default, PartialEq)]
pub struct Changes {
    /// New pods, sorted by name.
    pub added: Vec<WorkloadName>,
    /// Pods that the manifests no longer have.
    pub removed: Vec<WorkloadName>,
    /// Pods with other addresses, node or settings: removed and made anew.
    pub replaced: Vec<WorkloadName>,
    /// Pods whose program was restarted, since its command changed.
    pub restarted: Vec<WorkloadName>,
    /// Whether the manifests of the control plane changed.
    pub manifests: bool,
}

impl Changes {
    /// Changes that turn a lab like `old` into one like `new`; `is_there` tells whether a pod of `old` is complete.
    fn between(old: &Plan, new: &Plan, is_there: impl Fn(&PodPlan) -> bool) -> Self {
        let mut changes = Self::default();
        for pod in &new.pods {
            let before = old.pods.iter().find(|one| one.workload == pod.workload);
            let of = match before {
                Some(before) if !is_there(before) => &mut changes.added,
                None => &mut changes.added,
                Some(before) if !is_same_pod(before, pod) => &mut changes.replaced,
                Some(before) if before.command != pod.command => &mut changes.restarted,
                Some(_) => continue,
            };
            of.push(pod.workload.clone());
        }
        let names: BTreeSet<&WorkloadName> = new.pods.iter().map(|pod| &pod.workload).collect();
        let gone = old.pods.iter().map(|pod| &pod.workload);
        changes.removed = gone.filter(|name| !names.contains(name)).cloned().collect();
        changes
    }

    /// Pods to be made or changed.
    fn made(&self) -> Vec<&WorkloadName> {
        let all = [&self.added, &self.replaced, &self.restarted];
        all.into_iter().flatten().collect()
    }

    /// Whether no pod is added, removed or replaced.
    fn keep_pods(&self) -> bool {
        [&self.added, &self.removed, &self.replaced]
            .iter()
            .all(|pods| pods.is_empty())
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.keep_pods() && self.restarted.is_empty() {
            return f.write_str(match self.manifests {
                true => "no pod changes; every node has the manifests",
                false => "nothing changes",
            });
        }
        let parts = [
            ("added", &self.added),
            ("removed", &self.removed),
            ("replaced", &self.replaced),
            ("program restarted", &self.restarted),
        ];
        let parts = parts.iter().filter(|(_, pods)| !pods.is_empty());
        for (position, (what, pods)) in parts.enumerate() {
            let names: Vec<String> = pods.iter().map(ToString::to_string).collect();
            let separator = if position > 0 { "; " } else { "" };
            write!(f, "{separator}{what}: {}", names.join(", "))?;
        }
        Ok(())
    }
}

/// Whether two plans of a pod differ at most in ports and command.
fn is_same_pod(one: &PodPlan, other: &PodPlan) -> bool {
    let like_other = PodPlan {
        ports: other.ports.clone(),
        command: other.command.clone(),
        ..one.clone()
    };
    like_other == *other
}

impl Lab {
    /// Makes the lab match its file and manifests.
    ///
    /// # Errors The file or the manifests are wrong, they change something that is fixed while a lab is up, another
    /// process changes the lab, or a part does not get ready; the next call then continues.
    pub fn apply(&mut self, file: &Path) -> anyhow::Result<Changes> {
        let _lock = self.folder.lock()?;
        ensure!(
            self.is_ready(),
            "the lab {} is incomplete (heddle-lab down and up)",
            self.plan.name
        );
        // Read under the lock: before it, another process may have changed the plan.
        let old = self.folder.plan()?;
        let new = Plan::read_after(file, Some(&old))?;
        check_fixed(&old, &new)?;
        for warning in &new.warnings {
            eprintln!("heddle-lab: {warning}");
        }
        let unfinished = self.folder.unfinished();
        let is_there = |pod: &PodPlan| {
            !unfinished.contains(&pod.workload) && self.pod_of(pod).network().exists()
        };
        let mut changes = Changes::between(&old, &new, is_there);
        if old.carried == Carried::Pod && !changes.keep_pods() {
            bail!(
                "{changes}: pods with their own proxy cannot be added or removed while a lab is up \
                 (heddle-lab down, and up)"
            );
        }
        self.plan = new;
        self.folder.begin_with(&changes.made())?;
        self.take_over(&old, &mut changes)?;
        self.folder.finish()?;
        Ok(changes)
    }

    fn pod_of<'l>(&'l self, plan: &'l PodPlan) -> Pod<'l> {
        Pod { lab: self, plan }
    }

    fn take_over(&self, old: &Plan, changes: &mut Changes) -> anyhow::Result<()> {
        let of_old = |names: &[WorkloadName]| -> anyhow::Result<()> {
            let pods = old.pods.iter().filter(|pod| names.contains(&pod.workload));
            pods.map(|pod| self.pod_of(pod)).try_for_each(|pod| {
                let removed = pod.remove();
                removed.with_context(|| format!("pod {}", pod.plan.workload))
            })
        };
        of_old(&changes.replaced)?;
        let is_new = |pod: &&PodPlan| {
            [&changes.added, &changes.replaced]
                .iter()
                .any(|names| names.contains(&pod.workload))
        };
        let new: Vec<Pod<'_>> = self
            .plan
            .pods
            .iter()
            .filter(is_new)
            .map(|pod| self.pod_of(pod))
            .collect();
        self.make_networks(&new)?;
        let before = self.served_generation();
        if let Some(manifests) = &self.plan.manifests {
            changes.manifests = manifests.replace(&self.folder.manifests())?;
        }
        let generation = self.wait_until_served(before.filter(|_| changes.manifests), changes)?;
        of_old(&changes.removed)?;
        // From here on DNS serves the new names.
        self.folder.replace_plan(&self.plan)?;
        if self.plan.carried == Carried::Node {
            let enrolled = new.iter().filter(|pod| pod.plan.enrolled);
            enrolled.into_iter().try_for_each(Pod::enroll)?;
            let with_envoy = new.iter().copied().filter(Pod::has_envoy);
            sidecar::start(&with_envoy.collect::<Vec<_>>())?;
        }
        let changed = self
            .plan
            .pods
            .iter()
            .filter(|pod| changes.restarted.contains(&pod.workload));
        let changed: Vec<Pod<'_>> = changed.map(|pod| self.pod_of(pod)).collect();
        changed.iter().try_for_each(Pod::end_program)?;
        let mut started = Vec::new();
        for pod in new.iter().chain(&changed) {
            if let Some(note) = pod.start()? {
                started.push((pod.plan, note));
            }
        }
        if changes.manifests {
            self.wait_for_nodes(generation)?;
        }
        listening::wait(&started)?;
        for note in listening::ended(&started) {
            eprintln!("heddle-lab: {}", listening::said_of_ended(note));
        }
        Ok(())
    }

    fn make_networks(&self, pods: &[Pod<'_>]) -> anyhow::Result<()> {
        for pod in pods {
            // An interrupted call may have left parts of the pod.
            pod.remove()?;
            pod.make_groups()?;
            etc::write(&self.plan, pod.plan, &pod.folder())?;
        }
        for node in self.nodes() {
            let of_it = pods.iter().filter(|pod| pod.plan.node == node.plan.name);
            let of_it: Vec<Pod<'_>> = of_it.copied().collect();
            if !of_it.is_empty() {
                connect_pods(node, &Namespace::open(&node.network())?, of_it.into_iter())?;
            }
        }
        Ok(())
    }

    /// The mesh as known to a control plane or a node, which answers on `socket`.
    fn mesh(&self, socket: &Path) -> anyhow::Result<Mesh> {
        let mut command = Command::new(self.heddle()?);
        let words = ["config", "dump", "--socket"];
        let config: Config = ask(command.args(words).arg(socket))?;
        Ok(config.mesh)
    }

    fn control_status(&self) -> anyhow::Result<ControlStatus> {
        let mut command = Command::new(self.heddle()?);
        let words = ["status", "--output", "json", "--socket"];
        ask(command.args(words).arg(self.control_socket()))
    }

    fn served_generation(&self) -> Option<u64> {
        let mesh = self.mesh(&self.control_socket()).ok()?;
        Some(mesh.generation)
    }

    /// The generation of the last change of a node's part, once it has its part of these manifests.
    fn changed_generation(&self, node: &NodeName, manifests: u64) -> Option<u64> {
        let status = self.control_status().ok()?;
        let mut nodes = status.nodes.into_iter();
        let node = nodes.find(|one| one.name == node.as_str())?;
        let is_put_up = status.config.generation >= manifests;
        let has_it = is_put_up && node.mesh_generation >= Some(status.mesh_generation);
        node.changed_generation.filter(|_| has_it)
    }

    /// Waits until the control plane serves the manifests: a mesh newer than `before`, with all planned pods and
    /// without the removed ones. Returns its generation.
    fn wait_until_served(&self, before: Option<u64>, changes: &Changes) -> anyhow::Result<u64> {
        if self.plan.carried == Carried::Nothing {
            return Ok(0);
        }
        // Changed manifests may give the same mesh, for instance if only a comment changed.
        let looked_at = Instant::now() + LOOKED_AT_WITHIN;
        let wanted = || self.plan.pods.iter().map(|pod| &pod.workload);
        let mut generation = 0;
        let served = process::wait_until(SERVED_WITHIN, || {
            let Ok(mesh) = self.mesh(&self.control_socket()) else {
                return false;
            };
            generation = mesh.generation;
            let is_new = before.is_none_or(|before| mesh.generation > before);
            // Compared with the plan one way only: further workloads come from a registry, not from the lab.
            let served: BTreeSet<WorkloadName> = mesh
                .workloads
                .iter()
                .map(|workload| workload.name.clone())
                .collect();
            (is_new || Instant::now() >= looked_at)
                && wanted().all(|name| served.contains(name))
                && changes.removed.iter().all(|name| !served.contains(name))
        });
        served.with_context(|| {
            format!(
                "the control plane does not serve the manifests that were written (its log: {})",
                self.folder.logs().join("control.log").display()
            )
        })?;
        Ok(generation)
    }

    /// Waits until every node uses its part of the manifests of this generation. Prints those that do not: an unreachable
    /// node gets it later.
    fn wait_for_nodes(&self, manifests: u64) -> anyhow::Result<()> {
        for node in self.mesh_nodes()? {
            let has_it = || {
                // A node is told only of what changes its part.
                let Some(changed) = self.changed_generation(node.name(), manifests) else {
                    return false;
                };
                let mesh = self.mesh(&node.socket());
                mesh.is_ok_and(|mesh| mesh.generation >= changed)
            };
            if process::wait_until(SERVED_WITHIN, has_it).is_err() {
                eprintln!(
                    "heddle-lab: {} has not taken over the manifests: heddle status --socket {} says why",
                    node.what(),
                    node.socket().display()
                );
            }
        }
        Ok(())
    }
}

impl Pod<'_> {
    /// Removes every part of a pod that exists.
    fn remove(&self) -> anyhow::Result<()> {
        let is_held = self.lab.plan.carried == Carried::Node && self.plan.enrolled;
        if is_held && self.is_with_holder()? {
            self.release()?;
        }
        self.end(&self.plan.process_name())?;
        self.end(&self.plan.envoy_name())?;
        let group = self.group();
        process::kill_members(&group)?;
        let network = self.network();
        if network.exists() {
            namespace::remove(&network)?;
        }
        if let Some(node) = self.node() {
            let node = self.lab.node(node.name.as_str())?;
            network::unplug(&Namespace::open(&node.network())?, self.plan)?;
        }
        group.remove(REMOVE_WITHIN)?;
        if self.has_envoy() {
            self.proxy_group().remove(REMOVE_WITHIN)?;
        }
        match fs::remove_dir_all(self.folder()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| self.folder().display().to_string())
            }
            _ => Ok(()),
        }
    }

    fn end_program(&self) -> anyhow::Result<()> {
        self.end(&self.plan.process_name())
    }

    /// Ends its process with the note of this name, and removes the note.
    fn end(&self, name: &str) -> anyhow::Result<()> {
        let note = self.lab.folder.notes().join(format!("{name}.json"));
        let is_it = |note: &Note| note.log.file_stem().is_some_and(|stem| *stem == *name);
        let notes: Vec<Note> = self.lab.processes().into_iter().filter(is_it).collect();
        process::end(&notes);
        match fs::remove_file(&note) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| note.display().to_string())
            }
            _ => Ok(()),
        }
    }
}

/// Refuses changes of fields that are fixed while a lab is up.
fn check_fixed(old: &Plan, new: &Plan) -> anyhow::Result<()> {
    let fixed = [
        ("name", old.name == new.name),
        ("nodes", old.nodes == new.nodes),
        ("settings", old.settings == new.settings),
        ("carried", old.carried == new.carried),
        ("hooks", old.hooks == new.hooks),
        ("restart", old.restart == new.restart),
    ];
    match fixed.iter().find(|(_, is_same)| !is_same) {
        Some((field, _)) => bail!(
            "{field}: this cannot change while the lab is up (undo the change, or heddle-lab down and up)"
        ),
        None => Ok(()),
    }
}
