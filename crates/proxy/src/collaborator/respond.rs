//! Responses that the proxy makes itself: the only place where a failure becomes a response.

use std::future::poll_fn;
use std::io::Write;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use heddle_wire::buffer::Chain;
use heddle_wire::http1::Method;

use super::exchange::Exchange;
use super::{After, Connection};
use crate::failure::{Failure, Reason};
use crate::io::Message;
use crate::worker::Scratch;

/// Timeout for a client that does not read its response, or does not stop sending.
const PATIENCE: Duration = Duration::from_secs(2);
/// Limit of bytes that are read and discarded before the connection is closed anyway.
const LINGER_BYTES: usize = 256 * 1024;

impl Connection {
    /// Sends the client the reason of the failure, if that is still possible.
    pub(super) async fn fail(&mut self, exchange: &mut Exchange, failure: Failure) -> After {
        let status = failure.status();
        if exchange.response.status.is_some() || status == 0 {
            // Either the response has begun, and only a cut can show that it is incomplete, or no client is left to
            // receive one.
            return After::Cut;
        }
        // A connection stays with the Service to which it was opened: a new one may lead to another Service.
        let last = matches!(
            failure.reason,
            Reason::Malformed | Reason::IdentityRevoked | Reason::ServiceGone
        );
        let keep = self.may_go_on(exchange) && !last;
        exchange.response.status = Some(status);
        {
            let out = &mut self.worker.scratch.borrow_mut().out;
            let mut text = [0u8; 160];
            let text = sentence(&mut text, &failure);
            let fields = begin(out, status);
            field(fields, "Content-Type", b"text/plain; charset=utf-8");
            field(fields, "Heddle-Reason", failure.code().as_bytes());
            end(out, keep, text, exchange.request.method);
        }
        self.send_own(exchange, keep).await
    }

    /// Sends the redirect with the Location in `scratch.value`.
    pub(super) async fn redirect(&mut self, exchange: &mut Exchange, status: u16) -> After {
        let keep = self.may_go_on(exchange);
        exchange.response.status = Some(status);
        {
            let mut scratch = self.worker.scratch.borrow_mut();
            let Scratch { out, value, .. } = &mut *scratch;
            field(begin(out, status), "Location", value);
            end(out, keep, b"", exchange.request.method);
        }
        self.send_own(exchange, keep).await
    }

    /// Sends the answer to a CONNECT. Returns whether the client has it.
    pub(super) async fn accept_tunnel(&mut self, exchange: &mut Exchange) -> bool {
        exchange.response.status = Some(200);
        {
            let out = &mut self.worker.scratch.borrow_mut().out;
            // Such an answer has no length (RFC 9110 section 9.3.6).
            begin(out, 200).extend_from_slice(b"\r\n");
            out.end_head();
        }
        matches!(self.send_own(exchange, true).await, After::KeepAlive)
    }

    /// Whether the connection can carry another request after a response of the proxy: only if the whole request has
    /// been read, since nothing reads the rest of it.
    fn may_go_on(&self, exchange: &Exchange) -> bool {
        exchange.request.keep_alive
            && exchange.request.upload.is_done()
            && !self.worker.is_draining()
    }

    async fn send_own(&mut self, exchange: &mut Exchange, keep: bool) -> After {
        exchange.request.take(&mut self.client.inbox);
        self.alarm.set(self.worker.after(PATIENCE));
        let mut first = true;
        let told = poll_fn(|cx| self.poll_own(cx, &mut first)).await;
        self.served += 1;
        match (told, keep) {
            (false, _) => After::Cut,
            (true, true) => After::KeepAlive,
            (true, false) => After::Linger,
        }
    }

    /// Sends the response in `scratch.out` on the first call, and the rest of it on later ones.
    fn poll_own(&mut self, cx: &mut Context<'_>, first: &mut bool) -> Poll<bool> {
        if self.alarm.rang() {
            return Poll::Ready(false);
        }
        if std::mem::take(first) {
            let out = &mut self.worker.scratch.borrow_mut().out;
            if self
                .client
                .send(cx, &self.worker.pool, out, &Chain::new(), 0)
                .is_err()
            {
                return Poll::Ready(false);
            }
        }
        let flushed = ready!(self.client.poll_flush(cx));
        Poll::Ready(flushed.is_ok())
    }

    /// Half-closes towards another node, which would take an end without `close_notify` as a cut.
    pub(super) async fn part(&mut self) {
        if !self.client.is_to_node() || !self.client.outbox.is_empty() {
            return;
        }
        self.alarm.set(self.worker.after(PATIENCE));
        poll_fn(|cx| match self.alarm.rang() {
            true => Poll::Ready(()),
            false => self.client.poll_shutdown(cx),
        })
        .await;
    }

    /// Closes a connection whose client may still be sending. Closing with unread bytes would make the kernel reset the
    /// connection, and the client could lose the response (RFC 9112 section 9.6).
    pub(super) async fn linger(&mut self) {
        self.alarm.set(self.worker.after(PATIENCE));
        let mut left = LINGER_BYTES;
        let mut shut = false;
        poll_fn(|cx| {
            // The half-close may have to wait until the client reads.
            shut = shut || self.client.poll_shutdown(cx).is_ready();
            self.client.inbox.clear();
            loop {
                if self.alarm.rang() || left == 0 {
                    return Poll::Ready(());
                }
                match ready!(self.client.poll_discard(cx)) {
                    Ok(0) | Err(_) => return Poll::Ready(()),
                    Ok(n) => left = left.saturating_sub(n),
                }
            }
        })
        .await;
    }
}

/// Writes the line `heddle: <detail> (<code>)`, cut to the length of the buffer.
fn sentence<'a>(buffer: &'a mut [u8], failure: &Failure) -> &'a [u8] {
    let room = buffer.len();
    let mut rest = &mut *buffer;
    // Without this prefix, the codec's details of a response would read as if they were about the request.
    let whose = match (failure.reason, failure.reject) {
        (Reason::UpstreamMalformed, Some(_)) => "the endpoint's answer: ",
        _ => "",
    };
    let (detail, code) = (failure.detail(), failure.code());
    // A line that does not fit is cut.
    let _ = writeln!(rest, "heddle: {whose}{detail} ({code})");
    let left = rest.len();
    &buffer[..room - left]
}

fn begin(out: &mut Message, status: u16) -> &mut Vec<u8> {
    let head = out.begin();
    // Writing to a vector cannot fail.
    let _ = write!(head, "HTTP/1.1 {status} {}\r\n", phrase(status));
    head
}

fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn end(out: &mut Message, keep: bool, body: &[u8], method: Method) {
    let head = &mut out.bytes;
    if !keep {
        field(head, "Connection", b"close");
    }
    // Writing to a vector cannot fail.
    let _ = write!(head, "Content-Length: {}\r\n\r\n", body.len());
    let behind = out.end_head();
    if method != Method::Head {
        behind.extend_from_slice(body);
    }
}

/// The reason phrases of the statuses that the proxy sends (RFC 9110 section 15).
fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        408 => "Request Timeout",
        413 => "Content Too Large",
        414 => "URI Too Long",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}
