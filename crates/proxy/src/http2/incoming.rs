//! The half of an exchange that is received: frames in, HTTP/1.1 out.
//!
//! ```text
//!   caller:            Answer ─ head ─┐
//!                        ▲ │          ├─▶ Body ─ its end ─▶ Ended
//!                        └─┘ interim  │
//!   called:  Nothing ─ a request ─────┘
//! ```

use std::cell::RefCell;
use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;
use h2::client::ResponseFuture;
use heddle_wire::http1::Method;

use super::Shared;
use super::head::{self, Body};
use crate::io::SideResult;

/// The last chunk (RFC 9112 section 7.1).
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

thread_local! {
    /// A head as text.
    static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Takes what has come.
pub(super) type Put<'a> = &'a mut dyn FnMut(&[u8]) -> SideResult<()>;

#[derive(Debug)]
pub(super) enum Incoming {
    /// Nothing is to come yet.
    Nothing,
    /// The answer to a request with this method.
    Answer(ResponseFuture, Method),
    /// What follows a head.
    Body(RecvStream, Body),
    /// Everything has come.
    Ended,
}

impl Incoming {
    /// A request has come. Puts its head. Returns how many bytes it has.
    ///
    /// # Errors
    /// When it cannot be put.
    pub(super) fn request(
        &mut self,
        request: http::Request<RecvStream>,
        put: Put<'_>,
    ) -> SideResult<usize> {
        let (head, stream) = request.into_parts();
        let ended = stream.is_end_stream();
        TEXT.with_borrow_mut(|text| {
            let body = head::write_request(&head, ended, text);
            self.follows(stream, body, ended);
            put(text)?;
            Ok(text.len())
        })
    }

    fn follows(&mut self, stream: RecvStream, body: Body, ended: bool) {
        *self = match ended {
            true => Incoming::Ended,
            false => Incoming::Body(stream, body),
        };
    }

    /// Puts what has come, about `want` bytes of it. 0 means that nothing more comes.
    ///
    /// # Errors
    /// Why the stream broke, or when it cannot be put.
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
                Incoming::Nothing | Incoming::Ended => break,
                Incoming::Answer(..) => self.poll_answer(cx, shared, put),
                Incoming::Body(..) => self.poll_body(cx, shared, put),
            };
            match moved {
                Poll::Ready(moved) => taken += moved?,
                Poll::Pending if taken == 0 => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(taken))
    }

    /// The next head of the answer, interim or final.
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
            let body = head::write_response(&head, method, ended, text);
            // Another head follows an interim one.
            if let Some(stream) = stream {
                self.follows(stream, body, ended);
            }
            put(text)?;
            Poll::Ready(Ok(text.len()))
        })
    }

    /// The next piece of the body.
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        shared: &Shared,
        put: Put<'_>,
    ) -> Poll<SideResult<usize>> {
        let Incoming::Body(stream, body) = self else {
            return Poll::Ready(Ok(0));
        };
        let chunks = *body == Body::Chunks;
        let data = match stream.poll_data(cx) {
            Poll::Ready(data) => data.transpose(),
            Poll::Pending => return Poll::Pending,
        };
        let data = match data {
            Ok(data) => data,
            // An end that has answered needs no more of the request (RFC 9113 section 8.1).
            Err(error) if error.reason() == Some(h2::Reason::NO_ERROR) && error.is_reset() => None,
            Err(error) => return Poll::Ready(Err(shared.error(&error))),
        };
        let mut moved = 0;
        if let Some(data) = &data {
            moved += put_data(data, chunks, put)?;
            // A stream that is over has no window.
            let _over = stream.flow_control().release_capacity(data.len());
        }
        if data.is_none() || stream.is_end_stream() {
            if chunks {
                put(LAST_CHUNK)?;
                moved += LAST_CHUNK.len();
            }
            *self = Incoming::Ended;
        }
        Poll::Ready(Ok(moved))
    }
}

fn put_data(data: &Bytes, chunks: bool, put: Put<'_>) -> SideResult<usize> {
    if data.is_empty() {
        // An empty chunk would be the last.
        return Ok(0);
    }
    if !chunks {
        put(data)?;
        return Ok(data.len());
    }
    let mut line = [0; 20];
    let mut rest = &mut line[..];
    write!(rest, "{:x}\r\n", data.len())?;
    let left = rest.len();
    let size = &line[..line.len() - left];
    put(size)?;
    put(data)?;
    put(b"\r\n")?;
    Ok(size.len() + data.len() + 2)
}
