//! A Worker's links to other nodes: which there are, which of them carries a new stream, when one is given up.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use foldhash::fast::RandomState;
use heddle_model::ServiceAccountName;
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

/// Streams on a link from which on another is opened for the same pair: it lands on another Worker there.
const BUSY_STREAMS: usize = 128;
/// Links of one pair on one Worker.
pub(super) const MAX_FOR_A_PAIR: usize = 2;

/// How long a link that was cut may take to come back, in milliseconds. Requests wait as long for a node that is
/// away, which is longer than most breaks last.
const RETENTION_MS: u32 = 15_000;

/// The ends of a link.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// In whose name it is made; `None`: in the node's own, for callers that are not known.
    pub(crate) caller: Option<ServiceAccountName>,
    /// The service account that the other node is asked for.
    pub(crate) called: ServiceAccountName,
    /// Where that takes connections.
    pub(crate) node: SocketAddr,
}

/// All links of a Worker.
pub(crate) struct Links {
    pub(super) env: Rc<Env>,
    /// How many others may have with this Worker.
    pub(crate) places: Rc<Places>,
    /// Those that it calls others by.
    pub(super) to: RefCell<HashMap<Key, Rc<Pair>, RandomState>>,
    /// Those by which others call it, for as long as their sessions last.
    pub(super) from: RefCell<HashMap<Token, Weak<Link>, RandomState>>,
    count: Cell<usize>,
    /// What has come for their streams and was not taken.
    pub(super) holds: Holds,
    /// Streams of others that begin here, until [`Links::take_arrived`].
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

    /// Takes one of the streams that have begun here.
    pub(crate) fn take_arrived(&self) -> Option<ArrivedStream> {
        self.arrived.borrow_mut().pop_front()
    }

    /// A stream to an endpoint of another node, for a caller whose templates have the number `scope`. It costs no
    /// wait: it is opened with its first head, one of bytes when it is first read from, and where there is no link
    /// yet, what is sent waits for one.
    ///
    /// # Errors
    /// When there are as many links as may be.
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

    /// One more of a pair.
    ///
    /// # Errors
    /// When there are as many links as may be.
    fn open(self: &Rc<Self>, pair: &Rc<Pair>, key: Key) -> Result<Rc<Link>, Reason> {
        if !pair.has_place() || !self.have_room() && !self.make_room() {
            let mut said = self.env.said_of_links.borrow_mut();
            if said.may_name("most", self.env.clock.now()) {
                tracing::warn!(
                    node = %key.node, called = %key.called, most = self.env.settings.bounds.links,
                    "a request fails for want of a link: this thread has as many to other nodes as it may, or the \
                     node goes away again and again; raise proxy.bounds.links, or see which callers keep flows open"
                );
            }
            return Err(Reason::UpstreamOverflow);
        }
        Ok(self.add(pair, key))
    }

    /// Whether there may be one more.
    pub(super) fn have_room(&self) -> bool {
        self.count.get() < self.env.settings.bounds.links
    }

    /// One more of a pair, whatever others there are.
    pub(super) fn add(self: &Rc<Self>, pair: &Rc<Pair>, key: Key) -> Rc<Link> {
        let session = Session::client(LIMITS).keeping_two();
        let link = Link::calling(key, pair, session, self);
        pair.add(&link);
        self.count.set(self.count.get() + 1);
        let driver = call(Rc::clone(self), Rc::clone(&link));
        self.env.gate.spawn(WorkKey::OWN, driver);
        link
    }

    /// Gives up the link that has been idle for longest. False if none is.
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

    /// A link by which this Worker called another node is over.
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

    /// Shows those to other nodes.
    pub(crate) fn show(&self, clock: &Clock, shown: &mut BTreeMap<Peer, PeerStatus>) {
        for (key, pair) in &*self.to.borrow() {
            let status = shown.entry(Peer::At(key.node)).or_default();
            pair.for_each(|link| link.show(clock, status));
        }
    }

    /// The link of a session by which another node calls.
    pub(super) fn called(&self, token: Token) -> Option<Rc<Link>> {
        self.from.borrow().get(&token)?.upgrade()
    }

    /// How many there are by which others call this Worker.
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

/// What this node takes on a link. Heads may be as long as the parser takes, whatever this node's own bounds are.
pub(super) const LIMITS: LinkLimits = LinkLimits {
    retention_ms: RETENTION_MS,
    ..LinkLimits::INITIAL
};
