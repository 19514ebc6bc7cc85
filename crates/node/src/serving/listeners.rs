//! The listeners that are open, and how they follow the mesh.
//!
//! A listener is opened when its Service appears and closed when it disappears. All others stay as they are, so a
//! change of routes does not affect connections. A listener that could not be opened is retried with the next change
//! and every few seconds.

#[cfg(test)]
mod tests;

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use heddle_model::{AppProtocol, Mesh, ServiceName, Workload, WorkloadName};

use super::addresses::{Addresses, Slot};
use super::bind::{BindError, Bound, Instead, bind};
use crate::status::{ListenerKind, ListenerStatus};

/// Port of every forward proxy: Squid's default, which people know.
pub(crate) const FORWARD_PROXY_PORT: u16 = 3_128;
/// Up to this many exchanged addresses are logged one by one; above it, only the first and the number.
const LOGGED_EXCHANGES: usize = 3;
/// Most other addresses that are tried for a slot with each change.
const TRIES: usize = 8;

/// Listeners to open and close at the proxy.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// New listeners with their numbers.
    pub(crate) open: Vec<(u64, TcpListener, ListenerSpec)>,
    /// Numbers of listeners that are no longer wanted.
    pub(crate) close: Vec<u64>,
    /// Problems, one line each.
    pub(crate) problems: Vec<String>,
    /// Listeners that failed for want of a descriptor; all of them are reported as one problem.
    exhausted: usize,
    /// Addresses in use by another process, and their replacement, one line each.
    exchanged: Vec<String>,
}

/// One listener that the mesh wants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListenerSpec {
    pub(crate) slot: Slot,
    /// The Service's port, or [`FORWARD_PROXY_PORT`].
    pub(crate) port: u16,
}

/// Upper bounds on the number of listeners.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    /// The setting `listeners.max`.
    pub(crate) set: usize,
    /// What the limit of open files allows.
    pub(crate) descriptors: usize,
}

impl Most {
    fn get(self) -> usize {
        self.set.min(self.descriptors)
    }

    /// Names the bound that applies.
    fn reason(self) -> String {
        if self.set <= self.descriptors {
            format!("listeners.max is {}", self.set)
        } else {
            format!(
                "the open files suffice for {} (raise ulimit -n)",
                self.descriptors
            )
        }
    }
}

#[derive(Debug)]
struct Open {
    id: u64,
    address: SocketAddr,
}

/// All listeners of the process.
#[derive(Debug)]
pub(crate) struct Listeners {
    most: Most,
    addresses: Addresses,
    open: BTreeMap<ListenerSpec, Open>,
    next_id: u64,
    /// Workloads that are called, but do not call from this machine.
    called_only: BTreeSet<WorkloadName>,
}

impl Listeners {
    /// Starts without listeners; there are never more than `most`.
    pub(crate) fn new(most: Most) -> Self {
        Listeners {
            most,
            addresses: Addresses::default(),
            open: BTreeMap::new(),
            next_id: 1,
            called_only: BTreeSet::new(),
        }
    }

    /// From the next mesh on, these workloads get no listeners of their own: no local program calls as one of them.
    pub(crate) fn only_call(&mut self, workloads: BTreeSet<WorkloadName>) {
        self.called_only = workloads;
    }

    /// Opens the listeners that the mesh wants, and closes those that it no longer wants.
    pub(crate) fn follow(&mut self, mesh: &Mesh) -> Changes {
        let mut changes = Changes::default();
        let count = count(mesh, &self.called_only);
        if count > self.most.get() {
            changes.problems.push(format!(
                "{count} listeners are wanted but {}: Services that speak HTTP are reachable through \
                 the forward proxies, and by address as far as the bound allows",
                self.most.reason()
            ));
        }
        let own = own_proxy_addresses(mesh);
        let wanted = by_slot(wanted(mesh, &self.called_only).take(self.most.get()));
        self.close_unwanted(&wanted, &own, &mut changes);

        let planned: BTreeSet<Slot> = wanted
            .keys()
            .filter(|slot| !own.contains_key(slot))
            .cloned()
            .collect();
        // Of interest only for a slot that is new: a mesh may have many thousand endpoints.
        let reserved = LazyCell::new(|| reserved(mesh));
        let reserved = || &*reserved;
        self.addresses.update(&planned, reserved);
        for (slot, ports) in &wanted {
            match own.get(slot) {
                Some(address) => self.open_at(slot, ports, *address, &mut changes),
                None => self.open_planned(slot, ports, reserved, &mut changes),
            }
        }
        if changes.exhausted > 0 {
            changes.problems.push(format!(
                "{} listeners are not open: no descriptor is left (raise ulimit -n)",
                changes.exhausted
            ));
        }
        for line in in_brief(&changes.exchanged) {
            tracing::warn!("{line}");
        }
        changes
    }

