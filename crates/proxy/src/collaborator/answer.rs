//! Receives an endpoint's response, while the request may still be on its way, and delivers it.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use heddle_wire::buffer::Chain;
use heddle_wire::http1::{Framing, ResponseHead, protocols};

use super::Connection;
use super::attempt::Attempt;
use super::edits::{cut_reason, encode_response, write};
use super::exchange::Exchange;
use crate::clock::Millis;
use crate::connect::{link_failed, refused};
use crate::failure::{Failure, Reason};
use crate::handshake::HandshakeError;
use crate::io::SideError;
use crate::pump::{Pump, PumpError};
use crate::upstream::Upstream;
use crate::worker::Scratch;

/// Limit of interim responses for one request. A server with a long task may send one every few seconds; more than this
/// many are a flood.
const MAX_INTERIM: u32 = 100;
/// Interim responses that are passed on before other work gets its turn.
const TURN_INTERIM: u32 = 8;

impl Connection {
    /// Passes the request's body on, and waits for the head of the final response, which stays parsed in the scratch.
    /// Returns the head's length.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        attempt: &mut Attempt,
        upstream: &mut Upstream,
    ) -> Poll<Result<usize, Failure>> {
        let turn_ends = exchange.response.interim + TURN_INTERIM;
        loop {
            if self.alarm.rang() {
                return Poll::Ready(Err(self.late(exchange, attempt, upstream).into()));
            }
            if !upstream.side.inbox.is_empty()
                && let Some(head_bytes) = self.parse_response(exchange, upstream)?
            {
                if !self.worker.scratch.borrow().response.is_interim() {
                    return Poll::Ready(Ok(head_bytes));
                }
                self.pass_interim(cx, exchange, attempt, upstream, head_bytes)?;
                if exchange.response.interim == turn_ends {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                continue;
            }
            self.push(cx, exchange, attempt, upstream)?;
            // If the client does not read its interim responses, no more are read from the endpoint.
            match self.client.poll_flush(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Reason::ClientGone.into())),
                Poll::Pending => return Poll::Pending,
            }
            let want = self.worker.pool.block_size();
            match upstream.side.poll_fill(cx, &self.worker.pool, want) {
                Poll::Ready(Ok(n)) if n > 0 => {}
                Poll::Ready(ended) => {
                    let theirs = match upstream.side.inbox.is_empty() {
                        true => Reason::UpstreamReset,
                        false => Reason::UpstreamTruncated,
                    };
                    let reason = match ended {
                        Ok(_) => theirs,
                        Err(error) => self.upstream_error(attempt, error, theirs),
                    };
                    let reason = reason.without_answer(upstream.side.is_to_node());
                    return Poll::Ready(Err(reason.into()));
                }
                Poll::Pending => {
                    self.watch_client(cx, exchange)?;
                    return Poll::Pending;
                }
            }
        }
    }

    /// The reason for an error of the endpoint's connection. Another node may refuse our identity late, after the
    /// handshake.
    pub(super) fn upstream_error(
        &self,
        attempt: &Attempt,
        error: SideError,
        theirs: Reason,
    ) -> Reason {
        if let SideError::Stream(failure) = error {
            let reason = failure.of_request();
            link_failed(&self.worker, attempt.lease.endpoint(), &self.door, reason);
            return reason;
        }
        match HandshakeError::of(error) {
            broken @ HandshakeError::Refused(_) => {
                refused(&self.worker, attempt.lease.endpoint(), &self.door, &broken)
            }
            HandshakeError::Memory => Reason::Memory,
            _ => theirs,
        }
    }

    /// Sends the request's body, or the rest of its head.
    fn push(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        attempt: &mut Attempt,
        upstream: &mut Upstream,
    ) -> Result<(), Failure> {
        if attempt.upload_broken
            || (exchange.request.upload.is_done() && upstream.side.outbox.is_empty())
        {
            return Ok(());
        }
        let mut progress = false;
        let blocks = self.worker.stream_blocks();
        let (upload, trailers) = exchange.upload(&self.door);
        let pushed = upload.poll(
            cx,
            &blocks,
            &mut self.client,
            &mut upstream.side,
            &|name| trailers.keep_of_request(name),
            &mut progress,
        );
        match pushed {
            Poll::Ready(Err(PumpError::Source(_))) => return Err(Reason::ClientGone.into()),
            Poll::Ready(Err(PumpError::Framing(reject))) => {
                return Err(Failure::request(reject));
            }
            Poll::Ready(Err(PumpError::Memory)) => return Err(Reason::Memory.into()),
            // An endpoint may answer before it has the whole body, and stop reading.
            Poll::Ready(Err(PumpError::Sink)) => attempt.upload_broken = true,
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        if progress {
            self.alarm.set(self.response_due(exchange, attempt));
        }
        self.end_upload(&exchange.request, upstream);
        Ok(())
    }

    /// Checks whether the client has gone, while its request is complete and nothing is expected from it.
    ///
    /// A half-close means only that it sends no more (RFC 9112 section 9.6): its earlier request is still answered.
    /// Whether the client still reads is found out by writing.
    pub(super) fn watch_client(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &Exchange,
    ) -> Result<(), Failure> {
        let pool = &self.worker.pool;
        // Pipelined requests are read up to a limit; then the client has to wait.
        let bound = exchange.request.sent_bytes() + 2 * pool.block_size();
        // A stream may be reset even after its end was received.
        if !self.client.may_move() && self.client.has_failed() {
            return Err(Reason::ClientGone.into());
        }
        if self.client_ended
            || !exchange.request.upload.is_read()
            || self.client.inbox.len() >= bound
        {
            return Ok(());
        }
        match self.client.poll_fill(cx, pool, pool.block_size()) {
            Poll::Ready(Err(error)) => Err(blame(&error, Reason::ClientGone).into()),
            Poll::Ready(Ok(0)) => {
                self.client_ended = true;
                Ok(())
            }
            Poll::Ready(Ok(_)) => {
                // Poll again, until the socket has nothing more to read.
                cx.waker().wake_by_ref();
                Ok(())
            }
            Poll::Pending => Ok(()),
        }
    }

    fn parse_response(
        &self,
        exchange: &Exchange,
        upstream: &Upstream,
    ) -> Result<Option<usize>, Failure> {
        let Scratch {
            response, linear, ..
        } = &mut *self.worker.scratch.borrow_mut();
        let limits = self.worker.limits_of(&upstream.side);
        let inbox = &upstream.side.inbox;
        let bytes = inbox.contiguous(inbox.len().min(limits.max_head_bytes + 1), linear);
        let parsed = response
            .parse(bytes, limits, exchange.request.method)
            .map_err(Failure::response)?;
        if parsed.is_some() && response.status == 101 {
            switch(&self.offer, response, bytes)?;
        }
        Ok(parsed)
    }

    /// Passes a 1xx response on (RFC 9110 section 15.2), unless the client speaks HTTP/1.0.
    fn pass_interim(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        attempt: &mut Attempt,
        upstream: &mut Upstream,
        head_bytes: usize,
    ) -> Result<(), Failure> {
        exchange.response.interim += 1;
        if exchange.response.interim > MAX_INTERIM {
            return Err(Reason::UpstreamMalformed.into());
        }
        let worker = Rc::clone(&self.worker);
        let Scratch {
            response,
            edits,
            linear,
            out,
            ..
        } = &mut *worker.scratch.borrow_mut();
        attempt.reuse_upstream &= response.keep_alive;
        if !exchange.request.http10 {
            let buf = upstream.side.inbox.contiguous(head_bytes, linear);
            edits.clear();
            response.strip_hop_by_hop(buf, edits);
            cut_reason(response, edits);
            write(edits, buf, out);
            self.client
                .send(cx, &worker.pool, out, &Chain::new(), 0)
                .map_err(|error| blame(&error, Reason::ClientGone))?;
        }
        upstream.side.inbox.consume(head_bytes);
        Ok(())
    }

    /// Sends the head of the response, together with the part of the body that has arrived.
    pub(super) fn begin(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        attempt: &mut Attempt,
        upstream: &mut Upstream,
        head_bytes: usize,
    ) -> Result<(), Failure> {
        let worker = Rc::clone(&self.worker);
        let Scratch {
            response,
            edits,
            linear,
            out,
            ..
        } = &mut *worker.scratch.borrow_mut();
        let decode = exchange.request.http10 && response.framing == Framing::Chunked;
        // A client that is still sending its body would first have to be read to the end: closing is simpler.
        exchange.request.keep_alive = exchange.request.keep_alive
            && exchange.request.upload.is_done()
            && !attempt.upload_broken
            && response.framing != Framing::UntilClose
            && !decode
            && !worker.is_draining()
            && !self.client.is_ending(worker.clock.now())
            && self.served + 1 < worker.settings.bounds.requests_per_connection;
        let buf = upstream.side.inbox.contiguous(head_bytes, linear);
        encode_response(exchange, attempt, response, buf, edits, out);
        attempt.reuse_upstream &=
            response.keep_alive && (attempt.from_node || exchange.request.is_over_after(response));
        let nominated = response.nominated_trailers(buf);
        upstream.side.inbox.consume(head_bytes);
        // Until something is sent, a malformed response can still be replaced.
        exchange.response.download = Pump::new(response.framing);
        let download = &mut exchange.response.download;
        download.drops(nominated);
        match exchange.request.http10 {
            true => download.goes_plain(upstream.side.has_frames()),
            false => download.goes(upstream.side.has_frames(), self.client.has_frames()),
        }
        let approved = download.begin(&mut upstream.side, out);
        let approved = approved.map_err(Failure::response)?;
        exchange.response.status = Some(response.status);
        exchange.response.ends_at_close = decode || response.framing == Framing::UntilClose;
        if exchange.response.ends_at_close {
            self.client.reset_on_close(true);
        }
        exchange.request.take(&mut self.client.inbox);
        let sent = self
            .client
            .send(cx, &worker.pool, out, &upstream.side.inbox, approved)
            .map_err(|error| blame(&error, Reason::ClientGone))?;
        exchange
            .response
            .download
            .sent(&mut upstream.side.inbox, sent);
        self.alarm.set(self.stream_due(attempt));
        Ok(())
    }

    fn stream_due(&self, attempt: &Attempt) -> Millis {
        let idle = self.worker.settings.timeouts.stream_idle;
        attempt.at_most(self.worker.after(idle))
    }

    /// Moves both bodies until the response is complete.
    pub(super) fn poll_bodies(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        attempt: &mut Attempt,
        upstream: &mut Upstream,
    ) -> Poll<Result<(), Failure>> {
        if self.alarm.rang() {
            return Poll::Ready(Err(self.late(exchange, attempt, upstream).into()));
        }
        self.push(cx, exchange, attempt, upstream)?;
        let mut progress = false;
        let blocks = self.worker.stream_blocks();
        let (download, trailers) = exchange.download(&self.door);
        let pulled = download.poll(
            cx,
            &blocks,
            &mut upstream.side,
            &mut self.client,
            &|name| trailers.keep_of_response(name),
            &mut progress,
        );
        if progress {
            self.alarm.set(self.stream_due(attempt));
        }
        ready!(pulled).map_err(|broken| upstream_failure(&broken))?;
        Poll::Ready(Ok(()))
    }

    /// The reason after the alarm rang: the timeout of the side for which the exchange was waiting.
    fn late(&self, exchange: &Exchange, attempt: &Attempt, upstream: &Upstream) -> Reason {
        let ran_out = if attempt.is_late(&self.worker.clock) {
            Reason::RequestTimeout
        } else if exchange.response.download.waits_for(&self.client) {
            Reason::ClientStalled
        } else if exchange.response.status.is_some() {
            Reason::StreamIdle
        } else if exchange.request.upload.is_done() || attempt.upload_broken {
            Reason::ResponseTimeout
        } else if exchange.request.upload.waits_for(&upstream.side) {
            Reason::UpstreamStalled
        } else {
            Reason::BodyTimeout
        };
        self.worker.rang_for(&self.alarm, ran_out)
    }
}

