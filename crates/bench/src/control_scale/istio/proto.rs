//! Messages, as far as a node needs them: of delta xDS (`envoy/service/discovery/v3/discovery.proto`), and of workload
//! discovery (Istio's `workloadapi/workload.proto`).

use prost::{Message, Oneof};

/// A resource of which addresses are names: a pod or a Service.
pub(super) const ADDRESS: &str = "type.googleapis.com/istio.workload.Address";
/// The policies, all of which every ztunnel wants.
pub(super) const AUTHORIZATION: &str = "type.googleapis.com/istio.security.Authorization";

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeltaDiscoveryRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) node: Option<Node>,
    #[prost(string, tag = "2")]
    pub(super) type_url: String,
    #[prost(string, repeated, tag = "3")]
    pub(super) subscribe: Vec<String>,
    #[prost(string, tag = "6")]
    pub(super) nonce: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(string, tag = "1")]
    pub(super) id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeltaDiscoveryResponse {
    #[prost(string, tag = "1")]
    pub(super) system_version: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) resources: Vec<Resource>,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    #[prost(string, tag = "5")]
    pub(super) nonce: String,
    #[prost(string, repeated, tag = "6")]
    pub(super) removed: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(string, tag = "1")]
    pub(super) version: String,
    #[prost(message, optional, tag = "2")]
    pub(super) content: Option<Any>,
    #[prost(string, tag = "3")]
    pub(super) name: String,
    #[prost(string, repeated, tag = "4")]
    pub(super) aliases: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Any {
    #[prost(string, tag = "1")]
    pub(super) type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: bytes::Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Address {
    #[prost(oneof = "Kind", tags = "1, 2")]
    pub(super) kind: Option<Kind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Kind {
    #[prost(message, tag = "1")]
    Workload(Workload),
    #[prost(message, tag = "2")]
    Service(Service),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Workload {
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub(super) addresses: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Service {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}
