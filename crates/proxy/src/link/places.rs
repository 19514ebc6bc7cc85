//! How many connections that carry many streams other nodes may have with a Worker: links, and those of HTTP/2.
//!
//! ```text
//!   a new one ─┬─ as many as may be of its pair, of its caller, or of all?
//!              │     └─ no ─────────────────────────────────────▶ it has a place
//!              ├─ one that serves nothing is among them ──────────▶ that one parts, and gives its place
//!              └─ all of them serve ──────────────────────────────▶ the new one parts
//! ```
//!
//! A caller is the identity that the other end proved, from whatever address. It has its share of a Worker's places
//! as a pod has of the node's connections ([`may_take`]); and all of them together have one of the connections
//! ([`ShareOwner::Links`]). What serves nothing may have streams that are open nevertheless: those that were reset here
//! and whose client does not end them.
//!
//! The caller of one that parts is told so (GOAWAY) and has a second for it: what it sends until then is refused, so
//! that it is safe to send it elsewhere. A link that was cut, and may come back, has its place all the same; with
//! nothing open on it, it is one that serves nothing, and there is no caller to tell.
//!
//! [`ShareOwner::Links`]: crate::permits::ShareOwner::Links

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::rc::{Rc, Weak};

use foldhash::fast::RandomState;
use heddle_model::{ServiceAccountName, SpiffeId};
use heddle_wire::link::Code;
use slab::Slab;

use super::Link;
use crate::clock::{Clock, Millis};
use crate::env::Env;
use crate::peers::{Peer, PeerStatus};
use crate::permits::{SharePermit, may_take};

/// Links of one caller with one identity that is called, from one address, on one Worker. A node opens two for each
/// Worker of its own, wherever they come to here.
const MAX_OF_A_PAIR: usize = 64;
/// Places for each link to other nodes that a Worker may have: more nodes may call this one than it calls.
const FOR_EACH_LINK: usize = 2;
/// Links that part at a time, beside those that have a place, are one in so many of the node's connections …
const PARTING: usize = 16;
/// … and so many at most. Others are closed at once.
const MAX_PARTING: usize = 64;
/// How long one that parts may take, in milliseconds.
const PART_MS: Millis = 1_000;

/// The caller that has a place, and what it calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkParties {
    /// The identity that the other end proved.
    pub(crate) caller: SpiffeId,
    /// The service account that it asked for.
    pub(crate) called: ServiceAccountName,
    /// From where.
    pub(crate) address: IpAddr,
}

/// What has a place, and gives it up when it serves nothing.
pub(crate) trait Evictable {
    /// Whether nothing is open on it, and since when it has served nothing; `None` while it serves.
    fn idle(&self) -> Option<(bool, Millis)>;
    /// Begins nothing more, says so, and is over then, whatever the other end does.
    fn part(&self, by: Millis);
    /// Whether it was told to.
    fn parts(&self) -> bool;
    /// Adds itself to what is shown of its node.
    fn show(&self, clock: &Clock, shown: &mut PeerStatus);
}

/// A Worker's places.
pub(crate) struct Places {
    env: Rc<Env>,
    taken: RefCell<Slab<TakenPlace>>,
    refused: Cell<usize>,
}

#[derive(Debug)]
struct TakenPlace {
    parties: LinkParties,
    connection: Weak<dyn Evictable>,
    /// What it counts to among the connections of the node; none when it was given to another.
    share_permit: Option<SharePermit>,
}

/// One of them, given back when it is dropped.
pub(crate) struct LinkPlace {
    places: Rc<Places>,
    key: usize,
}

/// One that parts.
pub(super) struct Parting(Rc<Places>);

/// Whether there is a place for one more.
enum Admission {
    Free,
    /// In the place of this one.
    InPlaceOf(usize),
    Refused,
}

impl Places {
    pub(crate) fn new(env: Rc<Env>) -> Self {
        Places {
            env,
            taken: RefCell::default(),
            refused: Cell::new(0),
        }
    }

    /// A place for one more. `None` is counted and said.
    pub(crate) fn place(
        self: &Rc<Self>,
        parties: LinkParties,
        connection: Weak<dyn Evictable>,
    ) -> Option<LinkPlace> {
        let place = self.find_place(parties, connection);
        if place.is_none() {
            self.env.stats.connections_refused.inc();
            self.env.stats.connections_over_share.inc();
        }
        place
    }

    fn find_place(
        self: &Rc<Self>,
        parties: LinkParties,
        connection: Weak<dyn Evictable>,
    ) -> Option<LinkPlace> {
        let most = FOR_EACH_LINK.saturating_mul(self.env.settings.bounds.links);
        let mut admission = self.admission(&parties, most);
        let mut share_permit = None;
        if let Admission::Free = admission {
            share_permit = self.env.called_links.share_permit();
            if share_permit.is_none() {
                admission = self.instead(&parties);
            }
        }
        match admission {
            Admission::Free => {}
            Admission::InPlaceOf(idle) => {
                let by = self.parts_by().unwrap_or_default();
                share_permit = self.give_up(idle, by);
            }
            Admission::Refused => {
                self.say_no_place(&parties, most);
                return None;
            }
        }
        let mut taken = self.taken.borrow_mut();
        let key = taken.insert(TakenPlace {
            parties,
            connection,
            share_permit,
        });
        let places = Rc::clone(self);
        Some(LinkPlace { places, key })
    }

    /// Has a link part that found no place. `None` if too many do already.
    pub(super) fn see_off(self: &Rc<Self>, link: &Link) -> Option<Parting> {
        let refused = &self.refused;
        link.part(Code::OVERLOAD, self.parts_by()?);
        refused.set(refused.get() + 1);
        Some(Parting(Rc::clone(self)))
    }

