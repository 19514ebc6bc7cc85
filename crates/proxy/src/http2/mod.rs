//! HTTP/2 between nodes (RFC 9113): many requests over one connection. Links are compared with it.
//!
//! ```text
//!   a caller's Worker                                                  a Worker of the called node
//!
//!   Collaborator ─ exchange ─┐                                     ┌─ exchange ─ Collaborator
//!   Collaborator ─ exchange ─┼─ h2 ─ driver ══ mutual TLS ══ driver ─ h2 ─┼─ exchange ─ Collaborator
//!   Collaborator ─ exchange ─┘                                     └─ exchange ─ Collaborator
//! ```
//!
//! Each end of a connection belongs to one Worker. The crate `h2` implements the protocol. The connection's driver is
//! the only task that uses the socket. A task that writes to an [`Http2Exchange`] queues frames, which wakes the
//! driver. The driver runs after all other ready tasks had their turn, so that frames of many tasks are sent together.
//!
//! Collaborators use heads in HTTP/1.1 text form, which [`head`] translates. Bodies and trailers are not changed, and
//! [`crate::pump`] reframes them if the other side uses another framing. Connections that are opaque, or may become so,
//! use connections of their own (`heddle/1`).
//!
//! | module | content |
//! |---|---|
//! | [`connections`] | a Worker's connections to other nodes: finds, opens and closes them |
//! | [`call`] | the driver of the calling end |
//! | [`answer`] | the driver of the called end |
//! | [`exchange`] | a request and its answer as a side of the proxy |
//! | [`outgoing`], [`incoming`] | its two halves |
//! | [`slot`] | where a Collaborator waits for the next request to the same destination |
//! | [`head`] | translates heads from HTTP/1.1 to HTTP/2 and back |
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

/// Flow control window of a stream, in bytes.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Flow control window of a connection, in bytes.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Limit of concurrent streams of a connection; further ones wait.
const MAX_STREAMS: u32 = 1024;
/// Send buffer of a stream, in bytes.
const SEND_BUFFER: usize = 64 * 1024;
/// Limit of a head, in bytes as HTTP/2 counts them: 32 more for each field (RFC 9113 section 6.5.2).
const MAX_HEADER_LIST: u32 = 128 * 1024;
/// Limit of the overhead of small unread DATA frames on a connection, in bytes. High enough for an endpoint that
/// streams small chunks to a slow client, which must not end the other requests of the connection.
const SMALL_FRAMES: usize = 8 * 1024 * 1024;
/// Interval at which a driver checks whether its connection is still needed, in milliseconds.
const LOOK_MS: Millis = 5_000;

/// State that the exchanges of a connection share.
#[derive(Debug)]
struct Shared {
    /// Why the open exchanges have failed, if they have.
    failure: Cell<Option<StreamFailure>>,
    /// Number of open exchanges.
    open: Cell<usize>,
    /// When the connection became idle, or was last seen in use.
    idle_since: Cell<Millis>,
    /// No new exchange may begin.
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

    /// How long the connection has been idle at `now`.
    fn idle(&self, now: Millis) -> Millis {
        if self.open.get() > 0 {
            self.idle_since.set(now);
        }
        now.saturating_sub(self.idle_since.get())
    }

    /// Adds the connection to the status of its node.
    fn show(&self, shown: &mut PeerStatus) {
        shown.http2_connections += 1;
        shown.streams += self.open.get();
    }

    /// Converts an error of a stream.
    fn error(&self, error: &h2::Error) -> SideError {
        // A GOAWAY from the peer means that these streams were not processed (RFC 9113 section 6.8); a cut connection
        // does not.
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
