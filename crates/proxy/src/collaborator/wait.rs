//! Waits of a step, before anything of the request is sent.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::Connection;
use super::exchange::Exchange;
use super::reply::Reply;
use crate::clock::Due;
use crate::failure::{Failure, Reason};

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
            Some(due) => due,
            None => Due::at(self.worker.after(longest)),
        };
        let plan_look = |connection: &Connection| {
            let look = connection.worker.after(LOOK);
            connection.alarm.set(look.min(due.ms()));
        };
        plan_look(self);
        let over = poll_fn(|cx: &mut Context<'_>| -> Poll<Result<(), Failure>> {
            if self.alarm.rang() {
                if self.worker.clock.now_ms() >= due.ms() {
                    return Poll::Ready(Err(Reason::RequestTimeout.into()));
                }
                let reason = self.worker.rang_for(&self.alarm, Reason::ClientGone);
                if reason != Reason::ClientGone || self.client.has_failed() {
                    return Poll::Ready(Err(reason.into()));
                }
                plan_look(self);
            }
            if wait.0.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            self.watch_client(cx, exchange)?;
            Poll::Pending
        });
        Ok(over.await?)
    }
}
