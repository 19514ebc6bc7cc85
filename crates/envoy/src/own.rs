//! What is for one Envoy alone: its listeners, its routes and its secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::RbacPerRoute;
use heddle_model::{
    AppProtocol, Guard, Mesh, Policy, PolicyName, ServiceAccountName, ServiceName, ServicePort,
    Shared, Workload, WorkloadName,
};
use heddle_xds::delta::Name;

use crate::catalog::{Catalog, Declared, reached_by, service};
use crate::gateway::Roles;
use crate::names::{ClusterName, FORWARDED, Flavour, OUTBOUND};
use crate::routes::{self, Unknown};
use crate::{Kind, Packed, listener, policy};

/// The resources of one Envoy.
#[derive(Debug)]
pub struct Own {
    name: WorkloadName,
    resources: [BTreeMap<Name, Packed>; Kind::ALL.len()],
    /// What the listeners were made of.
    made_of: Option<MadeOf>,
    /// The generation for which the routes were made.
    routed: u64,
    /// What a lazy Envoy knows of its own; `None` for one that is not lazy.
    uses: Option<BTreeSet<Name>>,
}

/// A workload and its policies.
#[derive(Debug, PartialEq)]
struct MadeOf {
    workload: Shared<Workload>,
    policies: Vec<Option<Arc<Policy>>>,
    declared: Declared,
    roles: Arc<Roles>,
    is_lazy: bool,
}

/// The workload of an Envoy is gone, or has no Envoy any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    workload: WorkloadName,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gone { workload } = self;
        write!(
            f,
            "there is no workload {workload} with an Envoy (annotation heddle.dev/proxy: envoy)"
        )
    }
}

impl std::error::Error for Gone {}

impl Own {
    /// What is for the Envoy of this workload.
    pub fn new(name: WorkloadName) -> Self {
        Own {
            name,
            resources: Default::default(),
            made_of: None,
            routed: 0,
            uses: None,
        }
    }

    /// The workload whose Envoy it is.
    pub(crate) fn workload(&self) -> &WorkloadName {
        &self.name
    }

    /// Replaces a resource. Returns its name.
    pub(crate) fn put(&mut self, kind: Kind, name: &str, packed: Packed) -> Name {
        let name = Name::from(name);
        self.resources[kind as usize].insert(name.clone(), packed);
        name
    }

    pub(crate) fn resources(&self, kind: Kind) -> &BTreeMap<Name, Packed> {
        &self.resources[kind as usize]
    }

    /// Follows the workload and its policies. Returns whether there may be other listeners than before.
    pub(crate) fn follow(&mut self, catalog: &Catalog) -> Result<bool, Gone> {
        let mesh = catalog.mesh();
        let workload = mesh.workloads.find(|one| one.name.cmp(&self.name));
        let workload = workload.filter(|one| one.proxy.is_envoy());
        let workload = workload.ok_or_else(|| Gone {
            workload: self.name.clone(),
        })?;
        let declared = catalog.declared(&self.name).cloned().unwrap_or_default();
        let made_of = MadeOf::new(workload, catalog, declared);
        if self.made_of.as_ref() == Some(&made_of) {
            return Ok(false);
        }
        let inbound = listener::inbound(mesh, workload, &made_of.bytes_ports(), &made_of.roles);
        let outbound = listener::outbound(workload, made_of.is_lazy, &mesh.address_ranges);
        for listener in [inbound, outbound] {
            self.put(Kind::Listener, &listener.name, Packed::new(&listener));
        }
        self.made_of = Some(made_of);
        // Whether it is lazy decides where unknown requests go.
        self.routed = 0;
        Ok(true)
    }

    /// Whether its workload is one of this account.
    pub(crate) fn is_of(&self, account: &ServiceAccountName) -> bool {
        let made_of = self.made_of.as_ref();
        made_of.is_some_and(|made| made.workload.service_account == *account)
    }

    /// Whether it shall know a Service, as far as is known.
    pub(crate) fn may_use(&self, service: &Name) -> bool {
        self.uses.as_ref().is_none_or(|uses| uses.contains(service))
    }

    /// The Services to know: all, or those that a lazy workload uses or declares and that are there, and each to which the routes of one
    /// lead.
    pub(crate) fn wanted(&mut self, catalog: &Catalog) -> BTreeSet<Name> {
        let lazy = self.made_of.as_ref().filter(|made| made.is_lazy);
        self.uses = lazy.map(|made| {
            let learned = catalog.learned(&made.workload.service_account);
            let declared = made.workload.uses.iter();
            let declared = declared.map(|name| Name::from(name.to_string()));
            learned
                .into_iter()
                .flatten()
                .cloned()
                .chain(declared)
                .collect()
        });
        let Some(uses) = &self.uses else {
            return catalog.names().cloned().collect();
        };
        let reached = uses
            .iter()
            .flat_map(|name| reached_by(catalog.mesh(), name, &self.name.namespace));
        let mut known: BTreeSet<Name> = reached.collect();
        known.retain(|name| catalog.service(name).is_some());
        known
    }

