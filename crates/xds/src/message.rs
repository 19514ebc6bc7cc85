//! Messages of the protocol, from what the machines say.

use crate::delta::{Name, Request};
use crate::proto::{DiscoveryRequest, ResourceVersion};
use crate::resources::Type;

/// What a client says of one type, as a message of the protocol. The first one of a call has the node beside it.
pub fn discovery_request(kind: Type, request: Request) -> DiscoveryRequest {
    let names = |names: Vec<Name>| names.iter().map(ToString::to_string).collect();
    let versions = request.initial_versions.into_iter();
    let versions = versions.map(|(name, version)| ResourceVersion {
        name: name.to_string(),
        version: version.into(),
    });
    DiscoveryRequest {
        node: None,
        type_url: kind.type_url().to_owned(),
        subscribe: names(request.subscribe),
        unsubscribe: names(request.unsubscribe),
        initial_versions: versions.collect(),
        nonce: request.nonce.into(),
        refused: request.refused.unwrap_or_default(),
    }
}
