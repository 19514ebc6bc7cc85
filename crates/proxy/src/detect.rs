//! Which protocol a connection speaks, where nobody has declared it.
//!
//! The endpoint is connected at once, so that a server that speaks first (SMTP, MySQL, SSH) never waits
//! for a client that waits for it. Then whoever speaks first decides: a server's greeting, or bytes of
//! the client that are no HTTP/1 request, make the connection opaque; the beginning of an HTTP/1
//! request makes it HTTP from there, and the connection to the endpoint goes into its pool. A line that
//! begins like a request and does not go on is passed on after the time that a request's head may take:
//! whether to wait for the rest is for the endpoint to say.

use std::future::poll_fn;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use heddle_wire::http1::{Beginning, beginning};
use heddle_wire::preface::{Kind, Status};

use crate::authorize::MayConnect;
use crate::carry::{Spoken, Stage, spoken};
use crate::collaborator::Connection;
use crate::failure::Reason;
use crate::io::Side;
use crate::listener::Door;
use crate::opaque::{Flow, Origin};
use crate::parcel::{Contents, Idle, State, Waiting};
use crate::route::PortIndex;
use crate::upstream::{Call, Endpoint, Lease, MAX_ATTEMPTS, Upstream, connect};
use crate::worker::{Alarm, Bound, Intake, Live, Turn, WorkKey, Worker};

/// How long a client that cannot be connected may take to ask in HTTP, in which it gets an answer.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a client that has begun to speak may leave it open what it speaks. A protocol whose first
/// message is a word without an end, such as ZooKeeper's `ruok`, waits for its answer so long.
const SUSPENSE: Duration = Duration::from_secs(1);
/// Bytes that are looked at. What is no other protocol by then is HTTP.
const SNIFF_BYTES: usize = 4096;

/// A connection of which nothing is known but where it wants to go.
pub(crate) struct Undecided {
    worker: Rc<Worker>,
    door: Arc<Door>,
    key: WorkKey,
    client: Side,
    peer: SocketAddr,
    alarm: Alarm,
    /// When the client was accepted.
    began: Instant,
    /// When the wait for somebody to speak began.
    since: Instant,
    /// Endpoints that were tried, and the last of them.
    attempts: u32,
    tried: Option<Rc<Endpoint>>,
    /// The endpoint that was connected elsewhere.
    joined: Option<(Upstream, Lease)>,
    /// Whether it may turn out to be HTTP.
    listening: bool,
    /// It is good for nothing but to be made and closed.
    bare: bool,
    /// Another node was told that the endpoint is connected.
    told: bool,
    /// The client has begun to speak, and it is not clear what.
    in_suspense: bool,
}

/// What was found out.
enum Verdict {
    Http,
    Opaque,
    /// The client went, or the process is ending: nothing was begun that could fail.
    Gone,
    /// Nobody said anything for too long, or the time for draining is over.
    Failed(Reason),
    /// Nobody has spoken, and it is to go on elsewhere.
    Leave(Intake),
}

impl Undecided {
    /// A client that wants to go where its door leads, as bytes.
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

    /// As bytes, unless it turns out to be HTTP.
    pub(crate) fn listening(self) -> Self {
        Undecided {
            listening: true,
            ..self
        }
    }

