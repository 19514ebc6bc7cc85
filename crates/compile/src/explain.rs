//! Explains which caller may call which workload: the proxy's decision, with its reasons.
//!
//! The decision is the proxy's own ([`heddle_model::Guard::decide`]); this module resolves caller, destination and
//! endpoints, and adds what would change the outcome.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

use heddle_model::{
    Endpoint, Mesh, NodeName, PolicyName, Service, ServiceAccountName, ServiceName, ServicePort,
    SpiffeId, Workload, WorkloadName,
};
use serde::Serialize;

use crate::check;
use crate::compile::did_you_mean;

mod advice;
mod denied;
mod parse;
mod question;
mod show;

#[cfg(test)]
mod tests;

use denied::DenyListCheck;
use question::{Question, opaque};

/// Limit of explained endpoints; the others are only counted.
const MAX_EXPLAINED: usize = 100;

/// The caller in a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// A workload, with its identity.
    Workload(WorkloadName),
    /// Any workload of a service account.
    Account(ServiceAccountName),
    /// A caller that presents no certificate.
    Anonymous,
}

/// The destination in a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// `namespace/name`: of a Service, or of a workload if there is no such Service.
    pub name: ServiceName,
    /// Whether the name is a workload's, even if there is a Service of that name.
    pub is_workload: bool,
    /// The port of the Service or of the workload; `None` for all of them.
    pub port: Option<u16>,
}

/// The HTTP request in a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Request {
    /// The method; upper and lower case differ.
    pub method: String,
    /// The path in canonical form.
    pub path: String,
    /// The query, without the question mark.
    pub query: String,
}

/// Why a question cannot be answered, and what to ask instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unexplained {
    reason: String,
    remedy: String,
}

impl fmt::Display for Unexplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        if !self.remedy.is_empty() {
            write!(f, " ({})", self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for Unexplained {}

/// The answer: `Display` writes it for people, serialisation for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The caller, in words.
    pub from: String,
    /// The caller's identity, if it has one.
    pub identity: Option<SpiffeId>,
    /// The destination, in words.
    pub to: String,
    /// The request; `None` when the question is about a connection.
    pub request: Option<Request>,
    /// The outcome at each endpoint, at most 100.
    pub endpoints: Vec<ExplainedEndpoint>,
    /// How many further endpoints are left out.
    pub omitted: usize,
    /// Remarks on the mesh that matter for the question.
    pub notes: Vec<String>,
}

/// The outcome at one endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainedEndpoint {
    /// The endpoint's address and port.
    pub address: SocketAddr,
    /// The endpoint's workload, if it is known here.
    pub workload: Option<WorkloadName>,
    /// The workload's node, in a mesh of several.
    pub node: Option<NodeName>,
    /// The decision about the request or connection.
    pub outcome: Outcome,
    /// The reason of the decision, in words.
    pub reason: String,
    /// The policy that decides, if any.
    pub policy: Option<PolicyName>,
    /// The index of the deciding rule in that policy, from 0.
    pub rule: Option<u32>,
    /// How enforcing the dry-run policies would change the outcome, in words.
    pub dry_run: Option<String>,
    /// Changes that would give another outcome.
    pub advice: Vec<String>,
}

/// The decision about a request or connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The request or connection is forwarded.
    Allowed,
    /// The request or connection is refused.
    Refused,
    /// The connection is accepted, and each request on it decided separately.
    Depends,
    /// The connection is accepted for a health check, and nothing on it is forwarded.
    ConnectOnly,
    /// Another node decides, or the endpoint is outside the mesh.
    Elsewhere,
}

/// Explains the decision about a request, or about a connection.
///
/// `mesh` is the whole mesh, or one node's part of it: then endpoints on other nodes are decided elsewhere. Routes are
/// not followed.
///
/// # Errors
/// When the caller or the destination does not exist.
pub fn explain(
    mesh: &Mesh,
    caller: &Caller,
    destination: &Destination,
    request: Option<&Request>,
) -> Result<Explanation, Unexplained> {
    explain_denying(mesh, &BTreeSet::new(), caller, destination, request)
}

