//! Connections on their way from one Worker to another that are more than a client's socket.

use std::sync::Arc;
use std::time::Instant;

use heddle_wire::link::Token;

use crate::io::Packed;
use crate::place::Place;
use crate::rooms::RequestPermit;

/// Where a flow comes from: what the log says of it beside what it carried.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The Service's port, as metrics and log name it.
    pub(crate) destination: Arc<str>,
    /// When the client was accepted, or had its last answer in HTTP.
    pub(crate) began: Instant,
    /// Endpoints that were tried.
    pub(crate) attempts: u32,
    /// It began with a request, by which it was judged.
    pub(crate) upgraded: bool,
    /// Path and route of the request that was upgraded, as the log shows them.
    pub(crate) path: Vec<u8>,
    pub(crate) route: Option<Arc<str>>,
    /// The host that it named.
    pub(crate) authority: Vec<u8>,
    /// The log has a line that it is open.
    pub(crate) is_told: bool,
}

/// An opaque connection: what goes along with the client's socket.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) endpoint: Place,
    /// What it takes of the endpoint's room, wherever it is.
    pub(crate) permit: Option<RequestPermit>,
    pub(crate) upstream: Packed,
    pub(crate) up: Half,
    pub(crate) down: Half,
    /// When a byte moved last.
    pub(crate) moved: Instant,
    pub(crate) origin: Origin,
    pub(crate) carried: (u64, u64),
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Half {
    /// Read and not yet written: a window's worth at most, since a pump that has something to write
    /// reads nothing.
    pub(crate) in_hand: Vec<u8>,
    /// The source has said everything, and the sink knows.
    pub(crate) ended: bool,
}

/// A socket over which a link wants to go on that is another Worker's.
#[derive(Debug)]
pub(crate) struct Resuming {
    pub(crate) token: Token,
    /// What was read from it.
    pub(crate) read: Vec<u8>,
}

#[cfg(test)]
impl Moving {
    /// A flow on which nothing was said.
    pub(crate) fn fresh(upstream: std::net::TcpStream) -> Self {
        let half = || Half {
            in_hand: Vec::new(),
            ended: false,
        };
        Moving {
            endpoint: Place::here(([127, 0, 0, 1], 1).into()),
            permit: None,
            upstream: Packed::plain(upstream),
            up: half(),
            down: half(),
            moved: Instant::now(),
            origin: Origin {
                destination: "test/echo".into(),
                began: Instant::now(),
                attempts: 1,
                upgraded: false,
                path: Vec::new(),
                route: None,
                authority: Vec::new(),
                is_told: false,
            },
            carried: (0, 0),
        }
    }
}
