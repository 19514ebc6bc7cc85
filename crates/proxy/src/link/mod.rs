//! Links: connections between nodes that many streams share, and that survive the sockets that carry them.
//!
//! ```text
//!   a caller's Worker                                                     a Worker of the called node
//!
//!   Collaborator ─ Stream ─┐                                          ┌─ Stream ─ Collaborator
//!   Collaborator ─ Stream ─┼─ Link ─ driver ══ mutual TLS ══ driver ─ Link ─┼─ Stream ─ Collaborator
//!   Flow ───────── Stream ─┘  (session, slots)                (session, slots)  └─ Stream ─ Flow
//! ```
//!
//! A link belongs to one Worker at either end. Its [`Session`] is the protocol without I/O; its [`Slots`] hold what has
//! arrived for each stream; its driver is the only task that uses the socket. A task that writes to a stream puts
//! frames into the session and stirs the driver, which runs after all other ready tasks have had a turn: frames of many
//! streams go out together in one TLS record and one system call.
//!
//! | module | is |
//! |---|---|
//! | [`links`] | a Worker's links to other nodes: finds, opens and evicts them |
//! | [`pair`] | the links of one pair: which of them carries a new stream, which is replaced by another |
//! | [`elsewhere`] | decides which callers are asked for another link, to a Worker with less to do |
//! | [`call`] | the driver of the calling end: dials, and redials when the link is cut |
//! | [`answer`] | the driver of the called end: starts a link or resumes one |
//! | [`places`] | limits the links that other nodes may have with a Worker, and chooses which is evicted |
//! | [`resets`] | limits how often a caller may reset streams that it has opened |
//! | [`carry`] | how both ends use a socket |
//! | [`receiver`] | passes the events of a session to the tasks of its streams |
//! | [`slots`] | the receive state of each stream |
//! | [`hold`] | limits the receive buffers |
//! | [`stream`] | a stream as a side of the proxy |
//! | [`failure`] | translates the protocol's codes to reasons and back |

mod answer;
mod call;
mod carry;
mod elsewhere;
mod failure;
mod hold;
mod linked;
mod links;
mod pair;
mod places;
mod receiver;
mod resets;
#[cfg(test)]
mod simulation;
mod slots;
mod stream;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;

use heddle_model::{ServiceAccountName, SpiffeId};
use heddle_wire::link::{Code, Session};

use crate::clock::Millis;
use crate::env::Band;
use crate::failure::Reason;
use crate::failure::StreamFailure;
use crate::io::WireSide;
use crate::wait_queue::WaitQueue;
use elsewhere::Elsewhere;
use failure::code_of;
use pair::{OfPair, Pair};
use resets::Resets;
use slots::Slots;

pub(crate) use answer::{InboundLink, handed_over};
pub(crate) use linked::{Far, Linked};
pub(crate) use links::{ArrivedStream, Key, Links};
pub(crate) use places::{Evictable, LinkParties, Places};
pub(crate) use stream::Stream;

/// One end of a link.
pub(crate) struct Link {
    pub(crate) end: LinkEnd,
    session: RefCell<Session>,
    slots: RefCell<Slots>,
    /// The driver's waker, and whether it was woken already.
    driver: RefCell<Option<Waker>>,
    stirred: Cell<bool>,
    /// No new stream is opened on it, whatever the session allows.
    closing: Cell<bool>,
    /// Since when no stream has been open.
    idle_since: Cell<Millis>,
    /// Streams that wait to be opened until the other end has acknowledged enough.
    open_queue: RefCell<WaitQueue>,
    /// The next socket to continue on, at the called end. Boxed, since it is there only for a moment.
    returned: RefCell<Option<Box<WireSide>>>,
    /// Deadline at which the link ends, whatever the other end does; usually none.
    parts_by: Cell<Millis>,
    /// Counts the streams that the other end has reset before they were answered.
    resets: Resets,
    /// At the calling end: its relation to the other links of its pair.
    of_pair: OfPair,
    /// At the called end: whether the caller was asked for another link.
    elsewhere: Elsewhere,
}

