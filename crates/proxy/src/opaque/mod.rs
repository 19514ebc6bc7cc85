//! Connections whose bytes are passed on unchanged: TCP, TLS that is not terminated here, and any protocol after an
//! upgrade.
//!
//! ```text
//!            ┌── up ──▶ ended ─▶ shutdown(endpoint) ──┐
//!   joined ──┤                                        ├──▶ over
//!            └─ down ─▶ ended ─▶ shutdown(client) ────┘
//!      │
//!      └── order to leave, at any time ─▶ Moving (bytes in hand go along)
//! ```
//!
//! Each direction ends by itself (RFC 9293 section 3.6): one side may have sent everything and still receive. A
//! connection that is reset on one side is reset on the other, so that no program takes a cut stream for a complete
//! one. For the same reason both sides are set to be reset on close as long as there is a flow, or one may begin: a
//! process that is killed closes its sockets without notice. An orderly end switches this off, since a reset would also
//! discard data that was not sent to a side yet.

mod moving;

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use heddle_telemetry::{OPEN, Record, TcpSeries};
use heddle_wire::http1::Framing;

use crate::authorize::Live;
use crate::clock::Millis;
use crate::door::Door;
use crate::env::Blocks;
use crate::env::{Alarm, Outcome, Turn};
use crate::failure::{Failure, Reason};
use crate::intake::Intake;
use crate::parcel::Origin;
use crate::pump::{Pump, PumpError};
use crate::side::Side;
use crate::traffic::{FlowEnds, Traffic};
use crate::upstream::{Lease, Upstream};
use crate::worker::Worker;

/// A reset is noticed by reading. If a flow does not read from a side, because the other side receives nothing or
/// because this side has ended, it checks at this interval whether the side still exists.
const LOOK: Duration = Duration::from_secs(1);

/// A flow that has been open for this long gets a line in the access log before it is over: otherwise a flow of several
/// days would be missing there.
const LONG: Duration = Duration::from_secs(5);

/// A client's connection joined to an endpoint's.
pub(crate) struct Flow {
    worker: Rc<Worker>,
    door: Arc<Door>,
    peer: SocketAddr,
    client: Side,
    upstream: Upstream,
    lease: Lease,
    alarm: Alarm,
    /// When a byte moved last, on any Worker.
    moved: Instant,
    up: Direction,
    down: Direction,
    origin: Origin,
    series: Arc<TcpSeries>,
    /// Bytes from the client and from the endpoint, counted on all Workers.
    carried: (u64, u64),
}

impl Origin {
    /// Counts and logs a connection that failed.
    pub(crate) fn fail(
        &self,
        worker: &Worker,
        reason: Reason,
        ends: FlowEnds<'_>,
        carried: (u64, u64),
    ) {
        let series = worker.tcp_series(self.named(ends.traffic), &self.destination);
        series.fail(Reason::CODES, reason.index());
        self.log(worker, FlowState::Failed(reason), ends, carried);
    }

    /// The traffic of the caller that the request has named, if it has.
    fn named<'a>(&'a self, traffic: Traffic<'a>) -> Traffic<'a> {
        Traffic {
            lazy: self.carried.lazy(),
            ..traffic
        }
    }

    /// Logs a connection with its state and the bytes that it has carried.
    fn log(&self, worker: &Worker, state: FlowState, ends: FlowEnds<'_>, carried: (u64, u64)) {
        let Some(log) = worker.access_log() else {
            return;
        };
        let clock = &worker.clock;
        let duration = clock.now().saturating_duration_since(self.began);
        let FlowEnds {
            traffic,
            client,
            upstream,
        } = ends;
        let traffic = self.named(traffic);
        let snapshot = worker.snapshot();
        let principal = traffic.principal(&snapshot.guards);
        let workload = traffic.workload(&self.destination);
        let (reason, blame) = match state {
            FlowState::Open => (OPEN, ""),
            FlowState::Over => ("ok", ""),
            FlowState::Failed(reason) => (reason.code(), Failure::from(reason).blame().as_str()),
        };
        log.borrow_mut().record(&Record {
            unix_ms: clock.unix_ms(clock.us(self.began)),
            reporter: traffic.reporter(),
            source: &traffic.door.source,
            source_principal: principal.map_or("", |principal| principal),
            client,
            destination_workload: workload.as_deref().unwrap_or_default(),
            tls: traffic.tls(),
            protocol: "tcp",
            authority: &self.authority,
            destination_service: &self.destination,
            route: self.route.as_deref().unwrap_or_default(),
            method: b"",
            path: &self.path,
            status: 0,
            reason,
            blame,
            duration_us: u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
            upstream,
            request_bytes: carried.0,
            response_bytes: carried.1,
            attempts: self.attempts,
        });
    }
}

