//! Detects the protocol of a connection to a port that declares none.
//!
//! The endpoint is connected at once, because the client of a server that speaks first (SMTP, MySQL, SSH) waits for the
//! server. Then the side that speaks first decides: a server's greeting, or client bytes that are not an HTTP/1
//! request, make the connection opaque; the beginning of an HTTP/1 request makes it HTTP, and the connection to the
//! endpoint goes into its pool. A line that begins like a request and is still incomplete after one second is passed on
//! as opaque bytes: the endpoint then decides whether to wait for the rest.

mod listen;

use std::future::poll_fn;
use std::mem;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use heddle_wire::preface::{Kind, Status};

use crate::authorize::{Carried, Live, MayConnect};
use crate::collaborator::Connection;
use crate::connect::{Call, connect};
use crate::door::Door;
use crate::env::{Alarm, Outcome, WorkKey};
use crate::failure::Reason;
use crate::intake::Intake;
use crate::opaque::Flow;
use crate::parcel::Origin;
use crate::parcel::{Contents, PackedUndecided, PackedUpstream, State};
use crate::route::{PortIndex, Spoken};
use crate::side::Side;
use crate::traffic::FlowEnds;
use crate::upstream::{Endpoint, Lease, MAX_ATTEMPTS, Upstream};
use crate::worker::{Bound, Worker};

/// A connection whose destination is known, and whose protocol is not.
pub(crate) struct Undecided {
    worker: Rc<Worker>,
    door: Arc<Door>,
    key: WorkKey,
    client: Side,
    peer: SocketAddr,
    alarm: Alarm,
    began: Instant,
    /// Start of the wait for the first bytes.
    since: Instant,
    /// Number of connection attempts, and the endpoint of the last one.
    attempts: u32,
    tried: Option<Rc<Endpoint>>,
    /// The connection to the endpoint that another Worker had made.
    joined: Option<(Upstream, Lease)>,
    /// Whether the protocol is still to be detected; if not, the connection is opaque.
    listening: bool,
    /// Policies allow only a health check: the connection is opened and closed.
    bare: bool,
    /// Whether the calling node was told that the endpoint is connected.
    told: bool,
    /// Whether the client has begun to speak, and its protocol is still unclear.
    in_suspense: bool,
}

/// The result of the detection.
enum Verdict {
    Http,
    Opaque,
    /// The client closed, or the process is ending: nothing has begun that could fail.
    Gone,
    /// For example, both sides were silent for too long, or the drain deadline passed.
    Failed(Reason),
    /// Neither side has spoken, and the connection is to move to another Worker.
    Leave(Intake),
}

/// What the connection becomes.
pub(crate) enum Decided {
    Http(Box<Connection>),
    /// Opaque bytes; the endpoint is connected.
    Opaque(Box<Flow>),
}

impl Undecided {
    /// A connection to the door's destination, as opaque bytes.
    pub(crate) fn new(
        worker: Rc<Worker>,
        door: Arc<Door>,
        key: WorkKey,
        client: Side,
        peer: SocketAddr,
    ) -> Self {
        Undecided {
            alarm: worker.alarms.alarm_of(&door, &client),
            began: worker.clock.now(),
            since: worker.clock.now(),
            attempts: 0,
            tried: None,
            joined: None,
            worker,
            door,
            key,
            client,
            peer,
            listening: false,
            bare: false,
            told: false,
            in_suspense: false,
        }
    }

    /// Detects whether the connection carries HTTP; otherwise it is opaque.
    pub(crate) fn listening(self) -> Self {
        Undecided {
            listening: true,
            ..self
        }
    }

    /// A connection that came from another Worker, with its connection to the endpoint. If that one cannot be
    /// registered here, a new one is made.
    pub(crate) fn resumed(self, waiting: PackedUndecided) -> Self {
        self.worker.bound().expect(&waiting.upstream.endpoint);
        let upstreams = &self.worker.upstreams;
        let endpoint = upstreams.endpoint(&waiting.upstream.endpoint);
        let registered = waiting.upstream.side;
        let registered = registered.unpack_as(self.worker.stats.class()).ok();
        let believed = registered.filter(|side| self.worker.believes(side));
        let joined = believed.map(|side| {
            let upstream = upstreams.adopt(&endpoint, side.into());
            (upstream, Lease::new(Rc::clone(&endpoint)))
        });
        Undecided {
            began: waiting.began,
            since: waiting.since,
            attempts: waiting.attempts,
            tried: Some(endpoint),
            joined,
            told: true,
            ..self
        }
    }

