//! Makes a snapshot of a mesh from the one before.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use heddle_model::{
    AppProtocol, Class, Mesh, Service, ServiceName, ServicePort, Shared, WorkloadName,
};

use super::cluster::Cluster;
use super::compile::Compiler;
use super::known::{Known, Mark};
use super::names::{Names, PortIndex};
use super::notable::Notable;
use super::port::PortEntry;
use super::snapshot::Snapshot;
use super::source::{Changes, Source};
use super::{Addresses, Hosts};
use crate::authorize::{GuardedWorkloads, Guards};
use crate::permits::CalledShares;

/// Name of destinations outside of the mesh, in metrics and logs.
const OUTSIDE: &str = "external";

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// Names of the workloads whose work may wait.
fn offline(mesh: &Mesh) -> HashSet<Arc<str>> {
    let workloads = mesh.workloads.iter();
    let offline = workloads.filter(|workload| workload.qos.class == Class::Offline);
    offline
        .map(|workload| workload.name.to_string().into())
        .collect()
}

impl Snapshot {
    /// The snapshot of nothing.
    fn empty() -> Self {
        let outside = PortEntry::bare(OUTSIDE.into(), AppProtocol::Tcp);
        Snapshot {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            generation: 0,
            hosts: Hosts::default(),
            guards: Guards::default(),
            addresses: Addresses::default(),
            known: None,
            called: CalledShares::default(),
            ports: vec![Arc::new(outside)],
            names: Names::default(),
            notable: Notable::default(),
            used: [Mark::default()].into(),
            judged: HashSet::default(),
            offline: Arc::default(),
            source: Source::default(),
        }
    }

    /// Compiles a mesh. Its endpoints have no rooms.
    pub(crate) fn new(mesh: &Mesh) -> Self {
        Snapshot::empty().followed_by(mesh, |_, _, _| {})
    }

    /// Compiles what another mesh has changed. `furnish` gives rooms to the endpoints of each port that is compiled.
    pub(crate) fn followed_by(
        &self,
        mesh: &Mesh,
        furnish: impl FnMut(&Service, &ServicePort, &mut Cluster),
    ) -> Self {
        let source = Source::after(&self.source, mesh);
        let changes = source.changes(&self.source);
        let mut ports = Ports {
            all: self.ports.clone(),
            names: self.names.clone(),
            notable: self.notable.clone(),
        };
        ports.rename(mesh, &changes);
        ports.compile(mesh, &changes, furnish);
        let Ports {
            all: ports,
            names,
            notable,
        } = ports;
        let guarded = match changes.workloads {
            true => Arc::new(GuardedWorkloads::new(mesh)),
            false => Arc::clone(self.guards.workloads()),
        };
        let own = notable.with_workloads.iter();
        let own = own.filter_map(|index| ports[index.get()].written());
        let own = own.flat_map(|(_, port)| &port.endpoints);
        let all = mesh.services.iter().flat_map(|service| service.endpoints());
        let guards = Guards::new(guarded, own, all);
        let mut hosts = self.hosts.clone();
        for service in &changes.gone {
            hosts.remove(&service.name);
        }
        for service in &changes.new {
            hosts.add(&service.name);
        }
        hosts.fit();
        Snapshot {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            generation: mesh.generation,
            hosts,
            addresses: (self.addresses).followed_by(mesh, &changes, (&self.names, &names), &ports),
            known: Known::new(mesh),
            called: CalledShares::default(),
            used: ports.iter().map(|_| Mark::default()).collect(),
            judged: judged(&ports, &notable, &guards),
            guards,
            offline: match changes.workloads {
                true => Arc::new(offline(mesh)),
                false => Arc::clone(&self.offline),
            },
            ports,
            names,
            notable,
            source,
        }
    }

    /// Whether the snapshot has a port of that Service.
    pub(crate) fn has(&self, service: &ServiceName, port: u16) -> bool {
        self.find(service, port).is_some()
    }
}

/// The ports of a snapshot that is being made.
struct Ports {
    all: Vec<Arc<PortEntry>>,
    names: Names,
    notable: Notable,
}

