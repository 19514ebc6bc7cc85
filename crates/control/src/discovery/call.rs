//! The gRPC service `heddle.v1.Discovery`, down to the frames of its one method.
//!
//! Calls of nodes last for days, and there is one for each node. The encoder of tonic's services keeps the buffer of the
//! largest message, which is the first one, for as long as the call lasts. Here each message is encoded into a buffer of
//! its size, which is gone once it is sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use heddle_xds::proto::{DiscoveryRequest, DiscoveryResponse};
use heddle_xds::{MAX_DISCOVERY_REQUEST_BYTES, MAX_DISCOVERY_RESPONSE_BYTES};
use http::{HeaderMap, HeaderValue, header};
use http_body::{Body, Frame};
use prost::Message;
use tokio::sync::{mpsc, oneshot};
use tonic::codec::{BufferSettings, Streaming};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;
use tonic::{Status, body};
use tonic_prost::ProstCodec;

use super::{Shared, connection_of};

#[cfg(test)]
mod tests;

/// The path of the method.
const STREAM: &str = "/heddle.v1.Discovery/Stream";
/// Bytes before each message: whether it is compressed, and its length.
pub(super) const FRAME_HEAD: usize = 5;
/// Most messages of nodes are answers of a few bytes. The buffer for them grows as needed.
const REQUEST_BUFFER: usize = 1 << 10;

/// What a call goes on with: a frame, or the status with which it ends.
pub(super) type Answered = Result<Bytes, Status>;

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
    let buffer = BufferSettings::new(REQUEST_BUFFER, MAX_DISCOVERY_REQUEST_BYTES);
    let decoder = ProstCodec::<DiscoveryResponse, DiscoveryRequest>::raw_decoder(buffer);
    let most = Some(MAX_DISCOVERY_REQUEST_BYTES);
    let requests = Streaming::new_request(decoder, body, None, most);
    let (is_there, gone) = oneshot::channel();
    let answers = shared.stream(connection, requests, gone).await?;
    let answers = Answers {
        answers: Some(answers),
        _is_there: is_there,
    };
    let mut response = http::Response::new(body::Body::new(answers));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    Ok(response)
}

/// A message as a frame of gRPC over HTTP/2 (Length-Prefixed-Message), uncompressed.
///
/// # Errors
/// When it has more bytes than nodes accept.
pub(super) fn frame(message: &DiscoveryResponse) -> Result<Bytes, Status> {
    let bytes = message.encoded_len();
    let length = u32::try_from(bytes).ok();
    let length = length.filter(|_| bytes <= MAX_DISCOVERY_RESPONSE_BYTES);
    let too_large = || Status::out_of_range("a response is larger than nodes accept");
    let length = length.ok_or_else(too_large)?;
    let mut frame = BytesMut::with_capacity(FRAME_HEAD + bytes);
    frame.put_u8(0);
    frame.put_u32(length);
    message.encode_raw(&mut frame);
    Ok(frame.freeze())
}

/// The body of a response: frames, then the status in trailers.
struct Answers {
    answers: Option<mpsc::Receiver<Answered>>,
    /// Dropped with the body, which the server keeps until the client has read all of it.
    _is_there: oneshot::Sender<Infallible>,
}

impl Body for Answers {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(answers) = &mut self.answers else {
            return Poll::Ready(None);
        };
        let status = match answers.poll_recv(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(frame))) => return Poll::Ready(Some(Ok(Frame::data(frame)))),
            Poll::Ready(Some(Err(status))) => status,
            Poll::Ready(None) => Status::ok(""),
        };
        self.answers = None;
        let mut trailers = HeaderMap::new();
        let added = status.add_header(&mut trailers);
        Poll::Ready(Some(added.map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.answers.is_none()
    }
}
