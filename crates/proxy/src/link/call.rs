//! The calling end of a link: it dials, and redials when the link is cut while streams are open.
//!
//! ```text
//!   dial ─▶ shake hands ─▶ carry ─ idle, told to go ─▶ over
//!    ▲ │         │           │
//!    │ └─ failed ┴───────────┼─ cut, nothing open ──▶ over
//!    │     first: streams fail, nothing was sent
//!    └──── wait ◀──── cut, streams are open: at most as long as the other end keeps the session
//! ```

use std::future::poll_fn;
use std::rc::Rc;

use heddle_transport::Protocol;
use heddle_wire::link::Verdict;

use super::carry::Ended;
use super::receiver::Receiver;
use super::{Key, Link, LinkEnd, Links};
use crate::clock::Millis;
use crate::dial::{Shaking, dial_node, say_refused};
use crate::env::{Alarm, Env};
use crate::failure::Reason;
use crate::failure::StreamFailure;
use crate::io::WireSide;

/// Shortest wait before the second redial, in milliseconds; the first redial follows at once. The wait doubles for each
/// further one.
const AGAIN_MS: Millis = 50;
/// Limit of the wait, in milliseconds: a node that has restarted must be found before a request has waited for a
/// second.
const MAX_AGAIN_MS: Millis = 400;
/// How many handshakes may be cut before a link that was never up is given up.
const FIRST_TRIES: u32 = 4;
/// Timeout of one redial while streams wait, in milliseconds.
const REDIAL_MS: Millis = 2_000;

/// Drives a link to another node until it is over.
pub(super) async fn call(links: Rc<Links>, link: Rc<Link>) {
    let env = &links.env;
    poll_fn(|cx| {
        *link.driver.borrow_mut() = Some(cx.waker().clone());
        std::task::Poll::Ready(())
    })
    .await;
    let alarm = env.alarms.alarm();
    poll_fn(|cx| {
        alarm.wakes(cx.waker());
        std::task::Poll::Ready(())
    })
    .await;
    env.stats.links_active.inc();
    let reason = drive(&links, &link, &alarm).await;
    env.stats.links_active.dec();
    link.give_up(reason);
    links.forget(&link);
    // The driver's waker refers to this task, which owns the link: breaks the cycle.
    link.driver.take();
}

/// Drives the link. Returns the reason with which its open streams fail.
async fn drive(links: &Rc<Links>, link: &Rc<Link>, alarm: &Alarm) -> Reason {
    let env = &links.env;
    let LinkEnd::Caller(key) = &link.end else {
        return Reason::LinkLost;
    };
    let failed = |reason| env.peers.failed(key.node, reason, env.clock.now_ms());
    let mut tries = 0;
    let mut has_been = false;
    let mut is_missed = false;
    loop {
        let dialled = dial(env, key, alarm, has_been).await;
        match dialled.inspect_err(|&reason| failed(reason)) {
            Ok(mut side) => {
                if !has_been {
                    has_been = true;
                    env.stats.links_total.inc();
                }
                let (ended, was_heard) = serve(links, link, alarm, &mut side).await;
                if was_heard {
                    tries = 0;
                    if std::mem::take(&mut is_missed) {
                        tracing::info!(node = %key.node, called = %key.called, "another node can be reached again");
                    }
                }
                match ended {
                    Ended::Cut => failed(Reason::LinkLost),
                    Ended::Ending => {}
                    Ended::Over => return Reason::LinkLost,
                    Ended::Broken(error) => {
                        failed(Reason::LinkLost);
                        tracing::warn!(
                            node = %key.node, called = %key.called, %error,
                            "a link is given up with all of its streams: the other end broke the protocol; do both \
                             nodes have the same version?"
                        );
                        return Reason::LinkLost;
                    }
                    Ended::Refused(broken) => {
                        let reason = say_refused(env, &key.node, &broken);
                        failed(reason);
                        return reason;
                    }
                    Ended::Revoked(reason) => {
                        failed(reason);
                        return reason;
                    }
                }
                if link.session.borrow().open_streams() == 0 {
                    return Reason::LinkLost;
                }
            }
            // A retry would not change an identity.
            Err(reason @ (Reason::IdentityMissing | Reason::PeerRefused)) => return reason,
            // A handshake that was cut is retried a few times; a new link does not wait for a node that cannot be
            // reached.
            Err(reason) if !has_been && (reason != Reason::LinkLost || tries >= FIRST_TRIES) => {
                return match reason {
                    Reason::LinkLost => Reason::NodeConnectFailed,
                    reason => reason,
                };
            }
            Err(reason) => {
                env.peers.went_away(key.node, env.clock.now_ms());
                // Streams that wait for the link have sent nothing: they use another endpoint if there is one.
                let mut slots = link.slots.borrow_mut();
                slots.linked(Some(StreamFailure::unsent(Reason::NodeConnectFailed)));
                drop(slots);
                if !std::mem::replace(&mut is_missed, true) {
                    tracing::warn!(
                        node = %key.node, called = %key.called, reason = reason.code(),
                        "another node cannot be reached: open streams of a link to it wait"
                    );
                }
            }
        }
        if !wait(links, link, alarm, tries).await {
            return Reason::LinkLost;
        }
        tries += 1;
    }
}

