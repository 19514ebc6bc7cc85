//! The steps that a request passes through before it is sent to an endpoint.
//!
//! A step reads the head and the results of earlier steps, adds its own results to the [`Decision`], and returns how to
//! continue:
//!
//! | result | effect |
//! |---|---|
//! | [`CONTINUE`] | the next step runs |
//! | [`Stop::Respond`] | the client gets this answer, and no further step runs |
//! | [`Stop::Wait`] | after the wait, all steps run again, by the configuration of that time |
//!
//! Steps run within one piece of work: their data in the Worker's [`Scratch`] stays valid until the next await. A step
//! that waits copies the parts of the head that it needs; the head itself stays in the inbox, and the body stays
//! unread.

mod ask;
mod backend;
mod encode;
mod find;
#[cfg(test)]
mod fixture;
mod forwarded;
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

pub(super) type Step = Result<(), Stop>;

/// Continues with the next step.
pub(super) const CONTINUE: Step = Ok(());

/// Why no further step runs now.
pub(super) enum Stop {
    Respond(Reply),
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

/// The data of the steps.
pub(super) struct StepContext<'a> {
    worker: &'a Worker,
    door: &'a Door,
    client: StepClient<'a>,
    request: &'a mut ClientRequest,
    decision: &'a mut Decision,
    /// The parsed head of `buf`, the client's bytes.
    head: &'a RequestHead,
    buf: &'a [u8],
    /// The authority in the head, as parts of `host`.
    named: Option<Authority>,
    /// The authority in canonical form; its first `host_len` bytes are the host without the port.
    host: &'a mut Vec<u8>,
    host_len: usize,
    /// The path in canonical form.
    path: &'a mut Vec<u8>,
    /// Buffer in which a field value is built.
    value: &'a mut Vec<u8>,
    edits: &'a mut Edits,
    /// The request in the form in which it is sent to endpoints.
    out: &'a mut Message,
}

/// The connection's data that its requests use.
struct StepClient<'a> {
    /// The client's address, as header fields show it.
    peer: &'a str,
    /// Whether the client's own forwarding fields are trusted.
    is_trusted: bool,
    /// The protocols to which the client offers to upgrade.
    offer: &'a mut Vec<u8>,
    shown: &'a mut LoggedRequestLine,
    called: &'a mut LastCalled,
    found: &'a mut LastFound,
}

impl Connection {
    /// Runs the steps of the request whose parsed head is in the scratch.
    ///
    /// # Errors
    /// The [`Stop`] of a step after which the request is not sent to an endpoint now.
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

    /// Runs the steps until they decide, and waits if a step has to.
    ///
    /// # Errors
    /// The response for the client, if the request is not sent.
    pub(super) async fn decide(&mut self, exchange: &mut Exchange) -> Result<(), Reply> {
        loop {
            match self.run_steps(exchange) {
                Ok(()) => return Ok(()),
                Err(Stop::Respond(reply)) => return Err(reply),
                // Boxed: it would take room in every connection.
                Err(Stop::Wait(wait)) => Box::pin(self.wait(exchange, wait)).await?,
            }
            self.begin_anew(exchange)?;
        }
    }

    /// Runs the steps again for a retry, with the request in the inbox and by the current configuration. Nothing was
    /// sent to the client yet.
    ///
    /// # Errors
    /// As [`Self::decide`].
    pub(super) async fn decide_again(&mut self, exchange: &mut Exchange) -> Result<(), Reply> {
        self.begin_anew(exchange)?;
        self.decide(exchange).await
    }

    /// Starts again with the current configuration. Earlier results are dropped: their indices belong to the old
    /// configuration, and its rule's changes must not be applied.
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
