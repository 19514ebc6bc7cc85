//! The messages of incremental xDS, with the resources as encoded bytes.
//!
//! Source: `envoy/service/discovery/v3/discovery.proto`. Only what is used of each message has a field here; what else an Envoy
//! says is skipped.

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use heddle_xds::delta::{Name, Request, Response};

use crate::Kind;

/// The path of the method for delta xDS of all types on one stream.
pub const DELTA: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

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
pub fn request(message: DeltaDiscoveryRequest) -> Request {
    let names = |names: Vec<String>| names.into_iter().map(Name::from).collect();
    let mut versions: Vec<(Name, Box<str>)> = message
        .initial_resource_versions
        .into_iter()
        .map(|(name, version)| (Name::from(name), version.into()))
        .collect();
    versions.sort_unstable();
    Request {
        subscribe: names(message.resource_names_subscribe),
        unsubscribe: names(message.resource_names_unsubscribe),
        initial_versions: versions,
        nonce: message.response_nonce.into(),
        refused: message.error_detail.map(|detail| detail.message),
    }
}
