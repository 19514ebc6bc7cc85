//! Environment variables of a workload's process.

use std::collections::BTreeMap;

use heddle_model::{Mesh, WorkloadName};

use crate::status::{ListenerKind, ListenerStatus};

/// Addresses that bypass the forward proxy: this machine's own, those of Services among them.
const NO_PROXY: &str = "localhost,127.0.0.0/8,::1";

/// The variables of one workload.
///
/// For each Service of its namespace: the variables that Kubernetes sets in a pod (`REVIEWS_SERVICE_HOST`,
/// `REVIEWS_SERVICE_PORT`, `REVIEWS_SERVICE_PORT_HTTP` for a named port), with the addresses that identify this caller.
/// `http_proxy`: reaches every Service of the mesh by name. `HEDDLE_WORKLOAD`: the workload's own name.
pub(crate) fn environment(
    name: &WorkloadName,
    mesh: &Mesh,
    listeners: &[ListenerStatus],
) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::from([("HEDDLE_WORKLOAD".to_owned(), name.to_string())]);
    let caller = Some(name.to_string());
    let own = |listener: &&ListenerStatus| listener.caller == caller;
    let address = |service: Option<String>, port: Option<u16>, kind: ListenerKind| {
        let is = |l: &&ListenerStatus| {
            l.kind == kind && l.service == service && port.is_none_or(|port| l.port == port)
        };
        listeners
            .iter()
            .filter(own)
            .find(is)
            .map(|listener| listener.address)
    };
    if let Some(proxy) = address(None, None, ListenerKind::ForwardProxy) {
        variables.insert("http_proxy".into(), format!("http://{proxy}"));
        variables.insert("no_proxy".into(), NO_PROXY.into());
    }
    for service in mesh
        .services
        .iter()
        .filter(|service| service.name.namespace == name.namespace)
    {
        let prefix = format!("{}_SERVICE", variable(service.name.name.as_str()));
        for (index, port) in service.ports.iter().enumerate() {
            let service = Some(service.name.to_string());
            let Some(at) = address(service, Some(port.port), ListenerKind::Service) else {
                continue;
            };
            if index == 0 {
                variables.insert(format!("{prefix}_HOST"), at.ip().to_string());
                variables.insert(format!("{prefix}_PORT"), at.port().to_string());
            }
            if let Some(port_name) = &port.name {
                let key = format!("{prefix}_PORT_{}", variable(port_name));
                variables.insert(key, at.port().to_string());
            }
        }
    }
    variables
}

/// `rating-db` as part of a variable's name: `RATING_DB`.
fn variable(name: &str) -> String {
    name.chars()
        .map(|c| {
            if matches!(c, '-' | '.') {
                '_'
            } else {
                c.to_ascii_uppercase()
            }
        })
        .collect()
}
