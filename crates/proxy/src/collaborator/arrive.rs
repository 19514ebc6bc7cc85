//! Waits for a request, and reads its head.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use heddle_wire::buffer::Chain;

use super::Connection;
use crate::env::Turn;
use crate::failure::{Failure, Reason};
use crate::intake::Intake;
use crate::io::SideError;
use crate::worker::Scratch;

/// How a wait for a request ended.
pub(super) enum NextRequest {
    /// A head of this many bytes is at the front of the inbox, and has been parsed into the scratch.
    Request { head_bytes: usize },
    /// The received bytes are not a request that can be served.
    Refused(Failure),
    /// No further request will come.
    Closed,
    /// No request has come yet, and the connection is to move to another Worker.
    Leave(Intake),
}

/// Progress of the search for the end of a head.
#[derive(Default)]
struct Search {
    /// Bytes that were searched.
    seen: usize,
    /// Length of the inbox at the last parse.
    parsed: usize,
    /// Number of parses.
    parses: u32,
}

/// Reads that are always parsed: most heads arrive in one or two.
const FREE_PARSES: u32 = 16;
/// After that, this many new bytes cause a parse even without a blank line. Heads that must be refused are refused
/// early, and the work stays a small multiple of the head's length.
const PARSE_AGAIN_BYTES: usize = 1024;

impl Connection {
    /// Waits for the next request's head. After [`NextRequest::Request`] the parsed head stays in the scratch until the
    /// next await.
    pub(super) async fn next_request(&mut self) -> NextRequest {
        let mut search = Search::default();
        let wait = match self.client.inbox.is_empty() {
            true => self.worker.settings.timeouts.client_idle,
            false => self.worker.settings.timeouts.request_head,
        };
        self.alarm.set(self.worker.due(self.began, wait));
        poll_fn(|cx| self.poll_request(cx, &mut search)).await
    }

    fn poll_request(&mut self, cx: &mut Context<'_>, search: &mut Search) -> Poll<NextRequest> {
        // The calling node waits for the answer to its preface before it sends anything.
        if !self.client.outbox.is_empty() {
            match self.client.poll_flush(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Pending if !self.alarm.rang() => return Poll::Pending,
                Poll::Ready(Err(_)) | Poll::Pending => return Poll::Ready(NextRequest::Closed),
            }
        }
        loop {
            if self.client.inbox.len() > search.seen {
                match self.try_parse(search) {
                    Ok(Some(head_bytes)) => {
                        return Poll::Ready(NextRequest::Request { head_bytes });
                    }
                    Ok(None) => {}
                    Err(failure) => return Poll::Ready(NextRequest::Refused(failure)),
                }
            }
            let idle = self.client.inbox.is_empty();
            // A stream that waits for another request may already have got one, which no other task would answer.
            let called = idle && self.client.is_called();
            if idle && !called {
                match self.worker.turn() {
                    None => {}
                    Some(Turn::End) => return Poll::Ready(NextRequest::Closed),
                    // A stream stays with its link, so it ends; a new stream begins on another Worker.
                    Some(Turn::Leave(_)) if !self.client.may_move() => {
                        return Poll::Ready(NextRequest::Closed);
                    }
                    Some(Turn::Leave(intake)) => return Poll::Ready(NextRequest::Leave(intake)),
                }
            }
            if self.alarm.rang() && !called {
                return Poll::Ready(match idle {
                    true => NextRequest::Closed,
                    false if self.worker.is_cutting() => {
                        NextRequest::Refused(Reason::Draining.into())
                    }
                    false => NextRequest::Refused(Reason::HeadTimeout.into()),
                });
            }
            let want = self.worker.pool.block_size();
            match ready!(self.client.poll_fill(cx, &self.worker.pool, want)) {
                Ok(0) if idle => return Poll::Ready(NextRequest::Closed),
                Ok(0) => return Poll::Ready(NextRequest::Refused(Reason::ClientGone.into())),
                Ok(_) if idle => {
                    self.began = self.worker.clock.now();
                    self.alarm.set(
                        self.worker
                            .after(self.worker.settings.timeouts.request_head),
                    );
                }
                Ok(_) => {}
                Err(SideError::Memory) => {
                    return Poll::Ready(NextRequest::Refused(Reason::Memory.into()));
                }
                Err(_) => return Poll::Ready(NextRequest::Closed),
            }
        }
    }

    /// Parses the received bytes. For a client that sends byte by byte, soon only each new byte is searched for the end
    /// of the head, without parsing everything again.
    fn try_parse(&mut self, search: &mut Search) -> Result<Option<usize>, Failure> {
        let inbox = &self.client.inbox;
        let limits = self.worker.limits_of(&self.client);
        let due = search.parses < FREE_PARSES
            || inbox.len() - search.parsed >= PARSE_AGAIN_BYTES
            || ends_head(inbox, search.seen.saturating_sub(3));
        search.seen = inbox.len();
        if !due {
            return Ok(None);
        }
        search.parsed = inbox.len();
        search.parses += 1;
        let Scratch {
            request, linear, ..
        } = &mut *self.worker.scratch.borrow_mut();
        // One byte more than allowed, so that the codec detects a head that is too long.
        let bytes = inbox.contiguous(inbox.len().min(limits.max_head_bytes + 1), linear);
        request.parse(bytes, limits).map_err(Failure::request)
    }

    /// Parses a head again that is still in the inbox.
    pub(super) fn parse_again(&mut self) -> Result<(), Failure> {
        self.try_parse(&mut Search::default()).map(drop)
    }
}

/// Whether a blank line ends among the bytes from `start` on. Checks only those bytes, across block boundaries.
fn ends_head(inbox: &Chain, start: usize) -> bool {
    let mut before = 0;
    let mut matched = 0;
    for run in inbox.runs() {
        for &byte in run.iter().skip(start.saturating_sub(before)) {
            matched = match (matched, byte) {
                (0 | 2, b'\r') | (1 | 3, b'\n') => matched + 1,
                (_, b'\r') => 1,
                _ => 0,
            };
            if matched == 4 {
                return true;
            }
        }
        before += run.len();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_wire::buffer::Pool;

    #[test]
    fn the_end_of_a_head_is_found_wherever_the_blocks_are_cut() {
        let text = b"GET / HTTP/1.1\r\nA: b\r\r\n\r\n\r\nmore";
        for block in 1..40 {
            let pool = Pool::new(block, 100);
            let mut inbox = Chain::new();
            assert!(inbox.extend_from_slice(&pool, text).is_ok());
            for start in 0..text.len() {
                let expected = text[start..].windows(4).any(|four| four == b"\r\n\r\n");
                assert_eq!(
                    ends_head(&inbox, start),
                    expected,
                    "blocks of {block}, from {start}"
                );
            }
        }
    }
}