    /// How long one more may take to part. `None` if too many do already.
    fn parts_by(&self) -> Option<Millis> {
        let most = (self.env.settings.bounds.connections / PARTING).clamp(1, MAX_PARTING);
        (self.parting() < most).then(|| self.env.clock.now_ms() + PART_MS)
    }

    fn say_no_place(&self, parties: &LinkParties, most: usize) {
        let LinkParties {
            caller,
            called,
            address,
        } = parties;
        let now = self.env.clock.now();
        if self.env.said_of_links.borrow_mut().may_name("places", now) {
            tracing::warn!(
                %caller, %called, %address, most,
                "links from other nodes are refused: their caller, or all of them, have as many as may be, and each \
                 serves something; look what that node does, or raise proxy.bounds.links"
            );
        }
    }

    fn admission(&self, parties: &LinkParties, most: usize) -> Admission {
        let taken = self.taken.borrow();
        let of_all = || taken.iter().filter(|(_, taken)| !taken.parts());
        let of_caller = || of_all().filter(|(_, taken)| taken.parties.caller == parties.caller);
        let of_pair = || of_caller().filter(|(_, taken)| taken.parties == *parties);
        if of_pair().count() >= MAX_OF_A_PAIR {
            return longest_idle(of_pair()).map_or(Admission::Refused, Admission::InPlaceOf);
        }
        let free = most.saturating_sub(of_all().count());
        match may_take(most, free, of_caller().count(), None) {
            true => Admission::Free,
            false => self.instead(parties),
        }
    }

    /// The place of another where there is none left: one of the same caller, or of one that has more.
    fn instead(&self, parties: &LinkParties) -> Admission {
        let taken = self.taken.borrow();
        let of_all = || taken.iter().filter(|(_, taken)| !taken.parts());
        let mut held: HashMap<&SpiffeId, usize, RandomState> = HashMap::default();
        for (_, taken) in of_all() {
            *held.entry(&taken.parties.caller).or_default() += 1;
        }
        let own = held.get(&parties.caller).copied().unwrap_or(0);
        let of_caller = of_all().filter(|(_, taken)| taken.parties.caller == parties.caller);
        let of_those_with_more = of_all().filter(|(_, taken)| held[&taken.parties.caller] > own);
        let idle = longest_idle(of_caller).or_else(|| longest_idle(of_those_with_more));
        idle.map_or(Admission::Refused, Admission::InPlaceOf)
    }

    /// Has the connection that has a place part. Returns what it counted to.
    fn give_up(&self, key: usize, by: Millis) -> Option<SharePermit> {
        let mut taken = self.taken.borrow_mut();
        let place = taken.get_mut(key)?;
        if let Some(connection) = place.connection.upgrade() {
            connection.part(by);
        }
        place.share_permit.take()
    }

    /// Shows the connections.
    pub(crate) fn show(&self, clock: &Clock, shown: &mut BTreeMap<Peer, PeerStatus>) {
        for (_, taken) in &*self.taken.borrow() {
            if let Some(connection) = taken.connection.upgrade() {
                let peer = Peer::From(taken.parties.address.to_canonical());
                connection.show(clock, shown.entry(peer).or_default());
            }
        }
    }

    /// How many part.
    fn parting(&self) -> usize {
        let taken = self.taken.borrow();
        let given_up = taken.iter().filter(|(_, taken)| taken.parts());
        self.refused.get() + given_up.count()
    }
}

/// Of those that serve nothing, one that keeps streams open nevertheless, or else the one that has had none for
/// longest.
fn longest_idle<'a>(all: impl Iterator<Item = (usize, &'a TakenPlace)>) -> Option<usize> {
    let idle = all.filter_map(|(key, taken)| Some((key, taken.connection.upgrade()?.idle()?)));
    let longest = idle.min_by_key(|(_, idle)| *idle);
    longest.map(|(key, _)| key)
}

impl TakenPlace {
    /// Whether it gives its place up by itself.
    fn parts(&self) -> bool {
        let connection = self.connection.upgrade();
        connection.is_some_and(|connection| connection.parts())
    }
}

impl Drop for LinkPlace {
    fn drop(&mut self) {
        let _left = self.places.taken.borrow_mut().try_remove(self.key);
    }
}

impl Drop for Parting {
    fn drop(&mut self) {
        let refused = &self.0.refused;
        refused.set(refused.get() - 1);
    }
}

impl Evictable for Link {
    fn idle(&self) -> Option<(bool, Millis)> {
        let is_empty = || self.session.borrow().open_streams() == 0;
        let serves = self.slots.borrow().serve();
        (!serves).then(|| (is_empty(), self.idle_since.get()))
    }

    fn part(&self, by: Millis) {
        self.part(Code::IDLE, by);
    }

    fn parts(&self) -> bool {
        self.parts_by.get() != Millis::MAX
    }

    fn show(&self, clock: &Clock, shown: &mut PeerStatus) {
        let session = self.session.borrow();
        shown.streams += session.open_streams();
        match session.away_since_ms() {
            _ if session.is_up() => shown.links_up += 1,
            Some(since) => shown.add_cut(clock.instant(since)),
            None => shown.links_connecting += 1,
        }
    }
}

impl Link {
    /// The same for a reason.
    fn part(&self, code: Code, by: Millis) {
        self.closing.set(true);
        self.parts_by.set(by);
        self.session.borrow_mut().go_away(code);
        self.stir();
    }
}
