//! The links of one pair on one Worker, at the calling end.
//!
//! ```text
//!   one link ─┬─ it has many streams, or its other end asks for one beside it ─▶ two, the one with less takes the next
//!             └─ its other end asks for another instead ──▶ it goes on until that one is there,
//!                                                           then begins nothing more, and is over with its streams
//! ```
//!
//! A link is not closed for another one that may never come up: if either end has no room for it, the existing one
//! continues.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use heddle_wire::link::Another;
use heddle_wire::preface::Kind;

use super::links::MAX_FOR_A_PAIR;
use super::{Key, Link, LinkEnd, Links};
use crate::clock::Millis;

/// Limit of all links of a pair, including those that are closing: a node that sends GOAWAY again and again but ends no
/// stream gets no more of them.
const MAX_KEPT: usize = 16;

/// A link that has had no stream for this long is replaced at once, in milliseconds: the next stream opens a new one.
const UNUSED_MS: Millis = 1_000;

/// Minimum time between two links that are opened at the other end's request, in milliseconds: a node that asks all the
/// time cannot keep this one busy with handshakes.
const BETWEEN_MS: Millis = 100;

#[derive(Debug, Default)]
pub(super) struct Pair {
    links: RefCell<Vec<Rc<Link>>>,
    /// When a link was last opened at the other end's request.
    obeyed: Cell<Option<Millis>>,
}

/// A link's relation to the other links of its pair.
#[derive(Debug, Default)]
pub(super) struct OfPair {
    pair: Weak<Pair>,
    /// The pair has other links.
    shares: Cell<bool>,
    /// The other end has asked for another link instead of this one.
    leaves: Cell<bool>,
    /// What the other end has asked for, until that is handled.
    asked: Cell<Option<Another>>,
}

impl Pair {
    pub(super) fn add(&self, link: &Rc<Link>) {
        self.links.borrow_mut().push(Rc::clone(link));
        self.settle();
    }

    /// Removes a link. Returns whether it was there.
    pub(super) fn remove(&self, link: &Rc<Link>) -> bool {
        let mut links = self.links.borrow_mut();
        let before = links.len();
        links.retain(|other| !Rc::ptr_eq(other, link));
        let was_there = links.len() < before;
        drop(links);
        self.settle();
        was_there
    }

    pub(super) fn is_empty(&self) -> bool {
        self.links.borrow().is_empty()
    }

    pub(super) fn for_each(&self, look: impl FnMut(&Rc<Link>)) {
        self.links.borrow().iter().for_each(look);
    }

    /// The link for a new stream: links that are up come before those that are connecting; among these, the one with
    /// the fewest streams of this kind. `None`: another link is to be opened.
    pub(super) fn choose(&self, kind: Kind) -> Option<Rc<Link>> {
        let links = self.links.borrow();
        let open = links.iter().filter(|link| !link.closing.get());
        let stay = open.clone().filter(|link| !link.of_pair.leaves.get());
        let least = open.min_by_key(|link| link.rank(kind))?;
        let enough = stay.count() >= MAX_FOR_A_PAIR || !least.is_busy();
        enough.then(|| Rc::clone(least))
    }

    /// Number of links that open new streams and will not be replaced.
    fn staying(&self) -> usize {
        let links = self.links.borrow();
        let stay = |link: &&Rc<Link>| !link.closing.get() && !link.of_pair.leaves.get();
        links.iter().filter(stay).count()
    }

    /// Whether the pair has fewer links than the limit of those that stay, plus as many that are being replaced.
    fn keeps_few(&self) -> bool {
        self.links.borrow().len() < 2 * MAX_FOR_A_PAIR
    }

    /// Whether the pair may have one more link to open streams on.
    pub(super) fn has_place(&self) -> bool {
        self.links.borrow().len() < MAX_KEPT
    }

    /// Whether another link may be opened at the other end's request now. If so, this call counts as one.
    fn may_obey(&self, now: Millis) -> bool {
        let last = self.obeyed.get();
        let may = last.is_none_or(|last| now.saturating_sub(last) >= BETWEEN_MS);
        if may {
            self.obeyed.set(Some(now));
        }
        may
    }

    /// Closes links that another one has replaced, and tells the others whether there are several.
    fn settle(&self) {
        let links = self.links.borrow();
        let open = || links.iter().filter(|link| !link.closing.get());
        if open().any(|link| link.is_there() && !link.of_pair.leaves.get()) {
            for link in open().filter(|link| link.of_pair.leaves.get()) {
                link.closing.set(true);
                link.stir();
            }
        }
        let several = open().count() > 1;
        open().for_each(|link| link.of_pair.shares.set(several));
    }
}

impl OfPair {
    pub(super) fn new(pair: &Rc<Pair>) -> Self {
        OfPair {
            pair: Rc::downgrade(pair),
            ..OfPair::default()
        }
    }

    pub(super) fn pair(&self) -> Option<Rc<Pair>> {
        self.pair.upgrade()
    }

    /// Settles the whole pair, because the link is up now, or is down.
    pub(super) fn settle(&self) {
        if let Some(pair) = self.pair() {
            pair.settle();
        }
    }

    /// Records the other end's request.
    pub(super) fn asked(&self, what: Another) {
        self.asked.set(Some(what));
    }
}

impl Link {
    /// Whether it can carry the next stream without a look at other links.
    pub(super) fn suffices(&self) -> bool {
        !self.closing.get() && !self.of_pair.shares.get() && !self.is_busy()
    }