/// As [`explain`], with these identities on the deny-list.
///
/// # Errors
/// As [`explain`].
pub fn explain_denying(
    mesh: &Mesh,
    denied: &BTreeSet<SpiffeId>,
    caller: &Caller,
    destination: &Destination,
    request: Option<&Request>,
) -> Result<Explanation, Unexplained> {
    let (from, identity) = identify(mesh, caller)?;
    let mut notes = Vec::new();
    let endpoints = endpoints(mesh, destination, request, &mut notes)?;
    let explained = endpoints.get(..MAX_EXPLAINED).unwrap_or(&endpoints);
    let opaque = opaque(mesh, explained);
    if request.is_some() {
        notes.extend(opaque.iter().map(|address| {
            format!(
                "{address} is declared tcp or tls: no request is seen there, and the connection \
                 is decided as a whole"
            )
        }));
    }
    notes.extend(unknown_nodes(mesh, explained));
    let question = Question {
        mesh,
        caller: identity.as_ref(),
        request,
        destination,
        opaque: &opaque,
    };
    let denied = DenyListCheck {
        list: denied,
        trust_domain: &mesh.trust_domain,
        caller: identity.as_ref(),
        caller_node: match caller {
            Caller::Workload(name) => mesh.workload(name).and_then(|one| one.node.as_ref()),
            Caller::Account(_) | Caller::Anonymous => None,
        },
    };
    Ok(Explanation {
        from,
        to: destination.to_string(),
        request: request.cloned(),
        omitted: endpoints.len().saturating_sub(MAX_EXPLAINED),
        endpoints: explained
            .iter()
            .map(|endpoint| denied.over(question.answer(endpoint), endpoint))
            .collect(),
        notes,
        identity,
    })
}

fn identify(mesh: &Mesh, caller: &Caller) -> Result<(String, Option<SpiffeId>), Unexplained> {
    let id = |account: &ServiceAccountName| {
        SpiffeId::workload(mesh.trust_domain.clone(), account.clone())
    };
    match caller {
        Caller::Anonymous => Ok(("an unidentified caller".to_owned(), None)),
        Caller::Account(account) => Ok((format!("service account {account}"), Some(id(account)))),
        Caller::Workload(name) => {
            let Some(workload) = mesh.workload(name) else {
                let names: Vec<String> = known_workloads(mesh);
                let otherwise = "name a workload as NAMESPACE/NAME, a service account as \
                                 NAMESPACE/sa/NAME, or write anonymous";
                let names = names.iter().map(String::as_str);
                let remedy = did_you_mean(&name.to_string(), names, otherwise);
                return Err(match mesh.nodes.is_empty() {
                    true => Unexplained {
                        reason: format!("there is no workload {name}"),
                        remedy,
                    },
                    false => Unexplained {
                        reason: format!("there is no workload {name} here"),
                        remedy: format!(
                            "{remedy}; of a workload on another node, name the service account: \
                             NAMESPACE/sa/NAME, {}/sa/{} if it is called the same",
                            name.namespace, name.name
                        ),
                    },
                });
            };
            let account = &workload.service_account;
            let shown = format!("workload {name} (service account {account})");
            Ok((shown, Some(id(account))))
        }
    }
}

/// Notes on nodes with an unknown address: their endpoints cannot be called from other nodes.
fn unknown_nodes(mesh: &Mesh, endpoints: &[Endpoint]) -> Vec<String> {
    let is_known = |name: &&NodeName| mesh.nodes.iter().any(|node| node.name == **name);
    let named = endpoints
        .iter()
        .filter_map(|endpoint| endpoint.node.as_ref());
    let unknown: BTreeSet<&NodeName> = named.filter(|name| !is_known(name)).collect();
    let note = |name: &NodeName| match mesh.nodes.is_empty() {
        // Manifests alone do not say which nodes have joined.
        true => format!(
            "no node is known to have joined: while {name} has not, callers on other nodes get 503 no_endpoint"
        ),
        false => format!(
            "node {name} is not there: it has not joined, or was away until its certificate \
             expired; callers on other nodes get 503 no_endpoint"
        ),
    };
    unknown.into_iter().map(note).collect()
}

fn known_workloads(mesh: &Mesh) -> Vec<String> {
    let names = mesh
        .workloads
        .iter()
        .map(|workload| workload.name.to_string());
    names.collect()
}

