//! The kubelet's answer to `GET /pods`: a PodList of Kubernetes, of which few fields matter here. A kubelet lists a
//! static pod itself, with the hash of its manifest as its UID, and not the mirror that the API server has of it.
//!
//! No annotation says where a pod's group is: the owner of a pod writes them, and could name another pod's.

use std::fmt;
use std::net::IpAddr;

use heddle_model::{Qos, QosFault, QosLabels, is_dns_label, is_dns_subdomain};

use self::json::{PodJson, PodList};
use super::group::{PodQos, Uid};
use super::resize::is_resizing;

pub(super) mod json;
#[cfg(test)]
mod tests;

/// Pods that an answer may have. A kubelet has 110 unless it is told otherwise.
pub const MAX_PODS: usize = 10_000;

/// A pod as its kubelet describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletPod {
    /// Names its group.
    pub uid: Uid,
    /// `namespace/name`, both checked.
    pub name: String,
    /// The class of the kubelet, if it is known yet.
    pub pod_qos: Option<PodQos>,
    /// What its labels and annotations ask for. It has no control group: the kubelet decides that.
    pub qos: Qos,
    /// Labels and annotations that are not understood, and were left out.
    pub faults: Vec<QosFault>,
    /// Whether it uses the network of the node.
    pub host_network: bool,
    /// Its first address, once it has one.
    pub address: Option<IpAddr>,
    /// Whether it comes from a file of the node, not from the API server.
    pub is_static: bool,
    /// Whether the kubelet is about to change its resources, or does so now.
    pub is_resizing: bool,
}

/// The pods of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Pods that have not ended.
    pub pods: Vec<KubeletPod>,
    /// Pods that were left out, because their names or UIDs are none.
    pub left_out: usize,
}

/// An answer that is no PodList.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerError(String);

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AnswerError {}

/// Reads an answer. The caller bounds its length. Pods that have ended (`Succeeded`, `Failed`) are not returned.
///
/// # Errors
/// When it is no PodList in JSON, or has more than [`MAX_PODS`].
pub fn pods_of(json: &[u8]) -> Result<Answer, AnswerError> {
    let list: PodList =
        serde_json::from_slice(json).map_err(|error| AnswerError(error.to_string()))?;
    if list.kind != "PodList" {
        return Err(AnswerError("its kind is not PodList".to_owned()));
    }
    let pods = list.items.0;
    if pods.len() > MAX_PODS {
        return Err(AnswerError(format!("it has more than {MAX_PODS} pods")));
    }
    let mut answer = Answer::default();
    for pod in pods {
        if matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
            continue;
        }
        match kubelet_pod(&pod) {
            Some(pod) => answer.pods.push(pod),
            None => answer.left_out += 1,
        }
    }
    Ok(answer)
}

fn kubelet_pod(pod: &PodJson) -> Option<KubeletPod> {
    let metadata = &pod.metadata;
    let is_named = is_dns_label(&metadata.namespace) && is_dns_subdomain(&metadata.name);
    if !is_named || metadata.annotations.contains_key(MIRROR) {
        return None;
    }
    let (qos, faults) = QosLabels::new(&metadata.labels, &metadata.annotations).read();
    let class = pod.status.qos_class.as_str();
    let source = metadata.annotations.get(SOURCE).map(String::as_str);
    Some(KubeletPod {
        uid: Uid::new(&metadata.uid)?,
        name: format!("{}/{}", metadata.namespace, metadata.name),
        pod_qos: PodQos::ALL.into_iter().find(|qos| qos.as_str() == class),
        qos,
        faults,
        host_network: pod.spec.host_network,
        address: pod.status.pod_ip.parse().ok(),
        is_static: matches!(source, Some("file" | "http")),
        is_resizing: is_resizing(&pod.spec, &pod.status),
    })
}

/// Where the kubelet has a pod from: `api`, `file` or `http`. It sets this itself.
const SOURCE: &str = "kubernetes.io/config.source";
/// The API server's copy of a static pod, which has no group of its own.
const MIRROR: &str = "kubernetes.io/config.mirror";
