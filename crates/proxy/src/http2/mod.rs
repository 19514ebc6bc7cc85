//! HTTP/2 between nodes (RFC 9113), many requests over one connection: what links are measured by.
//!
//! ```text
//!   a caller's Worker                                                  a Worker of the called node
//!
//!   Collaborator ─ exchange ─┐                                     ┌─ exchange ─ Collaborator
//!   Collaborator ─ exchange ─┼─ h2 ─ driver ══ mutual TLS ══ driver ─ h2 ─┼─ exchange ─ Collaborator
//!   Collaborator ─ exchange ─┘                                     └─ exchange ─ Collaborator
//! ```
//!
//! Each end of a connection belongs to one Worker. The crate `h2` has the protocol; its driver is the one task
//! that has the socket. A task that writes to an [`Http2Exchange`] queues frames, which wakes the driver; it runs when
//! all other tasks that are ready have had a turn, so that what many say at about the same time goes out together.
//!
//! Heads are text of HTTP/1.1 for Collaborators, which [`head`] translates; bodies and trailers are what they are, and
//! [`crate::pump`] puts them into another framing where the other side has one. What is opaque, or may become so, goes
//! over connections of its own (`heddle/1`).
//!
//! | module | is |
//! |---|---|
//! | [`connections`] | a Worker's connections to others: found, opened, given up |
//! | [`call`] | the driver of the end that calls |
//! | [`answer`] | the driver of the end that is called |
//! | [`exchange`] | a request and its answer as a side of the proxy |
//! | [`outgoing`], [`incoming`] | its two halves |
//! | [`slot`] | where a Collaborator waits for another request of the same destination |
//! | [`head`] | heads of HTTP/1.1 as those of HTTP/2, and back |
//! | [`wire`] | the socket as `h2` sees it |

mod answer;
mod call;
mod connections;
mod exchange;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod head;
mod incoming;
mod outgoing;
mod slot;
mod wire;

use std::cell::Cell;

use crate::clock::Millis;
use crate::failure::Reason;
use crate::failure::StreamFailure;
use crate::io::SideError;
use crate::peers::PeerStatus;

pub(crate) use answer::InboundHttp2;
pub(crate) use connections::{ArrivedExchange, Connections, Reached};
pub(crate) use exchange::Http2Exchange;

/// What a stream may send before it is heard, in bytes.
const STREAM_WINDOW: u32 = 256 * 1024;
/// The same of all streams of a connection together.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Streams of a connection at a time; those beyond wait for their turn.
const MAX_STREAMS: u32 = 1024;
/// Bytes of a stream that wait to be sent.
const SEND_BUFFER: usize = 64 * 1024;
/// A head as HTTP/2 counts it: 32 bytes more for each field (RFC 9113 section 6.5.2).
const MAX_HEADER_LIST: u32 = 128 * 1024;
/// What small unread DATA frames may cost a connection, in bytes: an endpoint that streams small chunks to a slow
/// client must not end the requests of others.
const SMALL_FRAMES: usize = 8 * 1024 * 1024;
/// How often a driver looks whether its connection is still wanted, in milliseconds.
const LOOK_MS: Millis = 5_000;

/// What the exchanges of a connection share.
#[derive(Debug)]
struct Shared {
    /// Why those that are open have failed, if they have.
    failure: Cell<Option<StreamFailure>>,
    /// How many are open.
    open: Cell<usize>,
    /// Since when none is.
    idle_since: Cell<Millis>,
    /// None is begun any more.
    closing: Cell<bool>,
}

impl Shared {
    fn new(now: Millis) -> Self {
        Shared {
            failure: Cell::new(None),
            open: Cell::new(0),
            idle_since: Cell::new(now),
            closing: Cell::new(false),
        }
    }

    fn opened(&self) {
        self.open.set(self.open.get() + 1);
    }

    fn ended(&self) {
        self.open.set(self.open.get().saturating_sub(1));
    }

    /// How long none has been open at `now`.
    fn idle(&self, now: Millis) -> Millis {
        if self.open.get() > 0 {
            self.idle_since.set(now);
        }
        now.saturating_sub(self.idle_since.get())
    }

    /// Adds the connection to what is shown of its node.
    fn show(&self, shown: &mut PeerStatus) {
        shown.http2_connections += 1;
        shown.streams += self.open.get();
    }

    /// What an error of a stream means.
    fn error(&self, error: &h2::Error) -> SideError {
        // A GOAWAY is about the streams that will not be served (RFC 9113 section 6.8); a cut is none.
        let refused = error.reason() == Some(h2::Reason::REFUSED_STREAM) || error.is_go_away();
        let unseen = error.is_remote() && refused;
        SideError::Stream(match self.failure.get() {
            Some(failed) => failed,
            None if unseen => StreamFailure {
                reason: Reason::LinkLost,
                was_sent: false,
            },
            None if error.is_reset() => StreamFailure {
                reason: Reason::UpstreamReset,
                was_sent: true,
            },
            None => StreamFailure {
                reason: Reason::LinkLost,
                was_sent: true,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_the_page() {
        let page = include_str!("../../../../docs/http2-between-nodes.md");
        assert!(page.contains("| streams at a time | 1,024; "));
        assert_eq!(MAX_STREAMS, 1_024);
        let kib = |bytes: u32| bytes / 1024;
        let (stream, connection) = (kib(STREAM_WINDOW), kib(CONNECTION_WINDOW) / 1024);
        for said in [
            format!("| {stream} KiB for a stream, {connection} MiB for a connection; "),
            format!(
                "| what waits to be sent | {} KiB for a stream |",
                SEND_BUFFER / 1024
            ),
            format!(
                "| the longest list of fields | {} KiB, ",
                kib(MAX_HEADER_LIST)
            ),
        ] {
            assert!(page.contains(&said), "{said}");
        }
    }
}
