//! What is for one Envoy alone: its listeners, its routes and its secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use heddle_model::{
    AppProtocol, Mesh, Policy, Proxy, Service, ServiceName, Shared, Workload, WorkloadName,
};
use heddle_xds::delta::Name;

use crate::catalog::{Catalog, Declared};
use crate::names::{ClusterName, Flavour, OUTBOUND};
use crate::routes::{self, Unknown};
use crate::{Kind, Packed, listener};

/// The resources of one Envoy.
#[derive(Debug)]
pub struct Own {
    name: WorkloadName,
    resources: [BTreeMap<Name, Packed>; Kind::ALL.len()],
    /// What the listeners were made of.
    made_of: Option<MadeOf>,
    /// The generation for which the routes were made.
    routed: u64,
}

/// A workload and its policies.
#[derive(Debug, PartialEq)]
struct MadeOf {
    workload: Shared<Workload>,
    policies: Vec<Option<Arc<Policy>>>,
    declared: Declared,
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
        let made_of = MadeOf::new(workload, mesh, declared);
        if self.made_of.as_ref() == Some(&made_of) {
            return Ok(false);
        }
        let inbound = listener::inbound(mesh, workload, &made_of.bytes_ports());
        let outbound = listener::outbound(workload, is_lazy(workload), &mesh.address_ranges);
        for listener in [inbound, outbound] {
            self.put(Kind::Listener, &listener.name, Packed::new(&listener));
        }
        self.made_of = Some(made_of);
        // Whether it is lazy decides where unknown requests go.
        self.routed = 0;
        Ok(true)
    }

    /// The Services to know, of these or of all: each that is there, and each to which the routes of one lead.
    pub(crate) fn closure(
        &self,
        catalog: &Catalog,
        uses: Option<&BTreeSet<Name>>,
    ) -> BTreeSet<Name> {
        let Some(uses) = uses else {
            return catalog.names().cloned().collect();
        };
        let mesh = catalog.mesh();
        let mut known = BTreeSet::new();
        for name in uses {
            let Some(service) = service(mesh, name) else {
                continue;
            };
            known.insert(name.clone());
            for port in &service.ports {
                let backends = routes::backends(port, &self.name.namespace);
                known.extend(backends.map(|backend| Name::from(backend.to_string())));
            }
        }
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
        let made = self.routed;
        let is_reshaped = |name: &Name| {
            catalog
                .service(name)
                .is_none_or(|service| service.shaped() > made)
        };
        if made > 0 && !is_other && !services.iter().any(is_reshaped) {
            return false;
        }
        self.routed = catalog.generation();
        let mesh = catalog.mesh();
        let unknown = match self
            .made_of
            .as_ref()
            .is_some_and(|made| is_lazy(&made.workload))
        {
            true => Unknown::Gateway,
            false => Unknown::Passthrough,
        };
        let known = services.iter().filter_map(|name| service(mesh, name));
        let find = |name: &ServiceName, port: u16| {
            let cluster = ClusterName {
                service: name,
                port,
                flavour: Flavour::Requests,
            };
            let (known, _) = catalog.find(Kind::Cluster, &cluster.to_string())?;
            services.contains(known).then(|| mesh.service(name))?
        };
        let packed = routes::outbound(known, &self.name.namespace, &find, unknown);
        self.put(Kind::Routes, OUTBOUND, packed);
        true
    }
}

impl MadeOf {
    fn new(workload: &Shared<Workload>, mesh: &Mesh, declared: Declared) -> Self {
        let policies = workload.policies.iter();
        MadeOf {
            workload: workload.clone(),
            policies: policies.map(|name| mesh.policy(name).cloned()).collect(),
            declared,
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

fn is_lazy(workload: &Workload) -> bool {
    workload.proxy == Proxy::Envoy { lazy: true }
}

fn service<'m>(mesh: &'m Mesh, name: &str) -> Option<&'m Service> {
    mesh.service(&ServiceName::parse(name).ok()?)
}
