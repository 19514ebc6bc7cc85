//! A Worker's links to other nodes: finds the link for a new stream, and opens and evicts links.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use foldhash::fast::RandomState;
use heddle_model::{Class, ServiceAccountName};
use heddle_wire::link::{Code, LinkLimits, Session, Token};
use heddle_wire::preface::Kind;

use super::call::call;
use super::hold::Holds;
use super::pair::Pair;
use super::stream::StreamTarget;
use super::{Evictable, Far, Link, LinkEnd, Places, Stream};
use crate::clock::Clock;
use crate::door::Door;
use crate::env::{BandMember, Env, WorkKey};
use crate::failure::Reason;
use crate::peers::{Peer, PeerStatus};
use crate::permits::Permit;
use crate::place::Via;

/// From this many streams on a link, another one is opened for the same pair: the called node accepts it on another
/// Worker.
const BUSY_STREAMS: usize = 128;
/// Limit of links of one pair on one Worker.
pub(super) const MAX_FOR_A_PAIR: usize = 2;

/// How long the session of a cut link is kept, in milliseconds. Requests wait as long for a node that is away; most
/// interruptions are shorter.
const RETENTION_MS: u32 = 15_000;

/// The pair at the ends of a link.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The identity that the link uses; `None`: the node's own, for callers that are not known.
    pub(crate) caller: Option<ServiceAccountName>,
    /// The service account that the other node must prove.
    pub(crate) called: ServiceAccountName,
    /// The address at which the other node accepts connections.
    pub(crate) node: SocketAddr,
}

/// The links of a Worker.
pub(crate) struct Links {
    pub(super) env: Rc<Env>,
    /// Limits the links that other nodes may have with this Worker.
    pub(crate) places: Rc<Places>,
    /// Links that this Worker has opened.
    pub(super) to: RefCell<HashMap<Key, Rc<Pair>, RandomState>>,
    /// Links that other nodes have opened, for as long as their sessions last.
    pub(super) from: RefCell<HashMap<Token, Weak<Link>, RandomState>>,
    count: Cell<usize>,
    /// Receive buffers of their streams.
    pub(super) holds: Holds,
    /// Streams that other nodes have opened, until [`Links::take_arrived`].
    arrived: RefCell<VecDeque<ArrivedStream>>,
}

/// A stream of another node that no task serves yet.
pub(crate) struct ArrivedStream {
    pub(crate) door: Arc<Door>,
    pub(crate) permit: Permit,
    pub(crate) stream: Stream,
    pub(crate) member: Option<BandMember>,
    pub(crate) peer: SocketAddr,
}

impl Links {
    pub(crate) fn new(env: Rc<Env>, places: Rc<Places>) -> Self {
        Links {
            env,
            places,
            to: RefCell::default(),
            from: RefCell::default(),
            count: Cell::new(0),
            holds: Holds::new(),
            arrived: RefCell::default(),
        }
    }

    pub(super) fn arrives(&self, arrived: ArrivedStream) {
        self.arrived.borrow_mut().push_back(arrived);
    }

    /// Takes the next stream that another node has opened.
    pub(crate) fn take_arrived(&self) -> Option<ArrivedStream> {
        self.arrived.borrow_mut().pop_front()
    }

    /// A stream to an endpoint of another node; `scope` is the number of the caller's header templates. This never
    /// waits: the stream is opened with its first head (an opaque stream when it is first read from), and if there is
    /// no link yet, what it sends waits for one.
    ///
    /// # Errors
    /// When the limit of links is reached.
    pub(crate) fn stream(
        self: &Rc<Self>,
        far: Far<'_>,
        caller: Option<&ServiceAccountName>,
        kind: Kind,
        scope: u32,
    ) -> Result<Stream, Reason> {
        let link = match self.known(far.linked.link_of(caller), kind) {
            Some(link) => link,
            None => {
                let link = self.link(far.via, caller, kind)?;
                far.linked.keep_link(caller, &link);
                link
            }
        };
        let destination = far.destination(kind)?;
        let target = StreamTarget { destination, scope };
        Ok(Stream::unopened(&link, target, kind == Kind::Http))
    }

