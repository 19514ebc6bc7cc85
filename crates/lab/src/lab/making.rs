//! Making a lab, one part after the other.

use std::time::Instant;

use anyhow::Context;

use super::file::{Carried, Restart};
use super::namespace::{self, Namespace, Role};
use super::plan::PodPlan;
use super::process::Note;
use super::{Lab, Node, Pod, etc, listening, network};

impl Lab {
    pub(super) fn make(&self, progress: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
        let mut step = Step::new(progress);
        if let Some(manifests) = &self.plan.manifests {
            manifests.write(&self.folder.manifests())?;
        }
        self.make_groups()?;
        step.done("control groups");
        let underlay = self.make_network()?;
        drop(underlay);
        let (nodes, pods) = (self.plan.nodes.len(), self.plan.pods.len());
        step.done(&format!("network of {nodes} nodes and {pods} pods"));
        for pod in self.pods() {
            etc::write(&self.plan, pod.plan, &pod.folder())?;
        }
        for node in self.nodes() {
            node.start_dns()?;
        }
        self.wait_for_dns()?;
        step.done("DNS");
        if self.plan.carried != Carried::Nothing {
            let count = self.start_mesh()?;
            step.done(&format!("control plane and {count} nodes of the mesh"));
            // Before the programs start, so that none of their traffic bypasses the mesh.
            let count = self.enroll_pods()?;
            step.done(&format!("{count} pods enrolled"));
            let count = self.start_envoys()?;
            if count > 0 {
                step.done(&format!("{count} Envoys of pods"));
            }
        }
        if self.plan.restart == Restart::Always && self.plan.carried != Carried::Nothing {
            self.start_keeper()?;
        }
        let started = self.start_programs()?;
        listening::wait(&started)?;
        step.done(&format!("{} programs of pods", started.len()));
        for note in listening::ended(&started) {
            step.say(&listening::said_of_ended(note));
        }
        Ok(())
    }

    fn make_groups(&self) -> anyhow::Result<()> {
        self.groups.create()?;
        self.underlay_group().create()?;
        for node in self.nodes() {
            for part in ["heddle", "dns", "pods", "tools"] {
                node.group(part).create()?;
            }
        }
        self.pods().try_for_each(|pod| pod.make_groups())
    }

    fn make_network(&self) -> anyhow::Result<Namespace> {
        namespace::make_folder()?;
        let name = &self.plan.name;
        let underlay = Namespace::create(&Role::Underlay.path(name), true)?;
        network::underlay(&underlay)?;
        for node in self.nodes() {
            let namespace = Namespace::create(&node.network(), true)?;
            network::node(node.plan, &self.plan.nodes, &namespace, &underlay)?;
            let pods = self.plan.pods_of(node.plan);
            connect_pods(node, &namespace, pods.map(|plan| Pod { lab: self, plan }))?;
        }
        Ok(underlay)
    }

    fn wait_for_dns(&self) -> anyhow::Result<()> {
        self.nodes().try_for_each(|node| node.wait_for_dns())
    }

    fn start_programs(&self) -> anyhow::Result<Vec<(&PodPlan, Note)>> {
        let started = self.pods().map(|pod| Ok((pod.plan(), pod.start()?)));
        let started = started.collect::<anyhow::Result<Vec<_>>>()?;
        let notes = started.into_iter();
        Ok(notes
            .filter_map(|(plan, note)| Some((plan, note?)))
            .collect())
    }
}

impl Pod<'_> {
    pub(super) fn make_groups(&self) -> anyhow::Result<()> {
        let group = self.group();
        group.create()?;
        if self.lab.plan.carried == Carried::Pod || self.has_envoy() {
            self.proxy_group().create()?;
        }
        if let Some(cpus) = self.plan.cpus {
            let held = group.hold(cpus);
            held.with_context(|| format!("pods.{}.cpus", self.plan.workload))?;
        }
        Ok(())
    }
}

/// Makes network namespaces for pods, and connects them with their node.
pub(super) fn connect_pods<'l>(
    node: Node<'_>,
    namespace: &Namespace,
    pods: impl Iterator<Item = Pod<'l>>,
) -> anyhow::Result<()> {
    let pods = pods.map(|pod| Ok((pod.plan, Namespace::create(&pod.network(), false)?)));
    let pods = pods.collect::<anyhow::Result<Vec<_>>>()?;
    network::pods(node.plan, namespace, &pods)
}

/// Reports each finished step and its duration.
struct Step<'p> {
    progress: &'p mut dyn FnMut(&str),
    since: Instant,
}

impl<'p> Step<'p> {
    fn new(progress: &'p mut dyn FnMut(&str)) -> Self {
        Self {
            progress,
            since: Instant::now(),
        }
    }

    fn say(&mut self, what: &str) {
        (self.progress)(what);
    }

    fn done(&mut self, what: &str) {
        let took = self.since.elapsed().as_secs_f64();
        (self.progress)(&format!("{what} ({took:.1} s)"));
        self.since = Instant::now();
    }
}
