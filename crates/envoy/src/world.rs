//! State-of-the-world xDS, for an Envoy that asks for it: the same stream, told in whole lists.
//!
//! Of clusters and listeners each response has all that there are, and what it lacks is gone. Of the other types an Envoy names
//! what it wants, and a response has what is new of that. Source: Envoy's xDS protocol, "State of the World".

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use heddle_xds::delta::{Name, Request, Response};

use crate::Kind;
use crate::wire::{Node, Refusal};

#[cfg(test)]
mod tests;

/// The path of the method for state-of-the-world xDS of all types on one stream.
pub const WORLD: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// One Envoy's stream, between its messages and those of a [`Session`](crate::Session).
#[derive(Debug, Default)]
pub struct World {
    kinds: [OfKind; Kind::ALL.len()],
}

#[derive(Debug, Default)]
struct OfKind {
    /// What the Envoy has named.
    named: BTreeSet<Name>,
    /// What it has, of a type that is told in whole lists.
    has: BTreeMap<Name, Bytes>,
    /// The nonce of the response that it has not answered yet.
    due: Option<Box<str>>,
    /// Counts the responses.
    version: u64,
}

/// `DiscoveryRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WorldRequest {
    #[prost(message, optional, tag = "2")]
    pub node: Option<Node>,
    #[prost(string, repeated, tag = "3")]
    pub resource_names: Vec<String>,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub response_nonce: String,
    #[prost(message, optional, tag = "6")]
    pub error_detail: Option<Refusal>,
}

/// `DiscoveryResponse`: each resource is an encoded `Any`, shared with all Envoys that get it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WorldResponse {
    #[prost(string, tag = "1")]
    pub version_info: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub resources: Vec<Bytes>,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub nonce: String,
}

impl World {
    /// A message of the Envoy about a type, as a [`Session`](crate::Session) takes it.
    pub fn request(&mut self, kind: Kind, message: WorldRequest) -> Request {
        let of = &mut self.kinds[kind as usize];
        let named: BTreeSet<Name> = message.resource_names.into_iter().map(Name::from).collect();
        // Each message has all names, and the nonce of the last response, answered or not.
        let is_answer = of.due.as_deref() == Some(&*message.response_nonce);
        let nonce = of.due.take_if(|_| is_answer).unwrap_or_default();
        let request = Request {
            subscribe: named.difference(&of.named).cloned().collect(),
            unsubscribe: of.named.difference(&named).cloned().collect(),
            initial_versions: Vec::new(),
            refused: message
                .error_detail
                .filter(|_| is_answer)
                .map(|detail| detail.message),
            nonce,
        };
        of.named = named;
        request
    }

    /// A response of the session, as it is sent.
    pub fn response(&mut self, kind: Kind, response: Response<Bytes>) -> WorldResponse {
        let of = &mut self.kinds[kind as usize];
        of.version += 1;
        of.due = Some(response.nonce.clone());
        let new = response.resources.into_iter();
        let resources = match kind.is_wildcard() {
            true => {
                of.has
                    .extend(new.map(|resource| (resource.name, resource.content)));
                response
                    .removed
                    .iter()
                    .for_each(|name| drop(of.has.remove(name)));
                of.has.values().cloned().collect()
            }
            false => new.map(|resource| resource.content).collect(),
        };
        WorldResponse {
            version_info: of.version.to_string(),
            resources,
            type_url: kind.type_url().to_owned(),
            nonce: response.nonce.into(),
        }
    }
}
