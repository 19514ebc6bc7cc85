//! The resources from which a node builds its part of the mesh: the checked forms of `resources.proto`.
//!
//! ```text
//!             split                encode                    decode              join
//!   Mesh ──────────────▶ Resource ────────▶ name and bytes ────────▶ Resource ──────────▶ Mesh of one node
//!   (control plane)                                                  (node)
//! ```
//!
//! A resource is the same for every node, so that it is encoded once. What depends on the node is decided where the
//! node joins its resources.

mod address;
mod balancing;
mod endpoint;
mod error;
mod fields;
mod filters;
mod join;
mod name;
mod policy;
mod route;
mod service;
mod split;
#[cfg(test)]
mod tests;
mod workload;

use std::net::IpAddr;
use std::sync::Arc;

use heddle_model::{
    Cidr, Endpoint, Forwarding, Node, NodeName, Policy, Service, ServiceName, Shared, TrustDomain,
    Workload, WorkloadName,
};
use prost::Message;
use prost::bytes::Bytes;

use crate::proto;

pub use error::InvalidResource;
pub(crate) use join::JoinedMesh;
pub use join::join;
pub use name::of_policy as policy_name;
pub(crate) use name::workload as workload_name;
pub use split::{Holders, of_mesh, of_service, split};

/// Limit on the encoding of one resource, in bytes. [`Resource::decode`] enforces it; a control plane leaves out what is
/// larger, and says so.
pub const MAX_RESOURCE_BYTES: usize = 2 * 1024 * 1024;

/// What precedes the name of a message in a type URL.
const URL_PREFIX: &str = "type.googleapis.com/";

/// The type of a resource. The order is one in which a node can take them: what is referred to comes first, apart from
/// the references between Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Type {
    /// What holds for the whole mesh.
    MeshSettings,
    /// A node whose address is known.
    Node,
    /// An IP address of workloads.
    Address,
    /// An authorization policy.
    Policy,
    /// A workload.
    Workload,
    /// A Service, without its endpoints.
    Service,
    /// One endpoint of a Service's port.
    Endpoint,
}

impl Type {
    /// All types, in order.
    pub const ALL: [Type; 7] = [
        Self::MeshSettings,
        Self::Node,
        Self::Address,
        Self::Policy,
        Self::Workload,
        Self::Service,
        Self::Endpoint,
    ];

    /// The type's URL in the xDS protocol.
    pub fn type_url(self) -> &'static str {
        match self {
            Self::MeshSettings => "type.googleapis.com/heddle.v1.MeshSettings",
            Self::Node => "type.googleapis.com/heddle.v1.Node",
            Self::Address => "type.googleapis.com/heddle.v1.Address",
            Self::Policy => "type.googleapis.com/heddle.v1.Policy",
            Self::Workload => "type.googleapis.com/heddle.v1.Workload",
            Self::Service => "type.googleapis.com/heddle.v1.Service",
            Self::Endpoint => "type.googleapis.com/heddle.v1.Endpoint",
        }
    }

    /// The type's full protobuf name, which is its URL without the prefix.
    pub fn message_name(self) -> &'static str {
        let url = self.type_url();
        url.strip_prefix(URL_PREFIX).unwrap_or(url)
    }

    /// The type of that URL.
    pub fn from_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.type_url() == url)
    }
}

/// A resource in its checked form. It holds the invariants of its object, as far as they do not depend on other
/// objects.
#[derive(Debug, Clone, PartialEq)]
pub enum Resource {
    MeshSettings(Settings),
    Node(Node),
    Address(AddressOf),
    Policy(Arc<Policy>),
    Workload(Shared<Workload>),
    /// Its ports have no endpoints.
    Service(Service),
    Endpoint(EndpointOf),
}

/// What holds for the whole mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The trust domain of every identity in the mesh.
    pub trust_domain: TrustDomain,
    /// Whether no workload names a node: there is one node, which runs all of them.
    pub single_node: bool,
    /// Where the addresses of everything in the mesh are, sorted, each once. Empty: they may be any.
    pub address_ranges: Vec<Cidr>,
    /// Who forwards requests in whose name.
    pub forwarding: Shared<Forwarding>,
}

