//! A call on its way through the proxy: both directions in one task.
//!
//! ```text
//!   head ─▶ room at the upstream ─▶ request: data, trailers ─────────────┐
//!                                   waiting for the answer ─▶ answer: data, trailers ─▶ over
//!   a reset of either end, at any time ─▶ the same reset at the other ─▶ over
//! ```

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};

/// Passes a call on, and its answer back.
pub(super) async fn forward(
    call: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    upstream: SendRequest<Bytes>,
) {
    let (mut answer, mut request) = match begin(call, upstream).await {
        Ok(begun) => begun,
        Err(error) => return respond.send_reset(reason(&error)),
    };
    let answered = poll_fn(|cx| poll_answered(cx, &mut request, &mut answer, &mut respond));
    let Some(mut response) = answered.await else {
        return;
    };
    poll_fn(|cx| {
        if !response.is_over {
            // The answer may end before its request; then the rest of the request is not needed.
            let _pending = request.poll(cx);
        }
        response.poll(cx).map(|cut| {
            if let Some(cut) = cut {
                request.to.send_reset(cut);
            }
        })
    })
    .await;
}

/// Sends the head as soon as the upstream accepts another call.
async fn begin(
    call: Request<RecvStream>,
    mut upstream: SendRequest<Bytes>,
) -> Result<(ResponseFuture, Pump), h2::Error> {
    poll_fn(|cx| upstream.poll_ready(cx)).await?;
    let (head, body) = call.into_parts();
    let ends = body.is_end_stream();
    let (answer, to) = upstream.send_request(Request::from_parts(head, ()), ends)?;
    Ok((answer, Pump::new(body, to, ends)))
}

/// Passes the request on until the head of its answer has come; `None` when there will be no answer.
fn poll_answered(
    cx: &mut Context<'_>,
    request: &mut Pump,
    answer: &mut ResponseFuture,
    respond: &mut SendResponse<Bytes>,
) -> Poll<Option<Pump>> {
    // The answer is polled first: an upstream that has answered may reset the rest of the request.
    let cut = match Pin::new(answer).poll(cx) {
        Poll::Ready(Ok(answer)) => {
            let (head, body) = answer.into_parts();
            let ends = body.is_end_stream();
            match respond.send_response(Response::from_parts(head, ()), ends) {
                Ok(to) => return Poll::Ready(Some(Pump::new(body, to, ends))),
                Err(error) => reason(&error),
            }
        }
        Poll::Ready(Err(error)) => reason(&error),
        Poll::Pending => match request.poll(cx) {
            Poll::Ready(Some(cut)) => cut,
            _ => ready!(respond.poll_reset(cx)).unwrap_or(Reason::CANCEL),
        },
    };
    // Reset both ends; the one that has caused the reset ignores it.
    respond.send_reset(cut);
    request.to.send_reset(cut);
    Poll::Ready(None)
}

/// One direction of a call.
struct Pump {
    from: RecvStream,
    to: SendStream<Bytes>,
    /// Data for which the flow control window of the receiving end has no room.
    waiting: Bytes,
    is_over: bool,
}

impl Pump {
    fn new(from: RecvStream, to: SendStream<Bytes>, is_over: bool) -> Pump {
        Pump {
            from,
            to,
            waiting: Bytes::new(),
            is_over,
        }
    }

    /// Ready with `None` when everything has been passed on, or with the reason of a reset by either end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Reason>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        match self.poll_pass_on(cx) {
            Poll::Ready(Ok(())) => {
                self.is_over = true;
                Poll::Ready(None)
            }
            Poll::Ready(Err(error)) => {
                let cut = reason(&error);
                self.to.send_reset(cut);
                self.is_over = true;
                Poll::Ready(Some(cut))
            }
            Poll::Pending => {
                let cut = ready!(self.to.poll_reset(cx)).unwrap_or(Reason::CANCEL);
                self.is_over = true;
                Poll::Ready(Some(cut))
            }
        }
    }

    fn poll_pass_on(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            while !self.waiting.is_empty() {
                if ready!(self.poll_send(cx))? {
                    return Poll::Ready(Ok(()));
                }
            }
            match ready!(self.from.poll_data(cx)) {
                Some(data) => {
                    self.waiting = data?;
                    if self.waiting.is_empty() && self.from.is_end_stream() {
                        return Poll::Ready(self.to.send_data(Bytes::new(), true));
                    }
                }
                None => {
                    let sent = match ready!(self.from.poll_trailers(cx))? {
                        Some(trailers) => self.to.send_trailers(trailers),
                        None => self.to.send_data(Bytes::new(), true),
                    };
                    return Poll::Ready(sent);
                }
            }
        }
    }

    /// Sends as much as the receiving end has window for, and gives the sending end as much window. Returns whether
    /// that was the end of the stream.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, h2::Error>> {
        self.to.reserve_capacity(self.waiting.len());
        let room = match self.to.capacity() {
            0 => match ready!(self.to.poll_capacity(cx)) {
                Some(room) => room?,
                None => return Poll::Ready(Err(Reason::CANCEL.into())),
            },
            room => room,
        };
        let part = self.waiting.split_to(room.min(self.waiting.len()));
        let count = part.len();
        let ends = self.waiting.is_empty() && self.from.is_end_stream();
        self.to.send_data(part, ends)?;
        self.from.flow_control().release_capacity(count)?;
        Poll::Ready(Ok(ends))
    }
}

/// The reason that the other end gets for an error.
fn reason(error: &h2::Error) -> Reason {
    error.reason().unwrap_or(Reason::CANCEL)
}

#[cfg(test)]
mod tests;
