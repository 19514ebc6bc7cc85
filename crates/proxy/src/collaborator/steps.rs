//! What happens to a request before an endpoint is asked: a list of steps, in one place.
//!
//! A step looks at the head and at what the steps before it have found out, adds what it decides to the [`Decision`],
//! and says how to go on:
//!
//! | says | then |
//! |---|---|
//! | [`CONTINUE`] | the next step has its turn |
//! | [`Stop::Respond`] | the client gets this answer, and no further step runs |
//! | [`Stop::Wait`] | once the wait is over, all steps run again, by the configuration of then |
//!
//! Steps run within one piece of work: what they leave in the Worker's [`Scratch`] stands there until the next await. A step
//! that waits copies what it needs of the head; the head itself stays where it is, and the body unread.

mod backend;
mod encode;
mod find;
#[cfg(test)]
mod fixture;
mod name;
mod path;
mod read;
mod redirect;
mod route;
#[cfg(test)]
mod tests;

use heddle_wire::http1::authority::Authority;
use heddle_wire::http1::{Edits, RequestHead};

use super::decision::Decision;
use super::exchange::{ClientRequest, Exchange};
use super::reply::Reply;
use super::wait::Wait;
use super::{Connection, LoggedRequestLine};
use crate::door::Door;
use crate::failure::Failure;
use crate::io::Message;
use crate::worker::{Scratch, Worker};

pub(super) use find::LastFound;
pub(super) use name::LastCalled;

/// What a step says.
pub(super) type Step = Result<(), Stop>;

/// The next step has its turn.
pub(super) const CONTINUE: Step = Ok(());

/// Why no further step has its turn.
pub(super) enum Stop {
    Respond(Reply),
    #[cfg_attr(not(test), expect(dead_code, reason = "no step of the list waits yet"))]
    Wait(Wait),
}

/// The steps, in order.
fn run(context: &mut StepContext<'_>) -> Step {
    read::read(context)?;
    name::name(context)?;
    find::find(context)?;
    path::canonicalise(context)?;
    route::follow(context)?;
    #[cfg(test)]
    fixture::wait(context)?;
    backend::choose(context)?;
    encode::encode(context)
}

/// What steps work with.
pub(super) struct StepContext<'a> {
    worker: &'a Worker,
    door: &'a Door,
    client: StepClient<'a>,
    request: &'a mut ClientRequest,
    decision: &'a mut Decision,
    /// The head, in the bytes that the client has sent.
    head: &'a RequestHead,
    buf: &'a [u8],
    /// The authority that the head names, in pieces of `host`.
    named: Option<Authority>,
    /// The authority in canonical form, and how long it is without the port.
    host: &'a mut Vec<u8>,
    host_len: usize,
    /// The path in canonical form.
    path: &'a mut Vec<u8>,
    /// Where a field is put together.
    value: &'a mut Vec<u8>,
    edits: &'a mut Edits,
    /// The request as endpoints are to see it.
    out: &'a mut Message,
}

/// What a connection keeps for its requests.
struct StepClient<'a> {
    /// The address, as fields show it.
    peer: &'a str,
    /// Whether the client's own forwarding fields are believed.
    is_trusted: bool,
    /// The protocols that it offers.
    offer: &'a mut Vec<u8>,
    shown: &'a mut LoggedRequestLine,
    called: &'a mut LastCalled,
    found: &'a mut LastFound,
}

impl Connection {
    /// Runs the steps of the request whose head stands parsed in the scratch.
    ///
    /// # Errors
    /// What a step has said that does not end in an endpoint being asked.
    pub(super) fn run_steps(&mut self, exchange: &mut Exchange) -> Step {
        let Scratch {
            request: head,
            linear,
            edits,
            out,
            path,
            authority,
            value,
            ..
        } = &mut *self.worker.scratch.borrow_mut();
        let mut context = StepContext {
            worker: &self.worker,
            door: &self.door,
            client: StepClient {
                peer: &self.peer,
                is_trusted: self.trusted,
                offer: &mut self.offer,
                shown: &mut self.shown,
                called: &mut self.called,
                found: &mut self.found,
            },
            buf: (self.client.inbox).contiguous(exchange.request.head_bytes, linear),
            request: &mut exchange.request,
            decision: &mut exchange.decision,
            head,
            named: None,
            host: authority,
            host_len: 0,
            path,
            value,
            edits,
            out,
        };
        run(&mut context)
    }

    /// Runs the steps until they decide, waiting where one of them has to.
    ///
    /// # Errors
    /// The answer that the client gets instead.
    pub(super) async fn decide(&mut self, exchange: &mut Exchange) -> Result<(), Reply> {
        loop {
            match self.run_steps(exchange) {
                Ok(()) => return Ok(()),
                Err(Stop::Respond(reply)) => return Err(reply),
                // In a box: it would take room in every connection.
                Err(Stop::Wait(wait)) => Box::pin(self.wait(exchange, wait)).await?,
            }
            self.begin_anew(exchange)?;
        }
    }

    /// Runs the steps of a request of which nothing was told to the client once more, as it stands in the inbox and by
    /// the configuration of now.
    ///
    /// # Errors
    /// As [`Self::decide`].
    pub(super) async fn decide_again(&mut self, exchange: &mut Exchange) -> Result<(), Reply> {
        self.begin_anew(exchange)?;
        self.decide(exchange).await
    }

    /// Goes on by the configuration of now. What the one before led to is nothing here: its numbers are those of
    /// other ports, its rule's changes are not to be made.
    pub(super) fn begin_anew(&mut self, exchange: &mut Exchange) -> Result<(), Failure> {
        exchange.decision = Decision::by(self.worker.bound());
        self.parse_again()
    }
}

impl<T> From<T> for Stop
where
    Reply: From<T>,
{
    fn from(reply: T) -> Self {
        Stop::Respond(reply.into())
    }
}
