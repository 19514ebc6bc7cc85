//! Whether a rule can be enforced on the ports that it is about.

use std::collections::BTreeMap;

use heddle_model::{AppProtocol, PolicyAction, Service, ServiceName, Workload, WorkloadName};

use super::{Context, Draft, DraftRule};
use crate::compile::Scope;

/// What is known of the ports of workloads.
pub(super) struct Ports(BTreeMap<WorkloadName, BTreeMap<u16, Vec<Target>>>);

/// A port of a Service that leads to a port of a workload.
struct Target {
    service: ServiceName,
    port: u16,
    protocol: AppProtocol,
}

impl Target {
    fn is_opaque(&self) -> bool {
        matches!(self.protocol, AppProtocol::Tcp | AppProtocol::Tls)
    }
}

impl Ports {
    /// The ports that workloads declare and those that Services lead to.
    pub(super) fn new(workloads: &[Workload], services: &[Service]) -> Self {
        let mut known: BTreeMap<WorkloadName, BTreeMap<u16, Vec<Target>>> = workloads
            .iter()
            .map(|workload| {
                let ports = workload.ports.iter();
                let ports = ports.map(|port| (port.port, Vec::new())).collect();
                (workload.name.clone(), ports)
            })
            .collect();
        for service in services {
            for port in &service.ports {
                for endpoint in &port.endpoints {
                    let of = endpoint
                        .workload
                        .as_ref()
                        .and_then(|name| known.get_mut(name));
                    if let Some(of) = of {
                        of.entry(endpoint.address.port()).or_default().push(Target {
                            service: service.name.clone(),
                            port: port.port,
                            protocol: port.protocol,
                        });
                    }
                }
            }
        }
        Self(known)
    }

    fn of(&self, workload: &WorkloadName) -> impl Iterator<Item = (u16, &[Target])> {
        let ports = self.0.get(workload).into_iter().flatten();
        ports.map(|(port, targets)| (*port, targets.as_slice()))
    }

    fn find(&self, workload: &WorkloadName, port: u16) -> Option<&[Target]> {
        self.0.get(workload)?.get(&port).map(Vec::as_slice)
    }
}

/// The declaration that makes a port opaque, if all that lead to it do.
fn opaque(targets: &[Target]) -> Option<&Target> {
    let all = targets.iter().all(Target::is_opaque);
    targets.first().filter(|_| all)
}

/// Reports rules that cannot be enforced, or are about ports that nobody has.
pub(super) fn check(context: &Context<'_>, draft: &Draft, scope: &mut Scope<'_>) {
    for rule in &draft.rules {
        for (port, at) in rule.rule.ports.iter().zip(&rule.ports_at) {
            let mut selected = draft.selected.iter();
            if !selected.any(|workload| context.ports.find(workload, *port).is_some()) {
                scope.warn(
                    at,
                    format!("no workload that this policy selects has port {port}"),
                    "write the port that the workload listens on, not its Service's",
                );
            }
        }
        if rule.rule.http.is_some() {
            check_requests(context, draft, rule, scope);
        }
    }
}

fn check_requests(context: &Context<'_>, draft: &Draft, rule: &DraftRule, scope: &mut Scope<'_>) {
    for (port, at) in rule.rule.ports.iter().zip(&rule.ports_at) {
        let found = draft.selected.iter().find_map(|workload| {
            let declared = opaque(context.ports.find(workload, *port)?)?;
            Some((workload, declared))
        });
        if let Some((workload, declared)) = found {
            scope.error(
                at,
                format!(
                    "no request can be seen on port {port} of LocalWorkload {workload}: {}",
                    words(declared)
                ),
                "leave out the conditions on requests, or declare appProtocol: http there",
            );
        }
    }
    if rule.rule.ports.is_empty() {
        check_all_ports(context, draft, rule, scope);
    }
}

/// A rule that names no port is about all of them: what it says of an opaque one nobody can tell.
fn check_all_ports(context: &Context<'_>, draft: &Draft, rule: &DraftRule, scope: &mut Scope<'_>) {
    let mut warned = false;
    for workload in &draft.selected {
        let ports = || context.ports.of(workload);
        let mut blind = ports().filter_map(|(port, targets)| Some((port, opaque(targets)?)));
        let Some((port, declared)) = blind.next() else {
            continue;
        };
        let declared = words(declared);
        let is_blind_to_all = ports().all(|(_, targets)| opaque(targets).is_some());
        let remedy = "name the ports that it is about in a list of ports";
        match draft.action {
            PolicyAction::Deny => {
                let reason = format!(
                    "it would refuse everything on port {port} of LocalWorkload {workload}, \
                     where no request can be seen: {declared}"
                );
                return scope.error(&rule.http_at, reason, remedy);
            }
            PolicyAction::Allow if is_blind_to_all => {
                let reason = format!(
                    "no request can be seen on any port of LocalWorkload {workload}: {declared}"
                );
                let remedy =
                    "leave out the conditions on requests, or declare appProtocol: http there";
                return scope.error(&rule.http_at, reason, remedy);
            }
            PolicyAction::Allow if !warned => {
                let reason = format!(
                    "it allows nothing on port {port} of LocalWorkload {workload}, \
                     where no request can be seen: {declared}"
                );
                scope.warn(&rule.http_at, reason, remedy);
                warned = true;
            }
            PolicyAction::Allow => {}
        }
    }
}

fn words(target: &Target) -> String {
    let Target {
        service,
        port,
        protocol,
    } = target;
    format!(
        "Service {service} declares port {port} as {}",
        protocol.as_str()
    )
}