    /// Connects to the endpoint, detects the protocol, and returns the next stage. Until then, both sides are reset on
    /// close, and an opaque flow begins in the same state: if this process or task ends, the connections are cut.
    pub(crate) async fn decide(mut self: Box<Self>) -> Outcome<Decided> {
        poll_fn(|cx| {
            self.alarm.wakes(cx.waker());
            Poll::Ready(())
        })
        .await;
        let bound = self.worker.bound();
        let Some(port) = bound.snapshot.port_of(&self.door.entry) else {
            // HTTP answers with the reason, if the client sends a request.
            return self.into_http();
        };
        let joined = match self.joined.take() {
            // Both sides are already set to be reset on close.
            Some(joined) => Ok(joined),
            None => {
                self.client.reset_on_close(true);
                let connected = self.connect(&bound, port).await;
                self.since = self.worker.clock.now();
                if connected.is_ok() {
                    self.say_joined();
                }
                connected
            }
        };
        match joined {
            // The health check has its result: the endpoint accepted.
            Ok((upstream, _)) if self.bare => self.over(&upstream),
            Ok((mut upstream, lease)) => {
                self.alarm.rests_on(&upstream.side);
                let verdict = match self.listening {
                    true => self.listen(Some(&mut upstream)).await,
                    false => Verdict::Opaque,
                };
                match self.by_now(verdict) {
                    Verdict::Http => {
                        upstream.side.reset_on_close(false);
                        let endpoint = Rc::clone(lease.endpoint());
                        // An endpoint that speaks first does not speak HTTP: its connection is not reused.
                        if !upstream.side.is_silent() {
                            return self.into_http();
                        }
                        if upstream.side.is_one_clients() {
                            return self.into_http_with(endpoint, upstream);
                        }
                        let now = self.worker.clock.now_ms();
                        let upstreams = &self.worker.upstreams;
                        upstreams.give_back(&endpoint, upstream, self.key, now);
                        self.into_http()
                    }
                    Verdict::Opaque if !self.may_pass_on(lease.endpoint().address) => {
                        self.fail(&bound, port, Reason::PolicyDenied)
                    }
                    Verdict::Opaque => {
                        let destination = Arc::clone(&bound.snapshot.port(port).label);
                        let flow = self.into_flow(upstream, lease, destination);
                        Outcome::Next(Decided::Opaque(Box::new(flow)))
                    }
                    Verdict::Gone => self.over(&upstream),
                    Verdict::Failed(reason) => self.fail(&bound, port, reason),
                    Verdict::Leave(intake) => self.leave(intake, upstream, &lease),
                }
            }
            Err(reason) => {
                if self.listening {
                    let verdict = self.listen(None).await;
                    if let Verdict::Http = self.by_now(verdict) {
                        return self.into_http();
                    }
                }
                self.fail(&bound, port, reason)
            }
        }
    }

    /// A verdict may come long after the port was looked up. The current declaration of the port and its current rules
    /// take precedence: no client gets past rules by having connected before them.
    fn by_now(&self, verdict: Verdict) -> Verdict {
        if !matches!(verdict, Verdict::Http | Verdict::Opaque) {
            return verdict;
        }
        match self.worker.bound().snapshot.spoken(&self.door) {
            Spoken::Http => Verdict::Http,
            Spoken::Opaque => Verdict::Opaque,
            Spoken::Unknown => verdict,
        }
    }

    /// Tells the calling node that the endpoint is connected, if it was not told yet.
    fn say_joined(&mut self) {
        if let Some(inbound) = self.door.inbound()
            && !mem::replace(&mut self.told, true)
        {
            inbound.answer(&self.worker, &mut self.client, Status::Joined);
        }
    }

    /// Counts and logs a connection that failed before its protocol was known, and resets it. Its client sees the reset
    /// for any reason.
    fn fail(mut self, bound: &Bound, port: PortIndex, reason: Reason) -> Outcome<Decided> {
        let worker = &self.worker;
        let destination = Arc::clone(&bound.snapshot.port(port).label);
        let origin = Origin {
            destination,
            began: self.began,
            attempts: self.attempts,
            carried: Carried::Bytes,
            path: Vec::new(),
            route: None,
            authority: Vec::new(),
            is_told: false,
        };
        let ends = FlowEnds::new(&self.door, self.peer, self.tried.as_deref());
        origin.fail(worker, reason, ends, (0, 0));
        match self.door.inbound() {
            // The calling node is waiting for the answer, and then resets its client.
            Some(inbound) if !self.told && !inbound.is_stock => {
                self.client.reset_on_close(false);
                inbound.turn_away(worker, &mut self.client, reason);
            }
            _ => self.client.reset_on_close(true),
        }
        Outcome::Over
    }

    /// Closes both sides without a reset.
    fn over(&self, upstream: &Upstream) -> Outcome<Decided> {
        for side in [&self.client, &upstream.side] {
            side.reset_on_close(false);
        }
        Outcome::Over
    }

