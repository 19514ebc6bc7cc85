//! A connection outside of any Worker: everything of it that goes along when it moves.
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
//! Nothing in here belongs to a thread: no registration with a runtime, no block of a pool, no
//! reference to a Worker's tables.

mod moving;

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use crate::door::Door;
use crate::io::Packed;
use crate::permits::Permit;
use crate::place::Place;

pub(crate) use moving::{Half, Moving, Origin, Resuming};

/// What comes to a Worker from another thread.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A client's connection.
    Client(Parcel),
    /// An idle connection to an endpoint, for the pool.
    Upstream(PackedUpstream),
}

/// A client's connection, and its permit to be open.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) contents: Contents,
    pub(crate) permit: Permit,
}

/// Everything of a client's connection.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) door: Arc<Door>,
    pub(crate) client: Packed,
    pub(crate) peer: SocketAddr,
    pub(crate) state: State,
}

/// How far it has come.
#[derive(Debug)]
pub(crate) enum State {
    /// Nothing has been read from it.
    New,
    /// The same, and an endpoint is connected.
    Undecided(Box<PackedUndecided>),
    /// HTTP/1, and idle: what it may send next is the beginning of a request.
    Http {
        /// Requests that it has had answered.
        served: u64,
        /// When its wait for the next one began.
        since: Instant,
        /// A connection to the endpoint that answered last.
        upstream: Option<PackedUpstream>,
    },
    /// Bytes both ways.
    Opaque(Box<Moving>),
    /// From another node, which goes on with a link that was cut.
    Link(Box<Resuming>),
}

/// What goes along with a client's socket as long as neither side has spoken. The endpoint notices nothing.
#[derive(Debug)]
pub(crate) struct PackedUndecided {
    /// When the client was accepted.
    pub(crate) began: Instant,
    /// When the wait for the first bytes began.
    pub(crate) since: Instant,
    /// Endpoints that were tried.
    pub(crate) attempts: u32,
    /// The connection to the last of them.
    pub(crate) upstream: PackedUpstream,
}

/// A connection to an endpoint that waits for a request.
#[derive(Debug)]
pub(crate) struct PackedUpstream {
    pub(crate) endpoint: Place,
    pub(crate) side: Packed,
    /// The caller whose requests it has carried, as accounts of Workers are named.
    pub(crate) caller: Arc<str>,
}

impl Arrival {
    /// The socket of a client for which nothing was begun yet.
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
