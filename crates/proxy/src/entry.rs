//! The kinds of connections. The kind follows from the listener that accepted the connection, and from what was then
//! proven or asked of the kernel, never from the address that it came from.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use heddle_model::{ServiceAccountName, ServiceName, SpiffeId, StockName, Subject, WorkloadName};
use heddle_wire::preface::{Kind, Preface};

/// The purpose of a listener, and what is known of its connections' destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Serves one port of one Service, whatever host a request names.
    Service {
        /// The workload whose listener it is; `None` serves any client, unidentified.
        caller: Option<WorkloadName>,
        /// The Service to which requests are sent.
        service: ServiceName,
        /// The port of that Service.
        port: u16,
    },
    /// A forward proxy: the request names the Service.
    ForwardProxy {
        /// The workload whose listener it is, and whose identity is used.
        caller: WorkloadName,
    },
    /// Accepts connections from other nodes: each proves its caller by mutual TLS and names its destination.
    Mesh,
    /// A [`Mesh`](Self::Mesh) connection after its handshake: the proxy creates it from the proven identity and the
    /// preface.
    Inbound(Inbound),
    /// A [`Mesh`](Self::Mesh) connection of a lazy stock proxy, which asks this node as a gateway: created likewise.
    Forwarded(Forwarded),
    /// Accepts intercepted outbound connections of a pod's programs: the kernel is asked for the original destination
    /// of each.
    Outbound {
        /// The workload of the pod.
        caller: WorkloadName,
    },
    /// Accepts intercepted connections to a pod from outside of the mesh: their caller is not identified.
    Arriving {
        /// The workload of the pod.
        workload: WorkloadName,
    },
    /// An [`Outbound`](Self::Outbound) or [`Arriving`](Self::Arriving) connection that was not going to a Service's
    /// address: the proxy creates it from the original destination.
    Direct(Direct),
}

impl Entry {
    /// The workload whose listener it is, if the listener belongs to a calling workload.
    pub fn caller(&self) -> Option<&WorkloadName> {
        match self {
            Entry::Service { caller, .. } => caller.as_ref(),
            Entry::ForwardProxy { caller } => Some(caller),
            Entry::Outbound { caller } => Some(caller),
            Entry::Direct(direct) => direct.caller.as_ref(),
            Entry::Mesh | Entry::Inbound(_) | Entry::Forwarded(_) | Entry::Arriving { .. } => None,
        }
    }
}

impl Entry {
    /// The Service to which the connection goes, if it is known from the start and is one.
    pub(crate) fn service(&self) -> Option<&ServiceName> {
        match self {
            Entry::Service { service, .. } => Some(service),
            Entry::Inbound(inbound) => Some(&inbound.service),
            Entry::Forwarded(forwarded) => Some(&forwarded.to.as_ref()?.0),
            Entry::Direct(direct) => match &direct.what {
                What::Endpoint { service, .. } => Some(service),
                What::Workload(_) | What::Outside => None,
            },
            Entry::ForwardProxy { .. }
            | Entry::Mesh
            | Entry::Outbound { .. }
            | Entry::Arriving { .. } => None,
        }
    }
}

/// The endpoint of a stock proxy's connection for which this node has none. Nothing is ever there.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The destination of a connection from another node or from a stock proxy, and its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inbound {
    /// The Service and port through which the calling node found the endpoint.
    pub(crate) service: ServiceName,
    pub(crate) port: u16,
    /// The endpoint that the calling node has chosen.
    pub(crate) endpoint: SocketAddr,
    /// The service account that this node was asked to prove for the endpoint.
    pub(crate) account: ServiceAccountName,
    /// The proven identity; `None` if the calling node does not know it either.
    pub(crate) caller: Option<SpiffeId>,
    /// The calling workload, as named by its node. Its namespace is that of the proven identity.
    pub(crate) workload: Option<WorkloadName>,
    /// Whether the connection carries requests or opaque bytes, as its preface says.
    pub(crate) kind: Kind,
    /// Whether a stock proxy, such as an Envoy, has connected, not a node. It is believed no more than a client, and is
    /// sent only what it has asked for: no [status](heddle_wire::preface::Status).
    pub(crate) is_stock: bool,
}

