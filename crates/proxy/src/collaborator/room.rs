//! Finds an endpoint that has room for a request, and waits for one if necessary.
//!
//! ```text
//!   choose ──▶ a permit is free ────────────────────────────────────────────▶ sent
//!      │ none                                                                   ▲
//!      ▼                                                                        │
//!   wait in line ──┬── a permit is handed over ─────────────────────────────────┘
//!      ▲           ├── the endpoints are others: prepared anew ──┐
//!      └───────────│─────────────────────────────────────────────┘
//!                  └── too long, too many, client gone, draining ──▶ refused
//! ```
//!
//! A waiting request costs a copy of the message that will be sent, and the content of the client's inbox.

use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use heddle_model::HashOn;
use heddle_telemetry::WorkerStats;

use super::Connection;
use super::exchange::Exchange;
use super::reply::Reply;
use crate::balance::hash;
use crate::clock::Millis;
use crate::failure::{Failure, Reason};
use crate::rooms::{Joined, LinePlace, RequestPermit, Rooms, Wants, join};
use crate::route::PortIndex;
use crate::upstream::Lease;
use crate::worker::Bound;
use crate::worker::Scratch;

/// Interval at which a waiting request checks whether an ejected endpoint has returned.
const LOOK: Duration = Duration::from_millis(100);
/// Interval at which it checks for other changes that do not wake it.
const LOOK_SELDOM: Duration = Duration::from_secs(1);

impl Connection {
    /// Chooses an endpoint for the request in the scratch. `None`: no endpoint has room at the moment.
    pub(super) fn choose_endpoint(&self, exchange: &Exchange) -> Result<Option<Lease>, Failure> {
        let target = exchange.decision.target.ok_or(Reason::NoBackend)?;
        if self.door.is_fixed() {
            let endpoint = self
                .worker
                .chosen(&exchange.decision.bound, target, &self.door)?;
            return Ok(self
                .worker
                .lease_at(&exchange.decision.bound, target, endpoint));
        }
        let hash = self.hash(exchange, target);
        let failed = exchange.tried.as_ref();
        Ok(self
            .worker
            .lease(&exchange.decision.bound, target, failed, hash)?)
    }

    /// The request's hash, if the Service chooses endpoints by a hash.
    fn hash(&self, exchange: &Exchange, target: PortIndex) -> Option<u64> {
        let hashed = exchange
            .decision
            .bound
            .snapshot
            .port(target)
            .cluster
            .hashed
            .as_ref()?;
        let name = match &hashed.on {
            HashOn::Source => {
                return Some(match self.address.ip().to_canonical() {
                    IpAddr::V4(v4) => hash(&v4.octets()),
                    IpAddr::V6(v6) => hash(&v6.octets()),
                });
            }
            HashOn::Header(name) => name.as_bytes(),
        };
        let Scratch {
            request, linear, ..
        } = &mut *self.worker.scratch.borrow_mut();
        let buf = self
            .client
            .inbox
            .contiguous(exchange.request.head_bytes, linear);
        let mut fields = request.fields.iter();
        let field = fields.find(|field| field.name.of(buf).eq_ignore_ascii_case(name))?;
        Some(hash(field.value.of(buf)))
    }

    /// Waits in the queue until an endpoint has room for the request.
    pub(super) async fn wait_for_room(&mut self, exchange: &mut Exchange) -> Result<Lease, Reply> {
        let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let mut due = None;
        let mut waited: Option<Waited> = None;
        loop {
            let Some((rooms, wants)) = self.wants(exchange)? else {
                // The endpoints have no request limit any more.
                let lease = self.choose_endpoint(exchange)?;
                return Ok(lease.ok_or(Reason::QueueTimeout)?);
            };
            let patience = Duration::from_millis(rooms.patience_ms());
            let due = *due.get_or_insert_with(|| self.worker.after(patience));
            let now = rooms.ms(self.worker.clock.now());
            let kept = waited.take();
            let kept = kept.filter(|waited| waited.waiting.change(&wants, now));
            let waited = match kept {
                Some(kept) => waited.insert(kept),
                None => match join(wants, &waker, now) {
                    Joined::Permitted(permit) => return Ok(self.lease_with(exchange, permit)?),
                    Joined::Full => return Err(Reason::QueueFull.into()),
                    Joined::Waiting(waiting) => {
                        waited.insert(Waited::new(waiting, &self.worker.stats))
                    }
                },
            };
            let request = self.keep()?;
            self.plan_look(exchange, &rooms, due);
            let waiting = &waited.waiting;
            let permit = poll_fn(|cx| self.poll_room(cx, exchange, waiting, &rooms, due)).await?;
            let Some(permit) = permit else {
                self.begin_anew(exchange)?;
                self.decide(exchange).await?;
                continue;
            };
            self.restore(&request);
            return Ok(self.lease_with(exchange, permit)?);
        }
    }

