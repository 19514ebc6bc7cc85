//! Checks whether a rule can be enforced on its ports.

use std::collections::BTreeMap;

use heddle_model::{AppProtocol, PolicyAction, Service, ServiceName, Workload, WorkloadName};

use super::{Draft, DraftRule, PolicyContext};
use crate::compile::Scope;
use crate::manifest::node::FieldPath;

/// The known ports of workloads, with the Services that lead to them.
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
    /// Collects the ports that workloads declare or Services lead to.
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
                    let workload = endpoint.workload.as_ref();
                    if let Some(of) = workload.and_then(|name| known.get_mut(name)) {
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
}

/// A port on which requests are not visible.
#[derive(Clone, Copy)]
struct Blind<'p> {
    workload: &'p WorkloadName,
    port: u16,
    /// The Service's port whose declaration is the reason.
    because: &'p Target,
}

impl Blind<'_> {
    fn because(&self) -> String {
        let Target {
            service,
            port,
            protocol,
        } = self.because;
        let protocol = protocol.as_str();
        format!("Service {service} declares port {port} as {protocol}")
    }
}

/// The ports of all workloads that a policy selects.
#[derive(Default)]
struct Selected<'p> {
    /// Every port of a selected workload, with an example of a workload at which it is blind.
    ports: BTreeMap<u16, Option<Blind<'p>>>,
    /// A workload that has a blind port.
    blind: Option<Blind<'p>>,
    /// A workload all of whose ports are blind.
    all_blind: Option<Blind<'p>>,
}

impl<'p> Selected<'p> {
    fn new(ports: &'p Ports, selected: &'p [WorkloadName]) -> Self {
        let mut all = Self::default();
        for workload in selected {
            let Some(ports) = ports.0.get(workload) else {
                continue;
            };
            let mut blind = None;
            let mut sees_any = false;
            for (port, targets) in ports {
                let is_opaque = targets.iter().all(Target::is_opaque);
                let found = targets.first().filter(|_| is_opaque).map(|because| Blind {
                    workload,
                    port: *port,
                    because,
                });
                sees_any |= found.is_none();
                blind = blind.or(found);
                let known = all.ports.entry(*port).or_default();
                *known = known.or(found);
            }
            all.blind = all.blind.or(blind);
            all.all_blind = all.all_blind.or(blind.filter(|_| !sees_any));
        }
        all
    }
}

/// Reports rules that cannot be enforced, or whose ports no selected workload has.
pub(super) fn check(context: &PolicyContext<'_>, draft: &Draft, scope: &mut Scope<'_>) {
    let selected = Selected::new(context.ports, &draft.selected);
    for rule in &draft.rules {
        for (port, at) in rule.rule.ports.iter().zip(&rule.ports_at) {
            check_port(&selected, *port, rule, at, scope);
        }
        if rule.rule.http.is_some() && rule.rule.ports.is_empty() {
            check_all_ports(&selected, draft.action, rule, scope);
        }
    }
}

const SEE_NOTHING: &str =
    "leave out the conditions on requests, or declare appProtocol: http there";

fn check_port(
    selected: &Selected<'_>,
    port: u16,
    rule: &DraftRule,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) {
    match selected.ports.get(&port) {
        None => scope.warn(
            at,
            format!("no workload that this policy selects has port {port}"),
            "write the port that the workload listens on, not its Service's",
        ),
        Some(Some(blind)) if rule.rule.http.is_some() => scope.error(
            at,
            format!(
                "no request can be seen on port {port} of LocalWorkload {}: {}",
                blind.workload,
                blind.because()
            ),
            SEE_NOTHING,
        ),
        Some(_) => {}
    }
}

/// A rule without ports applies to all of them; at an opaque one no request can be checked.
fn check_all_ports(
    selected: &Selected<'_>,
    action: PolicyAction,
    rule: &DraftRule,
    scope: &mut Scope<'_>,
) {
    let Some(blind) = selected.all_blind.or(selected.blind) else {
        return;
    };
    let Blind { workload, port, .. } = blind;
    let because = blind.because();
    let remedy = "name the ports that it is about in a list of ports";
    if action == PolicyAction::Deny {
        let reason = format!(
            "it would refuse everything on port {port} of LocalWorkload {workload}, where no \
             request can be seen: {because}"
        );
        scope.error(&rule.http_at, reason, remedy);
    } else if selected.all_blind.is_some() {
        let reason =
            format!("no request can be seen on any port of LocalWorkload {workload}: {because}");
        scope.error(&rule.http_at, reason, SEE_NOTHING);
    } else {
        let reason = format!(
            "it allows nothing on port {port} of LocalWorkload {workload}, where no request can \
             be seen: {because}"
        );
        scope.warn(&rule.http_at, reason, remedy);
    }
}
