//! Changes of providers that need no compilation of everything: replicas come, change and go.
//!
//! Two providers are of one kind if nothing but name, addresses, node, weight and probes tells them apart. The same
//! Services and the same policies select all of a kind. So while there is one of it, what another one changes is known:
//! its workload, and its endpoints beside those of the first.
//!
//! Everything else is compiled as a whole: the first and the last provider of a kind, an address that something else
//! has, a provider that is at fault or about which there is something to say, and each change of the folder.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use heddle_model::report::{Cause, Origin, Problem, Report};
use heddle_model::{Endpoint, Mesh, ServiceName, Shared, Workload, WorkloadName};

use super::admit::{addresses, workload_name};
use super::{Entries, Entry, ProviderKey, Providers};
use crate::manifest::{Body, Object};
use crate::{Options, compile};

mod kind;

use kind::{Kind, Selected};

/// Above so many changes, and this part of the providers, compiling everything takes less time.
const MANY: usize = 64;
const MANY_OF: usize = 4;

/// A compiled mesh, with what is needed to follow replicas in it.
pub(crate) struct Replicas {
    mesh: Mesh,
    report: Report,
    /// What of the registry was compiled.
    entries: Entries,
    wrong: Wrong,
    kinds: HashMap<Kind, Members>,
    kind_of: HashMap<WorkloadName, Kind>,
    /// How many things have an address: workloads, EndpointSlices, and providers that are left out.
    addresses: HashMap<IpAddr, u32>,
    /// The number of endpoints of all Services.
    endpoints: usize,
}

/// What of the registry is not valid, and not compiled.
#[derive(PartialEq)]
struct Wrong {
    problems: Vec<Problem>,
    wrong: Vec<ProviderKey>,
    by_cause: BTreeMap<Cause, usize>,
}

impl Wrong {
    fn of(providers: &Providers) -> Self {
        Wrong {
            problems: providers.problems.clone(),
            wrong: providers.wrong.clone(),
            by_cause: providers.by_cause.clone(),
        }
    }

    fn is_of(&self, providers: &Providers) -> bool {
        self.problems == providers.problems
            && self.wrong == providers.wrong
            && self.by_cause == providers.by_cause
    }
}

/// The providers of one kind.
struct Members {
    /// The kind, as all of them have it: they share it.
    kind: Kind,
    names: BTreeSet<WorkloadName>,
    /// One of them, as it was compiled.
    example: Shared<Workload>,
    /// Its endpoints; `None` if not all of the Services that select it have it as an endpoint of each port.
    selected: Option<Vec<Selected>>,
}

/// What a compilation had, and what came of it.
pub(crate) struct Compilation<'c> {
    /// The folder's objects.
    pub(crate) objects: &'c [Arc<Object>],
    /// The providers beside them.
    pub(crate) registered: &'c [Object],
    pub(crate) providers: &'c Providers,
    pub(crate) mesh: &'c Mesh,
    pub(crate) report: &'c Report,
}

impl Replicas {
    /// Follows the replicas of a mesh in which there is no error.
    pub(crate) fn of(compilation: &Compilation<'_>) -> Self {
        let Compilation {
            objects,
            registered,
            providers,
            mesh,
            report,
        } = *compilation;
        let mut replicas = Replicas {
            mesh: mesh.clone(),
            report: report.clone(),
            entries: providers.entries.clone(),
            wrong: Wrong::of(providers),
            kinds: HashMap::new(),
            kind_of: HashMap::new(),
            addresses: HashMap::new(),
            endpoints: mesh
                .services
                .iter()
                .map(|one| one.endpoints().count())
                .sum(),
        };
        replicas.note_addresses(objects);
        let selectors = kind::Selectors::of(objects, mesh);
        for object in registered {
            let name = workload_name(object);
            let Some(example) = mesh.workloads.find(named(&name)) else {
                continue;
            };
            let Some(kind) = Kind::of(object) else {
                continue;
            };
            if !replicas.kinds.contains_key(&kind) {
                let members = Members {
                    kind: kind.clone(),
                    names: BTreeSet::new(),
                    selected: selectors.of_kind(&kind, mesh, example),
                    example: example.clone(),
                };
                replicas.kinds.insert(kind.clone(), members);
            }
            let Some(members) = replicas.kinds.get_mut(&kind) else {
                continue;
            };
            members.names.insert(name.clone());
            replicas.kind_of.insert(name, members.kind.clone());
        }
        replicas
    }

    /// The same, without problems that were found before anything was compiled.
    pub(crate) fn without(mut self, problems: &[Problem]) -> Self {
        self.report.problems.retain(|one| !problems.contains(one));
        self
    }

