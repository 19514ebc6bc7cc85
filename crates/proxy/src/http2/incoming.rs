//! The receiving half of an exchange: heads are converted to text, bodies are not changed.
//!
//! ```text
//!   caller:            Answer ─ head ─┐
//!                        ▲ │          ├─▶ Body ─ its data ─▶ Trailers ─▶ Ended
//!                        └─┘ interim  │
//!   called:  Nothing ─ a request ─────┘
//! ```

use std::cell::RefCell;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use h2::RecvStream;
use h2::client::ResponseFuture;
use heddle_wire::http1::Method;
use http::HeaderMap;

use super::{Shared, head};
use crate::io::SideResult;

thread_local! {
    /// Buffer for the text of a head.
    static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Consumer of received bytes.
pub(super) type Put<'a> = &'a mut dyn FnMut(&[u8]) -> SideResult<()>;

#[derive(Debug)]
pub(super) enum Incoming {
    /// Nothing is expected yet.
    Nothing,
    /// The response to a request with this method.
    Answer(ResponseFuture, Method),
    /// The body after a head.
    Body(RecvStream),
    /// The body is complete; trailers may follow.
    Trailers(RecvStream),
    /// Everything was received. Trailers are kept here until they are taken.
    Ended(Option<Box<HeaderMap>>),
}

impl Incoming {
    /// Accepts a request, and passes its head to `put`. Returns the head's length.
    ///
    /// # Errors
    /// The error of `put`.
    pub(super) fn request(
        &mut self,
        request: http::Request<RecvStream>,
        put: Put<'_>,
    ) -> SideResult<usize> {
        let (head, stream) = request.into_parts();
        let ended = stream.is_end_stream();
        TEXT.with_borrow_mut(|text| {
            head::write_request(&head, ended, text);
            self.follows(stream, ended);
            put(text)?;
            Ok(text.len())
        })
    }

    fn follows(&mut self, stream: RecvStream, ended: bool) {
        *self = match ended {
            true => Incoming::Ended(None),
            false => Incoming::Body(stream),
        };
    }

    /// Passes about `want` received bytes to `put`. 0 means the end of the stream.
    ///
    /// # Errors
    /// Why the stream failed, or the error of `put`.
    pub(super) fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        shared: &Shared,
        want: usize,
        put: Put<'_>,
    ) -> Poll<SideResult<usize>> {
        let mut taken = 0;
        while taken < want.max(1) {
            let moved = match self {
                Incoming::Nothing | Incoming::Ended(_) => break,
                Incoming::Answer(..) => self.poll_answer(cx, shared, put),
                Incoming::Body(_) => self.poll_body(cx, shared, put),
                Incoming::Trailers(_) => self.poll_trailers(cx, shared).map_ok(|()| 0),
            };
            match moved {
                Poll::Ready(moved) => taken += moved?,
                Poll::Pending if taken == 0 => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(taken))
    }

    /// Receives the next head of the response, interim or final.
    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        shared: &Shared,
        put: Put<'_>,
    ) -> Poll<SideResult<usize>> {
        let Incoming::Answer(answer, method) = self else {
            return Poll::Ready(Ok(0));
        };
        let method = *method;
        let interim = match answer.poll_informational(cx) {
            Poll::Ready(interim) => interim.transpose(),
            Poll::Pending => return Poll::Pending,
        };
        let interim = interim.map_err(|error| shared.error(&error))?;
        let head = match interim {
            Some(interim) => interim.map(|()| None),
            None => match Pin::new(answer).poll(cx) {
                Poll::Ready(answer) => answer.map_err(|error| shared.error(&error))?.map(Some),
                Poll::Pending => return Poll::Pending,
            },
        };
        let (head, stream) = head.into_parts();
        TEXT.with_borrow_mut(|text| {
            let ended = stream.as_ref().is_none_or(RecvStream::is_end_stream);
            head::write_response(&head, method, ended, text);
            // Another head follows an interim one.
            if let Some(stream) = stream {
                self.follows(stream, ended);
            }
            put(text)?;
            Poll::Ready(Ok(text.len()))
        })
    }

    /// Receives the next piece of the body.
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        shared: &Shared,
        put: Put<'_>,
    ) -> Poll<SideResult<usize>> {
        let Incoming::Body(stream) = self else {
            return Poll::Ready(Ok(0));
        };
        let data = match ready!(stream.poll_data(cx)).transpose() {
            Ok(data) => data,
            Err(error) => return Poll::Ready(Err(shared.error(&error))),
        };
        let mut moved = 0;
        if let Some(data) = &data {
            put(data)?;
            moved = data.len();
            // Fails only for a stream that has ended.
            let _over = stream.flow_control().release_capacity(data.len());
        }
        if stream.is_end_stream() {
            *self = Incoming::Ended(None);
        } else if data.is_none()
            && let Incoming::Body(stream) = mem::replace(self, Incoming::Nothing)
        {
            *self = Incoming::Trailers(stream);
        }
        Poll::Ready(Ok(moved))
    }

    /// Receives the trailers.
    fn poll_trailers(&mut self, cx: &mut Context<'_>, shared: &Shared) -> Poll<SideResult<()>> {
        let Incoming::Trailers(stream) = self else {
            return Poll::Ready(Ok(()));
        };
        let trailers = match ready!(stream.poll_trailers(cx)) {
            Ok(trailers) => trailers.map(Box::new),
            Err(error) => return Poll::Ready(Err(shared.error(&error))),
        };
        *self = Incoming::Ended(trailers);
        Poll::Ready(Ok(()))
    }

    /// Whether everything was received, and there are no trailers left to take.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self, Incoming::Ended(None))
    }

    /// Takes the trailers of a body that has ended.
    pub(super) fn take_trailers(&mut self) -> Option<Box<HeaderMap>> {
        match self {
            Incoming::Ended(trailers) => trailers.take(),
            _ => None,
        }
    }
}
