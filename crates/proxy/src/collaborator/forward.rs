//! Sending a request to an endpoint: which one, over which connection, and once more if need be.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use heddle_transport::Protocol;
use heddle_wire::buffer::Chain;
use heddle_wire::preface::Kind;

use super::exchange::Exchange;
use super::observe::has_choice;
use super::prepare::Prepared;
use super::{After, Connection, Upgraded};
use crate::authorize::Guards;
use crate::authorize::Live;
use crate::clock::Millis;
use crate::connect::{Call, connect, is_refused};
use crate::failure::{Failure, Reason, Retry};
use crate::link::{reason_of, unsent};
use crate::parcel::Origin;
use crate::upstream::{Asking, Endpoint, Lease, MAX_ATTEMPTS, Upstream, UpstreamPermit};
use crate::worker::Scratch;

impl Connection {
    /// Forwards the request that stands in `scratch.out` and delivers the answer.
    ///
    /// A failure after which nothing was told to the client comes back as an error; the caller
    /// answers. Once an answer has begun there is nothing left to say: the connection is closed.
    pub(super) async fn forward(&mut self, exchange: &mut Exchange) -> Result<After, Failure> {
        self.count_request(exchange);
        let mut upstream = loop {
            let outcome = match self.start(exchange).await {
                Ok(mut upstream) => {
                    let head = poll_fn(|cx| self.poll_head(cx, exchange, &mut upstream)).await;
                    head.map(|head_bytes| (upstream, head_bytes))
                }
                Err(failure) => Err(failure),
            };
            let outcome = outcome.and_then(|(mut upstream, head_bytes)| {
                self.heed(exchange, &mut upstream, head_bytes)?;
                Ok((upstream, head_bytes))
            });
            match outcome {
                Ok((mut upstream, head_bytes)) => {
                    let begin = |cx: &mut Context<'_>| {
                        let begun = self.begin(cx, exchange, &mut upstream, head_bytes);
                        Poll::Ready(self.observe(exchange, begun))
                    };
                    poll_fn(begin).await?;
                    break upstream;
                }
                Err(failure) => {
                    self.attempt_failed(exchange, failure)?;
                    self.prepare_again(exchange)?;
                }
            }
        };
        if !exchange.upload.is_done()
            || !exchange.download.is_done()
            || !self.client.outbox.is_empty()
        {
            let moved = poll_fn(|cx| self.poll_bodies(cx, exchange, &mut upstream)).await;
            moved.inspect_err(|failure| self.observe_failure(exchange, failure))?;
        }
        if exchange.status == 101 {
            return self.upgraded(exchange, upstream);
        }
        Ok(self.settle(exchange, upstream))
    }

    /// Sends the request over a pooled connection, or a new one.
    async fn start(&mut self, exchange: &mut Exchange) -> Result<Upstream, Failure> {
        let lease = match self.choose_endpoint(exchange)? {
            Some(lease) => lease,
            // In a box: it would take room in every connection.
            None => Box::pin(self.wait_for_room(exchange)).await?,
        };
        let endpoint = Rc::clone(lease.endpoint());
        self.authorize(exchange, endpoint.address)?;
        exchange.reuse_upstream = true;
        exchange.lease = Some(lease);
        if exchange.attempt_ms > 0 {
            let by = self
                .worker
                .clock
                .now_ms()
                .saturating_add(exchange.attempt_ms);
            exchange.due = exchange.request_due.min(by);
        }
        exchange.attempts += 1;
        self.attempt_begins(exchange);
        let idle = match self.stream(exchange, &endpoint)? {
            Some(stream) => Some(stream),
            None => self.take_idle(exchange, &endpoint),
        };
        // One that was made for this client has just been made.
        exchange.reused = idle
            .as_ref()
            .is_some_and(|idle| !idle.side.is_one_clients() && idle.side.may_move());
        if let Some(mut upstream) = idle {
            self.alarm.rests_on(&upstream.side);
            let waits = self.needs_link_first(exchange);
            if waits {
                let by = self.worker.after(self.worker.settings.timeouts.connect);
                self.alarm.set(by.min(exchange.due));
            }
            let mut has_waited = false;
            let send = |cx: &mut Context<'_>| {
                if waits {
                    let linked = self.poll_linked(cx, exchange, &upstream);
                    has_waited |= linked.is_pending();
                    ready!(linked)?;
                }
                // Others have used the scratch meanwhile.
                if has_waited {
                    self.prepare_again(exchange)?;
                }
                Poll::Ready(self.send_request(cx, exchange, &mut upstream))
            };
            poll_fn(send).await?;
            return Ok(upstream);
        }
        let permit = self
            .worker
            .upstreams
            .reserve(&endpoint)
            .ok_or(Reason::UpstreamOverflow)?;
        // Others will use the scratch while this one waits.
        let mut request = Chain::new();
        request
            .extend_from_slice(&self.worker.pool, &self.worker.scratch.borrow().out)
            .map_err(|_| Reason::Memory)?;
        let mut upstream = self.connect(exchange, &endpoint, permit).await?;
        self.alarm.rests_on(&upstream.side);
        // Behind what another node is told first.
        request.move_to(usize::MAX, &mut upstream.side.outbox);
        if exchange.upload.is_read() {
            let flushed = poll_fn(|cx| Poll::Ready(upstream.side.poll_flush(cx))).await;
            if let Poll::Ready(Err(_)) = flushed {
                let is_to_node = upstream.side.is_to_node();
                return Err(Reason::UpstreamReset.without_answer(is_to_node).into());
            }
        } else {
            self.take_head(exchange)?;
        }
        self.alarm.set(self.response_due(exchange));
        Ok(upstream)
    }

    /// A stream to the endpoint's node, of a link or over HTTP/2, where that is how it is reached.
    fn stream(
        &self,
        exchange: &Exchange,
        endpoint: &Rc<Endpoint>,
    ) -> Result<Option<Upstream>, Failure> {
        let worker = &self.worker;
        let Some(via) = endpoint.place.via() else {
            return Ok(None);
        };
        match worker.settings.between_nodes {
            Protocol::Link => {}
            // A stream of HTTP/2 carries one exchange and nothing else.
            Protocol::Http2 if self.offer.is_empty() => {}
            Protocol::Http2 | Protocol::Http1 => return Ok(None),
        }
        if is_refused(worker, endpoint, &self.door) {
            return Err(Reason::PeerRefused.into());
        }
        let caller = exchange.bound.snapshot.guards.account(&self.door);
        let permit = worker.upstreams.reserve(endpoint);
        let permit = permit.ok_or(Reason::UpstreamOverflow)?;
        let far = endpoint.far(via);
        if worker.settings.between_nodes == Protocol::Http2 {
            let head = &worker.scratch.borrow().out;
            let reached = (far, &endpoint.reached);
            let side = worker.http2.exchange(reached, caller, head)?;
            return Ok(side.map(|side| Upstream::of_link(side.into(), permit)));
        }
        let links = &worker.links;
        let side = links.stream(far, caller, Kind::Http, self.key.0)?;
        Ok(Some(Upstream::of_link(side.into(), permit)))
    }

    /// Whether a request is sent only when its link is there: as long as nothing of it was sent it can go elsewhere.
    /// One that has no other way waits within the link, which keeps it for longer.
    fn needs_link_first(&self, exchange: &Exchange) -> bool {
        !exchange.upload.is_read() && !self.door.is_fixed() && has_choice(exchange)
    }

    /// Waits until the link of a stream is there, or the alarm rings.
    fn poll_linked(
        &self,
        cx: &Context<'_>,
        exchange: &Exchange,
        upstream: &Upstream,
    ) -> Poll<Result<(), Failure>> {
        let linked = match self.alarm.rang() {
            false => ready!(upstream.side.poll_linked(cx)),
            true => {
                let ran_out = match self.worker.clock.now_ms() >= exchange.due {
                    true => Reason::RequestTimeout,
                    false => Reason::ConnectTimeout,
                };
                Err(unsent(self.worker.rang_for(&self.alarm, ran_out)))
            }
        };
        let why = |error| self.upstream_error(exchange, error, Reason::ConnectFailed);
        Poll::Ready(linked.map_err(|error| why(error).into()))
    }

    /// An idle connection to the endpoint, if there is one that this caller may use.
    fn take_idle(&mut self, exchange: &Exchange, endpoint: &Endpoint) -> Option<Upstream> {
        if let Some(own) = self.own.take()
            && std::ptr::eq(&*own.0, endpoint)
        {
            let (_, mut upstream) = *own;
            if upstream.side.is_silent() {
                return Some(upstream);
            }
        }
        let may_repeat = exchange.upload.is_read() && exchange.method.is_idempotent();
        let asking = self.asking(&exchange.bound.snapshot.guards, endpoint, may_repeat);
        let worker = &self.worker;
        worker.upstreams.take_idle(endpoint, &asking, &worker.clock)
    }

    /// For which caller and request an idle connection is wanted.
    pub(super) fn asking<'a>(
        &'a self,
        guards: &'a Guards,
        endpoint: &Endpoint,
        may_repeat: bool,
    ) -> Asking<'a> {
        // Only another node is told who calls.
        let via = endpoint.place.via();
        Asking {
            key: self.key,
            account: via.and_then(|_| guards.account(&self.door)),
            may_repeat,
        }
    }

    /// Whether the request in `scratch.out` may go to the endpoint.
    fn authorize(&self, exchange: &Exchange, endpoint: SocketAddr) -> Result<(), Failure> {
        self.alarm.carries(Live {
            endpoint,
            bytes: false,
        });
        let guards = &exchange.bound.snapshot.guards;
        if guards.is_empty() {
            return Ok(());
        }
        let Scratch { out, judged, .. } = &mut *self.worker.scratch.borrow_mut();
        let dry_runs = &self.worker.stats.policy_dry_run_differences;
        guards.allow_request(&self.door, endpoint, out, judged, dry_runs)
    }

    async fn connect(
        &mut self,
        exchange: &mut Exchange,
        endpoint: &Endpoint,
        permit: UpstreamPermit,
    ) -> Result<Upstream, Failure> {
        let by = self.worker.after(self.worker.settings.timeouts.connect);
        // An endpoint that did not accept in what was left to the request is not to blame for that.
        let due = (
            by.min(exchange.due),
            by <= exchange.due || exchange.has_fair_time,
        );
        let call = Call {
            door: &self.door,
            kind: Kind::Http,
            client: &self.address,
        };
        let connected = connect(&self.worker, &self.alarm, due, endpoint, permit, &call).await;
        connected.map_err(|reason| match reason {
            Reason::ConnectTimeout if self.worker.clock.now_ms() >= exchange.due => {
                Reason::RequestTimeout.into()
            }
            reason => reason.into(),
        })
    }

    /// Sends the head in `scratch.out`, and with it what has arrived of the body.
    fn send_request(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        upstream: &mut Upstream,
    ) -> Result<(), Failure> {
        let worker = Rc::clone(&self.worker);
        let mut approved = 0;
        if !exchange.upload.is_read() {
            approved = self.take_head(exchange)?;
        }
        let out = &mut worker.scratch.borrow_mut().out;
        let sent = upstream
            .side
            .send(cx, &worker.pool, out, &self.client.inbox, approved)
            .map_err(|error| match (error.kind(), reason_of(&error)) {
                (io::ErrorKind::OutOfMemory, _) => Reason::Memory,
                (_, Some(reason)) => reason,
                _ => Reason::UpstreamReset,
            })
            .map_err(|reason| reason.without_answer(upstream.side.is_to_node()))?;
        exchange.upload.sent(&mut self.client.inbox, sent);
        self.end_upload(exchange, upstream);
        self.alarm.set(self.response_due(exchange));
        Ok(())
    }

    /// Tells a stream that the request is whole, unless the connection may speak something else after it.
    pub(super) fn end_upload(&self, exchange: &Exchange, upstream: &mut Upstream) {
        if exchange.upload.is_done() && upstream.side.outbox.is_empty() && self.offer.is_empty() {
            upstream.side.end_message();
        }
    }

    /// Drops the request's head from the inbox, so that the body is at its front. Returns how many
    /// bytes of the body are there.
    fn take_head(&mut self, exchange: &mut Exchange) -> Result<usize, Failure> {
        if !exchange.head_taken {
            self.client.inbox.consume(exchange.head_bytes);
            exchange.head_taken = true;
        }
        exchange
            .upload
            .approve(&self.client.inbox)
            .map_err(Failure::request)
    }

    /// When to give up on what the exchange waits for now.
    pub(super) fn response_due(&self, exchange: &Exchange) -> Millis {
        let wait = match exchange.upload.is_done() {
            true => Duration::from_millis(exchange.response_head_ms),
            false => self.worker.settings.timeouts.stream_idle,
        };
        self.worker.after(wait).min(exchange.due)
    }

    pub(super) fn may_retry(&self, exchange: &Exchange, failure: &Failure) -> bool {
        exchange.attempts < MAX_ATTEMPTS
            && exchange.status == 0
            && !exchange.head_taken
            && match failure.retry() {
                // There is no other endpoint than the one that the client or another node has chosen.
                Retry::Safe => !self.door.is_fixed(),
                Retry::IfIdempotent => exchange.is_replayable(),
                Retry::Never => false,
            }
    }

    /// Brings the request into the scratch once more, as it stands in the inbox.
    pub(super) fn prepare_again(&mut self, exchange: &mut Exchange) -> Result<(), Failure> {
        self.parse_again()?;
        match self.prepare(exchange)? {
            Prepared::Forward => {}
            // The configuration that it is served by has not changed.
            Prepared::Redirect { .. } => return Err(Reason::NoRoute.into()),
        }
        Ok(())
    }

    /// The end of HTTP on this connection.
    fn upgraded(&self, exchange: &mut Exchange, upstream: Upstream) -> Result<After, Failure> {
        // The request keeps its own until it is logged, but for what it takes of the endpoint's room.
        let lease = exchange.lease.as_mut().ok_or(Reason::NoEndpoint)?;
        let lease = Lease::with(Rc::clone(lease.endpoint()), lease.take_permit());
        let port = exchange.port.ok_or(Reason::NoBackend)?;
        Ok(After::Upgraded(Box::new(Upgraded {
            upstream,
            lease,
            origin: Origin {
                destination: Arc::clone(&exchange.bound.snapshot.port(port).label),
                began: self.worker.clock.now(),
                attempts: exchange.attempts,
                upgraded: true,
                path: self.shown.path.clone(),
                route: exchange.rule().map(|rule| Arc::clone(&rule.label)),
            },
        })))
    }

    /// The end of an exchange: both connections are kept or closed.
    fn settle(&mut self, exchange: &mut Exchange, upstream: Upstream) -> After {
        self.served += 1;
        if exchange.ends_at_close {
            self.client.reset_on_close(false);
        }
        let whole = exchange.upload.is_done() && !exchange.upload_broken;
        let said_more = !upstream.side.inbox.is_empty();
        let out_of_turn = said_more && exchange.reuse_upstream && !exchange.from_node;
        if let Some(lease) = exchange.lease.as_ref().filter(|_| out_of_turn) {
            let now = self.worker.clock.now_ms();
            lease.endpoint().spoke_out_of_turn(now);
        }
        let clean = !said_more && upstream.side.outbox.is_empty();
        if let Some(lease) = exchange
            .lease
            .as_ref()
            .filter(|_| exchange.reuse_upstream && whole && clean)
        {
            let now = self.worker.clock.now_ms();
            let endpoint = lease.endpoint();
            if !self
                .last
                .as_ref()
                .is_some_and(|last| Rc::ptr_eq(last, endpoint))
            {
                self.last = Some(Rc::clone(endpoint));
            }
            let upstreams = &self.worker.upstreams;
            upstreams.give_back(endpoint, upstream, self.key, now);
        }
        match (whole, exchange.keep_alive) {
            (false, _) => After::Linger,
            (true, true) => After::KeepAlive,
            (true, false) => After::Close,
        }
    }
}