/// The endpoints in question.
fn endpoints(
    mesh: &Mesh,
    destination: &Destination,
    request: Option<&Request>,
    notes: &mut Vec<String>,
) -> Result<Vec<Endpoint>, Unexplained> {
    let service = mesh.service(&destination.name);
    if let Some(service) = service.filter(|_| !destination.is_workload) {
        return of_service(service, destination.port, request, notes);
    }
    let name = WorkloadName {
        namespace: destination.name.namespace.clone(),
        name: destination.name.name.clone(),
    };
    match mesh.workload(&name) {
        Some(workload) => of_workload(mesh, workload, destination.port),
        None => {
            let services = mesh.services.iter().map(|service| service.name.to_string());
            let mut names = known_workloads(mesh);
            if !destination.is_workload {
                names.extend(services);
            }
            let what = match destination.is_workload {
                true => "workload",
                false => "Service and no workload",
            };
            let remedy = did_you_mean(&name.to_string(), names.iter().map(String::as_str), "");
            let reason = format!("there is no {what} {name}");
            Err(Unexplained { reason, remedy })
        }
    }
}

fn of_service(
    service: &Service,
    port: Option<u16>,
    request: Option<&Request>,
    notes: &mut Vec<String>,
) -> Result<Vec<Endpoint>, Unexplained> {
    let ports: Vec<&ServicePort> = match port {
        None => service.ports.iter().collect(),
        Some(number) => match service.port(number) {
            Some(port) => vec![port],
            None => {
                let known: Vec<String> = service
                    .ports
                    .iter()
                    .map(|port| port.port.to_string())
                    .collect();
                return Err(Unexplained {
                    reason: format!("Service {} has no port {number}", service.name),
                    remedy: format!("it has {}", known.join(", ")),
                });
            }
        },
    };
    for port in &ports {
        if port.endpoints.is_empty() {
            notes.push(format!("no endpoint answers on port {}: 503", port.port));
        }
        if port.routes.is_some() && request.is_some() {
            let note = "routes are attached to port";
            notes.push(format!("{note} {}, and may lead elsewhere", port.port));
        }
    }
    let endpoints = ports
        .into_iter()
        .flat_map(|port| port.endpoints.iter().cloned());
    Ok(endpoints.collect())
}

/// A workload's endpoints: its requested port, or all known ones.
fn of_workload(
    mesh: &Mesh,
    workload: &Workload,
    port: Option<u16>,
) -> Result<Vec<Endpoint>, Unexplained> {
    let mut ports: Vec<u16> = match port {
        Some(port) => vec![port],
        None => workload.ports.iter().map(|port| port.port).collect(),
    };
    if ports.is_empty() {
        let of_services = mesh.services.iter().flat_map(|service| &service.ports);
        let endpoints = of_services.flat_map(|port| &port.endpoints);
        let own = endpoints.filter(|endpoint| endpoint.workload.as_ref() == Some(&workload.name));
        ports = own.map(|endpoint| endpoint.address.port()).collect();
    }
    ports.sort_unstable();
    ports.dedup();
    if ports.is_empty() {
        return Err(Unexplained {
            reason: format!("workload {} declares no port", workload.name),
            remedy: format!("write {}:PORT", workload.name),
        });
    }
    let endpoint = |port| Endpoint {
        address: SocketAddr::new(workload.address, port),
        weight: workload.weight,
        max_requests: None,
        workload: Some(workload.name.clone()),
        remote_workload: None,
        account: Some(workload.service_account.clone()),
        node: workload.node.clone(),
        has_envoy: workload.proxy.is_envoy(),
    };
    Ok(ports.into_iter().map(endpoint).collect())
}

impl Request {
    /// Builds a request from a method and a target: an absolute path, optionally with a query.
    ///
    /// # Errors
    /// When the proxy would refuse such a request before it evaluates policies.
    pub fn new(method: &str, target: &str) -> Result<Self, Unexplained> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = check::exact_path(path).map_err(|flaw| Unexplained {
            reason: format!("this request is refused: {}", flaw.reason),
            remedy: flaw.remedy,
        })?;
        check::match_name(method, "method").map_err(|flaw| Unexplained {
            reason: flaw.reason.replace("name of a method", "method"),
            remedy: "write one such as GET".to_owned(),
        })?;
        Ok(Self {
            method: method.to_owned(),
            path,
            query: query.to_owned(),
        })
    }
}