#[derive(Debug)]
pub(crate) enum LinkEnd {
    /// The end that opens streams.
    Caller(Key),
    /// The end that answers.
    Called {
        /// The identity that the other end proved; for callers that a node does not know, the node's own.
        caller: SpiffeId,
        /// The service account that the other end asked for.
        called: ServiceAccountName,
        /// The address from which the first connection came.
        peer: SocketAddr,
    },
}

impl LinkEnd {
    /// The caller, the called identity, and the caller's address, if this is the called end.
    fn called(&self) -> Option<(&SpiffeId, &ServiceAccountName, SocketAddr)> {
        match self {
            LinkEnd::Caller(_) => None,
            LinkEnd::Called {
                caller,
                called,
                peer,
            } => Some((caller, called, *peer)),
        }
    }
}

impl Link {
    /// The calling end, one link of a pair.
    fn calling(key: Key, pair: &Rc<Pair>, session: Session, links: &Links) -> Rc<Self> {
        Rc::new(Link {
            of_pair: OfPair::new(pair),
            ..Link::of(LinkEnd::Caller(key), session, links)
        })
    }

    /// The called end; `band` groups its tasks.
    fn called(end: LinkEnd, band: Band, session: Session, links: &Links) -> Rc<Self> {
        Rc::new(Link {
            elsewhere: Elsewhere::new(band, links.env.clock.now_ms()),
            ..Link::of(end, session, links)
        })
    }

    fn of(end: LinkEnd, session: Session, links: &Links) -> Self {
        let hold = links.holds.of(&end, &links.env.pool);
        Link::new(end, session, Slots::new(hold), links.env.clock.now_ms())
    }

    fn new(end: LinkEnd, session: Session, slots: Slots, now: Millis) -> Self {
        Link {
            end,
            session: RefCell::new(session),
            slots: RefCell::new(slots),
            driver: RefCell::default(),
            stirred: Cell::new(false),
            closing: Cell::new(false),
            idle_since: Cell::new(now),
            open_queue: RefCell::default(),
            returned: RefCell::default(),
            parts_by: Cell::new(Millis::MAX),
            resets: Resets::default(),
            of_pair: OfPair::default(),
            elsewhere: Elsewhere::default(),
        }
    }

    /// Wakes the driver, because there is something to send.
    fn stir(&self) {
        if self.stirred.replace(true) {
            return;
        }
        if let Some(driver) = &*self.driver.borrow() {
            driver.wake_by_ref();
        }
    }

    /// Wakes the first stream that waits to be opened, if a stream can be opened now or never will be.
    fn feed(&self, session: &Session) {
        if !session.is_full() {
            self.open_queue.borrow().call();
        }
    }

    /// Fails every stream with a reason, and opens no other.
    fn give_up(&self, reason: Reason) {
        self.closing.set(true);
        let mut slots = self.slots.borrow_mut();
        slots.dismiss();
        self.session
            .borrow_mut()
            .fail_all(&mut slots.failing(reason));
        slots.refuse_unopened(StreamFailure::unsent(reason));
        self.open_queue.borrow_mut().dismiss();
    }

    /// Fails every stream with a reason, and resets it towards the other end.
    fn revoke(&self, reason: Reason) {
        self.closing.set(true);
        let failed = StreamFailure {
            reason,
            was_sent: true,
        };
        let open = self.slots.borrow_mut().fail_all(failed);
        let mut session = self.session.borrow_mut();
        for serial in open {
            session.reset(serial, code_of(reason));
        }
        session.go_away(Code::EXPIRED);
    }

    /// Sends GOAWAY and opens no new stream.
    fn go_away(&self, code: Code) {
        if !self.closing.replace(true) {
            self.session.borrow_mut().go_away(code);
            self.stir();
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}
