//! Which providers fit beside the folder's objects and beside each other.
//!
//! The folder comes first: a provider whose name or address a workload of the folder has is left out, and so is one
//! that says of such a workload's machine that it is somewhere else. Of two
//! providers at one address the one that was there first stays, so that no other can take its place by registering
//! there. A provider has an account other than `default` only where the folder lets it
//! (`heddle.dev/registry: allow`): by accounts it is decided who may call which workload.
//!
//! What is still wrong with the mesh as a whole is found by halving ([`Tried`]): so one provider that does not fit costs a
//! few compilations, and no other its place. Of those that do not fit together the first to come stays, here
//! too: they are tried in the order in which their keys came to be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use heddle_model::WorkloadName;
use heddle_model::report::{Cause, Problem};

use super::{Entry, warning};
use crate::compile::index::{REGISTRY_ALLOW, REGISTRY_ANNOTATION};
use crate::manifest::local::LocalWorkloadSpec;
use crate::manifest::{Body, Kind, Object};

mod tried;

#[cfg(test)]
mod tests;

pub(crate) use tried::Tried;

/// Where something can be called.
type Socket = (IpAddr, u16);

/// A provider that fits as far as can be told without compiling.
pub(crate) struct Candidate {
    pub(crate) entry: Arc<Entry>,
    pub(crate) object: Object,
}

/// Leaves out what has no place beside the folder's `objects`; says why. Those that are left are in the order in
/// which their keys came to be.
pub(crate) fn candidates(
    objects: &[Object],
    entries: &[Arc<Entry>],
) -> (Vec<Candidate>, Vec<Problem>) {
    let mut admission = Admission::of(objects);
    let mut oldest_first: Vec<&Arc<Entry>> = entries.iter().collect();
    oldest_first.sort_by_key(|entry| (entry.created, &entry.key));
    let (mut fit, mut problems) = (Vec::new(), Vec::new());
    for entry in oldest_first {
        let taken = entry.object().and_then(|object| {
            admission.take(entry, &object)?;
            Ok(object)
        });
        match taken {
            Ok(object) => fit.push(Candidate {
                entry: Arc::clone(entry),
                object,
            }),
            Err(problem) => problems.push(*problem),
        }
    }
    problems.sort_by(|a, b| a.origin.cmp(&b.origin));
    (fit, problems)
}

/// What is there already, and where a provider has its place beside it.
struct Admission<'o> {
    workloads: BTreeSet<WorkloadName>,
    sockets: BTreeMap<Socket, String>,
    /// The folder's alone, by each of their addresses but loopback, which every node has.
    hosts: BTreeMap<IpAddr, Host>,
    /// Accounts that may be had: by namespace and name.
    open: BTreeSet<(&'o str, &'o str)>,
}

/// Where an address of a workload of the folder is.
struct Host {
    /// Whose it is.
    label: String,
    /// The address by which Services call it.
    first: IpAddr,
    node: Option<String>,
}

impl<'o> Admission<'o> {
    fn of(objects: &'o [Object]) -> Self {
        let mut admission = Admission {
            workloads: BTreeSet::new(),
            sockets: BTreeMap::new(),
            hosts: BTreeMap::new(),
            open: BTreeSet::new(),
        };
        for object in objects {
            let allowed = object.metadata.annotations.get(REGISTRY_ANNOTATION);
            if object.kind == Kind::ServiceAccount
                && allowed.is_some_and(|text| text == REGISTRY_ALLOW)
            {
                let account = (object.namespace.as_str(), object.name.as_str());
                admission.open.insert(account);
            }
            if object.kind == Kind::LocalWorkload {
                admission.workloads.insert(workload_name(object));
                for socket in sockets(object) {
                    admission
                        .sockets
                        .insert(socket, object.written.label.clone());
                }
                admission.note_host(object);
            }
        }
        admission
    }

    fn note_host(&mut self, object: &Object) {
        let Some(first) = addresses(object).next() else {
            return;
        };
        for address in addresses(object).filter(|address| !address.is_loopback()) {
            self.hosts.entry(address).or_insert_with(|| Host {
                label: object.written.label.clone(),
                first,
                node: node(object).map(str::to_owned),
            });
        }
    }