impl Ports {
    /// Gives indices to the ports that are new, after those of the ports that are gone were taken from them.
    fn rename(&mut self, mesh: &Mesh, changes: &Changes<'_>) {
        fn named<'a>(
            services: &'a [&Shared<Service>],
        ) -> impl Iterator<Item = (&'a ServiceName, u16)> {
            services.iter().flat_map(|service| {
                let ports = service.ports.iter();
                ports.map(|port| (&service.name, port.port))
            })
        }
        let stay: HashSet<_, RandomState> = named(&changes.new).collect();
        let gone = named(&changes.gone).filter(|name| !stay.contains(name));
        let mut freed: Vec<PortIndex> = gone
            .filter_map(|(service, port)| self.names.remove(service, port))
            .collect();
        if changes.workloads {
            let workloads = mesh.workloads.iter();
            let workloads: BTreeSet<_> = workloads.map(|workload| &workload.name).collect();
            freed.extend(self.names.retain_workloads(|name| workloads.contains(name)));
        }
        // An entry that leads nowhere, for the indices that stay free.
        let nothing = Arc::new(PortEntry::bare("".into(), AppProtocol::Tcp));
        for index in freed {
            self.put(index, Arc::clone(&nothing));
        }
        for (service, port) in named(&changes.new) {
            self.names.add(service, port);
        }
        self.names.fit();
        let workloads = mesh.workloads.iter().filter(|_| changes.workloads);
        let workloads: Vec<(PortIndex, &WorkloadName)> = workloads
            .map(|workload| (self.names.add_workload(&workload.name), &workload.name))
            .collect();
        self.all.resize(self.names.end(), nothing);
        for (index, name) in workloads {
            let protocol = AppProtocol::Undeclared;
            let entry = PortEntry::bare(name.to_string().into(), protocol);
            self.put(index, Arc::new(entry));
        }
    }

    /// Compiles the ports that are new, and those whose rules lead elsewhere now.
    fn compile(
        &mut self,
        mesh: &Mesh,
        changes: &Changes<'_>,
        mut furnish: impl FnMut(&Service, &ServicePort, &mut Cluster),
    ) {
        let names = std::mem::take(&mut self.names);
        let compiler = Compiler {
            mesh,
            names: &names,
        };
        let mut compiled = |service: &Shared<Service>, port: &ServicePort| {
            let mut entry = compiler.port(service, port);
            furnish(service, port, &mut entry.cluster);
            Arc::new(entry)
        };
        for service in &changes.new {
            for port in &service.ports {
                if let Some(index) = names.find(&service.name, port.port) {
                    self.put(index, compiled(service, port));
                }
            }
        }
        let with_rules = self.notable.with_rules.iter();
        let elsewhere = with_rules.filter(|index| !compiler.holds(&self.all[index.get()]));
        for index in elsewhere.copied().collect::<Vec<_>>() {
            let before = Arc::clone(&self.all[index.get()]);
            if let Some((service, port)) = before.written() {
                self.put(index, compiled(service, port));
            }
        }
        self.names = names;
    }

    fn put(&mut self, index: PortIndex, entry: Arc<PortEntry>) {
        self.notable.note(index, &entry);
        self.all[index.get()] = entry;
    }
}

/// The ports whose requests can reach an endpoint with a policy that checks paths, through a rule's backend or
/// directly.
fn judged(
    ports: &[Arc<PortEntry>],
    notable: &Notable,
    guards: &Guards,
) -> HashSet<PortIndex, RandomState> {
    if !guards.any_looks_at_paths() {
        return HashSet::default();
    }
    let judges = |port: &PortEntry| {
        let mut endpoints = port.cluster.endpoints.iter();
        endpoints.any(|endpoint| guards.look_at_paths_before(endpoint.address))
    };
    let all = ports.iter().enumerate();
    let own = all.filter(|(_, port)| judges(port));
    let mut judged: HashSet<PortIndex, RandomState> =
        own.map(|(at, _)| PortIndex::at(at)).collect();
    let with_rules = notable.with_rules.iter();
    let by_backend = with_rules.filter(|index| {
        let mut targets = ports[index.get()].targets();
        targets.any(|target| judged.contains(&target))
    });
    let by_backend: Vec<PortIndex> = by_backend.copied().collect();
    judged.extend(by_backend);
    judged
}

#[cfg(test)]
mod tests;
