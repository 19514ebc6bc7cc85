//! Endpoints.

use heddle_model::Endpoint;

use super::fields::{account, or_empty, some, some_node, workload_name};
use super::name::EndpointName;
use super::{EndpointOf, InvalidResource};
use crate::proto;

impl From<&Endpoint> for proto::Endpoint {
    fn from(endpoint: &Endpoint) -> Self {
        Self {
            weight: endpoint.weight,
            max_requests: endpoint.max_requests.unwrap_or(0),
            workload: or_empty(endpoint.workload_name()),
            account: or_empty(endpoint.account.as_ref()),
            node: or_empty(endpoint.node.as_ref()),
            has_envoy: endpoint.has_envoy,
        }
    }
}

pub(super) fn endpoint(
    place: EndpointName,
    message: &proto::Endpoint,
) -> Result<EndpointOf, InvalidResource> {
    let endpoint = Endpoint {
        address: place.address,
        weight: message.weight,
        max_requests: (message.max_requests != 0).then_some(message.max_requests),
        workload: some(&message.workload, |text| {
            workload_name(text, "endpoint.workload")
        })?,
        remote_workload: None,
        account: some(&message.account, |text| account(text, "endpoint.account"))?,
        node: some_node(&message.node, "endpoint.node")?,
        has_envoy: message.has_envoy,
    };
    endpoint
        .check_invariants()
        .map_err(InvalidResource::Invariant)?;
    Ok(EndpointOf {
        service: place.service,
        port: place.port,
        endpoint,
    })
}