/// A connection's state for the access log.
#[derive(Debug, Clone, Copy)]
enum FlowState {
    /// It is still open, and has been for a while.
    Open,
    Over,
    Failed(Reason),
}

#[derive(Debug)]
struct Direction {
    pump: Pump,
    /// Bytes that are already counted.
    counted: u64,
    /// The end was passed on to the sink.
    ended: bool,
}

impl Direction {
    fn new(ended: bool) -> Self {
        Direction {
            pump: Pump::new(Framing::UntilClose),
            counted: 0,
            ended,
        }
    }

    /// Moves bytes as far as possible, and passes the end on.
    ///
    /// # Errors
    /// When one of the two connections is broken.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        blocks: &Blocks<'_>,
        source: &mut Side,
        sink: &mut Side,
        progress: &mut bool,
    ) -> Result<(), PumpError> {
        if self.ended {
            return Ok(());
        }
        if let Poll::Ready(moved) = self
            .pump
            .poll(cx, blocks, source, sink, &|_| true, progress)
        {
            moved?;
            self.ended = sink.poll_shutdown(cx).is_ready();
        }
        Ok(())
    }

    /// Whether the source is not read at the moment.
    fn is_deaf(&self, sink: &Side) -> bool {
        self.ended || self.pump.waits_for(sink)
    }

    /// Bytes moved since the last call.
    fn fresh_bytes(&mut self) -> u64 {
        let bytes = self.pump.bytes();
        bytes - std::mem::replace(&mut self.counted, bytes)
    }
}

/// How a flow ended on this Worker.
enum FlowEnd {
    /// Both sides have ended.
    Over,
    /// No byte moved for too long, or one of the connections broke.
    Failed(Reason),
    /// It moves to another Worker.
    Leave(Intake),
}

impl Flow {
    /// Joins two connections, both of which are reset on close. Bytes in their inboxes and outboxes are passed on
    /// first.
    pub(crate) fn join(
        worker: Rc<Worker>,
        door: Arc<Door>,
        (client, peer): (Side, SocketAddr),
        (upstream, lease): (Upstream, Lease),
        origin: Origin,
    ) -> Self {
        let traffic = Traffic {
            door: &door,
            endpoint: Some(lease.endpoint()),
            lazy: origin.carried.lazy(),
        };
        let series = worker.tcp_series(traffic, &origin.destination);
        series.connections_active.inc();
        let alarm = worker.alarms.alarm_of(&door, &client);
        alarm.rests_on(&upstream.side);
        Flow {
            peer,
            client,
            upstream,
            lease,
            alarm,
            moved: worker.clock.now(),
            up: Direction::new(false),
            down: Direction::new(false),
            origin,
            series,
            carried: (0, 0),
            worker,
            door,
        }
    }

    /// Counts the flow as a new one; not called for a flow that has moved.
    pub(crate) fn begun(self) -> Self {
        self.series.connections_total.inc();
        self
    }

    /// Passes bytes on until both sides have ended, or the flow moves to another Worker.
    pub(crate) async fn run(mut self: Box<Self>) -> Outcome<Infallible> {
        poll_fn(|cx| {
            self.start(cx);
            Poll::Ready(())
        })
        .await;
        let end = poll_fn(|cx| self.poll(cx)).await;
        self.count();
        self.series.connections_active.dec();
        match end {
            FlowEnd::Leave(intake) => return self.leave(intake),
            FlowEnd::Over => {
                for side in [&self.client, &self.upstream.side] {
                    side.reset_on_close(false);
                }
                self.log(FlowState::Over);
            }
            FlowEnd::Failed(reason) => {
                self.origin
                    .fail(&self.worker, reason, self.ends(), self.carried);
            }
        }
        Outcome::Over
    }