/// Checks a 101: it must name protocols, and only offered ones (RFC 9110 section 7.8). Otherwise the next protocol of
/// the connection would be unknown.
fn switch(offer: &[u8], response: &ResponseHead, buf: &[u8]) -> Result<(), Reason> {
    if offer.is_empty() {
        return Err(Reason::UpstreamSwitched);
    }
    if !response.upgrades() {
        return Err(Reason::UpstreamMalformed);
    }
    let mut named = protocols(&response.fields, buf).peekable();
    if named.peek().is_none() {
        return Err(Reason::UpstreamMalformed);
    }
    let offered = offer.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    let agreed = named.all(|one| offered.clone().any(|other| other.eq_ignore_ascii_case(one)));
    match agreed {
        true => Ok(()),
        false => Err(Reason::UpstreamSwitched),
    }
}

/// The reason for an error of one side: `theirs`, or [`Reason::Memory`] if no buffer block is left.
fn blame(error: &SideError, theirs: Reason) -> Reason {
    match error {
        SideError::Memory => Reason::Memory,
        _ => theirs,
    }
}

fn upstream_failure(broken: &PumpError) -> Failure {
    match broken {
        // The other node resets the stream when its endpoint fails.
        PumpError::Source(None | Some(Reason::UpstreamReset)) => Reason::UpstreamTruncated.into(),
        PumpError::Source(Some(reason)) => (*reason).into(),
        PumpError::Framing(reject) => Failure::response(*reject),
        PumpError::Sink => Reason::ClientGone.into(),
        PumpError::Memory => Reason::Memory.into(),
    }
}
