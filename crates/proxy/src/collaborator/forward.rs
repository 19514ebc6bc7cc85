//! Sending a request to an endpoint: which one, over which connection, and once more if need be.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use heddle_transport::Protocol;
use heddle_wire::buffer::Chain;
use heddle_wire::preface::Kind;

use super::attempt::Attempt;
use super::exchange::{ClientRequest, Exchange};
use super::reply::Reply;
use super::{After, Connection, Upgraded};
use crate::authorize::Guards;
use crate::authorize::Live;
use crate::clock::Millis;
use crate::connect::{Call, connect, is_refused};
use crate::env::fits_nodes;
use crate::failure::{Failure, Reason, StreamFailure};
use crate::io::{COPY_BYTES, SideError};
use crate::parcel::Origin;
use crate::upstream::{Asking, Endpoint, Upstream, UpstreamPermit};
use crate::worker::Scratch;

/// A message that waits to be sent.
pub(super) struct KeptMessage {
    bytes: Chain,
    head_bytes: usize,
}

impl Connection {
    /// Forwards the request that stands in `scratch.out` and delivers the answer.
    ///
    /// A failure after which nothing was told to the client comes back as an error; the caller
    /// answers. Once an answer has begun there is nothing left to say: the connection is closed.
    pub(super) async fn forward(&mut self, exchange: &mut Exchange) -> Result<After, Reply> {
        self.count_request(exchange);
        let (mut attempt, mut upstream) = loop {
            let mut attempt = self.place(exchange).await?;
            let failure = match self.send(exchange, &mut attempt).await {
                Err(failure) => failure,
                Ok(mut upstream) => {
                    let heard = |cx: &mut Context<'_>| {
                        self.poll_heard(cx, exchange, &mut attempt, &mut upstream)
                    };
                    match poll_fn(heard).await {
                        Ok(()) => break (attempt, upstream),
                        Err(failure) => failure,
                    }
                }
            };
            self.attempt_failed(exchange, &attempt, failure)
                .map_err(|failure| exchange.ends_with(failure))?;
            exchange.goes_on_after(failure);
            // A request that is tried again holds no permit while it looks for another endpoint.
            drop(attempt);
            self.decide_again(exchange).await?;
        };
        let is_moved = exchange.request.upload.is_done() && exchange.response.download.is_done();
        if !is_moved || !self.client.outbox.is_empty() {
            let moved =
                |cx: &mut Context<'_>| self.poll_bodies(cx, exchange, &mut attempt, &mut upstream);
            let moved = poll_fn(moved).await;
            moved.inspect_err(|failure| self.observe_failure(exchange, &attempt, failure))?;
        }
        if exchange.response.status == Some(101) {
            return Ok(self.upgraded(exchange, attempt, upstream)?);
        }
        Ok(self.settle(exchange, &attempt, upstream))
    }

    /// Chooses the endpoint of an attempt, if that may be asked.
    ///
    /// # Errors
    /// The answer that the client gets instead: no other attempt would find an endpoint.
    async fn place(&mut self, exchange: &mut Exchange) -> Result<Attempt, Reply> {
        let lease = match self.choose_endpoint(exchange)? {
            Some(lease) => lease,
            // In a box: it would take room in every connection.
            None => Box::pin(self.wait_for_room(exchange)).await?,
        };
        exchange.chosen = Some(Rc::clone(lease.endpoint()));
        self.authorize(exchange, lease.endpoint().address)?;
        if lease.endpoint().place.via().is_some() {
            fits_nodes(self.worker.scratch.borrow().out.head())?;
        }
        Ok(Attempt::begin(exchange, lease, &self.worker.clock))
    }

    /// Waits for the head of the response, and begins to pass it on.
    ///
    /// # Errors
    /// Why another attempt may be needed; nothing was told to the client if one may be made.
    fn poll_heard(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        attempt: &mut Attempt,
        upstream: &mut Upstream,
    ) -> Poll<Result<(), Failure>> {
        let head_bytes = ready!(self.poll_head(cx, exchange, attempt, upstream))?;
        self.judge(exchange, attempt, upstream, head_bytes)?;
        let begun = self.begin(cx, exchange, attempt, upstream, head_bytes);
        Poll::Ready(begun.inspect(|()| self.observe(exchange, attempt)))
    }

    /// Sends the request over a pooled connection, or a new one.
    async fn send(
        &mut self,
        exchange: &mut Exchange,
        attempt: &mut Attempt,
    ) -> Result<Upstream, Failure> {
        let endpoint = Rc::clone(attempt.lease.endpoint());
        let idle = match self.stream(exchange, &endpoint)? {
            Some(stream) => {
                self.prepare_body(&mut exchange.request, stream.side.has_frames())?;
                Some(stream)
            }
            None => {
                self.prepare_body(&mut exchange.request, false)?;
                self.take_idle(exchange, &endpoint)
            }
        };
        // One that was made for this client has just been made.
        attempt.reused = idle
            .as_ref()
            .is_some_and(|idle| !idle.side.is_one_clients() && idle.side.may_move());
        if let Some(mut upstream) = idle {
            self.alarm.rests_on(&upstream.side);
            if self.needs_link_first(exchange) {
                // In a box: it would take room in every connection.
                Box::pin(self.wait_for_link(attempt, &upstream)).await?;
                self.is_allowed_now(exchange, endpoint.address)?;
            }
            let send = |cx: &mut Context<'_>| {
                Poll::Ready(self.send_request(cx, exchange, attempt, &mut upstream))
            };
            poll_fn(send).await?;
            return Ok(upstream);
        }
        let permit = self.worker.upstreams.reserve(&endpoint);
        let permit = permit.ok_or(Reason::UpstreamOverflow)?;
        let mut request = self.keep()?;
        let mut upstream = self.connect(attempt, &endpoint, permit).await?;
        self.alarm.rests_on(&upstream.side);
        if self.has_other_policies(exchange) {
            self.restore(&request);
            self.is_allowed_now(exchange, endpoint.address)?;
        }
        // Behind what another node is told first.
        request.bytes.move_to(usize::MAX, &mut upstream.side.outbox);
        if exchange.request.upload.is_read() {
            let flushed = poll_fn(|cx| Poll::Ready(upstream.side.poll_flush(cx))).await;
            if let Poll::Ready(Err(_)) = flushed {
                let is_to_node = upstream.side.is_to_node();
                return Err(Reason::UpstreamReset.without_answer(is_to_node).into());
            }
        } else {
            let request = &mut exchange.request;
            request.take(&mut self.client.inbox);
            let looked = request.upload.look(&self.client.inbox);
            looked.map_err(Failure::request)?;
        }
        self.alarm.set(self.response_due(exchange, attempt));
        Ok(upstream)
    }

    /// Makes the body ready for a side that has frames, or has none.
    fn prepare_body(&self, request: &mut ClientRequest, to_frames: bool) -> Result<(), Failure> {
        if request.upload.is_read() {
            return Ok(());
        }
        request.upload.goes(self.client.has_frames(), to_frames);
        self.load_body(request)
    }

    /// Keeps what stands in `scratch.out` while others use the scratch.
    pub(super) fn keep(&self) -> Result<KeptMessage, Failure> {
        let mut bytes = Chain::new();
        let out = &self.worker.scratch.borrow().out;
        let put = bytes.extend_from_slice(&self.worker.pool, &out.bytes);
        put.map_err(|_| Reason::Memory)?;
        let head_bytes = out.head().len();
        Ok(KeptMessage { bytes, head_bytes })
    }

    /// Puts it back.
    pub(super) fn restore(&self, kept: &KeptMessage) {
        let out = &mut self.worker.scratch.borrow_mut().out;
        let bytes = out.begin();
        kept.bytes
            .runs()
            .for_each(|run| bytes.extend_from_slice(run));
        out.head_ends_at(kept.head_bytes);
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
        let caller = exchange.decision.bound.snapshot.guards.account(&self.door);
        let permit = worker.upstreams.reserve(endpoint);
        let permit = permit.ok_or(Reason::UpstreamOverflow)?;
        let far = endpoint.far(via, self.door.entry.caller());
        if worker.settings.between_nodes == Protocol::Http2 {
            let head = &worker.scratch.borrow().out;
            let reached = (far, &endpoint.reached);
            let side = worker.http2.exchange(reached, caller, head.head())?;
            return Ok(side.map(|side| Upstream::of_link(side.into(), permit)));
        }
        let links = &worker.links;
        let side = links.stream(far, caller, Kind::Http, self.key.serial())?;
        Ok(Some(Upstream::of_link(side.into(), permit)))
    }

    /// Whether a request is sent only when its link is there: as long as nothing of it was sent it can go elsewhere.
    /// One that has no other way waits within the link, which keeps it for longer.
    fn needs_link_first(&self, exchange: &Exchange) -> bool {
        !exchange.request.upload.is_read()
            && !self.door.is_fixed()
            && exchange.decision.has_choice()
    }

    /// Waits until the link of a stream is there, or the alarm rings. The request is kept meanwhile.
    async fn wait_for_link(&self, attempt: &Attempt, upstream: &Upstream) -> Result<(), Failure> {
        let by = self.worker.after(self.worker.settings.timeouts.connect);
        self.alarm.set(attempt.at_most(by));
        let mut kept = None;
        poll_fn(|cx| {
            let linked = self.poll_linked(cx, attempt, upstream);
            if linked.is_pending() && kept.is_none() {
                kept = Some(self.keep()?);
            }
            linked
        })
        .await?;
        kept.inspect(|kept| self.restore(kept));
        Ok(())
    }

    fn poll_linked(
        &self,
        cx: &Context<'_>,
        attempt: &Attempt,
        upstream: &Upstream,
    ) -> Poll<Result<(), Failure>> {
        let linked = match self.alarm.rang() {
            false => ready!(upstream.side.poll_linked(cx)),
            true => {
                let ran_out = match attempt.is_late(&self.worker.clock) {
                    true => Reason::RequestTimeout,
                    false => Reason::NodeConnectTimeout,
                };
                let reason = self.worker.rang_for(&self.alarm, ran_out);
                Err(StreamFailure::unsent(reason).into())
            }
        };
        let why = |error| self.upstream_error(attempt, error, Reason::NodeConnectFailed);
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
        let request = &exchange.request;
        let may_repeat = request.upload.is_read() && request.method.is_idempotent();
        let asking = self.asking(
            &exchange.decision.bound.snapshot.guards,
            endpoint,
            may_repeat,
        );
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
        let flow = Live {
            endpoint,
            bytes: false,
        };
        self.alarm.carries(flow);
        self.is_allowed_now(exchange, endpoint)?;
        let guards = &exchange.decision.bound.snapshot.guards;
        if guards.is_empty() {
            return Ok(());
        }
        let Scratch { out, judged, .. } = &mut *self.worker.scratch.borrow_mut();
        let dry_runs = &self.worker.stats.policy_dry_run_differences;
        guards.allow_request(&self.door, endpoint, out.head(), judged, dry_runs)
    }

    /// Whether other policies are in force than those that the request was judged by.
    fn has_other_policies(&self, exchange: &Exchange) -> bool {
        !self.worker.follows(&exchange.decision.bound.snapshot)
    }

    /// Whether the policies of now allow the request in `scratch.out`, too: it may have waited for an endpoint, or for
    /// one to be connected to, while others came.
    fn is_allowed_now(&self, exchange: &Exchange, endpoint: SocketAddr) -> Result<(), Failure> {
        if !self.has_other_policies(exchange) {
            return Ok(());
        }
        let now = self.worker.bound();
        let Scratch { out, judged, .. } = &mut *self.worker.scratch.borrow_mut();
        let dry_runs = &self.worker.stats.policy_dry_run_differences;
        let guards = &now.snapshot.guards;
        let judged = guards.allow_request(&self.door, endpoint, out.head(), judged, dry_runs);
        judged.map_err(|failure| match failure.reason {
            Reason::PolicyDenied => Reason::PolicyRevoked.into(),
            _ => failure,
        })
    }

    async fn connect(
        &mut self,
        attempt: &Attempt,
        endpoint: &Endpoint,
        permit: UpstreamPermit,
    ) -> Result<Upstream, Failure> {
        let by = self.worker.after(self.worker.settings.timeouts.connect);
        // An endpoint that did not accept in what was left to the request is not to blame for that.
        let sooner = attempt.at_most(by);
        let due = (sooner, by <= sooner || attempt.has_fair_time);
        let call = Call {
            door: &self.door,
            kind: Kind::Http,
            client: &self.address,
        };
        let connected = connect(&self.worker, &self.alarm, due, endpoint, permit, &call).await;
        connected.map_err(|reason| match reason {
            reason if reason.is_connect_timeout() && attempt.is_late(&self.worker.clock) => {
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
        attempt: &Attempt,
        upstream: &mut Upstream,
    ) -> Result<(), Failure> {
        let worker = Rc::clone(&self.worker);
        let request = &mut exchange.request;
        let out = &mut worker.scratch.borrow_mut().out;
        let mut approved = 0;
        if !request.upload.is_read() {
            request.take(&mut self.client.inbox);
            let begun = request.upload.begin(&mut self.client, out);
            approved = begun.map_err(Failure::request)?;
        }
        let sent = upstream
            .side
            .send(cx, &worker.pool, out, &self.client.inbox, approved)
            .map_err(|error| match error {
                SideError::Memory => Reason::Memory,
                SideError::Stream(failure) => failure.of_request(),
                SideError::Session(_) | SideError::Socket(_) => Reason::UpstreamReset,
            })
            .map_err(|reason| reason.without_answer(upstream.side.is_to_node()))?;
        request.upload.sent(&mut self.client.inbox, sent);
        self.end_upload(request, upstream);
        self.alarm.set(self.response_due(exchange, attempt));
        Ok(())
    }

    /// Tells a stream that the request is whole, unless the connection may speak something else after it.
    pub(super) fn end_upload(&self, request: &ClientRequest, upstream: &mut Upstream) {
        if request.upload.is_done() && upstream.side.outbox.is_empty() && self.offer.is_empty() {
            upstream.side.end_message();
        }
    }

    /// Appends the body to the head in `scratch.out` if all of it is there and it is short: it goes out along with it,
    /// and stands in the inbox to be sent again until an answer begins. Sending would copy it anyway.
    fn load_body(&self, request: &mut ClientRequest) -> Result<(), Failure> {
        let inbox = &self.client.inbox;
        let out = &mut self.worker.scratch.borrow_mut().out;
        let room = COPY_BYTES.saturating_sub(out.bytes.len());
        let behind = (inbox.len() - request.head_bytes).min(room);
        let client = &self.client;
        let loaded = request.upload.load(client, request.head_bytes, behind, out);
        request.replay_bytes = loaded.map_err(Failure::request)?;
        Ok(())
    }

    /// When to give up on what the exchange waits for now.
    pub(super) fn response_due(&self, exchange: &Exchange, attempt: &Attempt) -> Millis {
        let wait = match exchange.request.upload.is_done() {
            true => Duration::from_millis(exchange.decision.response_head_ms.unwrap_or(0)),
            false => self.worker.settings.timeouts.stream_idle,
        };
        attempt.at_most(self.worker.after(wait))
    }

    /// The end of HTTP on this connection.
    fn upgraded(
        &self,
        exchange: &Exchange,
        attempt: Attempt,
        upstream: Upstream,
    ) -> Result<After, Failure> {
        let port = exchange.decision.port.ok_or(Reason::NoBackend)?;
        Ok(After::Upgraded(Box::new(Upgraded {
            upstream,
            lease: attempt.lease,
            origin: Origin {
                destination: Arc::clone(&exchange.decision.bound.snapshot.port(port).label),
                authority: self.shown.authority.clone(),
                began: self.worker.clock.now(),
                attempts: exchange.attempts,
                upgraded: true,
                path: self.shown.path.clone(),
                route: exchange.decision.rule().map(|rule| Arc::clone(&rule.label)),
                is_told: false,
            },
        })))
    }

    /// The end of an exchange: both connections are kept or closed.
    fn settle(&mut self, exchange: &Exchange, attempt: &Attempt, upstream: Upstream) -> After {
        self.served += 1;
        if exchange.response.ends_at_close {
            self.client.reset_on_close(false);
        }
        let whole = exchange.request.upload.is_done() && !attempt.upload_broken;
        let said_more = !upstream.side.inbox.is_empty();
        let out_of_turn = said_more && attempt.reuse_upstream && !attempt.from_node;
        let (endpoint, now) = (attempt.lease.endpoint(), self.worker.clock.now_ms());
        if out_of_turn {
            endpoint.spoke_out_of_turn(now);
        }
        let clean = !said_more && upstream.side.outbox.is_empty();
        if attempt.reuse_upstream && whole && clean {
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
        match (whole, exchange.request.keep_alive) {
            (false, _) => After::Linger,
            (true, true) => After::KeepAlive,
            (true, false) => After::Close,
        }
    }
}
