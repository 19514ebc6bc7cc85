//! What a workload's process finds in its environment.

use std::collections::BTreeMap;

use heddle_model::{Mesh, WorkloadName};

use crate::status::{ListenerKind, ListenerStatus};

/// Never through the forward proxy: this machine's own addresses, the Services' among them.
const NO_PROXY: &str = "localhost,127.0.0.0/8,::1";

/// The variables of one workload.
///
/// For each Service of its namespace those that Kubernetes sets in a pod
/// (`REVIEWS_SERVICE_HOST`, `REVIEWS_SERVICE_PORT`, `REVIEWS_SERVICE_PORT_HTTP` for a named port),
/// here with the addresses by which this caller is known; `http_proxy` for every Service of the
/// mesh by name; `HEDDLE_WORKLOAD`, its own name.
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
