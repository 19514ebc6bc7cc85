//! Waits before anything of the request is sent: of a step, and for a connection to an endpoint.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::Connection;
use super::attempt::Attempt;
use super::exchange::Exchange;
use super::reply::Reply;
use crate::clock::Millis;
use crate::failure::{Failure, Reason};
use crate::upstream::Endpoint;

/// Interval of checks whether the client has reset the connection, which bytes of its unread body can hide.
const LOOK: Duration = Duration::from_secs(1);

/// The future for which a step waits. It has no result: the step runs again afterwards and checks for itself.
pub(super) struct Wait(Pin<Box<dyn Future<Output = ()>>>);

impl Wait {
    /// Waits for the future, at most until the request's deadline: by its route, or by the timeout for a response's
    /// head.
    #[cfg_attr(not(test), expect(dead_code, reason = "no step of today's list waits"))]
    pub(super) fn until(future: impl Future<Output = ()> + 'static) -> Self {
        Wait(Box::pin(future))
    }
}

impl Connection {
    /// Waits while the client is connected, the request has time left and the Worker is not cutting its connections.
    ///
    /// # Errors
    /// Why the wait ended early.
    pub(super) async fn wait(
        &mut self,
        exchange: &mut Exchange,
        mut wait: Wait,
    ) -> Result<(), Reply> {
        let longest = self.worker.settings.timeouts.response_head;
        let due = match exchange.request.due {
            Some(due) => due.ms(),
            None => self.worker.after(longest),
        };
        let until = (due, Reason::RequestTimeout);
        Ok(self.wait_until(exchange, until, wait.0.as_mut()).await?)
    }

    /// Waits until the endpoint may have another connection, at most as long as connecting may take. The message in
    /// `scratch.out` is kept meanwhile.
    ///
    /// # Errors
    /// If too many wait already, the wait was too long, or the request may not be sent any more.
    pub(super) async fn wait_for_connection(
        &mut self,
        exchange: &Exchange,
        attempt: &Attempt,
        endpoint: &Rc<Endpoint>,
    ) -> Result<(), Failure> {
        let worker = Rc::clone(&self.worker);
        let turn = worker.upstreams.wait_for(endpoint);
        let turn = turn.ok_or(Reason::UpstreamOverflow)?;
        let request = self.keep()?;
        let by = worker.after(worker.settings.timeouts.connect);
        let until = match attempt.at_most(by) {
            sooner if sooner < by => (sooner, Reason::RequestTimeout),
            by => (by, Reason::UpstreamOverflow),
        };
        let taken = poll_fn(|cx| worker.upstreams.poll_turn(cx, &turn));
        self.wait_until(exchange, until, taken).await?;
        self.restore(&request);
        self.is_allowed_now(exchange, endpoint.address)
    }

    /// Waits for the future, at most until the time of `until`, for whose passing it names the reason.
    async fn wait_until(
        &mut self,
        exchange: &Exchange,
        (due, late): (Millis, Reason),
        future: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        let mut future = pin!(future);
        let plan_look = |connection: &Connection| {
            let look = connection.worker.after(LOOK);
            connection.alarm.set(look.min(due));
        };
        plan_look(self);
        poll_fn(|cx: &mut Context<'_>| -> Poll<Result<(), Failure>> {
            if self.alarm.rang() {
                if self.worker.clock.now_ms() >= due {
                    return Poll::Ready(Err(late.into()));
                }
                let reason = self.worker.rang_for(&self.alarm, Reason::ClientGone);
                if reason != Reason::ClientGone || self.client.has_failed() {
                    return Poll::Ready(Err(reason.into()));
                }
                plan_look(self);
            }
            if future.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            self.watch_client(cx, exchange)?;
            Poll::Pending
        })
        .await
    }
}
