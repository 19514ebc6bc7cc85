//! Which pods there are: those of a folder of manifests, and those of a kubelet.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::anyhow;
use heddle_compile::{Addresses, Options, Watcher};
use heddle_model::report::Report;
use heddle_model::{Class, Mesh, NodeName};
use heddle_node::exit::{Exit, Failure};
use heddle_node::settings::Settings;
use heddle_node::table::count;
use heddle_qos::agent::Pod;
use heddle_qos::remarks::NotDone;
use tokio::sync::mpsc::Receiver;

use super::AgentPlan;
use super::metrics::FolderStatus;
use crate::{report, settings};

#[cfg(test)]
mod tests;

/// Most nodes that a message names, and most objects that status names.
const MAX_NAMED: usize = 10;

/// The next change of a source, if there is such a source.
pub(super) async fn next<T>(source: &mut Option<Receiver<T>>) -> Option<T> {
    match source {
        Some(source) => source.recv().await,
        None => None,
    }
}

/// The pods of both sources.
pub(super) struct Pods {
    pub(super) of_folder: Vec<Pod>,
    /// `None` until the kubelet that the settings name has answered for the first time.
    of_kubelet: Option<Vec<Pod>>,
}

impl Pods {
    /// `has_kubelet`: the settings name a kubelet, which has yet to answer.
    pub(super) fn new(of_folder: Vec<Pod>, has_kubelet: bool) -> Self {
        Pods {
            of_folder,
            of_kubelet: (!has_kubelet).then(Vec::new),
        }
    }

    pub(super) fn follow_kubelet(&mut self, pods: Vec<Pod>) {
        if self.of_kubelet.as_ref().map(Vec::len) != Some(pods.len()) {
            let is_offline = |pod: &&Pod| pod.qos.class == Class::Offline;
            let offline = pods.iter().filter(is_offline).count();
            let all = count(pods.len(), "pod");
            tracing::info!("the kubelet has {all}, {offline} of them offline");
        }
        self.of_kubelet = Some(pods);
    }

    /// Whether each source has said which pods there are. A folder that has not ends the agent.
    pub(super) fn are_known(&self) -> bool {
        self.of_kubelet.is_some()
    }

    /// All pods. A LocalWorkload that has the name or the group of a kubelet's pod is that pod: an operator of the machine
    /// wrote it. Until the kubelet has answered, each LocalWorkload may be one of its pods, and counts as one: the agent
    /// evicts none that a kubelet runs.
    pub(super) fn all(&self) -> Vec<Pod> {
        let is_same = |one: &Pod, pod: &Pod| {
            one.name == pod.name
                || one.group == pod.group
                || one.group.is_below(&pod.group)
                || pod.group.is_below(&one.group)
        };
        let is_of_kubelet = |pod: &Pod| match &self.of_kubelet {
            Some(pods) => pods.iter().any(|one| is_same(one, pod)),
            None => true,
        };
        // A kubelet would start anew what is ended.
        let of_folder = self.of_folder.iter().map(|pod| Pod {
            is_of_kubelet: is_of_kubelet(pod),
            ..pod.clone()
        });
        let named = |pod: &Pod| {
            let mut folder = self.of_folder.iter();
            folder.any(|one| one.name == pod.name || one.group == pod.group)
        };
        let more = self.of_kubelet.iter().flatten().filter(|pod| !named(pod));
        of_folder.chain(more.cloned()).collect()
    }
}

pub(super) type FolderChange = (Option<Mesh>, Report);

/// The first state of a folder, and what follows.
pub(super) struct First {
    pub(super) mesh: Mesh,
    /// What is not in force as it is written.
    pub(super) refused: Vec<NotDone>,
    pub(super) status: FolderStatus,
    pub(super) changes: Receiver<FolderChange>,
}

/// Reads the folder for the first time, and follows it.
pub(super) async fn folder(dir: &Path, settings: &Settings) -> Result<First, Failure> {
    let options = Options {
        addresses: Addresses::Given,
        ..settings::options(&settings.mesh)
    };
    let mut watcher = Watcher::with(dir, options);
    let (mesh, first) = watcher.next().await;
    report::say(&first);
    let mesh = mesh.ok_or_else(|| {
        let errors = count(first.errors(), "error");
        Failure::new(Exit::Refused, anyhow!("{errors} in {}", dir.display()))
    })?;
    Ok(First {
        mesh,
        refused: not_in_force(dir, &first),
        status: FolderStatus::new(&first),
        changes: watched(watcher),
    })
}

/// What status says of objects that are refused by themselves.
pub(super) fn not_in_force(dir: &Path, report: &Report) -> Vec<NotDone> {
    let dir = dir.display();
    let told = |why: String| NotDone {
        setting: "qos.folder".to_owned(),
        why: format!("{why} (heddle validate {dir} says why)"),
    };
    let refused = report.refused.iter().take(MAX_NAMED);
    let refused = refused.map(|one| told(one.to_string()));
    let more = report.refused.len().saturating_sub(MAX_NAMED);
    let more = (more > 0).then(|| told(format!("{} more refused", count(more, "object"))));
    refused.chain(more).collect()
}

/// Reads the folder in a task of its own, which ticks of the agent do not interrupt.
fn watched(mut watcher: Watcher) -> Receiver<FolderChange> {
    let (sender, changes) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move { while sender.send(watcher.next().await).await.is_ok() {} });
    changes
}

/// The pods of a folder that this agent is for.
pub(super) fn of_folder(mesh: &Mesh, plan: &AgentPlan) -> Vec<Pod> {
    let is_here = |node: Option<&NodeName>| plan.node.is_none() || node == plan.node.as_ref();
    let here = mesh
        .workloads
        .iter()
        .filter(|workload| is_here(workload.node.as_ref()));
    let mut pods = Vec::new();
    let mut without = 0;
    for workload in here {
        match workload.qos.cgroup.clone() {
            Some(group) => pods.push(Pod {
                name: workload.name.to_string(),
                group,
                qos: workload.qos.clone(),
                is_resizing: false,
                is_of_kubelet: false,
            }),
            None => without += 1,
        }
    }
    tracing::info!("{} with a control group", count(pods.len(), "pod"));
    if let Some(node) = &plan.node
        && pods.is_empty()
        && without == 0
        && !mesh.workloads.is_empty()
    {
        let nodes: BTreeSet<&str> = mesh
            .workloads
            .iter()
            .filter_map(|workload| workload.node.as_ref().map(NodeName::as_str))
            .collect();
        let nodes: Vec<&str> = nodes.into_iter().take(MAX_NAMED).collect();
        tracing::warn!(
            "no LocalWorkload has the node {node} (spec.nodeName); the folder names: {}",
            nodes.join(", ")
        );
    }
    if without > 0 {
        tracing::warn!(
            "{} without the annotation heddle.dev/cgroup: left alone",
            count(without, "LocalWorkload")
        );
    }
    pods
}