    /// The providers that are in the mesh.
    pub(crate) fn admitted(&self) -> Vec<Arc<Entry>> {
        let is_admitted = |entry: &&Arc<Entry>| {
            let name = entry.key.workload_name();
            name.is_some_and(|name| self.kind_of.contains_key(&name))
        };
        self.entries.iter().filter(is_admitted).cloned().collect()
    }

    /// Goes on to these providers.
    ///
    /// # Errors
    /// The providers that were in the mesh and stay, if everything has to be compiled.
    pub(crate) fn follow(
        mut self,
        providers: &Providers,
        base: &Path,
        options: &Options,
    ) -> Result<Self, Vec<Arc<Entry>>> {
        let before = std::mem::take(&mut self.entries);
        let followed = self.go_on(&before, providers, base, options);
        match followed {
            Some(()) => {
                self.entries = providers.entries.clone();
                Ok(self)
            }
            None => {
                self.entries = before;
                Err(self.admitted())
            }
        }
    }

    fn go_on(
        &mut self,
        before: &Entries,
        providers: &Providers,
        base: &Path,
        options: &Options,
    ) -> Option<()> {
        if !self.wrong.is_of(providers) {
            return None;
        }
        let changes = before.differences(&providers.entries);
        if changes.len() > MANY.max(providers.entries.len() / MANY_OF) {
            return None;
        }
        let mut touched = Touched::default();
        // An address may go from one provider to another.
        for old in changes.iter().filter_map(|(old, _)| old.as_ref()) {
            self.remove(old, base, options, &mut touched)?;
        }
        for new in changes.iter().filter_map(|(_, new)| new.as_ref()) {
            self.add(new, base, options, &mut touched)?;
        }
        let is_left = |kind: &Kind| {
            self.kinds
                .get(kind)
                .is_some_and(|one| !one.names.is_empty())
        };
        if !touched.kinds.iter().all(is_left) {
            return None;
        }
        self.put_counts(&touched)?;
        self.put_services(touched)
    }

    /// The mesh, and what is to be said of it.
    pub(crate) fn compiled(&self) -> (Mesh, Report) {
        (self.mesh.clone(), self.report.clone())
    }

    /// Notes who has which address, apart from Services, whose addresses are their own.
    fn note_addresses(&mut self, objects: &[Arc<Object>]) {
        let of_mesh = self.mesh.workloads.iter();
        let of_mesh = of_mesh.flat_map(|workload| workload.all_addresses());
        for address in of_mesh.collect::<Vec<_>>() {
            *self.addresses.entry(address).or_default() += 1;
        }
        // Those of the folder count twice, which is as well: they never become free.
        for object in objects {
            let written: Vec<IpAddr> = match &object.body {
                Body::LocalWorkload(_) => addresses(object).collect(),
                Body::ClosedWorkload(closed) => {
                    let sockets = closed.sockets.iter().map(std::net::SocketAddr::ip);
                    closed.addresses.iter().copied().chain(sockets).collect()
                }
                Body::EndpointSlice(slice) => {
                    let texts = slice.endpoints.iter().flat_map(|one| &one.addresses);
                    texts.filter_map(|text| text.parse().ok()).collect()
                }
                _ => continue,
            };
            for address in written {
                *self.addresses.entry(address).or_default() += 1;
            }
        }
        // What is left out may fit when an address becomes free.
        for entry in self.entries.iter() {
            let name = entry.key.workload_name();
            if name.is_some_and(|name| self.mesh.workload(&name).is_some()) {
                continue;
            }
            for address in entry.object().iter().flat_map(addresses) {
                *self.addresses.entry(address).or_default() += 1;
            }
        }
    }

    fn remove(
        &mut self,
        old: &Entry,
        base: &Path,
        options: &Options,
        touched: &mut Touched,
    ) -> Option<()> {
        let name = old.key.workload_name()?;
        let kind = self.kind_of.remove(&name)?;
        // What was said of it would stay.
        if self.is_mentioned(&old.origin, &name) {
            return None;
        }
        if self.report.omitted > 0 {
            compile::workload_alone(&old.object().ok()?, base, options)?;
        }
        let workload = self.mesh.workloads.remove(named(&name))?;
        for address in workload.all_addresses() {
            let holders = self.addresses.get_mut(&address)?;
            *holders = holders.checked_sub(1)?;
            if *holders > 0 {
                return None;
            }
            self.addresses.remove(&address);
        }
        let members = self.kinds.get_mut(&kind)?;
        members.names.remove(&name);
        let selected = members.selected.as_ref().filter(|some| !some.is_empty())?;
        for of in selected {
            let service = touched.service(of.service, &self.mesh)?;
            service.removed.insert(name.clone());
        }
        self.report.addresses.written = self.report.addresses.written.checked_sub(1)?;
        touched.count(name, old.key.service_name(), -1);
        touched.kinds.insert(kind);
        Some(())
    }

