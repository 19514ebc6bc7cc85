//! The called end of a link.
//!
//! ```text
//!   handshake ─▶ HELLO ─┬─ no session, or one that is not known ─▶ a new one ─▶ carry ─┬─▶ over
//!                       ├─ a session of this Worker ─▶ its link goes on over this      │
//!                       │  socket                         ▲                            │
//!                       └─ of another Worker ─▶ goes there┘◀── waits to come back ◀────┘ cut
//! ```

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use heddle_model::SpiffeId;
use heddle_transport::Refusal;
use heddle_wire::link::{Hello, LinkError, Session, Token, Verdict};

use super::carry::Ended;
use super::links::LIMITS;
use super::receiver::Receiver;
use super::{Link, LinkEnd, LinkParties, Links};
use crate::clock::Millis;
use crate::door::Door;
use crate::env::{Alarm, Band, Outcome};
use crate::failure::Reason;
use crate::intake::Intake;
use crate::io::{Proof, WireSide};
use crate::parcel::{Contents, LinkSocket, State};

/// How long a caller whose certificate is no longer valid may take to reconnect with a new proof, in milliseconds.
const PROVE_AGAIN_MS: Millis = 2_000;
/// How long a draining process waits for a link without open streams to reconnect, in milliseconds. A caller that had
/// sent something when the link was cut reconnects at once.
const COMES_BACK_MS: Millis = 1_000;
/// Interval at which it is checked whether to keep waiting for a link, in milliseconds.
const LOOK_MS: Millis = 500;

/// A connection on which another node, with a proven identity, wants to start or resume a link.
pub(crate) struct InboundLink {
    pub(crate) links: Rc<Links>,
    pub(crate) door: Arc<Door>,
    pub(crate) side: WireSide,
    /// The caller's first frame. Its bytes are still in the side's inbox.
    pub(crate) hello: Hello,
    pub(crate) peer: SocketAddr,
    pub(crate) alarm: Alarm,
}

impl InboundLink {
    /// Carries a new link until it ends, or hands the connection to the link that it resumes.
    pub(crate) async fn run(self, band: Band) -> Outcome<Infallible> {
        let token = self.hello.token;
        if let Some(link) = self.links.called(token) {
            if link.is_between(&self.side) {
                link.comes_back(self.side);
            }
            return Outcome::Over;
        }
        if let Some(intake) = self.links.env.sessions.find(token) {
            return self.hand_over(intake, false);
        }
        if self.hello.offline
            && let Some(intake) = self.links.env.offline_worker(&self.alarm).await
        {
            return self.hand_over(intake, true);
        }
        let InboundLink {
            links,
            side,
            peer,
            alarm,
            ..
        } = self;
        let env = &links.env;
        let called = side.called().and_then(SpiffeId::service_account);
        let (Some(proof), Some(called), Ok(token)) = (side.proof(), called, new_token()) else {
            return Outcome::Over;
        };
        let end = LinkEnd::Called {
            caller: proof.peer.id.clone(),
            called: called.clone(),
            peer,
        };
        let parties = LinkParties {
            caller: proof.peer.id.clone(),
            called: called.clone(),
            address: peer.ip(),
        };
        let session = Session::server(token, LIMITS);
        let link = Link::called(end, band, session, &links);
        let connection = Rc::downgrade(&link);
        let place = links.places.place(parties, connection);
        let parting = match place {
            Some(_) => None,
            None => match links.places.see_off(&link) {
                Some(parting) => Some(parting),
                None => return Outcome::Over,
            },
        };
        links.add_called(token, &link);
        env.sessions.add(token, env.intake.clone());
        env.stats.links_active.inc();
        env.stats.links_total.inc();
        // By reference: each future that took it by value would reserve space for it as long as the link lasts.
        let mut side = Some(side);
        let reason = drive_until_it_parts(&links, &link, &alarm, &mut side).await;
        env.stats.links_active.dec();
        env.sessions.remove(token);
        links.forget_called(token);
        link.give_up(reason);
        link.driver.take();
        drop((place, parting));
        Outcome::Over
    }

