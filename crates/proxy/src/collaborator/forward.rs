//! Sending a request to an endpoint and its response to the client.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use heddle_wire::buffer::Chain;
use heddle_wire::http1::Framing;

use super::exchange::Exchange;
use super::prepare::Prepared;
use super::pump::{Blocks, Broken, Pump};
use super::{After, Connection, Scratch};
use crate::failure::{Failure, Reason, Retry};
use crate::io::Side;
use crate::upstream::{Endpoint, Lease, Upstream, connect};
use crate::worker::{Millis, Worker};

/// Tries for one request, the first included.
const MAX_ATTEMPTS: u32 = 3;

impl Connection {
    /// Forwards the request that stands in `scratch.out` and delivers the answer.
    ///
    /// A failure after which nothing was told to the client comes back as an error; the caller
    /// answers. Once an answer has begun there is nothing left to say: the connection is closed.
    pub(super) async fn forward(&mut self, exchange: &mut Exchange) -> Result<After, Failure> {
        let mut upstream = loop {
            exchange.attempts += 1;
            let outcome = match self.start(exchange).await {
                Ok(mut upstream) => {
                    let head = poll_fn(|cx| self.poll_head(cx, exchange, &mut upstream)).await;
                    head.map(|head_bytes| (upstream, head_bytes))
                }
                Err(failure) => Err(failure),
            };
            match outcome {
                Ok((mut upstream, head_bytes)) => {
                    poll_fn(|cx| Poll::Ready(self.begin(cx, exchange, &mut upstream, head_bytes)))
                        .await?;
                    break upstream;
                }
                Err(failure) if self.may_retry(exchange, &failure) => {
                    self.worker.stats.upstream_retries.inc();
                    self.prepare_again(exchange)?;
                }
                Err(failure) => return Err(failure),
            }
        };
        if !exchange.upload.is_done()
            || !exchange.download.is_done()
            || !self.client.outbox.is_empty()
        {
            poll_fn(|cx| self.poll_bodies(cx, exchange, &mut upstream)).await?;
        }
        Ok(self.settle(exchange, upstream))
    }

    /// Sends the request over a pooled connection, or a new one.
    async fn start(&mut self, exchange: &mut Exchange) -> Result<Upstream, Failure> {
        let endpoint = self.choose_endpoint(exchange)?;
        exchange.lease = Some(Lease::new(Rc::clone(&endpoint)));
        if exchange.attempt_ms > 0 {
            let by = self
                .worker
                .clock
                .now_ms()
                .saturating_add(exchange.attempt_ms);
            exchange.due = exchange.request_due.min(by);
        }
        let idle = self.worker.upstreams.take_idle(&endpoint);
        exchange.reused = idle.is_some();
        if let Some(mut upstream) = idle {
            poll_fn(|cx| Poll::Ready(self.send_request(cx, exchange, &mut upstream))).await?;
            return Ok(upstream);
        }
        if !self.worker.upstreams.may_connect(&endpoint) {
            return Err(Reason::UpstreamOverflow.into());
        }
        // Others will use the scratch while this one waits.
        let mut request = Chain::new();
        request
            .extend_from_slice(&self.worker.pool, &self.worker.scratch.borrow().out)
            .map_err(|_| Reason::Memory)?;
        let mut upstream = self.connect(exchange, &endpoint).await?;
        upstream.side.outbox = request;
        if exchange.upload.is_read() {
            let flushed = poll_fn(|cx| Poll::Ready(upstream.side.poll_flush(cx))).await;
            if let Poll::Ready(Err(_)) = flushed {
                return Err(Reason::UpstreamReset.into());
            }
        } else {
            self.take_head(exchange)?;
        }
        self.alarm.set(self.response_due(exchange));
        Ok(upstream)
    }

    fn choose_endpoint(&self, exchange: &Exchange) -> Result<Rc<Endpoint>, Failure> {
        let target = exchange.target.ok_or(Reason::NoBackend)?;
        let now = self.worker.clock.now_ms();
        let failed = exchange.lease.as_ref().map(Lease::endpoint);
        let chosen = exchange
            .bound
            .choose(target, &mut self.worker.random.borrow_mut(), |e| {
                let mut load = self.worker.upstreams.load(e, now);
                load.avoid |= failed.is_some_and(|failed| std::ptr::eq(&**failed, e));
                load
            });
        Ok(Rc::clone(chosen.ok_or(Reason::NoEndpoint)?))
    }