    async fn connect(
        &mut self,
        bound: &Bound,
        port: PortIndex,
    ) -> Result<(Upstream, Lease), Reason> {
        let worker = Rc::clone(&self.worker);
        loop {
            let endpoint = match self.door.is_fixed() {
                false => worker.choose(bound, port, self.tried.as_ref())?,
                true => worker.chosen(bound, port, &self.door)?,
            };
            self.tried = Some(Rc::clone(&endpoint));
            self.authorize(bound, endpoint.address)?;
            let due = worker.after(worker.settings.timeouts.connect);
            if !worker.upstreams.has_room(&endpoint) {
                self.alarm.set(due);
                // Boxed: it would take room in every connection.
                Box::pin(self.wait_for_connection(&endpoint)).await?;
                self.authorize(&worker.bound(), endpoint.address)?;
            }
            let place = worker.upstreams.reserve(&endpoint);
            let place = place.ok_or(Reason::UpstreamOverflow)?;
            self.attempts += 1;
            let lease = Lease::new(Rc::clone(&endpoint));
            let call = Call {
                door: &self.door,
                kind: Kind::Bytes,
                client: &self.peer,
            };
            // If the client or another node has chosen the endpoint, there is no other one to try.
            let again = self.attempts < MAX_ATTEMPTS && !self.door.is_fixed();
            match connect(&worker, &self.alarm, (due, true), &endpoint, place, &call).await {
                Ok(upstream) => {
                    upstream.side.reset_on_close(true);
                    return Ok((upstream, lease));
                }
                Err(reason) if again && reason.is_safe_to_retry() => {}
                Err(reason) => return Err(reason),
            }
        }
    }

    /// Waits until the endpoint may have another connection, or the alarm rings.
    async fn wait_for_connection(&self, endpoint: &Rc<Endpoint>) -> Result<(), Reason> {
        let worker = &self.worker;
        let turn = worker.upstreams.wait_for(endpoint);
        let turn = turn.ok_or(Reason::UpstreamOverflow)?;
        poll_fn(|cx| match self.alarm.rang() {
            true if self.client.has_failed() => Poll::Ready(Err(Reason::ClientGone)),
            true => Poll::Ready(Err(worker.rang_for(&self.alarm, Reason::UpstreamOverflow))),
            false => worker.upstreams.poll_turn(cx, &turn).map(Ok),
        })
        .await
    }

    /// Checks whether policies allow a connection to the endpoint.
    fn authorize(&mut self, bound: &Bound, endpoint: SocketAddr) -> Result<(), Reason> {
        let bytes = !self.listening;
        let carried = match bytes {
            true => Carried::Bytes,
            false => Carried::Undecided,
        };
        self.alarm.carries(Live { endpoint, carried });
        match bound.snapshot.guards.may_connect(&self.door, endpoint) {
            MayConnect::No => Err(Reason::PolicyDenied),
            MayConnect::Bare => {
                self.bare = true;
                Ok(())
            }
            MayConnect::Yes if bytes && !self.may_pass_on(endpoint) => Err(Reason::PolicyDenied),
            MayConnect::Yes => Ok(()),
        }
    }

    /// Whether the current policies allow opaque bytes to the endpoint.
    fn may_pass_on(&self, endpoint: SocketAddr) -> bool {
        let guards = &self.worker.bound().snapshot.guards;
        let dry_runs = &self.worker.stats.policy_dry_run_differences;
        guards.allow_bytes(&self.door, endpoint, dry_runs)
    }

    fn into_http(self) -> Outcome<Decided> {
        Outcome::Next(Decided::Http(Box::new(self.into_connection())))
    }

    /// The same, with a connection to an endpoint that only this client may use.
    fn into_http_with(self, endpoint: Rc<Endpoint>, upstream: Upstream) -> Outcome<Decided> {
        let connection = self.into_connection();
        let connection = connection.with_own(endpoint, upstream);
        Outcome::Next(Decided::Http(Box::new(connection)))
    }

    fn into_connection(mut self) -> Connection {
        self.say_joined();
        // From here on, HTTP framing marks the end of each message.
        self.client.reset_on_close(false);
        Connection::new(self.worker, self.door, self.key, self.client, self.peer)
    }

    fn into_flow(self, upstream: Upstream, lease: Lease, destination: Arc<str>) -> Flow {
        let client = (self.client, self.peer);
        let origin = Origin {
            destination,
            began: self.began,
            attempts: self.attempts,
            carried: Carried::Bytes,
            path: Vec::new(),
            route: None,
            authority: Vec::new(),
            is_told: false,
        };
        Flow::join(self.worker, self.door, client, (upstream, lease), origin).begun()
    }

    fn leave(self, intake: Intake, upstream: Upstream, lease: &Lease) -> Outcome<Decided> {
        let client = self.client.pack();
        let side = upstream.side.pack();
        let (Ok(client), Ok(side)) = (client, side) else {
            // Deregistering a socket fails only when the runtime has ended.
            return Outcome::Over;
        };
        let endpoint = lease.endpoint().place.clone();
        let waiting = PackedUndecided {
            began: self.began,
            since: self.since,
            attempts: self.attempts,
            upstream: PackedUpstream {
                endpoint,
                side,
                caller: Arc::clone(&self.door.owner),
            },
        };
        let contents = Contents {
            door: self.door,
            client,
            peer: self.peer,
            state: State::Undecided(Box::new(waiting)),
        };
        Outcome::Leave(Box::new(contents), intake)
    }
}
