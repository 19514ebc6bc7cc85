//! The gRPC service `heddle.v1.Discovery`, with its one method.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use heddle_xds::MAX_DISCOVERY_REQUEST_BYTES;
use heddle_xds::proto::{DiscoveryRequest, DiscoveryResponse};
use tokio::sync::oneshot;
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;
use tonic::{Status, body};

use super::{Shared, connection_of};
use crate::frames;

/// The path of the method.
const STREAM: &str = "/heddle.v1.Discovery/Stream";

/// The service, as a router takes it.
#[derive(Clone)]
pub(in super::super) struct DiscoveryServer(pub(in super::super) Arc<Shared>);

impl NamedService for DiscoveryServer {
    const NAME: &'static str = "heddle.v1.Discovery";
}

impl Service<http::Request<body::Body>> for DiscoveryServer {
    type Response = http::Response<body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<body::Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let answer = match request.uri().path() {
                STREAM => begin(shared, request).await,
                _ => Err(Status::unimplemented("there is no such method")),
            };
            Ok(answer.unwrap_or_else(Status::into_http))
        })
    }
}

async fn begin(
    shared: Arc<Shared>,
    request: http::Request<body::Body>,
) -> Result<http::Response<body::Body>, Status> {
    let (head, body) = request.into_parts();
    let connection = connection_of(&head.extensions)?.clone();
    let requests =
        frames::requests::<DiscoveryResponse, DiscoveryRequest>(body, MAX_DISCOVERY_REQUEST_BYTES);
    let (is_there, gone) = oneshot::channel();
    let answers = shared.stream(connection, requests, gone).await?;
    Ok(frames::response(answers, is_there))
}
