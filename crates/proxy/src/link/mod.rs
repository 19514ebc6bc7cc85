//! Links: connections between nodes that many streams share, and that outlive the sockets that carry them.
//!
//! ```text
//!   a caller's Worker                                                     a Worker of the called node
//!
//!   Collaborator ─ Stream ─┐                                          ┌─ Stream ─ Collaborator
//!   Collaborator ─ Stream ─┼─ Link ─ driver ══ mutual TLS ══ driver ─ Link ─┼─ Stream ─ Collaborator
//!   Flow ───────── Stream ─┘  (session, slots)                (session, slots)  └─ Stream ─ Flow
//! ```
//!
//! A link belongs to one Worker at either end. Its [`Session`] is the protocol without I/O; its [`Slots`] are
//! where streams find what has come for them; its driver is the one task that has the socket. A task that writes
//! to a stream puts frames into the session and stirs the driver, which runs when all other tasks that are ready have
//! had a turn: what many streams say at about the same time goes out in one record and one system call.
//!
//! | module | is |
//! |---|---|
//! | [`links`] | a Worker's links to others: found, opened, given up |
//! | [`pair`] | those of one pair: which carries a new stream, which makes way for another |
//! | [`elsewhere`] | whose callers are asked for another link, which comes to a Worker that has less to do |
//! | [`call`] | the driver of the end that calls: dials, and dials again when it is cut |
//! | [`answer`] | the driver of the end that is called: whose link is it, is it a new one? |
//! | [`places`] | how many links others may have with a Worker, and which of them makes room |
//! | [`resets`] | how often a caller may reset what it has opened |
//! | [`carry`] | what both do with a socket |
//! | [`receiver`] | what a session says of its streams, told to the tasks that have them |
//! | [`slots`] | what has come for each stream |
//! | [`hold`] | how much of the pool that may take |
//! | [`stream`] | a stream as a side of the proxy |
//! | [`open_queue`] | streams that wait to be opened |
//! | [`failure`] | codes on the wire, and the reasons that they stand for |

mod answer;
mod call;
mod carry;
mod elsewhere;
mod failure;
mod hold;
mod linked;
mod links;
mod open_queue;
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
use elsewhere::Elsewhere;
use failure::code_of;
use open_queue::OpenQueue;
use pair::{OfPair, Pair};
use resets::Resets;
use slots::Slots;

pub(crate) use answer::{InboundLink, resumed};
pub(crate) use linked::{Far, Linked};
pub(crate) use links::{ArrivedStream, Key, Links};
pub(crate) use places::{Evictable, LinkParties, Places};
pub(crate) use stream::Stream;

/// One end of a link.
pub(crate) struct Link {
    pub(crate) end: LinkEnd,
    session: RefCell<Session>,
    slots: RefCell<Slots>,
    /// Its driver, and whether that knows already that there is something to do.
    driver: RefCell<Option<Waker>>,
    stirred: Cell<bool>,
    /// Nothing new is begun on it, whatever the session says.
    closing: Cell<bool>,
    /// Since when there has been no stream.
    idle_since: Cell<Millis>,
    /// Streams that wait until the other end has acknowledged enough for another.
    open_queue: RefCell<OpenQueue>,
    /// Another socket to go on over, at the end that is called. In a box: there is one for a moment only.
    returned: RefCell<Option<Box<WireSide>>>,
    /// It is over then, whatever the other end does; never, mostly.
    parts_by: Cell<Millis>,
    /// Streams that the other end has reset before they were answered.
    resets: Resets,
    /// At the end that calls, how it stands to the others of its pair.
    of_pair: OfPair,
    /// At the end that is called, whether the caller was asked for another one.
    elsewhere: Elsewhere,
}

/// Which end of a link it is.
#[derive(Debug)]
pub(crate) enum LinkEnd {
    /// The one that opens streams.
    Caller(Key),
    /// The one that answers.
    Called {
        /// The identity that the other end proved; a node speaks for callers that it does not know.
        caller: SpiffeId,
        /// The service account that it asked for.
        called: ServiceAccountName,
        /// From where it came first.
        peer: SocketAddr,
    },
}

impl LinkEnd {
    /// The caller, what it calls, and from where, if this is the end that answers.
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
    /// The end that calls, one of a pair.
    fn calling(key: Key, pair: &Rc<Pair>, session: Session, links: &Links) -> Rc<Self> {
        Rc::new(Link {
            of_pair: OfPair::new(pair),
            ..Link::of(LinkEnd::Caller(key), session, links)
        })
    }

    /// The end that is called, whose tasks are a band.
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

    /// Tells the driver that there is something to send.
    fn stir(&self) {
        if self.stirred.replace(true) {
            return;
        }
        if let Some(driver) = &*self.driver.borrow() {
            driver.wake_by_ref();
        }
    }

    /// Calls the first stream that waits to be opened, if one can be opened or never will be.
    fn feed(&self, session: &Session) {
        if !session.is_full() {
            self.open_queue.borrow().call();
        }
    }

    /// Ends every stream for a reason, and begins no other.
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

    /// Ends every stream for a reason that the other end is told, too.
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

    /// Begins nothing new, and says so to the other end.
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