    async fn connect(
        &mut self,
        exchange: &mut Exchange,
        endpoint: &Endpoint,
    ) -> Result<Upstream, Failure> {
        let by = self.after(self.worker.settings.timeouts.connect);
        self.alarm.set(by.min(exchange.due));
        let mut connecting = pin!(connect(endpoint.address));
        let connected = poll_fn(|cx| {
            if self.alarm.rang() {
                return Poll::Ready(None);
            }
            connecting.as_mut().poll(cx).map(Some)
        })
        .await;
        let upstreams = &self.worker.upstreams;
        let now = self.worker.clock.now_ms();
        match connected {
            Some(Ok(stream)) => Ok(upstreams.opened(endpoint, Side::new(stream))),
            Some(Err(error)) => {
                tracing::debug!(endpoint = %endpoint.label, %error, "cannot connect");
                upstreams.failed(endpoint, now);
                Err(Reason::ConnectFailed.into())
            }
            None if now >= exchange.due => Err(Reason::RequestTimeout.into()),
            None => {
                upstreams.failed(endpoint, now);
                Err(Reason::ConnectTimeout.into())
            }
        }
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
            .map_err(|error| match error.kind() {
                io::ErrorKind::OutOfMemory => Reason::Memory,
                _ => Reason::UpstreamReset,
            })?;
        exchange.upload.sent(&mut self.client.inbox, sent);
        self.alarm.set(self.response_due(exchange));
        Ok(())
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
    fn response_due(&self, exchange: &Exchange) -> Millis {
        let wait = match exchange.upload.is_done() {
            true => exchange.response_head,
            false => self.worker.settings.timeouts.stream_idle,
        };
        self.after(wait).min(exchange.due)
    }

    /// Passes the request's body on and waits for the head of the final response, which is left
    /// parsed in the scratch. Returns its length.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        upstream: &mut Upstream,
    ) -> Poll<Result<usize, Failure>> {
        loop {
            if self.alarm.rang() {
                return Poll::Ready(Err(self.late(exchange).into()));
            }
            if !upstream.side.inbox.is_empty()
                && let Some(head_bytes) = self.parse_response(exchange, upstream)?
            {
                if !self.worker.scratch.borrow().response.is_interim() {
                    return Poll::Ready(Ok(head_bytes));
                }
                self.pass_interim(cx, exchange, upstream, head_bytes)?;
                continue;
            }
            self.push(cx, exchange, upstream)?;
            // A client that does not take interim responses gets no more of them to keep.
            match self.client.poll_flush(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Reason::ClientGone.into())),
                Poll::Pending => return Poll::Pending,
            }
            let want = self.worker.pool.block_size();
            match upstream.side.poll_fill(cx, &self.worker.pool, want) {
                Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => {
                    let failure = match upstream.side.inbox.is_empty() {
                        true => Reason::UpstreamReset,
                        false => Reason::UpstreamTruncated,
                    };
                    return Poll::Ready(Err(failure.into()));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => {
                    self.watch_client(cx, exchange)?;
                    return Poll::Pending;
                }
            }
        }
    }

    /// Moves the request's body, or what is left of its head.
    fn push(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        upstream: &mut Upstream,
    ) -> Result<(), Failure> {
        if exchange.upload_broken || (exchange.upload.is_done() && upstream.side.outbox.is_empty())
        {
            return Ok(());
        }
        let mut progress = false;
        let blocks = self.worker.stream_blocks();
        let pushed = exchange.upload.poll(
            cx,
            &blocks,
            &mut self.client,
            &mut upstream.side,
            &mut progress,
        );
        match pushed {
            Poll::Ready(Err(Broken::Source)) => return Err(Reason::ClientGone.into()),
            Poll::Ready(Err(Broken::Framing(reject))) => return Err(Failure::request(reject)),
            Poll::Ready(Err(Broken::Memory)) => return Err(Reason::Memory.into()),
            // An endpoint may answer before it has the whole body, and close its ears.
            Poll::Ready(Err(Broken::Sink)) => exchange.upload_broken = true,
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        if progress {
            self.alarm.set(self.response_due(exchange));
        }
        Ok(())
    }

    /// Looks whether the client has gone, while there is nothing to be had from it.
    fn watch_client(&mut self, cx: &mut Context<'_>, exchange: &Exchange) -> Result<(), Failure> {
        let pool = &self.worker.pool;
        // A client that sends its next requests early is read up to a bound, then left waiting.
        let bound = exchange.head_bytes + 2 * pool.block_size();
        if !exchange.upload.is_read() || self.client.inbox.len() >= bound {
            return Ok(());
        }
        match self.client.poll_fill(cx, pool, pool.block_size()) {
            Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => Err(Reason::ClientGone.into()),
            Poll::Ready(Ok(_)) => {
                // Look again, until the socket says that there is nothing more.
                cx.waker().wake_by_ref();
                Ok(())
            }
            Poll::Pending => Ok(()),
        }
    }

    fn parse_response(
        &self,
        exchange: &Exchange,
        upstream: &Upstream,
    ) -> Result<Option<usize>, Failure> {
        let Scratch {
            response, linear, ..
        } = &mut *self.worker.scratch.borrow_mut();
        let limits = &self.worker.limits;
        let inbox = &upstream.side.inbox;
        let bytes = inbox.contiguous(inbox.len().min(limits.max_head_bytes + 1), linear);
        let parsed = response
            .parse(bytes, limits, exchange.method)
            .map_err(Failure::response)?;
        if parsed.is_some() && response.status == 101 {
            return Err(Reason::UpstreamSwitched.into());
        }
        Ok(parsed)
    }

    /// Passes a 1xx response on (RFC 9110 section 15.2), to a client that can understand it.
    fn pass_interim(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &Exchange,
        upstream: &mut Upstream,
        head_bytes: usize,
    ) -> Result<(), Failure> {
        let worker = Rc::clone(&self.worker);
        let Scratch {
            response,
            edits,
            linear,
            out,
            ..
        } = &mut *worker.scratch.borrow_mut();
        if !exchange.http10 {
            let buf = upstream.side.inbox.contiguous(head_bytes, linear);
            edits.clear();
            response.strip_hop_by_hop(buf, edits);
            out.clear();
            edits.write_to(buf, out);
            self.client
                .send(cx, &worker.pool, out, &Chain::new(), 0)
                .map_err(|_| Reason::ClientGone)?;
        }
        upstream.side.inbox.consume(head_bytes);
        Ok(())
    }

    /// Sends the head of the response, and with it what has arrived of the body.
    fn begin(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        upstream: &mut Upstream,
        head_bytes: usize,
    ) -> Result<(), Failure> {
        let worker = Rc::clone(&self.worker);
        let Scratch {
            response,
            edits,
            linear,
            out,
            ..
        } = &mut *worker.scratch.borrow_mut();
        let decode = exchange.http10 && response.framing == Framing::Chunked;
        // A client that is still sending its body would have to be listened to before its next
        // request: simpler to part.
        exchange.keep_alive = exchange.keep_alive
            && exchange.upload.is_done()
            && !exchange.upload_broken
            && response.framing != Framing::UntilClose
            && !decode
            && !worker.is_draining()
            && self.served + 1 < worker.settings.bounds.requests_per_connection;
        let buf = upstream.side.inbox.contiguous(head_bytes, linear);
        self.encode_response(exchange, response, buf, !exchange.keep_alive, edits, out);
        exchange.status = response.status;
        exchange.reuse_upstream = response.keep_alive;
        exchange.download = Pump::new(response.framing);
        if !exchange.head_taken {
            self.client.inbox.consume(exchange.head_bytes);
            exchange.head_taken = true;
        }
        upstream.side.inbox.consume(head_bytes);
        let approved = if decode {
            exchange.download = Pump::new(response.framing).decoding();
            0
        } else {
            exchange
                .download
                .approve(&upstream.side.inbox)
                .map_err(Failure::response)?
        };
        let sent = self
            .client
            .send(cx, &worker.pool, out, &upstream.side.inbox, approved)
            .map_err(|_| Reason::ClientGone)?;
        exchange.download.sent(&mut upstream.side.inbox, sent);
        if decode {
            let Side { inbox, .. } = &mut upstream.side;
            exchange
                .download
                .decode(&worker.pool, inbox, &mut self.client.outbox)
                .map_err(|broken| upstream_failure(&broken))?;
        }
        self.alarm.set(self.stream_due(exchange));
        Ok(())
    }

    fn stream_due(&self, exchange: &Exchange) -> Millis {
        self.after(self.worker.settings.timeouts.stream_idle)
            .min(exchange.due)
    }

    /// Moves both bodies until the response is through.
    fn poll_bodies(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        upstream: &mut Upstream,
    ) -> Poll<Result<(), Failure>> {
        if self.alarm.rang() {
            return Poll::Ready(Err(self.late(exchange).into()));
        }
        self.push(cx, exchange, upstream)?;
        let mut progress = false;
        let blocks = self.worker.stream_blocks();
        let pulled = exchange.download.poll(
            cx,
            &blocks,
            &mut upstream.side,
            &mut self.client,
            &mut progress,
        );
        if progress {
            self.alarm.set(self.stream_due(exchange));
        }
        ready!(pulled).map_err(|broken| upstream_failure(&broken))?;
        Poll::Ready(Ok(()))
    }

    /// What ran out when the alarm rang.
    fn late(&self, exchange: &Exchange) -> Reason {
        if self.worker.clock.now_ms() >= exchange.due {
            Reason::RequestTimeout
        } else if exchange.status > 0 {
            Reason::StreamIdle
        } else if exchange.upload.is_done() {
            Reason::ResponseTimeout
        } else {
            Reason::BodyTimeout
        }
    }

    fn may_retry(&self, exchange: &Exchange, failure: &Failure) -> bool {
        exchange.attempts < MAX_ATTEMPTS
            && exchange.status == 0
            && !exchange.head_taken
            && match failure.retry() {
                Retry::Safe => true,
                Retry::IfIdempotent => exchange.is_replayable(),
                Retry::Never => false,
            }
    }

    /// Brings the request into the scratch once more, as it stands in the inbox.
    fn prepare_again(&mut self, exchange: &mut Exchange) -> Result<(), Failure> {
        self.parse_again()?;
        match self.prepare(exchange)? {
            Prepared::Forward => {}
            // The configuration that it is served by has not changed.
            Prepared::Redirect { .. } => return Err(Reason::NoRoute.into()),
        }
        Ok(())
    }

    /// The end of an exchange: both connections are kept or closed.
    fn settle(&mut self, exchange: &mut Exchange, upstream: Upstream) -> After {
        self.served += 1;
        let whole = exchange.upload.is_done() && !exchange.upload_broken;
        let clean = upstream.side.inbox.is_empty() && upstream.side.outbox.is_empty();
        if let Some(lease) = exchange
            .lease
            .as_ref()
            .filter(|_| exchange.reuse_upstream && whole && clean)
        {
            let now = self.worker.clock.now_ms();
            self.worker
                .upstreams
                .give_back(lease.endpoint(), upstream, now);
        }
        match (whole, exchange.keep_alive) {
            (false, _) => After::Linger,
            (true, true) => After::KeepAlive,
            (true, false) => After::Close,
        }
    }
}

impl Worker {
    /// Where bodies find their blocks.
    fn stream_blocks(&self) -> Blocks<'_> {
        Blocks {
            usual: &self.pool,
            wide: &self.wide_pool,
            max_window: self.settings.bounds.stream_window_bytes,
        }
    }
}

fn upstream_failure(broken: &Broken) -> Failure {
    match broken {
        Broken::Source => Reason::UpstreamTruncated.into(),
        Broken::Framing(reject) => Failure::response(*reject),
        Broken::Sink => Reason::ClientGone.into(),
        Broken::Memory => Reason::Memory.into(),
    }
}
