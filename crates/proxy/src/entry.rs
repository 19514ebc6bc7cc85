//! What a connection may be: decided by the listener that it came in on, and by what was proven or asked of the kernel
//! then, never by an address that it came from.

use std::net::SocketAddr;

use heddle_model::{ServiceAccountName, ServiceName, SpiffeId, Subject, WorkloadName};
use heddle_wire::preface::{Kind, Preface};

/// What a listener is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// One port of one Service, whatever host a request names.
    Service {
        /// Whose listener it is; `None` serves any client, unidentified.
        caller: Option<WorkloadName>,
        /// The Service.
        service: ServiceName,
        /// Its port.
        port: u16,
    },
    /// A forward proxy: the request names the Service.
    ForwardProxy {
        /// Whose listener it is.
        caller: WorkloadName,
    },
    /// Connections from other nodes: each proves its caller by mutual TLS, and says what it calls.
    Mesh,
    /// What such a connection turned out to be: the proxy makes it of what was proven.
    Inbound(Inbound),
    /// What the programs of a pod dial, steered here: where each connection was going is asked of the kernel.
    Outbound {
        /// Whose pod it is.
        caller: WorkloadName,
    },
    /// What comes to a pod from outside of the mesh, steered here: its caller is not identified.
    Arriving {
        /// Whose pod it is.
        workload: WorkloadName,
    },
    /// What a connection of these two turned out to be, when it was not going to a Service: the proxy makes
    /// it of where it was going.
    Direct(Direct),
}

impl Entry {
    /// The workload whose listener it is.
    pub fn caller(&self) -> Option<&WorkloadName> {
        match self {
            Entry::Service { caller, .. } => caller.as_ref(),
            Entry::ForwardProxy { caller } => Some(caller),
            Entry::Outbound { caller } => Some(caller),
            Entry::Direct(direct) => direct.caller.as_ref(),
            Entry::Mesh | Entry::Inbound(_) | Entry::Arriving { .. } => None,
        }
    }
}

/// What a connection from another node calls, and its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inbound {
    /// The Service and its port, by which it was found.
    pub(crate) service: ServiceName,
    pub(crate) port: u16,
    /// The endpoint that was chosen.
    pub(crate) endpoint: SocketAddr,
    /// The service account that the endpoint was asked to prove.
    pub(crate) account: ServiceAccountName,
    /// `None`: the other node does not know either.
    pub(crate) caller: Option<SpiffeId>,
    /// The workload that calls, as its node says: of the namespace of the identity that is proven.
    pub(crate) workload: Option<WorkloadName>,
    /// What the other node says that it carries.
    pub(crate) kind: Kind,
}

impl Inbound {
    /// What a connection or a stream from `caller` to `called` is for.
    ///
    /// # Errors
    /// What is wrong with it.
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
            // A node speaks for callers that it does not know.
            Subject::Node(_) => (None, None),
            Subject::Control => return Err("the control plane calls no workload".to_owned()),
        };
        Ok(Inbound {
            service: service.map_err(|error| error.to_string())?,
            port: preface.port,
            endpoint: preface.endpoint,
            account: called.clone(),
            caller,
            workload,
            kind: preface.kind,
        })
    }
}

/// A connection to one address, which its client has chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Direct {
    /// The workload that calls; `None`: it is not identified.
    pub(crate) caller: Option<WorkloadName>,
    /// Where it was going.
    pub(crate) endpoint: SocketAddr,
    pub(crate) what: What,
}

/// What is at that address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// An endpoint of a Service's port, of this workload if it is on this node.
    Endpoint {
        service: ServiceName,
        port: u16,
        workload: Option<WorkloadName>,
    },
    /// A port of a workload of this node that no Service has.
    Workload(WorkloadName),
    /// Nothing of the mesh.
    Outside,
}

impl Direct {
    /// The workload of this node that is called.
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
        // A node that calls for what it does not know has no workload to name.
        let node = SpiffeId::node(domain, NodeName::parse("edge-1").expect("a name"));
        let named = inbound(&node, Some("cart-1")).expect("it is one");
        assert_eq!((named.caller, named.workload), (None, None));
    }
}