    /// Hands the connection to the Worker that has the link, or shall have it.
    fn hand_over(self, intake: Intake, is_new: bool) -> Outcome<Infallible> {
        let InboundLink {
            door,
            mut side,
            hello,
            peer,
            ..
        } = self;
        let mut read = Vec::with_capacity(side.inbox.len());
        side.inbox
            .runs()
            .for_each(|run| read.extend_from_slice(run));
        side.inbox.clear();
        let Ok(client) = side.pack() else {
            // Fails only when the runtime has ended.
            return Outcome::Over;
        };
        let contents = Contents {
            door,
            client,
            peer,
            state: State::Link(Box::new(LinkSocket {
                hello,
                read,
                is_new,
            })),
        };
        Outcome::Leave(Box::new(contents), intake)
    }
}

/// Takes in a connection from another Worker: hands it to the link that it resumes, or returns the link that it begins.
pub(crate) fn handed_over(
    links: &Rc<Links>,
    door: Arc<Door>,
    mut side: WireSide,
    peer: SocketAddr,
    socket: &LinkSocket,
) -> Option<InboundLink> {
    let inbox = &mut side.inbox;
    inbox
        .extend_from_slice(&links.env.pool, &socket.read)
        .ok()?;
    if socket.is_new {
        let alarm = links.env.alarms.alarm();
        alarm.rests_on(&side);
        return Some(InboundLink {
            links: Rc::clone(links),
            door,
            side,
            hello: socket.hello,
            peer,
            alarm,
        });
    }
    let link = links.called(socket.hello.token);
    if let Some(link) = link.filter(|link| link.is_between(&side)) {
        link.comes_back(side);
    }
    None
}

impl Link {
    /// Whether a connection has the same two identities at its ends as this link: only they may resume a session.
    fn is_between(&self, side: &WireSide) -> bool {
        let Some((caller, called, _)) = self.end.called() else {
            return false;
        };
        let peer = side.proof().map(|proof| &proof.peer.id);
        let asked = side.called().and_then(SpiffeId::service_account);
        peer == Some(caller) && asked == Some(called)
    }

    /// Continues on another socket, whatever the state of the present one.
    fn comes_back(&self, side: WireSide) {
        *self.returned.borrow_mut() = Some(Box::new(side));
        self.stirred.set(false);
        self.stir();
    }
}

/// Drives a link until it is over, or until the deadline by which it was told to part.
async fn drive_until_it_parts(
    links: &Rc<Links>,
    link: &Rc<Link>,
    alarm: &Alarm,
    side: &mut Option<WireSide>,
) -> Reason {
    let mut driving = pin!(drive(links, link, alarm, side));
    let env = &links.env;
    poll_fn(|cx| {
        let driven = driving.as_mut().poll(cx);
        match link.parts_by.get() {
            Millis::MAX => return driven,
            by if driven.is_pending() && env.clock.now_ms() >= by => {
                return Poll::Ready(Reason::LinkLost);
            }
            // This deadline takes precedence over every other time that the driver waits for.
            by => alarm.set(by),
        }
        driven
    })
    .await
}

