//! Limits how many connections that carry many streams other nodes may have with a Worker: links, and HTTP/2
//! connections.
//!
//! ```text
//!   a new one ─┬─ as many as may be of its pair, of its caller, or of all?
//!              │     └─ no ─────────────────────────────────────▶ it has a place
//!              ├─ one that serves nothing is among them ──────────▶ that one parts, and gives its place
//!              └─ all of them serve ──────────────────────────────▶ the new one parts
//! ```
//!
//! A caller is the identity that the other end proved, whatever its address. It has its share of a Worker's places,
//! like a pod of the node's connections ([`may_take`]); all callers together have one share of the connections
//! ([`ShareOwner::Links`]). A connection that serves nothing may still have open streams: those that were reset here
//! and that the client does not end.
//!
//! The caller of a connection that parts gets GOAWAY and has a second to leave: requests that it sends in that time are
//! refused, so they can safely be sent elsewhere. A link that was cut and may be resumed keeps its place. Without open
//! streams it counts as one that serves nothing, and there is no connection on which to tell its caller.
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

/// Limit of links of one pair from one address, on one Worker. A node opens two for each Worker of its own, and all of
/// them may arrive at the same Worker here.
const MAX_OF_A_PAIR: usize = 64;
/// Places per link that a Worker may have to other nodes: more nodes may call this one than it calls.
const FOR_EACH_LINK: usize = 2;
/// Links that part at the same time, beyond those that have a place, are at most one in this many of the node's
/// connections …
const PARTING: usize = 16;
/// … and at most this many. Others are closed at once.
const MAX_PARTING: usize = 64;
/// How long a link that parts may take, in milliseconds.
const PART_MS: Millis = 1_000;

/// The caller that has a place, and the identity that it calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkParties {
    /// The identity that the other end proved.
    pub(crate) caller: SpiffeId,
    /// The service account that it asked for.
    pub(crate) called: ServiceAccountName,
    /// The caller's address.
    pub(crate) address: IpAddr,
}

/// A connection that has a place, and loses it when it serves nothing.
pub(crate) trait Evictable {
    /// Whether no stream is open on it, and since when it has served nothing; `None` while it serves something.
    fn idle(&self) -> Option<(bool, Millis)>;
    /// Sends GOAWAY, accepts nothing new, and ends at `by`, whatever the other end does.
    fn part(&self, by: Millis);
    /// Whether it was told to part.
    fn parts(&self) -> bool;
    /// Adds itself to the shown state of its node.
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
    /// Counts it to the node's connections; `None` once its permit was given to another connection.
    share_permit: Option<SharePermit>,
}

/// One of the places, freed on drop.
pub(crate) struct LinkPlace {
    places: Rc<Places>,
    key: usize,
}

/// A link that parts without a place, counted until it is dropped.
pub(super) struct Parting(Rc<Places>);

/// The decision about one more connection.
enum Admission {
    Free,
    /// It replaces the connection with this key.
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

    /// Finds a place for one more connection. A refusal is counted and logged.
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

    /// Makes a link that found no place part. `None` if too many links part already.
    pub(super) fn see_off(self: &Rc<Self>, link: &Link) -> Option<Parting> {
        let refused = &self.refused;
        link.part(Code::OVERLOAD, self.parts_by()?);
        refused.set(refused.get() + 1);
        Some(Parting(Rc::clone(self)))
    }

    /// The deadline for one more connection to part. `None` if too many part already.
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
                "links from other nodes are refused: their caller, or all callers together, have reached the limit, \
                 and no link is idle; find out what that node does, or raise proxy.bounds.links"
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

    /// Finds an idle connection to evict if there is no free place: one of the same caller, or of a caller that has
    /// more.
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

    /// Makes the connection with this place part. Returns its permit.
    fn give_up(&self, key: usize, by: Millis) -> Option<SharePermit> {
        let mut taken = self.taken.borrow_mut();
        let place = taken.get_mut(key)?;
        if let Some(connection) = place.connection.upgrade() {
            connection.part(by);
        }
        place.share_permit.take()
    }

    /// Adds all connections to `shown`.
    pub(crate) fn show(&self, clock: &Clock, shown: &mut BTreeMap<Peer, PeerStatus>) {
        for (_, taken) in &*self.taken.borrow() {
            if let Some(connection) = taken.connection.upgrade() {
                let peer = Peer::From(taken.parties.address.to_canonical());
                connection.show(clock, shown.entry(peer).or_default());
            }
        }
    }

    /// Number of connections that part at the moment.
    fn parting(&self) -> usize {
        let taken = self.taken.borrow();
        let given_up = taken.iter().filter(|(_, taken)| taken.parts());
        self.refused.get() + given_up.count()
    }
}

/// Among the connections that serve nothing: one that still has open streams, or else the one that has had none for
/// longest.
fn longest_idle<'a>(all: impl Iterator<Item = (usize, &'a TakenPlace)>) -> Option<usize> {
    let idle = all.filter_map(|(key, taken)| Some((key, taken.connection.upgrade()?.idle()?)));
    let longest = idle.min_by_key(|(_, idle)| *idle);
    longest.map(|(key, _)| key)
}

impl TakenPlace {
    /// Whether its connection parts, and so frees its place by itself.
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
    fn part(&self, code: Code, by: Millis) {
        self.closing.set(true);
        self.parts_by.set(by);
        self.session.borrow_mut().go_away(code);
        self.stir();
    }
}
