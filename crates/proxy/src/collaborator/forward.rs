//! Sends a request to an endpoint: chooses the endpoint and the connection, and retries.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use heddle_model::CALLER_FIELD;
use heddle_transport::Protocol;
use heddle_wire::buffer::Chain;
use heddle_wire::preface::Kind;

use super::attempt::Attempt;
use super::exchange::{ClientRequest, Exchange};
use super::reply::Reply;
use super::{After, Connection, Upgraded};
use crate::authorize::{Carried, Guards, Live};
use crate::clock::Millis;
use crate::connect::{Call, connect, is_refused};
use crate::env::fits_nodes;
use crate::failure::{Failure, Reason, StreamFailure};
use crate::io::{COPY_BYTES, SideError};
use crate::parcel::Origin;
use crate::upstream::{Asking, Endpoint, Upstream, UpstreamPermit};
use crate::worker::Scratch;

/// A copy of a message that waits to be sent.
pub(super) struct KeptMessage {
    bytes: Chain,
    head_bytes: usize,
}

impl Connection {
    /// Forwards the request in `scratch.out` and delivers the response.
    ///
    /// If nothing was sent to the client yet, a failure is returned and the caller answers. Once a response has begun,
    /// no other answer is possible: the connection is closed.
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
            // A retried request holds no permit while it waits for another endpoint.
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

    /// Chooses the endpoint of an attempt, and checks that policies allow it.
    ///
    /// # Errors
    /// The answer for the client: no other attempt would find an endpoint.
    async fn place(&mut self, exchange: &mut Exchange) -> Result<Attempt, Reply> {
        let lease = match self.choose_endpoint(exchange)? {
            Some(lease) => lease,
            // Boxed: it would take room in every connection.
            None => Box::pin(self.wait_for_room(exchange)).await?,
        };
        exchange.chosen = Some(Rc::clone(lease.endpoint()));
        self.authorize(exchange, lease.endpoint().address)?;
        if self.door.forwarded().is_some() && lease.endpoint().place.sees_caller() {
            let caller = self.door.proven.as_ref().map_or("", |proven| proven);
            let out = &mut self.worker.scratch.borrow_mut().out;
            out.add_field(CALLER_FIELD.as_bytes(), caller.as_bytes());
        }
        if lease.endpoint().place.via().is_some() {
            fits_nodes(self.worker.scratch.borrow().out.head())?;
        }
        Ok(Attempt::begin(exchange, lease, &self.worker.clock))
    }

    /// Waits for the head of the response, and begins to pass the response on.
    ///
    /// # Errors
    /// Why the attempt failed. If another attempt is allowed, nothing was sent to the client.
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
        let own = self.own.as_ref();
        let has_own = own.is_some_and(|own| Rc::ptr_eq(&own.0, &endpoint));
        if !has_own && !self.worker.upstreams.has_room(&endpoint) {
            // Boxed: it would take room in every connection.
            Box::pin(self.wait_for_connection(exchange, attempt, &endpoint)).await?;
        }
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
        // A connection of this one client was just made, so it is not a reused one.
        attempt.reused = idle
            .as_ref()
            .is_some_and(|idle| !idle.side.is_one_clients() && idle.side.may_move());
        if let Some(mut upstream) = idle {
            self.alarm.rests_on(&upstream.side);
            if self.needs_link_first(exchange) {
                // Boxed: it would take room in every connection.
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
        // After the preface for another node.
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

    /// Prepares the body for an endpoint side with or without frames of its own.
    fn prepare_body(&self, request: &mut ClientRequest, to_frames: bool) -> Result<(), Failure> {
        if request.upload.is_read() {
            return Ok(());
        }
        request.upload.goes(self.client.has_frames(), to_frames);
        self.load_body(request)
    }

    /// Copies the message in `scratch.out`, because other tasks use the scratch meanwhile.
    pub(super) fn keep(&self) -> Result<KeptMessage, Failure> {
        let mut bytes = Chain::new();
        let out = &self.worker.scratch.borrow().out;
        let put = bytes.extend_from_slice(&self.worker.pool, &out.bytes);
        put.map_err(|_| Reason::Memory)?;
        let head_bytes = out.head().len();
        Ok(KeptMessage { bytes, head_bytes })
    }

    /// Copies a kept message back into `scratch.out`.
    pub(super) fn restore(&self, kept: &KeptMessage) {
        let out = &mut self.worker.scratch.borrow_mut().out;
        let bytes = out.begin();
        kept.bytes
            .runs()
            .for_each(|run| bytes.extend_from_slice(run));
        out.head_ends_at(kept.head_bytes);
    }

    /// Opens a stream to the endpoint's node, on a link or over HTTP/2, if the node is called that way.
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
            // An HTTP/2 stream carries one exchange, so it cannot be upgraded.
            Protocol::Http2 if self.offer.is_empty() => {}
            Protocol::Http2 | Protocol::Http1 | Protocol::StockHttp | Protocol::StockBytes => {
                return Ok(None);
            }
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

    /// Whether a request waits for its link before it is sent: until something was sent, it can go to another endpoint.
    /// A request without another endpoint waits within the link, which keeps it for longer.
    fn needs_link_first(&self, exchange: &Exchange) -> bool {
        !exchange.request.upload.is_read()
            && !self.door.is_fixed()
            && exchange.decision.has_choice()
    }

    /// Waits until the link of a stream is up, or the alarm rings. The request is kept meanwhile.
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

    /// Takes an idle connection to the endpoint that this caller may use, if one exists.
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

    /// The caller and request for which an idle connection is wanted.
    pub(super) fn asking<'a>(
        &'a self,
        guards: &'a Guards,
        endpoint: &Endpoint,
        may_repeat: bool,
    ) -> Asking<'a> {
        // Only connections to other nodes and to Envoys depend on the caller's identity.
        let account = || guards.account(&self.door);
        Asking {
            key: self.key,
            account: endpoint.place.sees_caller().then(account).flatten(),
            may_repeat,
        }
    }