    fn add(
        &mut self,
        new: &Entry,
        base: &Path,
        options: &Options,
        touched: &mut Touched,
    ) -> Option<()> {
        let name = new.key.workload_name()?;
        if self.mesh.workload(&name).is_some() {
            return None;
        }
        let object = new.object().ok()?;
        let kind = Kind::of(&object)?;
        let members = self.kinds.get_mut(&kind)?;
        let example = &members.example;
        let workload = Workload {
            labels: example.labels.clone(),
            service_account: example.service_account.clone(),
            mode: example.mode,
            policies: example.policies.clone(),
            ..compile::workload_alone(&object, base, options)?
        };
        for address in workload.all_addresses() {
            if self.addresses.insert(address, 1).is_some() {
                return None;
            }
        }
        let selected = members.selected.as_ref().filter(|some| !some.is_empty())?;
        for of in selected {
            let service = touched.service(of.service, &self.mesh)?;
            let endpoints = of.endpoints.iter();
            service.added.extend(endpoints.map(|(port, like)| {
                let mut address = like.address;
                address.set_ip(workload.address);
                let endpoint = Endpoint {
                    address,
                    weight: workload.weight,
                    workload: Some(name.clone()),
                    node: workload.node.clone(),
                    ..like.clone()
                };
                (*port, endpoint)
            }));
        }
        members.names.insert(name.clone());
        self.mesh.put_workload(workload.into());
        self.report.addresses.written += 1;
        touched.count(name.clone(), new.key.service_name(), 1);
        self.kind_of.insert(name, members.kind.clone());
        touched.kinds.insert(members.kind.clone());
        Some(())
    }

    /// Whether a problem is one of the workload, or names it.
    fn is_mentioned(&self, origin: &Origin, name: &WorkloadName) -> bool {
        let name = name.name.as_str();
        let names = |text: &str| text.contains(name);
        let problems = &mut self.report.problems.iter();
        problems.any(|one| one.origin == *origin || names(&one.reason) || names(&one.remedy))
    }

    /// Counts the providers that have come or gone. One that has another value has not: copies of what the report lists,
    /// which readers of the last report share, are only made where the list changes.
    fn put_counts(&mut self, touched: &Touched) -> Option<()> {
        for (name, by) in touched.names.iter().filter(|(_, by)| **by != 0) {
            match *by > 0 {
                true => self.report.registered.insert(name.clone()),
                false => self.report.registered.remove(name),
            };
        }
        for (service, by) in touched.providing.iter().filter(|(_, by)| **by != 0) {
            let services = &mut self.report.registry.services;
            let providing = services.entry(service.clone()).or_default();
            providing.registered = providing.registered.checked_add_signed(*by)?;
            providing.called = providing.called.checked_add_signed(*by)?;
            if providing.registered == 0 {
                services.remove(service);
            }
        }
        Some(())
    }

    fn put_services(&mut self, touched: Touched) -> Option<()> {
        for (index, changed) in touched.services {
            let service = self.mesh.services.get_mut(index)?;
            let before = service.endpoints().count();
            for port in &mut service.ports {
                port.endpoints.retain(|one| {
                    let is_gone = |name| changed.removed.contains(name);
                    !one.workload.as_ref().is_some_and(is_gone)
                });
            }
            for (port, endpoint) in changed.added {
                let endpoints = &mut service.ports.get_mut(port)?.endpoints;
                let at = endpoints.binary_search_by_key(&endpoint.address, |one| one.address);
                endpoints.insert(at.err()?, endpoint);
            }
            self.endpoints = self.endpoints - before + service.endpoints().count();
        }
        (self.endpoints <= compile::MAX_ENDPOINTS).then_some(())
    }
}

/// What some changes concern.
#[derive(Default)]
struct Touched {
    kinds: BTreeSet<Kind>,
    /// By their place in the mesh.
    services: BTreeMap<usize, ChangedService>,
    /// Providers: 1 for one that has come, -1 for one that is gone, 0 for one that has another value.
    names: BTreeMap<WorkloadName, isize>,
    /// By how much the number of a Service's providers has changed.
    providing: BTreeMap<ServiceName, isize>,
}

#[derive(Default)]
struct ChangedService {
    removed: BTreeSet<WorkloadName>,
    /// With the place of the port.
    added: Vec<(usize, Endpoint)>,
}

impl Touched {
    fn service(&mut self, index: usize, mesh: &Mesh) -> Option<&mut ChangedService> {
        mesh.services.get(index)?;
        Some(self.services.entry(index).or_default())
    }

    fn count(&mut self, name: WorkloadName, service: ServiceName, by: isize) {
        *self.names.entry(name).or_default() += by;
        *self.providing.entry(service).or_default() += by;
    }
}

/// Compares workloads with one of this name.
fn named(name: &WorkloadName) -> impl Fn(&Shared<Workload>) -> Ordering + '_ {
    |workload| workload.name.cmp(name)
}