    /// One that has come from another Worker, with the endpoint's connection that it had there. Where
    /// that cannot be registered another is made.
    pub(crate) fn resumed(self, waiting: Waiting) -> Self {
        let upstreams = &self.worker.upstreams;
        let endpoint = upstreams.endpoint(&waiting.upstream.endpoint);
        let registered = waiting.upstream.side.unpack().ok();
        let believed = registered.filter(|side| self.worker.believes(side));
        let joined = believed.map(|side| {
            let upstream = upstreams.adopt(&endpoint, side);
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

    /// Connects, finds out, and says how it goes on.
    pub(crate) async fn decide(mut self: Box<Self>) -> Stage {
        poll_fn(|cx| {
            self.alarm.wakes(cx.waker());
            Poll::Ready(())
        })
        .await;
        let bound = self.worker.bound();
        let Some(port) = bound.snapshot.port_of(&self.door.entry) else {
            // Whoever asks in HTTP is told what is wrong.
            return self.into_http();
        };
        let joined = match self.joined.take() {
            Some(joined) => Ok(joined),
            None => {
                let connected = self.connect(&bound, port).await;
                self.since = self.worker.clock.now();
                if connected.is_ok() {
                    self.say_joined();
                }
                connected
            }
        };
        match joined {
            // A health check has found out what it wanted to know.
            Ok(_) if self.bare => Stage::Over,
            Ok((mut upstream, lease)) => {
                self.alarm.rests_on(&upstream.side);
                let verdict = match self.listening {
                    true => self.listen(Some(&mut upstream)).await,
                    false => Verdict::Opaque,
                };
                match self.by_now(verdict) {
                    Verdict::Http => {
                        let endpoint = Rc::clone(lease.endpoint());
                        // One that has begun to speak does not speak HTTP.
                        if !upstream.side.is_silent() {
                            return self.into_http();
                        }
                        if upstream.side.is_one_clients() {
                            return self.into_http_with(endpoint, upstream);
                        }
                        let now = self.worker.clock.now_ms();
                        self.worker.upstreams.give_back(&endpoint, upstream, now);
                        self.into_http()
                    }
                    Verdict::Opaque if !self.may_pass_on(lease.endpoint().address) => {
                        self.fail(&bound, port, Reason::PolicyDenied)
                    }
                    Verdict::Opaque => {
                        let destination = Arc::clone(&bound.snapshot.port(port).label);
                        self.into_flow(upstream, lease, destination).into()
                    }
                    Verdict::Gone => Stage::Over,
                    Verdict::Failed(reason) => {
                        upstream.side.reset_on_close(true);
                        self.fail(&bound, port, reason)
                    }
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

    /// A verdict may come long after the port was looked up. What is declared by now, and whether there
    /// are rules, goes before who spoke: nobody gets past rules by having connected before them.
    fn by_now(&self, verdict: Verdict) -> Verdict {
        if !matches!(verdict, Verdict::Http | Verdict::Opaque) {
            return verdict;
        }
        match spoken(&self.worker, &self.door) {
            Spoken::Http => Verdict::Http,
            Spoken::Opaque => Verdict::Opaque,
            Spoken::Unknown => verdict,
        }
    }

    /// Tells another node that the endpoint is connected.
    fn say_joined(&mut self) {
        if let Some(inbound) = self.door.inbound()
            && !mem::replace(&mut self.told, true)
        {
            inbound.answer(&self.worker, &mut self.client, Status::Joined);
        }
    }

    /// Counts and logs a connection that never became anything, and resets it: whatever the reason,
    /// that is what its client sees.
    fn fail(mut self, bound: &Bound, port: PortIndex, reason: Reason) -> Stage {
        let worker = &self.worker;
        let destination = Arc::clone(&bound.snapshot.port(port).label);
        let origin = Origin {
            destination,
            began: self.began,
            attempts: self.attempts,
            upgraded: false,
            path: Vec::new(),
            rule: None,
        };
        let upstream = self.tried.map(|endpoint| endpoint.address);
        origin.fail(worker, &self.door, reason, upstream, (0, 0));
        match self.door.inbound() {
            // Its node is waiting for an answer, and resets the client then.
            Some(inbound) if !self.told => inbound.turn_away(worker, &mut self.client, reason),
            _ => self.client.reset_on_close(true),
        }
        Stage::Over
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
            let place = worker.upstreams.reserve(&endpoint);
            let place = place.ok_or(Reason::UpstreamOverflow)?;
            self.attempts += 1;
            let lease = Lease::new(Rc::clone(&endpoint));
            let due = worker.after(worker.settings.timeouts.connect);
            let call = Call {
                door: &self.door,
                kind: Kind::Bytes,
                client: &self.peer,
            };
            // There is no other endpoint than the one that the client or another node has chosen.
            let again = self.attempts < MAX_ATTEMPTS && !self.door.is_fixed();
            match connect(&worker, &self.alarm, (due, true), &endpoint, place, &call).await {
                Ok(upstream) => return Ok((upstream, lease)),
                Err(reason) if again && reason.is_safe_to_retry() => {}
                Err(reason) => return Err(reason),
            }
        }
    }

    /// Whether the endpoint may be connected, and what for.
    fn authorize(&mut self, bound: &Bound, endpoint: SocketAddr) -> Result<(), Reason> {
        let bytes = !self.listening;
        self.alarm.carries(Live { endpoint, bytes });
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

    /// Whether bytes may be passed on to the endpoint, as the policies are now.
    fn may_pass_on(&self, endpoint: SocketAddr) -> bool {
        let guards = &self.worker.bound().snapshot.guards;
        let dry_runs = &self.worker.stats.policy_dry_run_differences;
        guards.allow_bytes(&self.door, endpoint, dry_runs)
    }

    /// Waits until somebody speaks.
    async fn listen(&mut self, mut upstream: Option<&mut Upstream>) -> Verdict {
        let wait = match upstream {
            Some(_) => self.worker.settings.timeouts.tcp_idle,
            None => LAST_WORDS,
        };
        self.alarm.set(self.worker.due(self.since, wait));
        poll_fn(|cx| self.poll_listen(cx, upstream.as_deref_mut())).await
    }

    fn poll_listen(
        &mut self,
        cx: &mut Context<'_>,
        upstream: Option<&mut Upstream>,
    ) -> Poll<Verdict> {
        // The answer to another node goes out even if nobody speaks.
        let _later = self.client.poll_flush(cx);
        let silent = self.client.inbox.is_empty();
        if self.alarm.rang() {
            let half_a_line = upstream.is_some() && !silent;
            let reason = self.worker.rang_for(&self.alarm, Reason::TcpIdle);
            return Poll::Ready(match reason {
                Reason::TcpIdle if half_a_line => Verdict::Opaque,
                reason => Verdict::Failed(reason),
            });
        }
        // Last words are waited for where they are: it does not take long.
        let may_leave = upstream
            .as_ref()
            .map_or(self.worker.is_draining(), |upstream| {
                self.client.may_move() && upstream.side.may_move() || self.worker.is_draining()
            });
        if may_leave && silent && self.client.outbox.is_empty() {
            match self.worker.turn() {
                Some(Turn::Leave(intake)) => return Poll::Ready(Verdict::Leave(intake)),
                Some(Turn::End) => return Poll::Ready(Verdict::Gone),
                None => {}
            }
        }
        let pool = self.worker.pool.clone();
        let has_upstream = upstream.is_some();
        // What came with the first words of another node is looked at before anything is read.
        if !silent && let Some(verdict) = self.judge(false, has_upstream) {
            return Poll::Ready(verdict);
        }
        while let Poll::Ready(read) = self.client.poll_fill(cx, &pool, pool.block_size()) {
            let ended = match read {
                Ok(n) => n == 0,
                Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                    return Poll::Ready(self.without_blocks());
                }
                // What it had begun to say is not passed on as if it were whole.
                Err(_) => return Poll::Ready(Verdict::Failed(Reason::ClientReset)),
            };
            if let Some(verdict) = self.judge(ended, has_upstream) {
                return Poll::Ready(verdict);
            }
        }
        let has_begun = !self.client.inbox.is_empty();
        if has_upstream && has_begun && !mem::replace(&mut self.in_suspense, true) {
            self.alarm.set(self.worker.after(SUSPENSE));
        }
        // A greeting, the end of the stream or a reset: whatever it is, it is passed on.
        match upstream {
            Some(upstream) => {
                let spoke = upstream.side.poll_speaks(cx, &pool);
                spoke.map(|()| Verdict::Opaque)
            }
            None => Poll::Pending,
        }
    }

    /// What the client's first bytes say, if they say it yet.
    fn judge(&self, ended: bool, has_upstream: bool) -> Option<Verdict> {
        let full = self.client.inbox.len() >= SNIFF_BYTES;
        match self.first_bytes() {
            Beginning::Request => Some(Verdict::Http),
            Beginning::Other => Some(Verdict::Opaque),
            // Nothing but a long request line, or many empty ones: refusing is the parser's part.
            Beginning::Unclear if full => Some(Verdict::Http),
            // That the client has said everything is passed on like the rest of it.
            Beginning::Unclear if ended && has_upstream => Some(Verdict::Opaque),
            Beginning::Unclear if ended => Some(Verdict::Gone),
            Beginning::Unclear => None,
        }
    }

    /// What to do with a client that speaks while no block is left to read into: one that asks in HTTP
    /// is told so.
    fn without_blocks(&self) -> Verdict {
        let mut first = [0; SNIFF_BYTES];
        let seen = self.client.peek(&mut first);
        match beginning(&first[..seen]) {
            Beginning::Request if self.client.inbox.is_empty() => Verdict::Http,
            _ => Verdict::Failed(Reason::Memory),
        }
    }

    fn first_bytes(&self) -> Beginning {
        let mut linear = Vec::new();
        let inbox = &self.client.inbox;
        beginning(inbox.contiguous(inbox.len().min(SNIFF_BYTES), &mut linear))
    }

    fn into_http(self) -> Stage {
        self.into_connection().into()
    }

    /// The same with a connection to an endpoint that is good for nobody else.
    fn into_http_with(self, endpoint: Rc<Endpoint>, upstream: Upstream) -> Stage {
        let connection = self.into_connection();
        connection.with_own(endpoint, upstream).into()
    }

    fn into_connection(mut self) -> Connection {
        self.say_joined();
        Connection::new(self.worker, self.door, self.key, self.client, self.peer)
    }

    fn into_flow(self, upstream: Upstream, lease: Lease, destination: Arc<str>) -> Flow {
        let client = (self.client, self.peer);
        let origin = Origin {
            destination,
            began: self.began,
            attempts: self.attempts,
            upgraded: false,
            path: Vec::new(),
            rule: None,
        };
        Flow::join(self.worker, self.door, client, (upstream, lease), origin).begun()
    }

    fn leave(self, intake: Intake, upstream: Upstream, lease: &Lease) -> Stage {
        let client = self.client.pack();
        let side = upstream.side.pack();
        let (Ok(client), Ok(side)) = (client, side) else {
            // Only a runtime that has ended does not let go of a socket.
            return Stage::Over;
        };
        let endpoint = lease.endpoint().place.clone();
        let waiting = Waiting {
            began: self.began,
            since: self.since,
            attempts: self.attempts,
            upstream: Idle { endpoint, side },
        };
        let contents = Contents {
            door: self.door,
            client,
            peer: self.peer,
            state: State::Undecided(Box::new(waiting)),
        };
        Stage::Leave(Box::new(contents), intake)
    }
}
