//! One simulated node, which asks istiod for what a ztunnel asks for, and notes what came.

use std::collections::{BTreeSet, HashSet};
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::time::Duration;

use ::http::uri::PathAndQuery;
use anyhow::Context;
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

use super::objects::pod_in;
use super::proto::{
    ADDRESS, AUTHORIZATION, Address, DeltaDiscoveryRequest, DeltaDiscoveryResponse, Kind, Node,
};
use crate::control_scale::common::Common;
use crate::control_scale::has::Has;
use crate::control_scale::ledger::Told;
use crate::control_scale::machine::Taken;
use crate::control_scale::shape::{change_of, service_address, service_in, service_of};

/// How long a connection and the beginning of its call may take.
const BEGINS_WITHIN: Duration = Duration::from_secs(120);
/// Requests of a call that may wait to be sent.
const REQUESTS: usize = 16;
/// The largest message of istiod: all pods, for a node that wants everything.
const MAX_RESPONSE_BYTES: usize = 256 << 20;

/// Follows what a node uses, until its call ends. `place` is given back when the node has its first answer.
///
/// # Errors
/// Why the call has ended.
pub(in crate::control_scale) async fn follow(
    common: &Common,
    number: usize,
    place: OwnedSemaphorePermit,
) -> anyhow::Result<Infallible> {
    let node = &common.nodes[number];
    let endpoint = Endpoint::from_shared(format!("http://{}", common.control))?;
    let opened = timeout(BEGINS_WITHIN, endpoint.tcp_nodelay(true).connect()).await;
    let channel = opened.context("istiod does not answer")??;
    let mut grpc = Grpc::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
    grpc.ready().await?;
    let (requests, said) = mpsc::channel(REQUESTS);
    for request in first(number, common.told, &node.uses) {
        requests.send(request).await?;
    }
    let codec = ProstCodec::<DeltaDiscoveryRequest, DeltaDiscoveryResponse>::default();
    let path = PathAndQuery::from_static(
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
    );
    let call = grpc.streaming(Request::new(ReceiverStream::new(said)), path, codec);
    let call = timeout(BEGINS_WITHIN, call).await;
    let mut responses = call.context("no answer to the call")??.into_inner();
    let mut place = Some(place);
    let mut known = KnownPods::default();
    loop {
        let response = responses.message().await?.context("it has ended")?;
        requests
            .send(DeltaDiscoveryRequest {
                type_url: response.type_url.clone(),
                nonce: response.nonce.clone(),
                ..DeltaDiscoveryRequest::default()
            })
            .await?;
        let taken = known.take(&response, &node.uses, &mut node.has.borrow_mut())?;
        common.note(number, taken);
        place.take_if(|_| response.type_url == ADDRESS);
    }
}

/// What a node says first: the addresses of the Services that it uses, or that it wants everything; and all policies.
fn first(number: usize, told: Told, uses: &BTreeSet<usize>) -> [DeltaDiscoveryRequest; 2] {
    // The second field is an address, which istiod wants to be one, and uses for nothing here.
    let id =
        format!("ztunnel~127.0.0.1~ztunnel-{number}.istio-system~istio-system.svc.cluster.local");
    let everything = || vec!["*".to_owned()];
    let subscribe = match told {
        // An address of the network that has no name.
        Told::Users => uses
            .iter()
            .map(|service| format!("/{}", service_address(*service)))
            .collect(),
        Told::All => everything(),
    };
    let of = |type_url: &str, subscribe| DeltaDiscoveryRequest {
        type_url: type_url.to_owned(),
        subscribe,
        ..DeltaDiscoveryRequest::default()
    };
    let mut first = [of(ADDRESS, subscribe), of(AUTHORIZATION, everything())];
    first[0].node = Some(Node { id });
    first
}

/// The pods that a node has been told of.
#[derive(Default)]
struct KnownPods {
    pods: HashSet<usize>,
}

impl KnownPods {
    fn take(
        &mut self,
        response: &DeltaDiscoveryResponse,
        uses: &BTreeSet<usize>,
        has: &mut Has,
    ) -> anyhow::Result<Taken> {
        let mut taken = Taken {
            bytes: response.encoded_len(),
            is_marked: true,
            ..Taken::default()
        };
        if response.type_url != ADDRESS {
            return Ok(taken);
        }
        for one in &response.resources {
            let content = one.content.as_ref().context("a resource without content")?;
            let address = Address::decode(content.value.clone())?;
            match (address.kind, pod_in(&one.name), service_in(&one.name)) {
                (Some(Kind::Workload(workload)), Some(pod), _) => {
                    self.pods.insert(pod);
                    taken.is_owed |= uses.contains(&service_of(pod));
                    let address = workload.addresses.first();
                    let address: Option<[u8; 4]> =
                        address.and_then(|bytes| bytes.as_slice().try_into().ok());
                    taken
                        .marked
                        .extend(address.map(Ipv4Addr::from).and_then(change_of));
                }
                (Some(Kind::Service(_)), _, Some(service)) => {
                    has.services.insert(service);
                    taken.is_owed |= uses.contains(&service);
                }
                _ => {}
            }
        }
        for name in &response.removed {
            pod_in(name).map(|pod| self.pods.remove(&pod));
            service_in(name).map(|service| has.services.remove(&service));
        }
        has.endpoints = self.pods.len();
        has.is_marked = true;
        Ok(taken)
    }
}