    /// Every open listener, Services first, with the protocol of its port.
    pub(crate) fn status(&self, mesh: &Mesh) -> Vec<ListenerStatus> {
        self.open
            .iter()
            .map(|(entry, open)| status(entry, open.address, mesh))
            .collect()
    }

    fn close_unwanted(
        &mut self,
        wanted: &BTreeMap<Slot, BTreeSet<u16>>,
        own: &BTreeMap<Slot, IpAddr>,
        changes: &mut Changes,
    ) {
        self.open.retain(|entry, open| {
            let stays = wanted.get(&entry.slot).is_some_and(|ports| ports.contains(&entry.port))
                // A forward proxy follows its workload to a new address.
                && own.get(&entry.slot).is_none_or(|address| *address == open.address.ip());
            if !stays {
                changes.close.push(open.id);
            }
            stays
        });
    }

    /// All ports of a slot share one address. While none of them is open, an address that is in use elsewhere is
    /// replaced by the next candidate. If all candidates are in use (a process listens on that port at every address),
    /// another port is used.
    fn open_planned<'r>(
        &mut self,
        slot: &Slot,
        ports: &BTreeSet<u16>,
        reserved: impl Fn() -> &'r BTreeSet<Ipv4Addr>,
        changes: &mut Changes,
    ) {
        let missing = self.missing(slot, ports);
        let mut tries = if missing.len() == ports.len() {
            TRIES
        } else {
            0
        };
        let Some(mut address) = self.addresses.get(slot) else {
            changes
                .problems
                .push(format!("no loopback address is left for {slot}"));
            return;
        };
        let mut first_in_use = None;
        loop {
            let bound = bind_all(
                address.into(),
                &missing,
                if tries == 0 {
                    Instead::WhenInUse
                } else {
                    Instead::WhenDenied
                },
            );
            let in_use = bound.iter().find_map(|(_, bound)| match bound {
                Err(BindError::InUse(at)) => Some(*at),
                _ => None,
            });
            let next = in_use
                .filter(|_| tries > 0)
                .and_then(|_| self.addresses.move_away(slot, reserved()));
            let (Some(at), Some(next)) = (in_use, next) else {
                // One line with the final address, however many were tried.
                if let (Some(first), Some(now)) = (first_in_use, first_open(&bound)) {
                    changes.exchanged.push(format!(
                        "{first} is in use by another process: {slot} is at {now}"
                    ));
                }
                self.keep(slot, bound, changes);
                return;
            };
            first_in_use = first_in_use.or(Some(at));
            address = next;
            tries -= 1;
        }
    }

    fn open_at(
        &mut self,
        slot: &Slot,
        ports: &BTreeSet<u16>,
        address: IpAddr,
        changes: &mut Changes,
    ) {
        let missing = self.missing(slot, ports);
        let bound = bind_all(address, &missing, Instead::WhenInUse);
        self.keep(slot, bound, changes);
    }

    fn keep(&mut self, slot: &Slot, bound: Vec<(u16, Bound)>, changes: &mut Changes) {
        for (port, bound) in bound {
            match bound {
                Ok((socket, address)) => {
                    let entry = ListenerSpec {
                        slot: slot.clone(),
                        port,
                    };
                    let id = self.next_id;
                    self.next_id += 1;
                    self.open.insert(entry.clone(), Open { id, address });
                    changes.open.push((id, socket, entry));
                }
                Err(error) if error.is_exhausted() => changes.exhausted += 1,
                Err(error) => changes.problems.push(format!("{slot}: {error}")),
            }
        }
    }

    fn missing(&self, slot: &Slot, ports: &BTreeSet<u16>) -> Vec<u16> {
        ports
            .iter()
            .copied()
            .filter(|port| !self.is_open(slot, *port))
            .collect()
    }

    fn is_open(&self, slot: &Slot, port: u16) -> bool {
        self.open.contains_key(&ListenerSpec {
            slot: slot.clone(),
            port,
        })
    }
}

/// A second heddle with the same names finds every address in use: this is reported in one line.
fn in_brief(exchanged: &[String]) -> Vec<String> {
    match exchanged {
        [first, ..] if exchanged.len() > LOGGED_EXCHANGES => vec![format!(
            "{} addresses are in use by another process, most likely another heddle that serves the \
             same names; `heddle status` shows those used instead. The first: {first}",
            exchanged.len()
        )],
        few => few.to_vec(),
    }
}

fn first_open(bound: &[(u16, Bound)]) -> Option<SocketAddr> {
    bound
        .iter()
        .find_map(|(_, bound)| bound.as_ref().ok().map(|(_, address)| *address))
}

fn bind_all(address: IpAddr, ports: &[u16], instead: Instead) -> Vec<(u16, Bound)> {
    ports
        .iter()
        .map(|port| (*port, bind(SocketAddr::new(address, *port), instead)))
        .collect()
}

