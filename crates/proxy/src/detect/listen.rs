//! Waits for the side that speaks first, and examines the client's first bytes.

use std::future::poll_fn;
use std::mem;
use std::task::{Context, Poll};
use std::time::Duration;

use heddle_wire::http1::{Beginning, beginning};

use super::{Undecided, Verdict};
use crate::env::Turn;
use crate::failure::Reason;
use crate::io::SideError;
use crate::upstream::Upstream;

/// Timeout for an HTTP request after the endpoint could not be connected: a client that speaks HTTP gets an answer.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Timeout for a client whose first bytes do not show its protocol. A protocol whose first message is a word without a
/// terminator, such as ZooKeeper's `ruok`, gets its answer with this delay.
const SUSPENSE: Duration = Duration::from_secs(1);
/// Bytes that are examined. If they do not show another protocol, the connection is HTTP.
const SNIFF_BYTES: usize = 4096;

impl Undecided {
    /// Waits until the client or the endpoint speaks.
    pub(super) async fn listen(&mut self, mut upstream: Option<&mut Upstream>) -> Verdict {
        let wait = match upstream {
            Some(_) => self.worker.settings.timeouts.tcp_idle,
            None => LAST_WORDS,
        };
        self.alarm.set(self.worker.due(self.since, wait));
        poll_fn(|cx| self.poll_listen(cx, upstream.as_deref_mut())).await
    }

    fn poll_listen(
        &mut self,
        cx: &mut Context<'_>,
        upstream: Option<&mut Upstream>,
    ) -> Poll<Verdict> {
        // The answer to the calling node is sent even if neither side speaks.
        let _later = self.client.poll_flush(cx);
        let silent = self.client.inbox.is_empty();
        if self.alarm.rang() {
            let half_a_line = upstream.is_some() && !silent;
            let reason = self.worker.rang_for(&self.alarm, Reason::TcpIdle);
            return Poll::Ready(match reason {
                Reason::TcpIdle if half_a_line => Verdict::Opaque,
                reason => Verdict::Failed(reason),
            });
        }
        // The wait for a request after a failure stays on this Worker: it is short.
        let may_leave = upstream
            .as_ref()
            .map_or(self.worker.is_draining(), |upstream| {
                self.client.may_move() && upstream.side.may_move() || self.worker.is_draining()
            });
        if may_leave && silent && self.client.outbox.is_empty() {
            match self.worker.turn() {
                Some(Turn::Leave(intake)) => return Poll::Ready(Verdict::Leave(intake)),
                Some(Turn::End) => return Poll::Ready(Verdict::Gone),
                None => {}
            }
        }
        let pool = self.worker.pool.clone();
        let has_upstream = upstream.is_some();
        // Bytes that came together with the preface of another node are examined before anything is read.
        if !silent && let Some(verdict) = self.judge(false, has_upstream) {
            return Poll::Ready(verdict);
        }
        while let Poll::Ready(read) = self.client.poll_fill(cx, &pool, pool.block_size()) {
            let ended = match read {
                Ok(n) => n == 0,
                Err(SideError::Memory) => {
                    return Poll::Ready(self.without_blocks());
                }
                // An incomplete message is not passed on as if it were complete.
                Err(_) => return Poll::Ready(Verdict::Failed(Reason::ClientReset)),
            };
            if let Some(verdict) = self.judge(ended, has_upstream) {
                return Poll::Ready(verdict);
            }
        }
        let has_begun = !self.client.inbox.is_empty();
        if has_upstream && has_begun && !mem::replace(&mut self.in_suspense, true) {
            self.alarm.set(self.worker.after(SUSPENSE));
        }
        // A greeting, the end of the stream or a reset of the endpoint: it makes the connection opaque and is passed
        // on.
        match upstream {
            Some(upstream) => {
                let spoke = upstream.side.poll_speaks(cx, &pool);
                spoke.map(|()| Verdict::Opaque)
            }
            None => Poll::Pending,
        }
    }

    /// The verdict from the client's first bytes, if they are enough.
    fn judge(&self, ended: bool, has_upstream: bool) -> Option<Verdict> {
        let full = self.client.inbox.len() >= SNIFF_BYTES;
        match self.first_bytes() {
            Beginning::Request => Some(Verdict::Http),
            Beginning::Other => Some(Verdict::Opaque),
            // A very long request line, or many empty lines: the parser refuses them.
            Beginning::Unclear if full => Some(Verdict::Http),
            // The client's half-close is passed on like its bytes.
            Beginning::Unclear if ended && has_upstream => Some(Verdict::Opaque),
            Beginning::Unclear if ended => Some(Verdict::Gone),
            Beginning::Unclear => None,
        }
    }

    /// The verdict on a client that speaks while no buffer block is left: a client that speaks HTTP gets an answer.
    fn without_blocks(&self) -> Verdict {
        let mut first = [0; SNIFF_BYTES];
        let seen = self.client.peek(&mut first);
        match beginning(&first[..seen]) {
            Beginning::Request if self.client.inbox.is_empty() => Verdict::Http,
            _ => Verdict::Failed(Reason::Memory),
        }
    }

    fn first_bytes(&self) -> Beginning {
        let mut linear = Vec::new();
        let inbox = &self.client.inbox;
        beginning(inbox.contiguous(inbox.len().min(SNIFF_BYTES), &mut linear))
    }
}