    /// Whether the other end responds.
    fn is_there(&self) -> bool {
        self.session.borrow().is_up()
    }

    /// Sort key: the lowest link is used first. Only streams of the same kind are compared, since a flow that is silent
    /// for an hour says nothing about how long a request takes.
    fn rank(&self, kind: Kind) -> (bool, bool, usize) {
        let session = self.session.borrow();
        let flows = session.open_flows();
        let streams = match kind {
            Kind::Http => session.open_streams().saturating_sub(flows),
            Kind::Bytes => flows,
        };
        (!session.is_up(), self.of_pair.leaves.get(), streams)
    }

    /// Complies with the other end's request.
    pub(super) fn do_as_asked(self: &Rc<Self>, links: &Rc<Links>) {
        let (Some(what), Some(pair)) = (self.of_pair.asked.take(), self.of_pair.pair()) else {
            return;
        };
        let LinkEnd::Caller(key) = &self.end else {
            return;
        };
        let wanted = match what {
            Another::Instead if self.is_unused(links.env.clock.now_ms()) => {
                self.closing.set(true);
                false
            }
            Another::Instead => {
                self.of_pair.leaves.set(true);
                pair.staying() == 0
            }
            Another::Beside => !self.closing.get() && pair.staying() < MAX_FOR_A_PAIR,
        };
        // No other link is evicted for it; and a node that asks again and again but ends no stream gets no more links.
        let wanted = wanted && pair.keeps_few() && links.have_room();
        match wanted && pair.may_obey(links.env.clock.now_ms()) {
            true => drop(links.add(&pair, key.clone())),
            // Too soon after another one: the request is checked again when something arrives.
            false if wanted => self.of_pair.asked(what),
            false => {}
        }
        pair.settle();
    }

    /// Whether no stream is open on it, or was lately.
    fn is_unused(&self, now: Millis) -> bool {
        self.streams() == 0
            && self.open_queue.borrow().is_empty()
            && now.saturating_sub(self.idle_since.get()) >= UNUSED_MS
    }
}

impl Links {
    /// The link by which an endpoint was last reached, if it can carry the next stream; else another link of its pair.
    pub(super) fn known(&self, known: Option<Rc<Link>>, kind: Kind) -> Option<Rc<Link>> {
        let known = known?;
        if known.suffices() {
            return Some(known);
        }
        known.of_pair.pair()?.choose(kind)
    }

    /// The links of a pair; possibly none yet.
    pub(super) fn pair(&self, key: &Key) -> Rc<Pair> {
        let mut to = self.to.borrow_mut();
        if let Some(pair) = to.get(key) {
            return Rc::clone(pair);
        }
        Rc::clone(to.entry(key.clone()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use heddle_wire::link::{LinkLimits, Session};

    use super::super::Slots;
    use super::super::hold::Holds;
    use super::*;

    #[test]
    fn a_node_that_asks_all_the_time_gets_few_links() {
        let pair = Pair::default();
        let opened = (5_000..6_000).filter(|&now| pair.may_obey(now)).count();
        assert_eq!(opened, 10);
    }

    fn link(pool: &heddle_wire::buffer::Pool) -> Rc<Link> {
        let name = |name| heddle_model::ServiceAccountName::new("test", name).unwrap();
        let end = LinkEnd::Caller(Key {
            caller: Some(name("shop")),
            called: name("echo"),
            node: ([127, 0, 0, 1], 1).into(),
        });
        let slots = Slots::new(Holds::new().of(&end, pool));
        let session = Session::client(LinkLimits::INITIAL);
        Rc::new(Link::new(end, session, slots, 0))
    }

    #[test]
    fn a_node_that_asks_and_ends_no_stream_gets_no_more_than_replace_those_that_stay() {
        let pool = heddle_wire::buffer::Pool::new(16, 100);
        let pair = Pair::default();
        let mut kept = 0;
        while pair.keeps_few() {
            pair.add(&link(&pool));
            kept += 1;
        }
        assert_eq!(kept, 2 * MAX_FOR_A_PAIR);
        // Nor does a node that sends GOAWAY again and again.
        while pair.has_place() {
            pair.for_each(|link| link.closing.set(true));
            assert!(pair.choose(Kind::Http).is_none());
            pair.add(&link(&pool));
            kept += 1;
        }
        assert_eq!(kept, MAX_KEPT);
    }

    /// A link of a pair with so many open requests and flows.
    fn carrying(pair: &Pair, requests: usize, flows: usize) -> Rc<Link> {
        let link = link(&heddle_wire::buffer::Pool::new(16, 100));
        let mut session = link.session.borrow_mut();
        for _ in 0..requests {
            let head = b"GET / HTTP/1.1\r\n\r\n";
            session.open(0, b"echo", head, true).unwrap();
        }
        for _ in 0..flows {
            session.open_flow(b"echo").unwrap();
        }
        drop(session);
        pair.add(&link);
        link
    }

    #[test]
    fn a_new_stream_goes_by_the_link_with_the_fewest_of_its_kind() {
        let pair = Pair::default();
        let (flows, request) = (carrying(&pair, 0, 3), carrying(&pair, 1, 0));
        let chosen = |kind| pair.choose(kind).unwrap();
        assert!(Rc::ptr_eq(&chosen(Kind::Http), &flows));
        assert!(Rc::ptr_eq(&chosen(Kind::Bytes), &request));
    }
}
