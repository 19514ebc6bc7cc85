//! The gRPC service `heddle.v1.Discovery`, with its one method.

use std::sync::Arc;

use heddle_xds::MAX_DISCOVERY_REQUEST_BYTES;
use heddle_xds::proto::{DiscoveryRequest, DiscoveryResponse};
use tokio::sync::oneshot;
use tonic::{Status, body};

use super::{Shared, connection_of};
use crate::frames;
use crate::service::Method;

/// The method.
pub(in super::super) struct Discovery;

impl Method for Discovery {
    const SERVICE: &'static str = "heddle.v1.Discovery";
    const PATH: &'static str = "/heddle.v1.Discovery/Stream";

    async fn begin(
        shared: Arc<Shared>,
        request: http::Request<body::Body>,
    ) -> Result<http::Response<body::Body>, Status> {
        let (head, body) = request.into_parts();
        let connection = connection_of(&head.extensions)?.clone();
        let requests = frames::requests::<DiscoveryResponse, DiscoveryRequest>(
            body,
            MAX_DISCOVERY_REQUEST_BYTES,
        );
        let (is_there, gone) = oneshot::channel();
        let answers = shared.stream(connection, requests, gone).await?;
        Ok(frames::response(answers, is_there))
    }
}