impl Inbound {
    /// The destination of a stock proxy's connection. `endpoint` is the one that this node has chosen for it.
    pub(crate) fn of_stock(
        asked: &StockName,
        kind: Kind,
        caller: &SpiffeId,
        endpoint: Option<SocketAddr>,
    ) -> Self {
        Inbound {
            service: asked.service.clone(),
            port: asked.port,
            endpoint: endpoint.unwrap_or(NOWHERE),
            account: asked.account.clone(),
            caller: Some(caller.clone()),
            workload: None,
            kind,
            is_stock: true,
        }
    }

    /// Reads the destination of a connection or stream from `caller` to `called` from its preface.
    ///
    /// # Errors
    /// What is wrong with the preface or the caller.
    pub(crate) fn of(
        preface: &Preface<'_>,
        called: &ServiceAccountName,
        caller: &SpiffeId,
    ) -> Result<Self, String> {
        let service = ServiceName::new(preface.namespace, preface.service);
        let (caller, workload) = match &caller.subject {
            Subject::Workload(account) => {
                let namespace = account.namespace.as_str();
                let name = preface
                    .caller
                    .map(|name| WorkloadName::new(namespace, name));
                let name = name.transpose().map_err(|error| error.to_string())?;
                (Some(caller.clone()), name)
            }
            // A node uses its own identity for callers that it does not know.
            Subject::Node(_) => (None, None),
            Subject::Control | Subject::Envoy(_) => {
                return Err("its identity is one towards the control plane only".to_owned());
            }
        };
        Ok(Inbound {
            service: service.map_err(|error| error.to_string())?,
            port: preface.port,
            endpoint: preface.endpoint,
            account: called.clone(),
            caller,
            workload,
            kind: preface.kind,
            is_stock: false,
        })
    }
}

/// A connection of a lazy stock proxy to this node as a gateway, which forwards what that proxy does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarded {
    /// The workload of this node that is the gateway.
    pub(crate) gateway: WorkloadName,
    /// Its account, with whose identity destinations are called.
    pub(crate) account: ServiceAccountName,
    /// The proven identity, by which policies decide, and which destinations are told.
    pub(crate) caller: SpiffeId,
    /// The port of a Service to which a tunnel leads; `None`: each request names its own destination.
    pub(crate) to: Option<(ServiceName, u16)>,
}

/// A connection to an address that its client has chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Direct {
    /// The calling workload; `None` if it is not identified.
    pub(crate) caller: Option<WorkloadName>,
    /// The original destination.
    pub(crate) endpoint: SocketAddr,
    pub(crate) what: What,
}

/// The target at the original destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// An endpoint of a Service's port, of this workload if it is on this node.
    Endpoint {
        service: ServiceName,
        port: u16,
        workload: Option<WorkloadName>,
    },
    /// A port of a workload of this node that belongs to no Service.
    Workload(WorkloadName),
    /// An address outside of the mesh.
    Outside,
}

impl Direct {
    /// The called workload, if it is on this node.
    pub(crate) fn workload(&self) -> Option<&WorkloadName> {
        match &self.what {
            What::Endpoint { workload, .. } => workload.as_ref(),
            What::Workload(workload) => Some(workload),
            What::Outside => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use heddle_model::{Mesh, NodeName};

    use super::*;

    fn inbound(caller: &SpiffeId, name: Option<&str>) -> Result<Inbound, String> {
        let preface = Preface {
            kind: Kind::Http,
            endpoint: ([127, 0, 0, 1], 80).into(),
            namespace: "shop",
            service: "web",
            port: 80,
            caller: name,
        };
        let called = ServiceAccountName::new("shop", "web");
        Inbound::of(&preface, &called.expect("a name"), caller)
    }

    #[test]
    fn a_caller_is_named_within_the_namespace_of_what_it_has_proven_and_by_a_name() {
        let domain = Mesh::default().trust_domain;
        let account = ServiceAccountName::new("basket", "cart").expect("a name");
        let caller = SpiffeId::workload(domain.clone(), account);
        let named = inbound(&caller, Some("cart-1")).expect("it is one");
        let workload = named.workload.expect("it is named");
        assert_eq!(workload.to_string(), "basket/cart-1");
        assert_eq!(inbound(&caller, None).expect("it is one").workload, None);
        for name in ["", "Cart", "a/b", "a\nb", "a\"b", &"a".repeat(254)] {
            assert!(inbound(&caller, Some(name)).is_err(), "{name:?}");
        }
        // A node that calls in its own name has no workload to name.
        let node = SpiffeId::node(domain, NodeName::parse("edge-1").expect("a name"));
        let named = inbound(&node, Some("cart-1")).expect("it is one");
        assert_eq!((named.caller, named.workload), (None, None));
    }
}
