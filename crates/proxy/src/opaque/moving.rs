//! An opaque connection on its way from one Worker to another.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use heddle_wire::buffer::Chain;

use super::{Direction, Flow, Origin};
use crate::door::Door;
use crate::failure::Reason;
use crate::io::Packed;
use crate::parcel::{Contents, State};
use crate::place::Place;
use crate::upstream::{Lease, Seat};
use crate::worker::{Intake, Outcome, Worker};

/// What goes along with the client's socket.
#[derive(Debug)]
pub(crate) struct Moving {
    endpoint: Place,
    /// What it takes of the endpoint's room, wherever it is.
    seat: Option<Seat>,
    upstream: Packed,
    up: Half,
    down: Half,
    /// When a byte moved last.
    moved: Instant,
    origin: Origin,
    carried: (u64, u64),
}

/// One direction.
#[derive(Debug)]
struct Half {
    /// Read and not yet written: a window's worth at most, since a pump that has something to write
    /// reads nothing.
    in_hand: Vec<u8>,
    /// The source has said everything, and the sink knows.
    ended: bool,
}

impl Flow {
    /// Takes the flow off this Worker. Wherever the parcel is lost on its way, both sides are reset.
    pub(super) fn leave(mut self, intake: Intake) -> Outcome<Infallible> {
        let up = Half {
            in_hand: bytes(&self.upstream.side.outbox, &self.client.inbox),
            ended: self.up.ended,
        };
        let down = Half {
            in_hand: bytes(&self.client.outbox, &self.upstream.side.inbox),
            ended: self.down.ended,
        };
        let client = self.client.pack();
        let upstream = self.upstream.side.pack();
        let (Ok(client), Ok(upstream)) = (client, upstream) else {
            // Only a runtime that has ended does not let go of a socket.
            return Outcome::Over;
        };
        let moving = Moving {
            endpoint: self.lease.endpoint().place.clone(),
            seat: self.lease.take_seat(),
            upstream,
            up,
            down,
            moved: self.moved,
            origin: self.origin,
            carried: self.carried,
        };
        let contents = Contents {
            door: self.door,
            client,
            peer: self.peer,
            state: State::Opaque(Box::new(moving)),
        };
        Outcome::Leave(Box::new(contents), intake)
    }
}

impl Moving {
    /// Puts the flow onto a Worker. What is in hand needs no block of its pool: the other end would
    /// have to be told that the stream was cut, for no fault of its own.
    ///
    /// # Errors
    /// When a socket cannot be registered with its runtime. Then the flow is over, counted and logged.
    pub(crate) fn settle(
        self,
        worker: &Rc<Worker>,
        door: Arc<Door>,
        client: Packed,
        peer: SocketAddr,
    ) -> io::Result<Flow> {
        let both = client.unpack();
        let both = both.and_then(|client| Ok((client, self.upstream.unpack()?)));
        let (mut client, mut side) = both.inspect_err(|_| {
            let upstream = Some(self.endpoint.address);
            self.origin
                .fail(worker, &door, Reason::Descriptors, upstream, self.carried);
        })?;
        side.outbox = Chain::detached(&self.up.in_hand);
        client.outbox = Chain::detached(&self.down.in_hand);
        let endpoint = worker.upstreams.endpoint(&self.endpoint);
        let upstream = worker.upstreams.adopt(&endpoint, side);
        let lease = Lease::with(endpoint, self.seat);
        let both = (upstream, lease);
        let worker = Rc::clone(worker);
        let flow = Flow::join(worker, door, (client, peer), both, self.origin);
        Ok(Flow {
            up: Direction::new(self.up.ended),
            down: Direction::new(self.down.ended),
            moved: self.moved,
            carried: self.carried,
            ..flow
        })
    }
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
            seat: None,
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
                rule: None,
            },
            carried: (0, 0),
        }
    }
}

/// What was read in one direction and is not yet written, oldest first.
fn bytes(outbox: &Chain, inbox: &Chain) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(outbox.len() + inbox.len());
    for run in outbox.runs().chain(inbox.runs()) {
        bytes.extend_from_slice(run);
    }
    bytes
}
