//! The messages of incremental xDS, with the resources as encoded bytes.
//!
//! Source: `envoy/service/discovery/v3/discovery.proto`. Only what is used of each message has a field here; what else an Envoy
//! says is skipped, and takes no memory.

use std::collections::BTreeMap;

use bytes::Bytes;
use heddle_xds::delta::{Name, Request, Response};

use crate::Kind;

/// The path of the method for delta xDS of all types on one stream.
pub const DELTA: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

/// `DeltaDiscoveryRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeltaRequest {
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    #[prost(string, tag = "2")]
    pub type_url: String,
    #[prost(string, repeated, tag = "3")]
    pub resource_names_subscribe: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub resource_names_unsubscribe: Vec<String>,
    #[prost(btree_map = "string, string", tag = "5")]
    pub initial_resource_versions: BTreeMap<String, String>,
    #[prost(string, tag = "6")]
    pub response_nonce: String,
    #[prost(message, optional, tag = "7")]
    pub error_detail: Option<Refusal>,
}

/// `Node`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Node {
    #[prost(string, tag = "1")]
    pub id: String,
}

/// `google.rpc.Status`: why a response was refused.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Refusal {
    #[prost(string, tag = "2")]
    pub message: String,
}

/// `DeltaDiscoveryResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeltaResponse {
    #[prost(message, repeated, tag = "2")]
    pub resources: Vec<Resource>,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub nonce: String,
    #[prost(string, repeated, tag = "6")]
    pub removed_resources: Vec<String>,
}

/// `Resource`: the content is an encoded `Any`, shared with all Envoys that get it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Resource {
    #[prost(string, tag = "1")]
    pub version: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub resource: Bytes,
    #[prost(string, tag = "3")]
    pub name: String,
}

impl DeltaResponse {
    /// A response of the machines, as it is sent.
    pub fn new(kind: Kind, response: Response<Bytes>) -> Self {
        let resources = response.resources.into_iter();
        let resources = resources.map(|resource| Resource {
            version: resource.version.into(),
            resource: resource.content,
            name: resource.name.to_string(),
        });
        let removed = response.removed.iter();
        DeltaResponse {
            resources: resources.collect(),
            type_url: kind.type_url().to_owned(),
            nonce: response.nonce.into(),
            removed_resources: removed.map(ToString::to_string).collect(),
        }
    }
}

/// A message of an Envoy, as the machines take it.
pub fn request(message: DeltaRequest) -> Request {
    let names = |names: Vec<String>| names.into_iter().map(Name::from).collect();
    let versions = message.initial_resource_versions.into_iter();
    let versions = versions.map(|(name, version)| (Name::from(name), version.into()));
    Request {
        subscribe: names(message.resource_names_subscribe),
        unsubscribe: names(message.resource_names_unsubscribe),
        initial_versions: versions.collect(),
        nonce: message.response_nonce.into(),
        refused: message.error_detail.map(|detail| detail.message),
    }
}
