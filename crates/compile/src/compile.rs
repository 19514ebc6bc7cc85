//! Compiles objects into a mesh.
//!
//! Everything that needs more than one object happens here: the workloads of a selector, the targets of references, the
//! precedence of rules. The order follows from the dependencies: [`index`] (every object once), [`workload`],
//! [`service`] (ports and endpoints), [`cluster_ip`], [`policy`] (which makes some ports HTTP), then [`route`] and its
//! parts, and last [`attach`], which orders rules and puts them on ports.
//!
//! Compilation never stops early, so that one run reports every problem. The resulting mesh is valid only if the report
//! holds no error.

use std::net::IpAddr;
use std::path::Path;

use heddle_model::report::Cause;
use heddle_model::report::Severity;
use heddle_model::{Forwarding, Mesh, Name, Namespace, ServiceName, Shared, Workload};

use crate::Options;
use crate::check::Flaw;
use crate::findings::Findings;
use crate::manifest::node::FieldPath;
use crate::manifest::{Kind, Object, Written};

mod attach;
mod backend;
mod balancing;
mod cluster_ip;
mod context;
mod endpoint;
mod filter;
mod gateways;
pub(crate) mod index;
mod matcher;
mod mode;
mod parent;
mod policy;
mod precedence;
mod probe;
mod protocol;
mod proxy;
mod qos;
mod route;
mod selector;
mod service;
mod slice;
mod workload;

#[cfg(test)]
mod tests;

use index::Index;
pub(crate) use policy::Pins;
pub(crate) use service::MAX_ENDPOINTS;

/// The remedy for an address outside of the mesh's ranges.
pub(crate) const OTHER_RANGES: &str =
    "take an address in them, or widen mesh.address_ranges in the settings";

/// Compiles objects. Those of the folder `base` may name files relative to it. Policies concern the workloads that are
/// pinned to them, whatever they select.
pub(crate) fn compile(
    objects: &[&Object],
    base: &Path,
    options: &Options,
    pins: &Pins,
    findings: &mut Findings,
) -> Mesh {
    let index = Index::build(objects, findings);
    let mut workloads = workload::compile(&index, base, options, findings);
    gateways::check(&index, &workloads, findings);
    let mut services = service::compile(&index, &workloads, options, findings);
    cluster_ip::compile(&index, &mut services, options, findings);
    let trust_domain = &options.trust_domain;
    let policies = policy::compile(
        &index,
        &mut workloads,
        &mut services,
        (trust_domain, pins),
        findings,
    );
    let routes = route::compile(&index, &services, findings);
    attach::attach(&mut services, &routes, base, findings);
    let mut mesh = Mesh {
        generation: 1,
        trust_domain: trust_domain.clone(),
        nodes: Vec::new(),
        services: services.into_iter().map(Shared::from).collect(),
        workloads: workloads.into_iter().map(Shared::from).collect(),
        policies,
        elsewhere: Vec::new(),
        further: Vec::new(),
        address_ranges: options.address_ranges.clone(),
        forwarding: Shared::default(),
        judged: Shared::default(),
        unreadable: Vec::new(),
        named: None,
    };
    mesh.forwarding = Forwarding::of(&mesh, index.gateways.keys().cloned()).into();
    mesh
}

/// The first fault of a workload compiled alone, with its account added, so that a missing account is not one.
pub(crate) fn flaw_of_workload(
    workload: &Object,
    options: &Options,
) -> Option<heddle_model::report::Problem> {
    let (_, findings) = alone(workload, Path::new("/"), options);
    let mut problems = findings.report.problems.into_iter();
    problems.find(|problem| problem.severity == Severity::Error)
}

/// A workload compiled alone, as [`flaw_of_workload`] does it; `None` if there is anything to say about it. Without
/// policies, and in the mode of a namespace that sets none.
pub(crate) fn workload_alone(object: &Object, base: &Path, options: &Options) -> Option<Workload> {
    let (mut compiled, findings) = alone(object, base, options);
    let is_all = findings.report.problems.is_empty() && compiled.len() == 1;
    compiled.pop().filter(|_| is_all)
}

fn alone(workload: &Object, base: &Path, options: &Options) -> (Vec<Workload>, Findings) {
    let account = workload.account();
    let objects: Vec<&Object> = account.iter().chain([workload]).collect();
    let mut findings = Findings::default();
    let index = Index::build(&objects, &mut findings);
    let compiled = workload::compile(&index, base, options, &mut findings);
    (compiled, findings)
}

/// An object being checked: reports problems with its fields.
struct Scope<'a> {
    written: &'a Written,
    findings: &'a mut Findings,
}