    /// Polls for a permit; `None` if the endpoints have changed, so that the request must be prepared again.
    fn poll_room(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        waiting: &LinePlace,
        rooms: &Arc<Rooms>,
        due: Millis,
    ) -> Poll<Result<Option<RequestPermit>, Failure>> {
        if self.alarm.rang() {
            let ran_out = if exchange.request.is_late(&self.worker.clock) {
                Some(Reason::RequestTimeout)
            } else {
                let is_over = self.worker.clock.now_ms() >= due;
                is_over.then_some(Reason::QueueTimeout)
            };
            let reason = ran_out.unwrap_or(Reason::QueueTimeout);
            let reason = self.worker.rang_for(&self.alarm, reason);
            // The timeout may coincide with a permit, which is then used.
            let is_late = reason == Reason::QueueTimeout;
            if is_late && let Some(permit) = waiting.take() {
                return Poll::Ready(Ok(Some(permit)));
            }
            if ran_out.is_some() || !is_late {
                return Poll::Ready(Err(reason.into()));
            }
            if self.client.has_failed() {
                return Poll::Ready(Err(Reason::ClientGone.into()));
            }
            rooms.look(rooms.ms(self.worker.clock.now()));
            self.plan_look(exchange, rooms, due);
        }
        if let Some(permit) = waiting.take() {
            return Poll::Ready(Ok(Some(permit)));
        }
        let now = self.worker.bound();
        if !Rc::ptr_eq(&now, &exchange.decision.bound) && !is_still(exchange, &now, rooms) {
            return Poll::Ready(Ok(None));
        }
        self.watch_client(cx, exchange)?;
        Poll::Pending
    }

    /// Sets the alarm to the next check or deadline.
    fn plan_look(&self, exchange: &Exchange, rooms: &Rooms, due: Millis) {
        let now = rooms.ms(self.worker.clock.now());
        let look = match rooms.is_any_shut(now) {
            true => LOOK,
            false => LOOK_SELDOM,
        };
        let look = self.worker.after(look);
        let look = look.min(due);
        let by = exchange.request.due.map_or(look, |due| look.min(due.ms()));
        self.alarm.set(by);
    }

    /// The endpoints for which the request waits; `None` if no wait is needed.
    fn wants(&self, exchange: &Exchange) -> Result<Option<(Arc<Rooms>, Wants)>, Failure> {
        let target = exchange.decision.target.ok_or(Reason::NoBackend)?;
        let Some(rooms) = &exchange.decision.bound.snapshot.port(target).cluster.rooms else {
            return Ok(None);
        };
        let wants = match self.door.is_fixed() {
            false => Wants::Any(Arc::clone(rooms)),
            true => {
                let endpoint = self
                    .worker
                    .chosen(&exchange.decision.bound, target, &self.door)?;
                match exchange.decision.bound.room(target, endpoint.address) {
                    Some(room) => Wants::One(Arc::clone(room)),
                    None => return Ok(None),
                }
            }
        };
        Ok(Some((Arc::clone(rooms), wants)))
    }

    /// The lease of the endpoint for which a permit was obtained.
    fn lease_with(&self, exchange: &mut Exchange, permit: RequestPermit) -> Result<Lease, Failure> {
        if self.client.has_failed() {
            return Err(Reason::ClientGone.into());
        }
        let target = exchange.decision.target.ok_or(Reason::NoBackend)?;
        let now = self.worker.bound();
        if Arc::ptr_eq(&now.snapshot, &exchange.decision.bound.snapshot) {
            // Pods may have changed meanwhile.
            exchange.decision.bound = Rc::clone(&now);
        }
        let endpoint = exchange.decision.bound.at(target, permit.address());
        let endpoint = endpoint.ok_or(Reason::NoEndpoint)?;
        Ok(Lease::with(Rc::clone(endpoint), Some(permit)))
    }
}

/// Whether the same endpoints are to be waited for by the new configuration.
fn is_still(exchange: &Exchange, now: &Bound, rooms: &Arc<Rooms>) -> bool {
    let Some(target) = exchange.decision.target else {
        return false;
    };
    let name = exchange.decision.bound.snapshot.port(target).name.as_ref();
    let found = name.and_then(|(service, port)| now.snapshot.find(service, *port));
    let found = found.and_then(|found| now.snapshot.port(found).cluster.rooms.as_ref());
    found.is_some_and(|found| Arc::ptr_eq(found, rooms))
}

/// A request's place in the queue, counted in the metrics.
struct Waited {
    waiting: LinePlace,
    stats: Arc<WorkerStats>,
}

impl Waited {
    fn new(waiting: LinePlace, stats: &Arc<WorkerStats>) -> Self {
        stats.upstream_requests_waiting.inc();
        stats.upstream_requests_waited.inc();
        Waited {
            waiting,
            stats: Arc::clone(stats),
        }
    }
}

impl Drop for Waited {
    fn drop(&mut self) {
        self.stats.upstream_requests_waiting.dec();
    }
}