    /// Checks that policies allow the request in `scratch.out` at the endpoint.
    fn authorize(&self, exchange: &Exchange, endpoint: SocketAddr) -> Result<(), Failure> {
        let flow = Live {
            endpoint,
            carried: Carried::Request(exchange.request.asserted.clone()),
        };
        self.alarm.carries(flow);
        self.is_allowed_now(exchange, endpoint)?;
        let guards = &exchange.decision.bound.snapshot.guards;
        if guards.is_empty() {
            return Ok(());
        }
        let Scratch { out, judged, .. } = &mut *self.worker.scratch.borrow_mut();
        let dry_runs = &self.worker.stats.policy_dry_run_differences;
        let request = (out.head(), &exchange.request.asserted);
        guards.allow_request(&self.door, endpoint, request, judged, dry_runs)
    }

    /// Whether the policies have changed since the request was checked.
    fn has_other_policies(&self, exchange: &Exchange) -> bool {
        !self.worker.follows(&exchange.decision.bound.snapshot)
    }

    /// Checks that the current policies allow the request in `scratch.out`, too: they may have changed while it waited
    /// for an endpoint or for a connection.
    pub(super) fn is_allowed_now(
        &self,
        exchange: &Exchange,
        endpoint: SocketAddr,
    ) -> Result<(), Failure> {
        if !self.has_other_policies(exchange) {
            return Ok(());
        }
        let now = self.worker.bound();
        let Scratch { out, judged, .. } = &mut *self.worker.scratch.borrow_mut();
        let dry_runs = &self.worker.stats.policy_dry_run_differences;
        let guards = &now.snapshot.guards;
        let request = (out.head(), &exchange.request.asserted);
        let judged = guards.allow_request(&self.door, endpoint, request, judged, dry_runs);
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
        // An endpoint is not to blame if it did not accept within the little time that was left for the request.
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

    /// Sends the head in `scratch.out`, together with the part of the body that has arrived.
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

    /// Ends the message on a stream once the request is complete, unless an upgrade may follow.
    pub(super) fn end_upload(&self, request: &ClientRequest, upstream: &mut Upstream) {
        if request.upload.is_done() && upstream.side.outbox.is_empty() && self.offer.is_empty() {
            upstream.side.end_message();
        }
    }

    /// Appends the body to the head in `scratch.out` if the whole body has arrived and is short: it is sent together
    /// with the head, and stays in the inbox for a retry until a response begins. Sending would copy it anyway.
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

    /// The deadline of the exchange's current wait.
    pub(super) fn response_due(&self, exchange: &Exchange, attempt: &Attempt) -> Millis {
        let wait = match exchange.request.upload.is_done() {
            true => Duration::from_millis(exchange.decision.response_head_ms.unwrap_or(0)),
            false => self.worker.settings.timeouts.stream_idle,
        };
        attempt.at_most(self.worker.after(wait))
    }

    /// Ends HTTP on this connection after an upgrade.
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
                carried: Carried::Request(exchange.request.asserted.clone()),
                path: self.shown.path.clone(),
                route: exchange.decision.rule().map(|rule| Arc::clone(&rule.label)),
                is_told: false,
            },
        })))
    }

    /// Ends an exchange: decides whether both connections are kept or closed.
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
