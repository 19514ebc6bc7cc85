//! The frames of calls that last for days, of which there is one for each client.
//!
//! The encoder of tonic's services keeps the buffer of the largest message, which is the first one, for as long as the call
//! lasts. Here each message is encoded into a buffer of its size, which is gone once it is sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, header};
use http_body::{Body, Frame};
use prost::Message;
use tokio::sync::{mpsc, oneshot};
use tonic::codec::{BufferSettings, Streaming};
use tonic::{Status, body};
use tonic_prost::ProstCodec;

#[cfg(test)]
mod tests;

/// Bytes before each message: whether it is compressed, and its length.
pub(super) const FRAME_HEAD: usize = 5;
/// Most messages of clients are answers of a few bytes. The buffer for them grows as needed.
const REQUEST_BUFFER: usize = 1 << 10;

/// What a call goes on with: a frame, or the status with which it ends.
pub(super) type Answered = Result<Bytes, Status>;

/// The messages of a client, of `most` bytes each at most.
pub(super) fn requests<Response, Request>(body: body::Body, most: usize) -> Streaming<Request>
where
    Response: Message + Send + 'static,
    Request: Message + Default + Send + 'static,
{
    let buffer = BufferSettings::new(REQUEST_BUFFER, most);
    let decoder = ProstCodec::<Response, Request>::raw_decoder(buffer);
    Streaming::new_request(decoder, body, None, Some(most))
}

/// The response of a call, until `answers` ends. `is_there` is dropped once the client has read all of it, or is gone.
pub(super) fn response(
    answers: mpsc::Receiver<Answered>,
    is_there: oneshot::Sender<Infallible>,
) -> http::Response<body::Body> {
    let answers = Answers {
        answers: Some(answers),
        _is_there: is_there,
    };
    let mut response = http::Response::new(body::Body::new(answers));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    response
}

/// A message as a frame of gRPC over HTTP/2 (Length-Prefixed-Message), uncompressed.
///
/// # Errors
/// When it has more bytes than clients accept, which is `most`.
pub(super) fn frame(message: &impl Message, most: usize) -> Result<Bytes, Status> {
    let bytes = message.encoded_len();
    let length = u32::try_from(bytes).ok();
    let length = length.filter(|_| bytes <= most);
    let too_large = || Status::out_of_range("a response is larger than clients accept");
    let length = length.ok_or_else(too_large)?;
    let mut frame = BytesMut::with_capacity(FRAME_HEAD + bytes);
    frame.put_u8(0);
    frame.put_u32(length);
    // Fails only without room, and there is room for all of it.
    let _fits = message.encode(&mut frame);
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
