//! An opaque connection on its way from one Worker to another.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;

use heddle_wire::buffer::Chain;

use super::{Direction, Flow, Origin};
use crate::carry::Stage;
use crate::io::Side;
use crate::listener::Door;
use crate::parcel::{Contents, State};
use crate::upstream::Lease;
use crate::worker::{Intake, Worker};

/// What goes along with the client's socket.
#[derive(Debug)]
pub(crate) struct Moving {
    endpoint: SocketAddr,
    upstream: TcpStream,
    up: Half,
    down: Half,
    origin: Origin,
    carried: (u64, u64),
}

/// One direction.
#[derive(Debug)]
struct Half {
    /// Read and not yet written.
    in_hand: Vec<u8>,
    /// The source has said everything, and the sink knows.
    ended: bool,
}

impl Flow {
    /// Takes the flow off this Worker.
    pub(super) fn leave(self, intake: Intake) -> Stage {
        let up = Half {
            in_hand: bytes(&self.upstream.side.outbox, &self.client.inbox),
            ended: self.up.ended,
        };
        let down = Half {
            in_hand: bytes(&self.client.outbox, &self.upstream.side.inbox),
            ended: self.down.ended,
        };
        let client = self.client.stream.into_std();
        let upstream = self.upstream.side.stream.into_std();
        let (Ok(client), Ok(upstream)) = (client, upstream) else {
            // Only a runtime that has ended does not let go of a socket.
            return Stage::Over;
        };
        let moving = Moving {
            endpoint: self.lease.endpoint().address,
            upstream,
            up,
            down,
            origin: self.origin,
            carried: self.carried,
        };
        let contents = Contents {
            door: self.door,
            client,
            peer: self.peer,
            state: State::Opaque(Box::new(moving)),
        };
        Stage::Leave(Box::new(contents), intake)
    }
}

impl Moving {
    /// Puts the flow onto a Worker.
    ///
    /// # Errors
    /// When a socket cannot be registered with its runtime, or there is no block for the bytes.
    pub(crate) fn settle(
        self,
        worker: &Rc<Worker>,
        door: Arc<Door>,
        mut client: Side,
        peer: SocketAddr,
    ) -> io::Result<Flow> {
        let mut side = Side::new(tokio::net::TcpStream::from_std(self.upstream)?);
        let pool = &worker.pool;
        for (outbox, half) in [
            (&mut side.outbox, &self.up),
            (&mut client.outbox, &self.down),
        ] {
            outbox
                .extend_from_slice(pool, &half.in_hand)
                .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        }
        let endpoint = worker.upstreams.endpoint(self.endpoint);
        let upstream = worker.upstreams.adopt(&endpoint, side);
        let lease = Lease::new(endpoint);
        let both = (upstream, lease);
        let worker = Rc::clone(worker);
        let flow = Flow::join(worker, door, (client, peer), both, self.origin);
        Ok(Flow {
            up: Direction::new(self.up.ended),
            down: Direction::new(self.down.ended),
            carried: self.carried,
            ..flow
        })
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
