//! What a node knows that names what it uses: of anything else, nothing can be said.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::fast::RandomState;
use heddle_model::{Dependency, DependencyState, Mesh, ServiceName};

use super::{Found, PortIndex, Snapshot};

/// What the node has named, and what the control plane has said of it.
#[derive(Debug)]
pub(crate) struct Known(HashMap<Dependency, Named, RandomState>);

#[derive(Debug)]
struct Named {
    state: DependencyState,
    used: Mark,
}

/// Whether something was used since the last look. All Workers share it, so it is written only when it changes.
#[derive(Debug, Default)]
pub(crate) struct Mark(AtomicBool);

impl Mark {
    pub(crate) fn set(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

/// Why a dependency is not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The mesh does not have it.
    Absent,
    /// The node has not asked for it yet.
    Unasked(Dependency),
    /// The node cannot read what the control plane says of it.
    Unreadable,
}

impl Known {
    /// `None` if the mesh has everything.
    pub(super) fn new(mesh: &Mesh) -> Option<Self> {
        let named = mesh.named.as_ref()?.iter();
        let named = named.map(|(dependency, state)| {
            let named = Named {
                state: *state,
                used: Mark::default(),
            };
            (dependency.clone(), named)
        });
        Some(Known(named.collect()))
    }

    /// # Errors
    /// When nothing can be said of it.
    fn check(&self, dependency: Dependency) -> Result<DependencyState, Missing> {
        let Some(named) = self.0.get(&dependency) else {
            return Err(Missing::Unasked(dependency));
        };
        named.used.set();
        match named.state {
            DependencyState::Unreadable => Err(Missing::Unreadable),
            state => Ok(state),
        }
    }
}

impl Snapshot {
    /// What is at an address that a workload of this node has dialled.
    ///
    /// # Errors
    /// When it is not known. Own workloads and the Services of these, the cluster addresses of all Services that are known,
    /// and what is outside of the mesh's address ranges, cost no question.
    pub(crate) fn at(&self, address: SocketAddr) -> Result<Found<'_>, Missing> {
        let found = match (&self.known, self.addresses.is_settled(address.ip())) {
            (Some(known), false) => {
                // An address of no workload may still be a Service's.
                match known.check(Dependency::Address(address.ip())) {
                    Err(Missing::Unasked(_)) if self.addresses.is_outside(address.ip()) => {}
                    checked => drop(checked?),
                }
                self.addresses.find(address)
            }
            (Some(known), true) => {
                if let Some(named) = known.0.get(&Dependency::Address(address.ip())) {
                    named.used.set();
                }
                self.addresses.find(address)
            }
            (None, _) => self.addresses.find(address),
        };
        if let Found::Service(index) | Found::Endpoint(index) = found {
            self.mark_used(index);
        }
        Ok(found)
    }

    /// Why the mesh of this node has no such Service, or the Service no such port.
    pub(crate) fn missing(&self, service: &ServiceName) -> Missing {
        let known = self.known.as_ref().filter(|_| !self.hosts.has(service));
        let Some(known) = known else {
            return Missing::Absent;
        };
        match known.check(Dependency::Service(service.clone())) {
            Ok(_) => Missing::Absent,
            Err(missing) => missing,
        }
    }

    /// Whether something can be said of a dependency.
    pub(crate) fn knows(&self, dependency: &Dependency) -> bool {
        let known = self.known.as_ref();
        known.is_none_or(|known| known.0.contains_key(dependency))
            || match dependency {
                Dependency::Service(service) => self.hosts.has(service),
                Dependency::Address(address) => {
                    self.addresses.is_settled(*address) || self.addresses.is_outside(*address)
                }
            }
    }

    /// The named dependencies that were used since the last call.
    pub(crate) fn take_used(&self) -> BTreeSet<Dependency> {
        let Some(known) = &self.known else {
            return BTreeSet::new();
        };
        let ports = self.used.iter().enumerate();
        let ports = ports.filter(|(_, mark)| mark.take());
        let mut used = BTreeSet::new();
        for index in ports.map(|(at, _)| PortIndex::at(at)) {
            let Some((service, port)) = self.port(index).written() else {
                continue;
            };
            used.insert(Dependency::Service(service.name.clone()));
            let clusters = service.addresses.iter();
            let clusters = clusters.map(|address| SocketAddr::new(*address, port.port));
            let endpoints = port.endpoints.iter().map(|endpoint| endpoint.address);
            let addresses = clusters.chain(endpoints);
            let its = addresses.filter(|address| self.addresses.leads_to(*address, index));
            used.extend(its.map(|address| Dependency::Address(address.ip())));
        }
        used.retain(|dependency| known.0.contains_key(dependency));
        let named = known.0.iter().filter(|(_, named)| named.used.take());
        used.extend(named.map(|(dependency, _)| dependency.clone()));
        used
    }
}
