//! Which protocol a connection speaks, where nobody has declared it.
//!
//! The endpoint is connected at once, so that a server that speaks first (SMTP, MySQL, SSH) never waits
//! for a client that waits for it. Then whoever speaks first decides: a server's greeting, or bytes of
//! the client that are no HTTP/1 request, make the connection opaque; the beginning of an HTTP/1
//! request makes it HTTP from there, and the connection to the endpoint goes into its pool.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use heddle_wire::http1::{Beginning, beginning};

use crate::carry::Stage;
use crate::collaborator::Connection;
use crate::failure::Reason;
use crate::io::Side;
use crate::listener::{Door, Entry};
use crate::opaque::{Flow, Origin};
use crate::parcel::{Contents, State};
use crate::route::PortIndex;
use crate::upstream::{Endpoint, Lease, MAX_ATTEMPTS, Upstream, connect};
use crate::worker::{Alarm, Bound, Intake, Turn, WorkKey, Worker};

/// How long a client that cannot be connected may take to ask in HTTP, in which it gets an answer.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Bytes within which a request of a usual length has its first line.
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
    /// Endpoints that were tried, and the last of them.
    attempts: u32,
    tried: Option<Rc<Endpoint>>,
    /// Whether it may turn out to be HTTP.
    listening: bool,
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
        began: Instant,
    ) -> Self {
        Undecided {
            alarm: worker.alarms.alarm(),
            began,
            attempts: 0,
            tried: None,
            worker,
            door,
            key,
            client,
            peer,
            listening: false,
        }
    }

    /// As bytes, unless it turns out to be HTTP.
    pub(crate) fn listening(self) -> Self {
        Undecided {
            listening: true,
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
        let port = match &self.door.entry {
            Entry::Service { service, port, .. } => bound.snapshot.find(service, *port),
            Entry::ForwardProxy { .. } => None,
        };
        let Some(port) = port else {
            // Whoever asks in HTTP is told what is wrong.
            return self.into_http();
        };
        match self.connect(&bound, port).await {
            Ok((mut upstream, lease)) => {
                let verdict = match self.listening {
                    true => self.listen(Some(&mut upstream)).await,
                    false => Verdict::Opaque,
                };
                match verdict {
                    Verdict::Http => {
                        let now = self.worker.clock.now_ms();
                        let upstreams = &self.worker.upstreams;
                        upstreams.give_back(lease.endpoint(), upstream, now);
                        self.into_http()
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
                    Verdict::Leave(intake) => self.leave(intake),
                }
            }
            Err(reason) => {
                if self.listening {
                    match self.listen(None).await {
                        Verdict::Http => return self.into_http(),
                        Verdict::Leave(intake) => return self.leave(intake),
                        Verdict::Opaque | Verdict::Gone | Verdict::Failed(_) => {}
                    }
                }
                self.fail(&bound, port, reason)
            }
        }
    }

    /// Counts and logs a connection that never became anything, and resets it: whatever the reason,
    /// that is what its client sees.
    fn fail(self, bound: &Bound, port: PortIndex, reason: Reason) -> Stage {
        let worker = &self.worker;
        let destination = Arc::clone(&bound.snapshot.port(port).label);
        let series = worker.tcp_series(&self.door.source, &destination);
        worker.stats.requests_rejected.inc(reason.index());
        series.fail(Reason::CODES, reason.index());
        let origin = Origin {
            destination,
            began: self.began,
            attempts: self.attempts,
        };
        let upstream = self.tried.map(|endpoint| endpoint.address);
        origin.log(worker, &self.door, Some(reason), upstream, (0, 0));
        self.client.reset_on_close(true);
        Stage::Over
    }

    async fn connect(
        &mut self,
        bound: &Bound,
        port: PortIndex,
    ) -> Result<(Upstream, Lease), Reason> {
        let worker = Rc::clone(&self.worker);
        loop {
            let endpoint = worker.choose(bound, port, self.tried.as_ref())?;
            self.tried = Some(Rc::clone(&endpoint));
            let place = worker.upstreams.reserve(&endpoint);
            let place = place.ok_or(Reason::UpstreamOverflow)?;
            self.attempts += 1;
            let lease = Lease::new(Rc::clone(&endpoint));
            let due = worker.after(worker.settings.timeouts.connect);
            match connect(&worker, &self.alarm, due, &endpoint, place).await {
                Ok(upstream) => return Ok((upstream, lease)),
                Err(reason) if self.attempts < MAX_ATTEMPTS && reason.is_safe_to_retry() => {}
                Err(reason) => return Err(reason),
            }
        }
    }

    /// Waits until somebody speaks.
    async fn listen(&mut self, mut upstream: Option<&mut Upstream>) -> Verdict {
        let wait = match upstream {
            Some(_) => self.worker.settings.timeouts.tcp_idle,
            None => LAST_WORDS,
        };
        self.alarm.set(self.worker.after(wait));
        poll_fn(|cx| self.poll_listen(cx, upstream.as_deref_mut())).await
    }

    fn poll_listen(
        &mut self,
        cx: &mut Context<'_>,
        upstream: Option<&mut Upstream>,
    ) -> Poll<Verdict> {
        if self.alarm.rang() {
            return Poll::Ready(Verdict::Failed(match self.worker.is_cutting() {
                true => Reason::Draining,
                false => Reason::TcpIdle,
            }));
        }
        if self.client.inbox.is_empty() {
            match self.worker.turn() {
                Some(Turn::Leave(intake)) => return Poll::Ready(Verdict::Leave(intake)),
                Some(Turn::End) => return Poll::Ready(Verdict::Gone),
                None => {}
            }
        }
        let pool = self.worker.pool.clone();
        while let Poll::Ready(read) = self.client.poll_fill(cx, &pool, pool.block_size()) {
            let ended = !matches!(read, Ok(n) if n > 0);
            let full = self.client.inbox.len() >= SNIFF_BYTES;
            match self.first_bytes() {
                Beginning::Request => return Poll::Ready(Verdict::Http),
                Beginning::Other => return Poll::Ready(Verdict::Opaque),
                // That the client has said everything is passed on like the rest of it.
                Beginning::Unclear if (ended || full) && upstream.is_some() => {
                    return Poll::Ready(Verdict::Opaque);
                }
                Beginning::Unclear if ended || full => return Poll::Ready(Verdict::Gone),
                Beginning::Unclear => {}
            }
        }
        // A greeting, the end of the stream or a reset: whatever it is, it is passed on.
        match upstream {
            Some(upstream) => {
                let spoke = upstream.side.stream.poll_read_ready(cx);
                spoke.map(|_| Verdict::Opaque)
            }
            None => Poll::Pending,
        }
    }

    fn first_bytes(&self) -> Beginning {
        let mut linear = Vec::new();
        let inbox = &self.client.inbox;
        beginning(inbox.contiguous(inbox.len().min(SNIFF_BYTES), &mut linear))
    }

    fn into_http(self) -> Stage {
        Connection::new(self.worker, self.door, self.key, self.client, self.peer).into()
    }

    fn into_flow(self, upstream: Upstream, lease: Lease, destination: Arc<str>) -> Flow {
        let client = (self.client, self.peer);
        let origin = Origin {
            destination,
            began: self.began,
            attempts: self.attempts,
        };
        Flow::join(self.worker, self.door, client, (upstream, lease), origin).begun()
    }

    fn leave(self, intake: Intake) -> Stage {
        let Ok(client) = self.client.stream.into_std() else {
            return Stage::Over;
        };
        let contents = Contents {
            door: self.door,
            client,
            peer: self.peer,
            state: State::Undecided { began: self.began },
        };
        Stage::Leave(Box::new(contents), intake)
    }
}
