//! How both ends of a link use a socket.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll};

use heddle_transport::Refusal;
use heddle_wire::link::{Code, LinkError, Verdict};

use super::receiver::Receiver;
use super::{Link, LinkEnd, Links};
use crate::clock::{Millis, millis};
use crate::env::{Alarm, Env};
use crate::failure::Reason;
use crate::handshake::HandshakeError;
use crate::io::{SideResult, WireSide};

/// Number of reads before other tasks get their turn.
const TURN_READS: usize = 4;
/// Bytes that are encrypted at once, in a few TLS records.
const FLIGHT_BYTES: usize = 60 * 1024;
/// How long a link without streams keeps Collaborators that wait for another stream, in milliseconds.
const DISMISS_MS: Millis = 5_000;
/// Interval at which an idle link is checked, in milliseconds.
const LOOK_MS: Millis = 10_000;
/// How long the other end may take to close a link after GOAWAY, in milliseconds.
const FAREWELL_MS: Millis = 1_000;

thread_local! {
    /// Frames to be encrypted next.
    static FLIGHT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Why a link stops using a socket.
#[derive(Debug)]
pub(super) enum Ended {
    /// The socket failed, or the peer is silent: the session may be resumed on another socket.
    Cut,
    /// A certificate expires, or is no longer trusted: the session may be resumed if both ends prove their identity
    /// again.
    Ending,
    /// The session is finished.
    Over,
    /// The other end violates the protocol.
    Broken(LinkError),
    /// The other end reported, after the handshake, that it does not trust this node.
    Refused(HandshakeError),
    /// The peer is no longer allowed at the other end.
    Revoked(Reason),
}

impl Link {
    /// Carries the session on a socket as far as both can proceed. Pending until the socket has to be given up.
    pub(super) fn poll_carry(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        links: &Rc<Links>,
        side: &mut WireSide,
        alarm: &Alarm,
    ) -> Poll<Ended> {
        let env = &links.env;
        self.stirred.set(false);
        let now = env.clock.now_ms();
        if alarm.rang()
            && let Some(ended) = self.look(links, side, alarm)
        {
            return Poll::Ready(ended);
        }
        if let Some(ended) = self.read(cx, links, side) {
            return Poll::Ready(ended);
        }
        if let Err(error) = self.write(cx, env, side) {
            tracing::debug!(%error, link = ?self.end, "a link was cut");
            return Poll::Ready(Ended::Cut);
        }
        if let Some(ended) = self.rest(env, now) {
            return Poll::Ready(ended);
        }
        alarm.set(self.next_look(env, now));
        Poll::Pending
    }

    /// Checks everything that depends on the time.
    fn look(self: &Rc<Self>, links: &Rc<Links>, side: &WireSide, alarm: &Alarm) -> Option<Ended> {
        let env = &links.env;
        if let Some(reason) = alarm.take_revoked() {
            // A peer that can prove its identity again may resume. A peer that is denied cannot.
            return Some(match env.check(side) {
                Err(Refusal::Denied) => Ended::Revoked(reason),
                _ => Ended::Ending,
            });
        }
        if env.is_cutting() {
            return Some(Ended::Revoked(Reason::Draining));
        }
        if side.is_ending(env.clock.now()) {
            self.closing.set(true);
            if self.has_better_proof(env, side) {
                return Some(Ended::Ending);
            }
        }
        let mut receiver = Receiver::new(links, self);
        let now = env.clock.now_ms();
        let verdict = self.session.borrow_mut().tick(now, &mut receiver);
        match verdict {
            Verdict::GoOn => None,
            Verdict::PathDead => Some(Ended::Cut),
            Verdict::SessionOver => Some(Ended::Over),
        }
    }

    /// Whether the caller now has a certificate that expires later than the one it presented.
    fn has_better_proof(&self, env: &Env, side: &WireSide) -> bool {
        let LinkEnd::Caller(key) = &self.end else {
            return false;
        };
        let identities = env.identities();
        let own = identities.and_then(|all| all.not_after(key.caller.as_ref()));
        let old = side.proof().map(|proof| proof.not_after);
        own > old
    }

    /// Sends the last frames, as far as the socket takes them, and closes the sending direction.
    pub(super) fn poll_farewell(
        &self,
        cx: &mut Context<'_>,
        env: &Env,
        side: &mut WireSide,
    ) -> Poll<()> {
        if self.write(cx, env, side).is_ok() {
            let _later = side.poll_shutdown(cx);
        }
        Poll::Ready(())
    }

    fn read(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        links: &Rc<Links>,
        side: &mut WireSide,
    ) -> Option<Ended> {
        let now = links.env.clock.now_ms();
        let mut receiver = Receiver::new(links, self);
        let mut session = self.session.borrow_mut();
        let mut understood = Ok(());
        // Bytes that arrived together with the end of the handshake.
        for run in side.inbox.runs() {
            understood = understood.and_then(|()| session.receive(run, now, &mut receiver));
        }
        side.inbox.clear();
        let mut ended = None;
        let mut more = true;
        for _ in 0..TURN_READS {
            let read = side.poll_receive(cx, &mut |bytes| {
                if understood.is_ok() {
                    understood = session.receive(bytes, now, &mut receiver);
                }
            });
            match read {
                Poll::Ready(Ok(true)) if understood.is_ok() => continue,
                Poll::Ready(Ok(true)) => {}
                Poll::Pending => more = false,
                // A peer that closes deliberately has no open streams. With open streams this is a cut: what was in
                // transit to this node is unknown.
                Poll::Ready(Ok(false)) if session.open_streams() == 0 => ended = Some(Ended::Over),
                Poll::Ready(Ok(false)) => ended = Some(Ended::Cut),
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, link = ?self.end, "a link was cut");
                    ended = Some(match HandshakeError::of(error) {
                        refused @ HandshakeError::Refused(_) => Ended::Refused(refused),
                        _ => Ended::Cut,
                    });
                }
            }
            break;
        }
        if more && ended.is_none() {
            // Continues after other tasks have had their turn.
            cx.waker().wake_by_ref();
        }
        receiver.refuse(&mut session);
        self.feed(&session);
        drop(session);
        self.do_as_asked(links);
        match understood {
            Ok(()) => ended,
            Err(error) => Some(Ended::Broken(error)),
        }
    }

    fn write(&self, cx: &mut Context<'_>, env: &Env, side: &mut WireSide) -> SideResult<()> {
        let now = env.clock.now_ms();
        let mut session = self.session.borrow_mut();
        while session.wants_transmit() {
            match side.poll_flush(cx) {
                Poll::Ready(flushed) => flushed?,
                // Continues when the socket takes more.
                Poll::Pending => return Ok(()),
            }
            FLIGHT.with_borrow_mut(|flight| {
                flight.clear();
                session.transmit(flight, FLIGHT_BYTES, now);
                match flight.is_empty() {
                    true => Ok(()),
                    false => side.put_all(cx, flight),
                }
            })?;
        }
        let _later = side.poll_flush(cx)?;
        Ok(())
    }

    /// Decides what to do with an idle link.
    fn rest(&self, env: &Env, now: Millis) -> Option<Ended> {
        if matches!(self.end, LinkEnd::Called { .. }) && self.is_told_to_go(env, now) {
            // The caller then opens a link to another Worker.
            self.go_away(Code::GOING_AWAY);
        }
        if self.session.borrow().open_streams() > 0 {
            self.idle_since.set(now);
            return None;
        }
        let idle = now.saturating_sub(self.idle_since.get());
        {
            let mut slots = self.slots.borrow_mut();
            if slots.has_waiting() && (idle >= DISMISS_MS || self.closing.get()) {
                slots.dismiss();
            }
            if idle >= DISMISS_MS {
                slots.trim();
            }
        }
        if self.idle_limit(env).is_some_and(|limit| idle >= limit) {
            self.go_away(Code::IDLE);
        }
        if !self.closing.get() {
            return None;
        }
        let over = match &self.end {
            LinkEnd::Caller(_) => {
                let says_nothing = !self.session.borrow().wants_transmit();
                says_nothing && self.open_queue.borrow().is_empty()
            }
            // The caller closes the link, unless it no longer responds.
            LinkEnd::Called { .. } => idle >= FAREWELL_MS,
        };
        over.then_some(Ended::Over)
    }

    /// How long a link may be without streams, in milliseconds. The calling end is the one that should give it up
    /// first.
    fn idle_limit(&self, env: &Env) -> Option<Millis> {
        let timeouts = &env.settings.timeouts;
        let limit = match &self.end {
            LinkEnd::Caller(_) => timeouts.upstream_idle,
            LinkEnd::Called { .. } => timeouts.client_idle,
        };
        Some(millis(limit)).filter(|&limit| limit > 0)
    }

    fn next_look(&self, env: &Env, now: Millis) -> Millis {
        let session = self.session.borrow();
        let due = session.next_deadline().unwrap_or(Millis::MAX);
        let again = match (session.open_streams(), self.closing.get()) {
            // A periodic check whether certificates expire, or the Worker ends.
            (1.., _) => LOOK_MS,
            (0, true) => FAREWELL_MS,
            (0, false) => {
                let idle = now.saturating_sub(self.idle_since.get());
                let limit = self.idle_limit(env).unwrap_or(LOOK_MS);
                let limits = [DISMISS_MS, limit].into_iter();
                let left = limits.filter_map(|limit| limit.checked_sub(idle));
                left.filter(|&left| left > 0)
                    .min()
                    .unwrap_or(LOOK_MS)
                    .min(LOOK_MS)
            }
        };
        let until = self.elsewhere.waits_until();
        let until = until.filter(|&until| until > now && env.is_retiring());
        due.min(now + again).min(until.unwrap_or(Millis::MAX))
    }
}