impl<'a> Scope<'a> {
    fn of(object: &'a Object, findings: &'a mut Findings) -> Self {
        Self {
            written: &object.written,
            findings,
        }
    }

    /// Checks that an address is one that the mesh may have.
    fn within(&mut self, path: &FieldPath, address: IpAddr, options: &Options) -> Option<IpAddr> {
        let Some(reason) = options.outside(address) else {
            return Some(address);
        };
        self.error(path, reason, OTHER_RANGES);
        None
    }

    fn error(&mut self, path: &FieldPath, reason: impl Into<String>, remedy: impl Into<String>) {
        self.push(Severity::Error, path, reason.into(), remedy.into());
    }

    fn warn(&mut self, path: &FieldPath, reason: impl Into<String>, remedy: impl Into<String>) {
        self.push(Severity::Warning, path, reason.into(), remedy.into());
    }

    /// Blames another object, too, for the errors since there were `before`: they may be its faults.
    fn blame_too(&mut self, other: &Object, before: usize) {
        if self.findings.report.errors() > before {
            self.findings.blamed.insert(other.written.id());
        }
    }

    /// Reports that a registered provider is left out.
    fn leave_out(&mut self, cause: Cause, path: &FieldPath, reason: &str, remedy: &str) {
        let (reason, remedy) = (reason.to_owned(), remedy.to_owned());
        let problem = self
            .written
            .problem(Severity::Warning, path, reason, remedy);
        self.findings.push(problem.because(cause));
    }

    fn push(&mut self, severity: Severity, path: &FieldPath, reason: String, remedy: String) {
        let problem = self.written.problem(severity, path, reason, remedy);
        match severity {
            Severity::Error => {
                let (key, id) = (&self.written.key, self.written.id());
                self.findings.blame(key, id, problem);
            }
            Severity::Warning => self.findings.push(problem),
        }
    }

    /// Whether an object of that name exists but has errors: then it is not reported as missing.
    fn is_refused(&self, kind: Kind, namespace: &Namespace, name: &Name) -> bool {
        self.findings
            .refused
            .has(kind, namespace.as_str(), name.as_str())
    }

    /// Whether any object of that kind and namespace exists but has errors.
    fn is_any_refused(&self, kind: Kind, namespace: &Namespace) -> bool {
        self.findings.refused.has_any(kind, namespace.as_str())
    }

    /// The checked value, or `None` and an error with the field at `path`.
    fn check<T>(&mut self, path: &FieldPath, checked: Result<T, Flaw>) -> Option<T> {
        match checked {
            Ok(value) => Some(value),
            Err(flaw) => {
                self.error(path, flaw.reason, flaw.remedy);
                None
            }
        }
    }

    /// The items of a list up to the API's limit; an error when there are more.
    ///
    /// Further items are not checked, so that pairwise comparisons stay bounded.
    fn at_most<'t, T>(&mut self, path: &FieldPath, items: &'t [T], most: usize) -> &'t [T] {
        if items.len() > most {
            let reason = format!("there are {} items", items.len());
            self.error(path, reason, format!("the API takes {most}"));
        }
        items.get(..most).unwrap_or(items)
    }
}

/// Limit of names compared with one that is not found.
const MAX_CANDIDATES: usize = 1_000;

/// The remedy for a missing Service: one of that name may be in another namespace, or one of a similar name in this
/// one. `how` says what to do in the first case.
fn find_service<'a>(
    wanted: &ServiceName,
    known: impl Iterator<Item = &'a ServiceName> + Clone,
    how: impl FnOnce(&ServiceName) -> String,
) -> String {
    let elsewhere = known.clone().find(|known| known.name == wanted.name);
    if let Some(elsewhere) = elsewhere {
        return format!("there is {elsewhere}: {}", how(elsewhere));
    }
    let here = known.filter(|known| known.namespace == wanted.namespace);
    let names = here.map(|known| known.name.as_str());
    did_you_mean(wanted.name.as_str(), names, "add the Service")
}

/// How a route's reference names a Service of another namespace.
fn name_namespace(written: Option<&str>) -> impl FnOnce(&ServiceName) -> String {
    let is_written = written.is_some_and(|namespace| !namespace.is_empty());
    move |elsewhere| match is_written {
        true => format!("write namespace: {} here", elsewhere.namespace),
        false => format!(
            "write namespace: {} in the route's metadata, or here",
            elsewhere.namespace
        ),
    }
}

/// `did you mean x?` if a candidate is similar, or else another remedy.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    otherwise: &str,
) -> String {
    crate::manifest::suggest::nearest(word, candidates.into_iter().take(MAX_CANDIDATES))
        .map_or_else(
            || otherwise.to_owned(),
            |meant| format!("did you mean {meant}?"),
        )
}
