//! Compiles the ports of Services.

use std::collections::BTreeSet;
use std::sync::Arc;

use heddle_model::{BackendTarget, Endpoint, Mesh, NodeName, Service, ServicePort, Shared};

use super::cluster::Cluster;
use super::names::Names;
use super::port::PortEntry;
use super::rules::{RouteTable, Target};
use crate::place::{ByEnvoy, Place, Via, Way};

/// What the ports of a Service are compiled with.
pub(super) struct Compiler<'a> {
    pub(super) mesh: &'a Mesh,
    pub(super) names: &'a Names,
}

impl Compiler<'_> {
    pub(super) fn port(&self, service: &Shared<Service>, port: &ServicePort) -> PortEntry {
        let mut unreached = BTreeSet::new();
        let reached = port.endpoints.iter().filter_map(|endpoint| {
            let place = self.place(service, port.port, endpoint, &mut unreached)?;
            Some((place, endpoint))
        });
        let cluster = Cluster::new(service, port, reached.collect());
        let mut rules = Vec::new();
        let find = |target: &BackendTarget| self.target(target);
        let routes = port.routes.as_deref();
        let routes = routes.map(|written| RouteTable::new(written, &mut rules, find));
        let consumer_routes = port.consumer_routes.iter();
        let consumer_routes = consumer_routes
            .map(|(namespace, written)| {
                let table = RouteTable::new(written, &mut rules, find);
                (namespace.clone(), table)
            })
            .collect();
        PortEntry {
            label: service.name.to_string().into(),
            name: Some((service.name.clone(), port.port)),
            protocol: port.protocol,
            cluster,
            service: Some(service.clone()),
            unreached: unreached.into_iter().cloned().collect(),
            rules: rules.into(),
            routes,
            consumer_routes,
        }
    }

    /// How an endpoint is reached: at its own address if it has an Envoy; otherwise through its node, unless it is on
    /// this node or outside of the mesh. `None` if its
    /// node is unknown, or if it has no identity that it could prove: nothing is sent to other nodes in cleartext.
    fn place<'s>(
        &self,
        service: &Service,
        port: u16,
        endpoint: &'s Endpoint,
        unreached: &mut BTreeSet<&'s NodeName>,
    ) -> Option<Place> {
        let address = endpoint.address;
        if endpoint.has_envoy {
            let envoy = ByEnvoy {
                account: endpoint.account.clone()?,
                service: service.name.clone(),
                port,
            };
            let way = Way::Envoy(Arc::new(envoy));
            return Some(Place { address, way });
        }
        let node = match &endpoint.node {
            Some(node) if endpoint.workload.is_none() => node,
            _ => return Some(Place::here(address)),
        };
        let Some(known) = self.mesh.node(node) else {
            unreached.insert(node);
            return None;
        };
        let via = Via {
            node: known.address,
            account: endpoint.account.clone()?,
            service: service.name.clone(),
            port,
        };
        Some(Place {
            address,
            way: Way::Through(Arc::new(via)),
        })
    }

    pub(super) fn target(&self, target: &BackendTarget) -> Target {
        match target {
            BackendTarget::Service { service, port } => {
                let found = self.names.find(service, *port);
                found.map_or(Target::Unresolved, Target::Port)
            }
            BackendTarget::Unresolved { .. } => Target::Unresolved,
        }
    }

    /// Whether the rules of a port lead where they did when the port was compiled.
    pub(super) fn holds(&self, port: &PortEntry) -> bool {
        let mut rules = port.rules.iter();
        rules.all(|rule| rule.action.holds(|target| self.target(target)))
    }
}