async fn dial(env: &Env, key: &Key, alarm: &Alarm, again: bool) -> Result<WireSide, Reason> {
    let now = env.clock.now_ms();
    let first = env.after(env.settings.timeouts.connect);
    alarm.set(match again {
        true => first.min(now + REDIAL_MS),
        false => first,
    });
    let shaking = Shaking {
        env,
        alarm,
        caller: key.caller.as_ref(),
        called: &key.called,
        node: key.node,
    };
    // Boxed: the driver of an idle link should not reserve space for it.
    Box::pin(dial_node(shaking, Protocol::Link)).await
}

/// Carries the session on one socket until that ends. Also returns whether the peer's HELLO arrived.
async fn serve(
    links: &Rc<Links>,
    link: &Rc<Link>,
    alarm: &Alarm,
    side: &mut WireSide,
) -> (Ended, bool) {
    let env = &links.env;
    alarm.clear();
    alarm.rests_on(side);
    link.session.borrow_mut().connected(env.clock.now_ms());
    if side.is_ending(env.clock.now()) {
        // Its certificate ends soon: it carries only the streams that already wait for it.
        link.closing.set(true);
    }
    let mut is_there = false;
    let ended = poll_fn(|cx| {
        let carried = link.poll_carry(cx, links, side, alarm);
        if !is_there && link.session.borrow().is_up() {
            is_there = true;
            if let LinkEnd::Caller(key) = &link.end {
                env.peers.came_back(key.node);
            }
            link.of_pair.settle();
            link.slots.borrow_mut().linked(None);
        }
        carried
    })
    .await;
    let now = env.clock.now_ms();
    if let Ended::Revoked(reason) = ended {
        link.revoke(reason);
    }
    if matches!(ended, Ended::Over | Ended::Revoked(_)) {
        poll_fn(|cx| link.poll_farewell(cx, env, side)).await;
    }
    let mut session = link.session.borrow_mut();
    let was_heard = session.is_up();
    session.disconnected(now);
    alarm.clear();
    (ended, was_heard)
}

/// Waits before the next try. Returns false when the session is over, or has no open streams.
async fn wait(links: &Rc<Links>, link: &Rc<Link>, alarm: &Alarm, tries: u32) -> bool {
    let mut receiver = Receiver::new(links, link);
    let env = &links.env;
    let now = env.clock.now_ms();
    let verdict = link.session.borrow_mut().tick(now, &mut receiver);
    if verdict == Verdict::SessionOver || link.session.borrow().open_streams() == 0 {
        return false;
    }
    if tries > 0 {
        let wait = AGAIN_MS
            .saturating_mul(1 << tries.min(16))
            .min(MAX_AGAIN_MS);
        // Jitter: links that were cut together do not redial together.
        let jitter = env.random.borrow_mut().next() % (wait / 2 + 1);
        alarm.wait_until(now + wait / 2 + jitter).await;
    }
    true
}
