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
use crate::env::PendingQuestion;
use crate::failure::{Failure, Reason};
use crate::settings::Timeouts;
use crate::upstream::Endpoint;

/// Interval of checks whether the client has reset the connection, which bytes of its unread body can hide.
const LOOK: Duration = Duration::from_secs(1);

/// The future for which a step waits. The step runs again afterwards and checks for itself, unless the future says why the
/// request fails.
pub(super) struct Wait {
    future: Pin<Box<dyn Future<Output = Result<(), Reason>>>>,
    /// The longest wait; `None` is the timeout for a response's head.
    longest: Option<Duration>,
    /// The reason if it takes longer.
    late: Reason,
}

impl Wait {
    /// Waits for the future, at most until the request's deadline: by its route, or by the timeout for a response's
    /// head.
    #[cfg(test)]
    pub(super) fn until(future: impl Future<Output = ()> + 'static) -> Self {
        let future = async {
            future.await;
            Ok(())
        };
        Wait {
            future: Box::pin(future),
            longest: None,
            late: Reason::RequestTimeout,
        }
    }

    /// Waits for what the control plane says of a destination, at most for the timeout of a question.
    pub(super) fn for_answer(question: PendingQuestion, timeouts: &Timeouts) -> Self {
        Wait {
            future: Box::pin(poll_fn(move |cx| question.poll(cx))),
            longest: Some(timeouts.discovery),
            late: Reason::DiscoveryTimeout,
        }
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
        let longest = wait.longest;
        let longest = longest.unwrap_or(self.worker.settings.timeouts.response_head);
        let by = self.worker.after(longest);
        let until = match exchange.request.due {
            Some(due) if due.ms() < by => (due.ms(), Reason::RequestTimeout),
            _ => (by, wait.late),
        };
        let waited = self
            .wait_until(exchange, until, wait.future.as_mut())
            .await?;
        Ok(waited?)
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
    async fn wait_until<T>(
        &mut self,
        exchange: &Exchange,
        (due, late): (Millis, Reason),
        future: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let mut future = pin!(future);
        let plan_look = |connection: &Connection| {
            let look = connection.worker.after(LOOK);
            connection.alarm.set(look.min(due));
        };
        plan_look(self);
        poll_fn(|cx: &mut Context<'_>| -> Poll<Result<T, Failure>> {
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
            if let Poll::Ready(done) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            self.watch_client(cx, exchange)?;
            Poll::Pending
        })
        .await
    }
}
