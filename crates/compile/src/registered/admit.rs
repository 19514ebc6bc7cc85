//! Decides which providers fit beside the folder's objects and beside each other.
//!
//! The folder has precedence: a provider is left out if a workload of the folder has its name or its address and port,
//! or if it claims another address or node for the machine of such a workload. Of two providers at one address and port
//! the older one stays, so that none can displace another by registering there. A provider may have an account other
//! than `default` only if the folder allows it (`heddle.dev/registry: allow`), since accounts decide which callers are
//! authorised.
//!
//! Any remaining error in the mesh as a whole is isolated by bisection ([`Tried`]): a provider that does not fit costs
//! a few compilations, and does not push out others. Of providers that do not fit together the older one stays here
//! too: they are tried in the order in which their keys were created.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use heddle_model::WorkloadName;
use heddle_model::report::{Cause, Problem};

use super::{Entries, Entry, warning};
use crate::Options;
use crate::compile::OTHER_RANGES;
use crate::compile::index::{REGISTRY_ALLOW, REGISTRY_ANNOTATION};
use crate::manifest::local::LocalWorkloadSpec;
use crate::manifest::{Body, Kind, Object};

mod tried;

#[cfg(test)]
mod tests;

pub(crate) use tried::Tried;

/// The address and port at which a workload is called.
type Socket = (IpAddr, u16);

/// A provider that passed every check that needs no compilation.
pub(crate) struct Candidate {
    pub(crate) entry: Arc<Entry>,
    pub(crate) object: Object,
}

/// Leaves out the providers that conflict with the folder's `objects`, with the reasons. The remaining ones are in the
/// order in which their keys were created.
pub(crate) fn candidates(
    objects: &[Arc<Object>],
    entries: &Entries,
    options: &Options,
) -> (Vec<Candidate>, Vec<Problem>) {
    let mut admission = Admission::of(objects, options);
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

/// The names, sockets and hosts in use, against which a provider is admitted.
struct Admission<'o> {
    workloads: BTreeSet<WorkloadName>,
    sockets: BTreeMap<Socket, String>,
    /// Only the folder's, by every address except loopback, which every node has.
    hosts: BTreeMap<IpAddr, Host>,
    /// Addresses of the folder's workloads that are refused.
    closed: BTreeSet<IpAddr>,
    /// Accounts that providers may have: namespace and name.
    open: BTreeSet<(&'o str, &'o str)>,
    options: &'o Options,
}

/// The place of an address of one of the folder's workloads.
struct Host {
    /// The workload, as problems name it.
    label: String,
    /// The address by which Services call it.
    first: IpAddr,
    node: Option<String>,
}

impl<'o> Admission<'o> {
    fn of(objects: &'o [Arc<Object>], options: &'o Options) -> Self {
        let mut admission = Admission {
            workloads: BTreeSet::new(),
            sockets: BTreeMap::new(),
            hosts: BTreeMap::new(),
            closed: BTreeSet::new(),
            open: BTreeSet::new(),
            options,
        };
        for object in objects {
            let allowed = object.metadata.annotations.get(REGISTRY_ANNOTATION);
            if object.kind == Kind::ServiceAccount
                && allowed.is_some_and(|text| text == REGISTRY_ALLOW)
            {
                let account = (object.namespace.as_str(), object.name.as_str());
                admission.open.insert(account);
            }
            if let Body::ClosedWorkload(closed) = &object.body {
                admission.workloads.insert(workload_name(object));
                admission.closed.extend(&closed.addresses);
                let sockets = closed.sockets.iter();
                let sockets =
                    sockets.map(|one| ((one.ip(), one.port()), object.written.label.clone()));
                admission.sockets.extend(sockets);
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

    /// Admits a provider and records its sockets, or refuses it.
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
            let reason = format!("registered providers may not use ServiceAccount {account}");
            let remedy = "annotate that ServiceAccount with heddle.dev/registry: allow";
            return refuse(Cause::Account, "spec.serviceAccountName", reason, remedy);
        }
        if let Some(address) = addresses(object).find(|address| self.closed.contains(address)) {
            let reason = format!("a LocalWorkload of the folder that is refused has {address}");
            let remedy = "register the address that it listens on (--address)";
            return refuse(Cause::Taken, "spec.address", reason, remedy);
        }
        if let Some(reason) = addresses(object).find_map(|one| self.options.outside(one)) {
            return refuse(Cause::Range, "spec.address", reason, OTHER_RANGES);
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

    /// A claim of the provider about a folder workload's address that contradicts the folder. Otherwise a provider that
    /// registers another port of that address could divert the traffic to it.
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

pub(super) fn workload_name(object: &Object) -> WorkloadName {
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

/// The node that a workload names.
fn node(object: &Object) -> Option<&str> {
    let name = spec(object)?.node_name.as_deref();
    name.filter(|name| !name.is_empty())
}

/// The valid addresses of a workload, beginning with the one by which Services call it.
pub(super) fn addresses(object: &Object) -> impl Iterator<Item = IpAddr> {
    spec(object).into_iter().flat_map(|spec| {
        let written = std::iter::once(&spec.address).chain(&spec.addresses);
        // An IPv4 address may be written in its IPv6-mapped form.
        written.filter_map(|text| Some(text.parse::<IpAddr>().ok()?.to_canonical()))
    })
}

/// The sockets at which a workload listens, as far as its addresses and ports are valid.
pub(super) fn sockets(object: &Object) -> impl Iterator<Item = Socket> {
    addresses(object).flat_map(move |address| {
        let ports = spec(object).map_or(&[][..], |spec| &spec.ports).iter();
        ports.filter_map(move |port| Some((address, u16::try_from(port.port).ok()?)))
    })
}