/// How many listeners the mesh wants.
pub(super) fn count(mesh: &Mesh, called_only: &BTreeSet<WorkloadName>) -> usize {
    let ports = mesh.services.iter().map(|service| service.ports.len());
    let ports: usize = ports.sum();
    let callers = calling(mesh, called_only).count();
    callers + (callers + 1) * ports
}

/// The workloads that call from this machine, without those that call through an Envoy of their own.
fn calling<'m>(
    mesh: &'m Mesh,
    called_only: &'m BTreeSet<WorkloadName>,
) -> impl Iterator<Item = &'m WorkloadName> + Clone {
    let served = mesh.workloads.iter();
    let served = served.filter(|workload| !workload.proxy.is_envoy());
    let names = served.map(|workload| &workload.name);
    names.filter(|name| !called_only.contains(*name))
}

/// Every listener that the mesh wants, most important first: the last ones are dropped when there are too many. Forward
/// proxies come first, since they reach all HTTP Services; then addresses for all callers; then those of single
/// callers, which are the most.
fn wanted<'m>(
    mesh: &'m Mesh,
    called_only: &'m BTreeSet<WorkloadName>,
) -> impl Iterator<Item = ListenerSpec> + 'm {
    let calling = calling(mesh, called_only);
    let forward = calling.clone().map(|caller| ListenerSpec {
        slot: Slot::ForwardProxy {
            caller: caller.clone(),
        },
        port: FORWARD_PROXY_PORT,
    });
    let callers = calling.map(|caller| Some(caller.clone()));
    let services = [None].into_iter().chain(callers).flat_map(|caller| {
        mesh.services.iter().flat_map(move |service| {
            let slot = Slot::Service {
                service: service.name.clone(),
                caller: caller.clone(),
            };
            service.ports.iter().map(move |port| ListenerSpec {
                slot: slot.clone(),
                port: port.port,
            })
        })
    });
    forward.chain(services)
}

fn by_slot(entries: impl Iterator<Item = ListenerSpec>) -> BTreeMap<Slot, BTreeSet<u16>> {
    let mut slots: BTreeMap<Slot, BTreeSet<u16>> = BTreeMap::new();
    for entry in entries {
        slots.entry(entry.slot).or_default().insert(entry.port);
    }
    slots
}

/// Forward proxies that listen at their workload's own address: a loopback address that no other workload has, and not
/// 127.0.0.1, where another program may well use port 3128.
fn own_proxy_addresses(mesh: &Mesh) -> BTreeMap<Slot, IpAddr> {
    let mut at: BTreeMap<IpAddr, Vec<&Workload>> = BTreeMap::new();
    for workload in &mesh.workloads {
        at.entry(workload.address).or_default().push(workload);
    }
    at.into_iter()
        .filter(|(address, _)| address.is_loopback() && *address != IpAddr::V4(Ipv4Addr::LOCALHOST))
        .filter_map(|(address, workloads)| match workloads[..] {
            [one] => Some((
                Slot::ForwardProxy {
                    caller: one.name.clone(),
                },
                address,
            )),
            _ => None,
        })
        .collect()
}

fn reserved(mesh: &Mesh) -> BTreeSet<Ipv4Addr> {
    let workloads = mesh.workloads.iter().map(|workload| workload.address);
    let endpoints = mesh.services.iter().flat_map(|service| &service.ports);
    let endpoints = endpoints
        .flat_map(|port| &port.endpoints)
        .map(|endpoint| endpoint.address.ip());
    let v4 = |address| match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    };
    workloads.chain(endpoints).filter_map(v4).collect()
}

fn status(entry: &ListenerSpec, address: SocketAddr, mesh: &Mesh) -> ListenerStatus {
    let (service, caller, kind, protocol) = match &entry.slot {
        Slot::Service { service, caller } => (
            Some(service.to_string()),
            caller.as_ref().map(ToString::to_string),
            ListenerKind::Service,
            spoken(mesh, service, entry.port, caller.as_ref()),
        ),
        Slot::ForwardProxy { caller } => (
            None,
            Some(caller.to_string()),
            ListenerKind::ForwardProxy,
            AppProtocol::Http,
        ),
    };
    ListenerStatus {
        service,
        port: entry.port,
        caller,
        kind,
        protocol: protocol.as_str().to_owned(),
        address,
    }
}

/// Protocol of a port: the declared one, else HTTP if the caller's requests have routes.
fn spoken(
    mesh: &Mesh,
    service: &ServiceName,
    port: u16,
    caller: Option<&WorkloadName>,
) -> AppProtocol {
    let Some(port) = mesh.service(service).and_then(|found| found.port(port)) else {
        return AppProtocol::Undeclared;
    };
    let has_routes = port.routes.is_some()
        || caller.is_some_and(|caller| port.consumer_routes.contains_key(&caller.namespace));
    match port.protocol {
        AppProtocol::Undeclared if has_routes => AppProtocol::Http,
        declared => declared,
    }
}
