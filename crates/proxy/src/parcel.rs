//! A connection that is on no Worker, with everything that moves with it.
//!
//! ```text
//!   accepted ─▶ New ─────┐
//!                        ▼           order to leave
//!              Worker: carried ───────────────────────▶ Undecided (neither side has spoken)
//!                        ▲                             or Http    (between two messages)
//!                        │                             or Opaque  (at any time, bytes in hand)
//!                        └───────── intake of another Worker ◀────────┘
//!                                    (full or closed: back to the one it came from)
//! ```
//!
//! It contains nothing that belongs to a thread: no registration with a runtime, no block of a pool, no reference to a
//! Worker's tables.

mod moving;

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use crate::door::Door;
use crate::io::Packed;
use crate::permits::Permit;
use crate::place::Place;

pub(crate) use moving::{Half, LinkSocket, Moving, Origin};

/// A connection that comes to a Worker from another thread.
#[derive(Debug)]
pub(crate) enum Arrival {
    Client(Parcel),
    /// An idle connection to an endpoint, for the pool.
    Upstream(PackedUpstream),
}

/// A client's connection, and its permit.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) contents: Contents,
    pub(crate) permit: Permit,
}

/// A client's connection and its state.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) door: Arc<Door>,
    pub(crate) client: Packed,
    pub(crate) peer: SocketAddr,
    pub(crate) state: State,
}

/// The state of a client's connection.
#[derive(Debug)]
pub(crate) enum State {
    /// Nothing has been read from it.
    New,
    /// Nothing has been read from it, and an endpoint is connected.
    Undecided(Box<PackedUndecided>),
    /// HTTP/1, and idle: the next bytes start a request.
    Http {
        /// Number of requests that were answered on it.
        served: u64,
        /// When it became idle.
        since: Instant,
        /// A connection to the endpoint that answered last.
        upstream: Option<PackedUpstream>,
    },
    /// Opaque bytes in both directions.
    Opaque(Box<Moving>),
    /// From another node, to begin a link on a Worker of its class, or to resume one that was cut.
    Link(Box<LinkSocket>),
}

/// Moves with a client's socket while neither side has spoken. The endpoint notices nothing.
#[derive(Debug)]
pub(crate) struct PackedUndecided {
    /// When the client was accepted.
    pub(crate) began: Instant,
    /// When the wait for the first bytes began.
    pub(crate) since: Instant,
    /// Number of endpoints that were tried.
    pub(crate) attempts: u32,
    /// The connection to the last of them.
    pub(crate) upstream: PackedUpstream,
}

/// An idle connection to an endpoint.
#[derive(Debug)]
pub(crate) struct PackedUpstream {
    pub(crate) endpoint: Place,
    pub(crate) side: Packed,
    /// The caller whose requests it has carried, by the name of the Workers' accounts.
    pub(crate) caller: Arc<str>,
}

impl Arrival {
    /// The socket of a client for which no work was done yet.
    pub(crate) fn new_client(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Arrival::Client(Parcel { contents, .. }) => match contents.state {
                State::New => Some(contents.client.socket().as_fd()),
                _ => None,
            },
            Arrival::Upstream(_) => None,
        }
    }
}

impl Parcel {
    /// A connection just accepted.
    pub(crate) fn new(
        door: &Arc<Door>,
        client: TcpStream,
        peer: SocketAddr,
        permit: Permit,
    ) -> Self {
        let contents = Contents {
            door: Arc::clone(door),
            client: Packed::plain(client),
            peer,
            state: State::New,
        };
        Parcel { contents, permit }
    }
}
