//! An opaque connection on its way from one Worker to another.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use heddle_wire::buffer::Chain;

use super::{Direction, Flow};
use crate::door::Door;
use crate::env::Outcome;
use crate::failure::Reason;
use crate::intake::Intake;
use crate::io::Packed;
use crate::parcel::{Contents, Half, Moving, State};
use crate::side::Side;
use crate::traffic::FlowEnds;
use crate::upstream::Lease;
use crate::worker::Worker;

impl Flow {
    /// Takes the flow off this Worker. If the parcel is lost on its way, both sides are reset.
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
            // Fails only when the runtime has ended.
            return Outcome::Over;
        };
        let workload = self.lease.endpoint().workload().clone();
        let moving = Moving {
            endpoint: self.lease.endpoint().place.clone(),
            workload,
            permit: self.lease.take_permit(),
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
    /// Puts the flow onto a Worker. Its bytes in hand need no block of the Worker's pool: without a block, the stream
    /// would have to be cut for no fault of its own.
    ///
    /// # Errors
    /// When a socket cannot be registered with the Worker's runtime. The flow is then counted and logged as failed.
    pub(crate) fn settle(
        self,
        worker: &Rc<Worker>,
        door: Arc<Door>,
        client: Packed,
        peer: SocketAddr,
    ) -> io::Result<Flow> {
        let both = client.unpack_as(worker.stats.class());
        let both =
            both.and_then(|client| Ok((client, self.upstream.unpack_as(worker.stats.class())?)));
        worker.bound().expect(&self.endpoint);
        let endpoint = worker.upstreams.endpoint(&self.endpoint);
        if endpoint.workload().is_none() {
            endpoint.stands_for(self.workload.as_ref());
        }
        let (client, side) = both.inspect_err(|_| {
            let ends = FlowEnds::new(&door, peer, Some(&endpoint));
            self.origin
                .fail(worker, Reason::Descriptors, ends, self.carried);
        })?;
        let (mut client, mut side) = (Side::from(client), Side::from(side));
        side.outbox = Chain::detached(&self.up.in_hand);
        client.outbox = Chain::detached(&self.down.in_hand);
        let upstream = worker.upstreams.adopt(&endpoint, side);
        let lease = Lease::with(endpoint, self.permit);
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

/// The bytes that were read in one direction and not written yet, oldest first.
fn bytes(outbox: &Chain, inbox: &Chain) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(outbox.len() + inbox.len());
    for run in outbox.runs().chain(inbox.runs()) {
        bytes.extend_from_slice(run);
    }
    bytes
}
