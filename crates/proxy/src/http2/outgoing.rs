//! The sending half of an exchange: heads are converted from text, bodies are not changed.
//!
//! ```text
//!   caller:  Request ─ head ─┐
//!                            ├─▶ Body ─ its last byte, or told so, with trailers ─▶ Nothing
//!   called:  Answer ── head ─┘     │
//!              ▲ │                 └─ dropped ─▶ the stream is reset
//!              └─┘ interim heads
//! ```

use std::cell::RefCell;
use std::mem;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use heddle_wire::http1::{Framing, Method};
use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::head::{self, Translated};
use super::{SEND_BUFFER, Shared};
use crate::failure::Reason;
use crate::failure::StreamFailure;
use crate::io::{Message, SideError, SideResult};

/// Size in which buffers for outgoing data are allocated, in bytes.
const ROOM_BYTES: usize = 64 * 1024;

thread_local! {
    /// Buffer in which outgoing data is put together.
    static ROOM: RefCell<BytesMut> = RefCell::default();
}

#[derive(Debug)]
pub(super) enum Outgoing {
    /// Everything was sent, or nothing is to be sent yet.
    Nothing,
    /// A request that is not sent yet.
    Request(Box<Translated<http::Request<()>>>),
    /// The response to a request with this method.
    Answer(SendResponse<Bytes>, Method),
    /// The body after a head.
    Body(OutgoingBody),
}

#[derive(Debug)]
pub(super) struct OutgoingBody {
    stream: SendStream<Bytes>,
    /// Bytes of the body that are left to send, if the body has a length.
    left: Option<u64>,
    trailers: Option<Box<HeaderMap>>,
}

impl Outgoing {
    /// Sends the request. Its body is open if that of `message` is. Returns the receiving half of the stream, and the
    /// method.
    ///
    /// # Errors
    /// When no stream can be opened any more. Nothing was sent then.
    pub(super) fn request(
        &mut self,
        sender: Option<SendRequest<Bytes>>,
        message: &Message,
    ) -> SideResult<(ResponseFuture, Method)> {
        let (Some(mut sender), Outgoing::Request(request)) =
            (sender, mem::replace(self, Outgoing::Nothing))
        else {
            return Err(lost());
        };
        let all = request.is_all() && !message.is_open();
        let Translated {
            head,
            framing,
            method,
        } = *request;
        let (answer, stream) = sender.send_request(head, all).map_err(|_| lost())?;
        self.goes_on(stream, framing, all, message);
        Ok((answer, method))
    }

    /// Sends the head of a response.
    ///
    /// # Errors
    /// When HTTP/2 cannot represent it, or the caller does not receive it any more.
    pub(super) fn answer(&mut self, shared: &Shared, message: &Message) -> SideResult<()> {
        let Outgoing::Answer(respond, method) = self else {
            return Err(lost());
        };
        let answer = head::response(message.head(), *method);
        let answer = answer.ok_or(lost())?;
        let all = answer.is_all() && !message.is_open();
        let Translated { head, framing, .. } = answer;
        if head.status().is_informational() {
            let said = respond.send_informational(head);
            said.map_err(|error| shared.error(&error))?;
            return Ok(());
        }
        let stream = respond.send_response(head, all);
        let stream = stream.map_err(|error| shared.error(&error))?;
        self.goes_on(stream, framing, all, message);
        Ok(())
    }

    fn goes_on(
        &mut self,
        stream: SendStream<Bytes>,
        framing: Framing,
        all: bool,
        message: &Message,
    ) {
        let left = match framing {
            Framing::Length(length) if !message.is_open() => Some(length),
            _ => None,
        };
        *self = match all {
            true => Outgoing::Nothing,
            false => Outgoing::Body(OutgoingBody {
                stream,
                left,
                trailers: None,
            }),
        };
    }

    /// Sends data of the body, as far as flow control allows. Returns how many bytes were sent.
    ///
    /// # Errors
    /// When the other end accepts no more.
    pub(super) fn poll_put<'a>(
        &mut self,
        cx: &mut Context<'_>,
        shared: &Shared,
        runs: impl Iterator<Item = &'a [u8]>,
        limit: usize,
    ) -> Poll<SideResult<usize>> {
        if limit == 0 {
            return Poll::Ready(Ok(0));
        }
        let Outgoing::Body(OutgoingBody { stream, left, .. }) = self else {
            return Poll::Ready(Err(lost()));
        };
        let room = ready!(poll_room(cx, shared, stream, limit.min(SEND_BUFFER)))?;
        let mut taken = 0;
        let data = ROOM.with_borrow_mut(|data| {
            data.reserve(match data.capacity() {
                0 => ROOM_BYTES,
                _ => room,
            });
            for run in runs {
                let run = &run[..run.len().min(room - taken)];
                data.extend_from_slice(run);
                taken += run.len();
                if taken == room {
                    break;
                }
            }
            data.split().freeze()
        });
        if let Some(left) = left {
            *left = left.saturating_sub(taken as u64);
        }
        let all = *left == Some(0);
        let sent = stream.send_data(data, all);
        sent.map_err(|error| shared.error(&error))?;
        if all {
            *self = Outgoing::Nothing;
        }
        Poll::Ready(Ok(taken))
    }

    /// Adds a trailer, unless HTTP/2 cannot represent it.
    pub(super) fn add_trailer(&mut self, name: &[u8], value: &[u8]) {
        let Outgoing::Body(OutgoingBody { trailers, .. }) = self else {
            return;
        };
        let (name, value) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value));
        if let (Ok(name), Ok(value)) = (name, value) {
            // The source of trailers limits their size, far below the capacity of a map.
            let _bounded = trailers.get_or_insert_default().try_append(name, value);
        }
    }

    /// Ends the body.
    ///
    /// # Errors
    /// When the other end accepts no more.
    pub(super) fn end_body(&mut self, shared: &Shared) -> SideResult<()> {
        let Outgoing::Body(mut body) = mem::replace(self, Outgoing::Nothing) else {
            return Ok(());
        };
        let ended = match body.trailers {
            Some(trailers) => body.stream.send_trailers(*trailers),
            None => body.stream.send_data(Bytes::new(), true),
        };
        ended.map_err(|error| shared.error(&error))
    }

    /// Whether the other end has reset the stream; `cx` is woken when it does.
    pub(super) fn has_failed(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Outgoing::Answer(respond, _) => respond.poll_reset(cx).is_ready(),
            Outgoing::Body(body) => body.stream.poll_reset(cx).is_ready(),
            Outgoing::Nothing | Outgoing::Request(_) => false,
        }
    }
}

/// Waits until flow control allows some of `want` bytes. Returns how many.
fn poll_room(
    cx: &mut Context<'_>,
    shared: &Shared,
    stream: &mut SendStream<Bytes>,
    want: usize,
) -> Poll<SideResult<usize>> {
    stream.reserve_capacity(want);
    loop {
        let room = stream.capacity().min(want);
        if room > 0 {
            return Poll::Ready(Ok(room));
        }
        match ready!(stream.poll_capacity(cx)) {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Poll::Ready(Err(shared.error(&error))),
            None => {
                return Poll::Ready(Err(match stream.poll_reset(cx) {
                    Poll::Ready(Err(error)) => shared.error(&error),
                    // The other end has reset the stream, and may have processed the data sent before.
                    _ => StreamFailure::over().into(),
                }));
            }
        }
    }
}

/// The error if nothing can be sent any more.
fn lost() -> SideError {
    StreamFailure::unsent(Reason::LinkLost).into()
}