/// Drives a link until it is over, starting with this socket. Returns the reason with which its open streams fail.
async fn drive(
    links: &Rc<Links>,
    link: &Rc<Link>,
    alarm: &Alarm,
    on: &mut Option<WireSide>,
) -> Reason {
    let env = &links.env;
    poll_fn(|cx| {
        // Another task did the handshake: register this one with the alarm.
        alarm.wakes(cx.waker());
        *link.driver.borrow_mut() = Some(cx.waker().clone());
        Poll::Ready(())
    })
    .await;
    while let Some(side) = on {
        alarm.clear();
        alarm.rests_on(side);
        link.session.borrow_mut().connected(env.clock.now_ms());
        // The connection has waited since it was checked first, and nothing notified it of changed identities.
        let ended = match env.check(side) {
            Err(Refusal::Denied) => Ended::Revoked(Reason::IdentityRevoked),
            Err(_) => Ended::Ending,
            Ok(()) => {
                poll_fn(|cx| match link.returned.borrow().is_some() {
                    true => Poll::Ready(Ended::Cut),
                    false => link.poll_carry(cx, links, side, alarm),
                })
                .await
            }
        };
        if let Ended::Revoked(reason) = ended {
            link.revoke(reason);
        }
        if matches!(ended, Ended::Over | Ended::Revoked(_)) {
            poll_fn(|cx| link.poll_farewell(cx, env, side)).await;
        }
        let now = env.clock.now_ms();
        link.session.borrow_mut().disconnected(now);
        let patience = match ended {
            Ended::Cut | Ended::Refused(_) => Millis::MAX,
            Ended::Ending => PROVE_AGAIN_MS,
            Ended::Over => return Reason::LinkLost,
            Ended::Broken(error) => {
                say_broken(link, &error);
                return Reason::LinkLost;
            }
            Ended::Revoked(reason) => return reason,
        };
        let proof = side.proof().cloned();
        // The alarm watched this socket's proof; both are released now.
        *on = None;
        alarm.clear();
        *on = returned(links, link, alarm, (proof, patience)).await;
        if on.is_none() && patience == PROVE_AGAIN_MS {
            return Reason::IdentityRevoked;
        }
    }
    Reason::LinkLost
}

/// Waits for the link to reconnect, as long as its session is kept, and at most `patience` milliseconds; at most
/// [`PROVE_AGAIN_MS`] when the peer's proof is no longer valid.
async fn returned(
    links: &Rc<Links>,
    link: &Rc<Link>,
    alarm: &Alarm,
    (proof, patience): (Option<Arc<Proof>>, Millis),
) -> Option<WireSide> {
    let env = &links.env;
    let mut by = env.clock.now_ms().saturating_add(patience);
    poll_fn(|cx| {
        alarm.wakes(cx.waker());
        link.stirred.set(false);
        if let Some(side) = link.returned.take() {
            return Poll::Ready(Some(*side));
        }
        // A finished session is never resumed. One that is only idle may be: a request that was in transit when the
        // link was cut must find the session, or its outcome is unknown.
        let is_idle = link.session.borrow().open_streams() == 0;
        if link.closing.get() && is_idle || env.is_cutting() {
            return Poll::Ready(None);
        }
        let mut receiver = Receiver::new(links, link);
        let now = env.clock.now_ms();
        if env.is_draining() && is_idle {
            by = by.min(now.saturating_add(COMES_BACK_MS));
        }
        let verdict = link.session.borrow_mut().tick(now, &mut receiver);
        match proof.as_deref().map(|proof| env.check_proof(proof)) {
            None | Some(Ok(())) => {}
            Some(Err(Refusal::Denied)) => return Poll::Ready(None),
            Some(Err(_)) => by = by.min(now.saturating_add(PROVE_AGAIN_MS)),
        }
        if verdict == Verdict::SessionOver || now >= by {
            return Poll::Ready(None);
        }
        alarm.set(by.min(now + LOOK_MS));
        Poll::Pending
    })
    .await
}

/// Logs that the other end of a link violates the protocol.
fn say_broken(link: &Link, error: &LinkError) {
    let Some((caller, called, peer)) = link.end.called() else {
        return;
    };
    tracing::warn!(
        %caller, %called, %peer, %error,
        "a link is given up with all of its streams: the other end broke the protocol; do both nodes have the same \
         version?"
    );
}

fn new_token() -> std::io::Result<Token> {
    let mut bytes = [0; 16];
    let n = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    match n == bytes.len() {
        true => Ok(Token(bytes)),
        false => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}
