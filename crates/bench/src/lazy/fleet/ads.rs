//! The stream of one simulated Envoy: it subscribes as a stock one does, accepts everything, and keeps only names.

use std::collections::BTreeSet;

use anyhow::Context;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{Fleet, workload};

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
/// Clusters whose names begin so are everywhere; but the gateways have endpoints.
const FIXED: &str = "heddle-";
const GATEWAYS: &str = "heddle-gateway";
/// Requests that may wait to be sent.
const REQUESTS: usize = 64;

/// What an Envoy has.
#[derive(Default)]
struct Envoy {
    /// Clusters of Services; with endpoints once these came.
    clusters: BTreeSet<String>,
    has_secrets: bool,
    has_listeners: bool,
    is_ready: bool,
}

/// Follows what an Envoy is told, until its call ends.
///
/// # Errors
/// Why it has ended.
pub(super) async fn follow(fleet: &Fleet, number: usize) -> anyhow::Result<()> {
    let channel = fleet.open(&workload(number)).await?;
    let (says, said) = mpsc::channel(REQUESTS);
    let first = DeltaDiscoveryRequest {
        node: Some(Node {
            id: workload(number),
            ..Node::default()
        }),
        ..request(CLUSTER, &[])
    };
    says.send(first).await?;
    let mut client = AggregatedDiscoveryServiceClient::new(channel);
    let begun = client
        .delta_aggregated_resources(ReceiverStream::new(said))
        .await?;
    let mut told = begun.into_inner();
    let mut envoy = Envoy::default();
    loop {
        let response = told.message().await?.context("it has ended")?;
        for request in envoy.take(&response) {
            says.send(request).await?;
        }
        if response.type_url != ROUTES {
            continue;
        }
        if !std::mem::replace(&mut envoy.is_ready, true) {
            fleet.ready.set(fleet.ready.get() + 1);
        }
        fleet.has(number, &envoy.clusters);
    }
}

impl Envoy {
    /// Takes a response. Returns what the Envoy says then, its acceptance included.
    fn take(&mut self, response: &DeltaDiscoveryResponse) -> Vec<DeltaDiscoveryRequest> {
        let names = || response.resources.iter().map(|one| one.name.as_str());
        let accepted = DeltaDiscoveryRequest {
            response_nonce: response.nonce.clone(),
            ..request(&response.type_url, &[])
        };
        let mut says = Vec::new();
        match response.type_url.as_str() {
            CLUSTER => {
                let new = names().filter(|name| *name == GATEWAYS || !name.starts_with(FIXED));
                let new: Vec<&str> = new.collect();
                if !new.is_empty() {
                    says.push(request(ENDPOINTS, &new));
                }
                let of_services = new.iter().filter(|name| **name != GATEWAYS);
                self.clusters.extend(of_services.map(ToString::to_string));
                if !std::mem::replace(&mut self.has_secrets, true) {
                    says.push(request(SECRET, &["heddle:leaf", "heddle:roots"]));
                }
                says.push(accepted);
                if !std::mem::replace(&mut self.has_listeners, true) {
                    says.push(request(LISTENER, &[]));
                }
            }
            LISTENER if names().any(|name| name == "virtual_outbound") => {
                says.extend([accepted, request(ROUTES, &["outbound"])]);
            }
            _ => says.push(accepted),
        }
        says
    }
}

fn request(type_url: &str, subscribe: &[&str]) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: type_url.to_owned(),
        resource_names_subscribe: subscribe.iter().map(ToString::to_string).collect(),
        ..DeltaDiscoveryRequest::default()
    }
}