    /// Bytes that were read before the flow began are its first bytes.
    fn start(&mut self, cx: &Context<'_>) {
        self.alarm.wakes(cx.waker());
        self.alarm.set(self.next_look());
        // The flow may have been on its way from another Worker when policies or identities changed.
        let flow = Live {
            endpoint: self.lease.endpoint().address,
            carried: self.origin.carried.clone(),
        };
        let guards = &self.worker.bound().snapshot.guards;
        if !guards.allow_live(&self.door, &flow) {
            self.alarm.revoke(Reason::PolicyRevoked);
        }
        self.alarm.carries(flow);
        let sides = [&self.client, &self.upstream.side];
        if !sides.iter().all(|side| self.worker.believes(side)) {
            self.alarm.revoke(Reason::IdentityRevoked);
        }
        self.up.pump.take_over(&self.client.inbox);
        self.down.pump.take_over(&self.upstream.side.inbox);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<FlowEnd> {
        if let Some(Turn::Leave(intake)) = self.worker.turn()
            && self.client.may_move()
            && self.upstream.side.may_move()
        {
            return Poll::Ready(FlowEnd::Leave(intake));
        }
        let rang = self.alarm.rang();
        if rang && let Some(reason) = self.look() {
            return Poll::Ready(FlowEnd::Failed(reason));
        }
        if rang {
            self.tell();
        }
        let ended = (self.up.ended, self.down.ended);
        let blocks = self.worker.stream_blocks();
        let mut progress = false;
        let (client, endpoint) = (&mut self.client, &mut self.upstream.side);
        let up = &mut self.up;
        let down = &mut self.down;
        let (client_gone, upstream_gone) = (Reason::ClientReset, Reason::UpstreamReset);
        let moved = up
            .poll(cx, &blocks, client, endpoint, &mut progress)
            .map_err(|broken| blame(&broken, client_gone, upstream_gone))
            .and_then(|()| {
                down.poll(cx, &blocks, endpoint, client, &mut progress)
                    .map_err(|broken| blame(&broken, upstream_gone, client_gone))
            });
        if progress {
            self.count();
            self.moved = self.worker.clock.now();
        }
        if progress || rang || ended != (self.up.ended, self.down.ended) {
            self.alarm.set(self.next_look());
        }
        match moved {
            Err(reason) => {
                let sides = [&self.client, &self.upstream.side];
                let told = sides.into_iter().find_map(Side::why_broken);
                Poll::Ready(FlowEnd::Failed(told.unwrap_or(reason)))
            }
            Ok(()) if self.up.ended && self.down.ended => Poll::Ready(FlowEnd::Over),
            Ok(()) => Poll::Pending,
        }
    }

    fn count(&mut self) {
        let (up, down) = (self.up.fresh_bytes(), self.down.fresh_bytes());
        self.series.received_bytes.add(up);
        self.series.sent_bytes.add(down);
        self.carried.0 += up;
        self.carried.1 += down;
    }

    fn ends(&self) -> FlowEnds<'_> {
        FlowEnds::new(&self.door, self.peer, Some(self.lease.endpoint()))
    }

    fn log(&self, state: FlowState) {
        self.origin
            .log(&self.worker, state, self.ends(), self.carried);
    }

    /// When the access log is due to show that the flow is open.
    fn told_due(&self) -> Option<Millis> {
        let is_wanted = self.worker.access_log().is_some() && !self.origin.is_told;
        is_wanted.then(|| self.worker.due(self.origin.began, LONG))
    }

    /// Logs that the flow is open, if it has been for long.
    fn tell(&mut self) {
        let now = self.worker.clock.now_ms();
        if self.told_due().is_some_and(|due| now >= due) {
            self.origin.is_told = true;
            self.log(FlowState::Open);
        }
    }

    fn idle_due(&self) -> Millis {
        let timeouts = &self.worker.settings.timeouts;
        self.worker.due(self.moved, timeouts.tcp_idle)
    }

    /// When the alarm has to ring if nothing moves until then.
    fn next_look(&self) -> Millis {
        let deaf = self.up.is_deaf(&self.upstream.side) || self.down.is_deaf(&self.client);
        let due = match deaf {
            true => self.worker.after(LOOK).min(self.idle_due()),
            false => self.idle_due(),
        };
        self.told_due().map_or(due, |told| told.min(due))
    }

    /// The reason to give up, after the alarm rang. If a side is gone, bytes that it sent before are not waited for:
    /// the other side has received nothing for a while.
    fn look(&self) -> Option<Reason> {
        if let Some(revoked) = self.alarm.take_revoked() {
            Some(revoked)
        } else if self.worker.is_cutting() {
            Some(Reason::Draining)
        } else if self.worker.clock.now_ms() >= self.idle_due() {
            Some(Reason::TcpIdle)
        } else if self.client.has_failed() {
            Some(Reason::ClientReset)
        } else if self.upstream.side.has_failed() {
            Some(Reason::UpstreamReset)
        } else {
            None
        }
    }
}

/// The reason for a broken direction, given the reasons for its source and for its sink.
fn blame(broken: &PumpError, source: Reason, sink: Reason) -> Reason {
    match broken {
        PumpError::Source(Some(Reason::LinkLost)) => Reason::LinkLost,
        PumpError::Source(_) | PumpError::Framing(_) => source,
        PumpError::Sink => sink,
        PumpError::Memory => Reason::Memory,
    }
}