    /// Gives a provider its place.
    fn take(&mut self, entry: &Entry, object: &Object) -> Result<(), Box<Problem>> {
        let refuse = |cause: Cause, field: &str, reason: String, remedy: &str| {
            let problem = warning(&entry.origin, field, reason, remedy);
            Err(Box::new(problem.because(cause)))
        };
        let name = workload_name(object);
        if self.workloads.contains(&name) {
            let reason = "the folder has a LocalWorkload of that name".to_owned();
            return refuse(
                Cause::Taken,
                "",
                reason,
                "register it under another name (--name)",
            );
        }
        let account = account(object);
        if account != "default" && !self.open.contains(&(object.namespace.as_str(), account)) {
            let reason = format!("nothing that registers may be ServiceAccount {account}");
            let remedy = "annotate that ServiceAccount with heddle.dev/registry: allow";
            return refuse(Cause::Account, "spec.serviceAccountName", reason, remedy);
        }
        let mine: Vec<Socket> = sockets(object).collect();
        let taken = mine
            .iter()
            .find_map(|socket| Some((socket, self.sockets.get(socket)?)));
        if let Some(((address, port), other)) = taken {
            let reason = format!("{other} has port {port} of {address} already");
            let remedy = "register the address that it listens on (--address)";
            return refuse(Cause::Taken, "spec.address", reason, remedy);
        }
        if let Some((field, reason)) = self.elsewhere(object) {
            let remedy = "register the address and the node that it has (--address, --node)";
            return refuse(Cause::Taken, field, reason, remedy);
        }
        let label = &object.written.label;
        let mine = mine.into_iter().map(|socket| (socket, label.clone()));
        self.sockets.extend(mine);
        Ok(())
    }

    /// What a provider says of where a workload of the folder is, that is not so: what goes to an address must not be
    /// led away by who registers another port of it.
    fn elsewhere(&self, object: &Object) -> Option<(&'static str, String)> {
        let first = addresses(object).next()?;
        let own = node(object);
        addresses(object).find_map(|address| {
            let Host {
                label,
                first: is_called_at,
                node,
            } = self.hosts.get(&address)?;
            if *is_called_at != first {
                let reason = format!("{address} is {label}'s, which is called at {is_called_at}");
                return Some(("spec.address", reason));
            }
            let other = node.as_deref()?;
            let reason = || format!("{address} is {label}'s, which is on node {other}");
            (own? != other).then(|| ("spec.nodeName", reason()))
        })
    }
}

fn workload_name(object: &Object) -> WorkloadName {
    WorkloadName {
        namespace: object.namespace.clone(),
        name: object.name.clone(),
    }
}

fn account(object: &Object) -> &str {
    let name = spec(object).and_then(|spec| spec.service_account_name.as_deref());
    name.filter(|name| !name.is_empty()).unwrap_or("default")
}

fn spec(object: &Object) -> Option<&LocalWorkloadSpec> {
    match &object.body {
        Body::LocalWorkload(body) => Some(&body.spec),
        _ => None,
    }
}

/// The node that a workload says it is on.
fn node(object: &Object) -> Option<&str> {
    let name = spec(object)?.node_name.as_deref();
    name.filter(|name| !name.is_empty())
}

/// The addresses of a workload as far as they are written as they should be, beginning with the one by which Services
/// call it.
fn addresses(object: &Object) -> impl Iterator<Item = IpAddr> {
    spec(object).into_iter().flat_map(|spec| {
        let written = std::iter::once(&spec.address).chain(&spec.addresses);
        // An IPv4 address may be written as one of IPv6.
        written.filter_map(|text| Some(text.parse::<IpAddr>().ok()?.to_canonical()))
    })
}

/// Where a workload listens, as far as it is written as it should be.
pub(super) fn sockets(object: &Object) -> impl Iterator<Item = Socket> {
    addresses(object).flat_map(move |address| {
        let ports = spec(object).map_or(&[][..], |spec| &spec.ports).iter();
        ports.filter_map(move |port| Some((address, u16::try_from(port.port).ok()?)))
    })
}