    /// The link of a pair that has the fewest streams, or a new one.
    fn link(
        self: &Rc<Self>,
        via: &Via,
        caller: Option<&ServiceAccountName>,
        kind: Kind,
    ) -> Result<Rc<Link>, Reason> {
        let key = Key {
            caller: caller.cloned(),
            called: via.account.clone(),
            node: via.node,
        };
        let pair = self.pair(&key);
        match pair.choose(kind) {
            Some(link) => Ok(link),
            None => self.open(&pair, key),
        }
    }

    /// Opens a new link for a pair.
    ///
    /// # Errors
    /// When the limit of links is reached.
    fn open(self: &Rc<Self>, pair: &Rc<Pair>, key: Key) -> Result<Rc<Link>, Reason> {
        if !pair.has_place() || !self.have_room() && !self.make_room() {
            let mut said = self.env.said_of_links.borrow_mut();
            if said.may_name("most", self.env.clock.now()) {
                tracing::warn!(
                    node = %key.node, called = %key.called, most = self.env.settings.bounds.links,
                    "a request fails because no link can be opened: this worker has reached its limit of links, or the \
                     node closes them again and again; raise proxy.bounds.links, or find out which callers keep flows \
                     open"
                );
            }
            return Err(Reason::UpstreamOverflow);
        }
        Ok(self.add(pair, key))
    }

    /// Whether the limit allows another link.
    pub(super) fn have_room(&self) -> bool {
        self.count.get() < self.env.settings.bounds.links
    }

    /// Opens a new link for a pair without checking limits.
    pub(super) fn add(self: &Rc<Self>, pair: &Rc<Pair>, key: Key) -> Rc<Link> {
        let session = Session::client(LIMITS)
            .keeping_two()
            .for_offline_callers(self.env.stats.class() == Class::Offline);
        let link = Link::calling(key, pair, session, self);
        pair.add(&link);
        self.count.set(self.count.get() + 1);
        let driver = call(Rc::clone(self), Rc::clone(&link));
        self.env.gate.spawn(WorkKey::OWN, driver);
        link
    }

    /// Closes the link that has been idle longest. False if none is idle.
    fn make_room(&self) -> bool {
        let mut oldest: Option<Rc<Link>> = None;
        for pair in self.to.borrow().values() {
            pair.for_each(|link| {
                let since = |link: &Rc<Link>| link.idle_since.get();
                let is_older = oldest
                    .as_ref()
                    .is_none_or(|oldest| since(link) < since(oldest));
                if link.streams() == 0 && !link.closing.get() && is_older {
                    oldest = Some(Rc::clone(link));
                }
            });
        }
        oldest.inspect(|link| link.go_away(Code::IDLE)).is_some()
    }

    /// Removes a link that this Worker had opened.
    pub(super) fn forget(&self, link: &Rc<Link>) {
        let LinkEnd::Caller(key) = &link.end else {
            return;
        };
        let mut to = self.to.borrow_mut();
        if let Some(pair) = to.get(key) {
            let gone = usize::from(pair.remove(link));
            self.count.set(self.count.get() - gone);
            if pair.is_empty() {
                to.remove(key);
            }
        }
    }

    /// Adds the links that this Worker has opened to `shown`.
    pub(crate) fn show(&self, clock: &Clock, shown: &mut BTreeMap<Peer, PeerStatus>) {
        for (key, pair) in &*self.to.borrow() {
            let status = shown.entry(Peer::At(key.node)).or_default();
            pair.for_each(|link| link.show(clock, status));
        }
    }

    /// The link with this session that another node has opened.
    pub(super) fn called(&self, token: Token) -> Option<Rc<Link>> {
        self.from.borrow().get(&token)?.upgrade()
    }

    /// Number of links that other nodes have opened to this Worker.
    pub(crate) fn called_count(&self) -> usize {
        self.from.borrow().len()
    }

    pub(super) fn add_called(&self, token: Token, link: &Rc<Link>) {
        let mut from = self.from.borrow_mut();
        from.insert(token, Rc::downgrade(link));
    }

    pub(super) fn forget_called(&self, token: Token) {
        self.from.borrow_mut().remove(&token);
    }
}

impl Link {
    pub(super) fn streams(&self) -> usize {
        self.session.borrow().open_streams()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.streams() >= BUSY_STREAMS
    }
}

/// The limits that this node announces on a link. Heads may be as long as the parser accepts, whatever this node's own
/// bounds are.
pub(super) const LIMITS: LinkLimits = LinkLimits {
    retention_ms: RETENTION_MS,
    ..LinkLimits::INITIAL
};
