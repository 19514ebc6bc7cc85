//! Selects workloads by labels, and finds them by address.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use heddle_model::{Namespace, Workload, WorkloadName};

use super::MAX_CANDIDATES;

/// Workloads by each of their labels, so that a selector evaluates only those with its rarest label.
pub(super) struct Selectable<'w> {
    all: &'w [Workload],
    by_label: BTreeMap<(&'w Namespace, &'w str, &'w str), Vec<&'w Workload>>,
}

impl<'w> Selectable<'w> {
    pub(super) fn new(workloads: &'w [Workload]) -> Self {
        let mut by_label: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for workload in workloads {
            for (key, value) in workload.labels.iter() {
                let label = (&workload.name.namespace, key.as_str(), value.as_str());
                by_label.entry(label).or_default().push(workload);
            }
        }
        Self {
            all: workloads,
            by_label,
        }
    }

    /// A workload of another namespace, among the first few, that has every label of the selector.
    pub(super) fn elsewhere(
        &self,
        namespace: &Namespace,
        selector: &BTreeMap<String, String>,
    ) -> Option<&'w WorkloadName> {
        self.all
            .iter()
            .take(MAX_CANDIDATES)
            .filter(|workload| workload.name.namespace != *namespace)
            .find(|workload| has_all(workload, selector))
            .map(|workload| &workload.name)
    }

    /// The workloads of a namespace that have every label of the selector, by name; none for an empty selector, as in
    /// Kubernetes.
    pub(super) fn select(
        &self,
        namespace: &Namespace,
        selector: &BTreeMap<String, String>,
    ) -> Vec<&'w Workload> {
        let rarest = selector
            .iter()
            .map(|(key, value)| {
                let label = (namespace, key.as_str(), value.as_str());
                self.by_label.get(&label).map_or(&[][..], Vec::as_slice)
            })
            .min_by_key(|workloads| workloads.len());
        rarest
            .unwrap_or_default()
            .iter()
            .filter(|workload| has_all(workload, selector))
            .copied()
            .collect()
    }
}

/// Workloads by their addresses.
///
/// Workloads of the folder and registered ones are separate: a registered one neither claims an address of the folder
/// nor makes its owner ambiguous.
pub(super) struct Owners<'w> {
    by_port: BTreeMap<SocketAddr, &'w Workload>,
    /// `None` if several workloads share the address.
    by_address: BTreeMap<IpAddr, Option<&'w Workload>>,
    /// Registered workloads, only by the sockets that they registered.
    registered: BTreeMap<SocketAddr, &'w Workload>,
}

impl<'w> Owners<'w> {
    pub(super) fn new(
        workloads: &'w [Workload],
        is_registered: impl Fn(&WorkloadName) -> bool,
    ) -> Self {
        let mut owners = Self {
            by_port: BTreeMap::new(),
            by_address: BTreeMap::new(),
            registered: BTreeMap::new(),
        };
        for workload in workloads {
            let is_registered = is_registered(&workload.name);
            for address in workload.all_addresses() {
                if !is_registered {
                    owners
                        .by_address
                        .entry(address)
                        .and_modify(|owner| *owner = None)
                        .or_insert(Some(workload));
                }
                let declared = match is_registered {
                    true => &mut owners.registered,
                    false => &mut owners.by_port,
                };
                for port in &workload.ports {
                    declared.insert(SocketAddr::new(address, port.port), workload);
                }
            }
        }
        owners
    }

    /// The workload of the folder, or else the registered one, that declares this port of its address.
    pub(super) fn declaring(&self, address: SocketAddr) -> Option<&'w Workload> {
        let declaring = self.by_port.get(&address);
        declaring.or_else(|| self.registered.get(&address)).copied()
    }

    /// The folder's workload at this socket: the one that declares it, or the only one with that address. All workloads
    /// share loopback addresses, so there an undeclared port has no owner.
    pub(super) fn of(&self, address: SocketAddr) -> Option<&'w Workload> {
        let only = || {
            let owner = self.by_address.get(&address.ip()).copied().flatten();
            owner.filter(|_| !address.ip().is_loopback())
        };
        self.by_port.get(&address).copied().or_else(only)
    }
}

fn has_all(workload: &Workload, selector: &BTreeMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(k, v)| workload.labels.get(k) == Some(v))
}
