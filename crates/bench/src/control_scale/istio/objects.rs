//! The mesh as objects of Kubernetes, where an API server keeps them in etcd: as JSON, which it reads as well as its own
//! binary form.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::control_scale::registry::PutRequest;
use crate::control_scale::shape::{
    POD_PORT, Shape, first_address, node_name, service_address, service_name, service_of,
};

/// The addresses of all Services.
pub(super) const SERVICES: &str = "172.16.0.0/12";
/// The namespace of istiod.
pub(super) const ISTIO: &str = "istio-system";
/// When all objects were made.
const CREATED: &str = "2026-01-01T00:00:00Z";

/// All objects at the beginning.
pub(super) fn all(shape: &Shape) -> impl Iterator<Item = PutRequest> {
    let istio = std::iter::once(namespace(ISTIO));
    let namespaces = shape.namespaces().map(|name| namespace(&name));
    let services = (0..shape.services).map(service);
    let pods = (0..shape.pods).map(|one| pod(shape, one, first_address(one)));
    istio.chain(namespaces).chain(services).chain(pods)
}

/// A pod that runs and is ready, at an address.
pub(super) fn pod(shape: &Shape, pod: usize, address: Ipv4Addr) -> PutRequest {
    let service = service_of(pod);
    let name = pod_name(pod);
    let (namespace, app) = service_name(service);
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": CREATED});
    let value = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid(2, pod), "creationTimestamp": CREATED,
            "labels": {"app": app},
            // As the agent of a node marks pods whose traffic a ztunnel takes.
            "annotations": {"ambient.istio.io/redirection": "enabled"},
        },
        "spec": {
            "nodeName": node_name(shape.node_of(pod)),
            "serviceAccountName": "default",
            "containers": [{
                "name": "app", "image": "app",
                "ports": [{"name": "http", "containerPort": POD_PORT, "protocol": "TCP"}],
            }],
        },
        "status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [condition("Ready"), condition("ContainersReady")],
        },
    });
    PutRequest::new(format!("/registry/pods/{namespace}/{name}"), &value)
}

/// The name of a pod, which has its Service's number and its own.
fn pod_name(pod: usize) -> String {
    format!("s{}-p{pod}", service_of(pod))
}

/// The pod of a workload's name, such as `Kubernetes//Pod/ns-0/s7-p73`.
pub(super) fn pod_in(name: &str) -> Option<usize> {
    let (_, name) = name.strip_prefix("Kubernetes//Pod/")?.split_once('/')?;
    name.split_once("-p")?.1.parse().ok()
}

fn service(service: usize) -> PutRequest {
    let (namespace, name) = service_name(service);
    let address = service_address(service);
    let value = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid(1, service), "creationTimestamp": CREATED,
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": address, "clusterIPs": [address],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
            "selector": {"app": name},
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"}],
        },
    });
    PutRequest::new(
        format!("/registry/services/specs/{namespace}/{name}"),
        &value,
    )
}

fn namespace(name: &str) -> PutRequest {
    let value: Value = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name, "creationTimestamp": CREATED,
            "labels": {"kubernetes.io/metadata.name": name, "istio.io/dataplane-mode": "ambient"},
        },
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    });
    PutRequest::new(format!("/registry/namespaces/{name}"), &value)
}

/// An identifier that no other object of any kind has.
fn uid(kind: u16, number: usize) -> String {
    format!("00000000-0000-4000-{kind:04x}-{number:012x}")
}