    /// Makes the routes to these Services, if one of them has changed since. Returns whether they are made anew.
    pub(crate) fn route(
        &mut self,
        catalog: &Catalog,
        services: &BTreeSet<Name>,
        is_other: bool,
    ) -> bool {
        let Some(made_of) = &self.made_of else {
            return false;
        };
        let is_gateway = made_of.roles.is_gateway(&made_of.workload);
        let made = self.routed;
        let is_reshaped = |name: &Name| {
            let service = catalog.service(name);
            service.is_none_or(|service| service.shaped() > made)
        };
        let is_judged_otherwise = is_gateway && catalog.judged() > made;
        if made > 0 && !is_other && !is_judged_otherwise && !services.iter().any(is_reshaped) {
            return false;
        }
        let mesh = catalog.mesh();
        let unknown = match made_of.is_lazy {
            true => Unknown::Gateway,
            false => Unknown::Passthrough,
        };
        let known = || services.iter().filter_map(|name| service(mesh, name));
        let find = |name: &ServiceName, port: u16| {
            let cluster = ClusterName {
                service: name,
                port,
                flavour: Flavour::Requests,
            };
            let (known, _) = catalog.find(Kind::Cluster, &cluster.to_string())?;
            services.contains(known).then(|| mesh.service(name))?
        };
        let own = routes::outbound(known(), &self.name.namespace, &find, unknown);
        let forwarded = is_gateway.then(|| {
            let judged =
                |ports: &[&ServicePort], flavour| judged(mesh, ports, flavour, &made_of.roles);
            routes::forwarded(known(), &made_of.roles.trust_domain, &find, &judged)
        });
        self.routed = catalog.generation();
        self.put(Kind::Routes, OUTBOUND, own);
        match forwarded {
            Some(forwarded) => drop(self.put(Kind::Routes, FORWARDED, forwarded)),
            None => drop(self.resources[Kind::Routes as usize].remove(FORWARDED)),
        }
        true
    }
}

/// The policies of the endpoints of ports, for a gateway.
fn judged(
    mesh: &Mesh,
    ports: &[&ServicePort],
    flavour: Flavour,
    roles: &Roles,
) -> Option<RbacPerRoute> {
    let mut guards: BTreeMap<(&[PolicyName], u16), Guard> = BTreeMap::new();
    for endpoint in ports.iter().flat_map(|port| &port.endpoints) {
        let workload = endpoint
            .workload_name()
            .and_then(|name| mesh.workload(name));
        let Some(workload) = workload.filter(|workload| !workload.policies.is_empty()) else {
            continue;
        };
        let key = (workload.policies.as_slice(), endpoint.address.port());
        guards
            .entry(key)
            .or_insert_with(|| Guard::new(mesh, workload));
    }
    let guards: Vec<(Guard, u16)> = guards
        .into_iter()
        .map(|((_, port), guard)| (guard, port))
        .collect();
    policy::forwarded(&guards, flavour, roles)
}

impl MadeOf {
    fn new(workload: &Shared<Workload>, catalog: &Catalog, declared: Declared) -> Self {
        let (mesh, roles) = (catalog.mesh(), Arc::clone(catalog.roles()));
        let policies = workload.policies.iter();
        MadeOf {
            workload: workload.clone(),
            policies: policies.map(|name| mesh.policy(name).cloned()).collect(),
            declared,
            is_lazy: roles.is_lazy(workload, mesh),
            roles,
        }
    }

    /// The workload's ports that carry bytes, as each Service says that is about them.
    fn bytes_ports(&self) -> BTreeSet<u16> {
        let of = |is_bytes: bool| {
            let declared = self.declared.iter();
            let declared =
                declared.filter(move |(_, protocol)| carries_bytes(**protocol) == is_bytes);
            declared
                .map(|((port, ..), _)| *port)
                .collect::<BTreeSet<u16>>()
        };
        &of(true) - &of(false)
    }
}

/// Whether connections of the protocol carry bytes and nothing else.
fn carries_bytes(protocol: AppProtocol) -> bool {
    match protocol {
        AppProtocol::Http | AppProtocol::Undeclared => false,
        AppProtocol::Tcp | AppProtocol::Tls | AppProtocol::Http2Cleartext | AppProtocol::Grpc => {
            true
        }
    }
}
