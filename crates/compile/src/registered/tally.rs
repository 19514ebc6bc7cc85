//! Counts the registered providers: called, left out, and the reasons.

use std::collections::BTreeSet;
use std::sync::Arc;

use heddle_model::report::{Cause, Origin, Problem, Tally};
use heddle_model::{Mesh, WorkloadName};

use super::{Entry, ProviderKey, Providers, warning};

#[cfg(test)]
mod tests;

/// How many providers without a calling Service are reported one by one; of the others only the count is.
const MAX_TOLD: usize = 20;

/// Counts the outcome of `providers`. `problems` were found while compiling the mesh, in addition to those of single
/// values; `registered` are the workloads that were compiled. Without a mesh no provider is called. Also returns the
/// warnings about providers that no Service calls.
pub(crate) fn tally(
    providers: &Providers,
    problems: &[Problem],
    (mesh, registered): (Option<&Mesh>, &BTreeSet<WorkloadName>),
) -> (Tally, Vec<Problem>) {
    let mut tally = Tally {
        problems: providers.by_cause.clone(),
        ..Tally::default()
    };
    for cause in problems.iter().filter_map(|problem| problem.cause) {
        count(&mut tally, cause, 1);
    }
    let services = mesh.map_or(&[][..], |mesh| &mesh.services);
    let endpoints = services
        .iter()
        .flat_map(|service| &service.ports)
        .flat_map(|port| &port.endpoints);
    let called: BTreeSet<&WorkloadName> = endpoints
        .filter_map(|endpoint| endpoint.workload.as_ref())
        .collect();
    let is_here = |name: &WorkloadName| {
        let known = mesh.and_then(|mesh| mesh.workload(name));
        known.is_some() && registered.contains(name)
    };
    let mut uncalled = Vec::new();
    for entry in providers.entries.iter() {
        let name = entry.key.workload_name();
        let providing = tally.services.entry(entry.key.service_name());
        let providing = providing.or_default();
        providing.registered += 1;
        match name {
            Some(name) if is_here(&name) && called.contains(&name) => providing.called += 1,
            Some(name) if is_here(&name) => {
                uncalled.push(entry);
                tally.uncalled.insert(name);
            }
            _ => {}
        }
    }
    for key in &providers.wrong {
        let providing = tally.services.entry(key.service_name()).or_default();
        providing.registered += 1;
    }
    for problem in providers.problems.iter().chain(problems) {
        let name = provider(problem).and_then(|key| key.workload_name());
        // While the last valid value stays in use, the provider is not left out.
        if let Some(name) = name.filter(|name| !is_here(name)) {
            tally.left_out.insert(name, problem.reason.clone());
        }
    }
    count(&mut tally, Cause::Uncalled, uncalled.len());
    let said = mesh.map_or_else(Vec::new, |mesh| say_uncalled(&uncalled, mesh));
    (tally, said)
}

fn count(tally: &mut Tally, cause: Cause, more: usize) {
    if more > 0 {
        *tally.problems.entry(cause).or_default() += more;
    }
}

/// The provider that a problem leaves out, if any: the problem's origin is its key.
fn provider(problem: &Problem) -> Option<ProviderKey> {
    if matches!(problem.cause?, Cause::Key | Cause::Room | Cause::Uncalled) {
        return None;
    }
    let Origin::Etcd { key } = &problem.origin else {
        return None;
    };
    let mut parts = key.rsplit('/');
    let (provider, service, namespace) = (parts.next()?, parts.next()?, parts.next()?);
    ProviderKey::new(namespace, service, provider).ok()
}

/// Warns about each provider that no Service calls: its registration has no effect.
fn say_uncalled(uncalled: &[&Arc<Entry>], mesh: &Mesh) -> Vec<Problem> {
    let say = |entry: &Entry, reason: String| {
        let remedy = "register with labels that a Service selects, and the name that its targetPort has (--label, \
                      --port-name)";
        warning(&entry.origin, "", reason, remedy).because(Cause::Uncalled)
    };
    let (told, others) = uncalled.split_at(uncalled.len().min(MAX_TOLD));
    let told = told.iter().map(|entry| {
        let service = entry.key.service_name();
        let why = match mesh.service(&service) {
            Some(_) => format!("Service {service} selects other labels, or another port"),
            None => format!("there is no Service {service}, and no other one selects it"),
        };
        say(entry, format!("no Service calls it: {why}"))
    });
    let rest = others.first().map(|entry| {
        let reason = match others.len() - 1 {
            0 => "no Service calls it".to_owned(),
            more => format!("no Service calls it, nor {more} more"),
        };
        say(entry, reason)
    });
    told.chain(rest).collect()
}