/// An IP address of workloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressOf {
    /// The address.
    pub address: IpAddr,
    /// The workloads that have it, sorted by name, each once; never empty.
    pub holders: Vec<Holder>,
}

/// A workload that has an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The workload.
    pub workload: WorkloadName,
    /// The node that runs it, if it names one.
    pub node: Option<NodeName>,
    /// The first address of the workload; `None`: it is this one.
    pub first: Option<IpAddr>,
}

/// One endpoint of a Service's port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointOf {
    /// The Service.
    pub service: ServiceName,
    /// The number of its port, never 0.
    pub port: u16,
    /// The endpoint, with its workload in [`Endpoint::workload`] on whichever node it is.
    pub endpoint: Endpoint,
}

impl Resource {
    /// The resource's type.
    pub fn kind(&self) -> Type {
        match self {
            Self::MeshSettings(_) => Type::MeshSettings,
            Self::Node(_) => Type::Node,
            Self::Address(_) => Type::Address,
            Self::Policy(_) => Type::Policy,
            Self::Workload(_) => Type::Workload,
            Self::Service(_) => Type::Service,
            Self::Endpoint(_) => Type::Endpoint,
        }
    }

    /// The resource's name, unique in its type.
    pub fn name(&self) -> String {
        match self {
            Self::MeshSettings(_) => name::MESH.to_owned(),
            Self::Node(node) => node.name.to_string(),
            Self::Address(address) => address.address.to_string(),
            Self::Policy(policy) => name::of_policy(&policy.name),
            Self::Workload(workload) => workload.name.to_string(),
            Self::Service(service) => service.name.to_string(),
            Self::Endpoint(endpoint) => name::of_endpoint(endpoint),
        }
    }

    /// The resource's content. Equal resources have equal content, so that a hash of it is a version; those of two
    /// Services are equal if their rules share actions in the same way, too.
    pub fn encode(&self) -> Bytes {
        let encoded = match self {
            Self::MeshSettings(settings) => proto::MeshSettings::from(settings).encode_to_vec(),
            Self::Node(node) => proto::Node::from(node).encode_to_vec(),
            Self::Address(address) => proto::Address::from(address).encode_to_vec(),
            Self::Policy(policy) => proto::Policy::from(&**policy).encode_to_vec(),
            Self::Workload(workload) => proto::Workload::from(&**workload).encode_to_vec(),
            Self::Service(service) => proto::Service::from(service).encode_to_vec(),
            Self::Endpoint(of) => proto::Endpoint::from(&of.endpoint).encode_to_vec(),
        };
        encoded.into()
    }

    /// Reads a resource of a type from its name and content.
    ///
    /// # Errors
    /// Why the resource is refused. It never panics.
    pub fn decode(kind: Type, name: &str, content: &[u8]) -> Result<Self, InvalidResource> {
        if content.len() > MAX_RESOURCE_BYTES {
            return Err(InvalidResource::TooLarge(content.len()));
        }
        Ok(match kind {
            Type::MeshSettings => {
                name::mesh(name)?;
                Self::MeshSettings(proto::MeshSettings::decode(content)?.try_into()?)
            }
            Type::Node => Self::Node(address::node(
                name::node(name)?,
                proto::Node::decode(content)?,
            )?),
            Type::Address => Self::Address(address::address(
                name::address(name)?,
                proto::Address::decode(content)?,
            )?),
            Type::Policy => Self::Policy(Arc::new(policy::policy(
                name::policy(name)?,
                proto::Policy::decode(content)?,
            )?)),
            Type::Workload => Self::Workload(
                workload::workload(name::workload(name)?, proto::Workload::decode(content)?)?
                    .into(),
            ),
            Type::Service => Self::Service(service::service(
                name::service(name)?,
                proto::Service::decode(content)?,
            )?),
            Type::Endpoint => Self::Endpoint(endpoint::endpoint(
                name::endpoint(name)?,
                &proto::Endpoint::decode(content)?,
            )?),
        })
    }
}
