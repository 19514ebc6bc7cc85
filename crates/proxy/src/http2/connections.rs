//! A Worker's connections to other nodes: finds, opens and closes them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use foldhash::fast::RandomState;
use h2::client::SendRequest;
use heddle_model::{ServiceAccountName, WorkloadName};
use heddle_wire::preface::Kind;
use http::header::HeaderValue;

use super::call::{begin, call};
use super::{Http2Exchange, Shared, head};
use crate::door::Door;
use crate::env::{Env, WorkKey};
use crate::failure::Reason;
use crate::link::{Far, Key, Places};
use crate::peers::{Peer, PeerStatus};
use crate::permits::Permit;
use crate::place::Via;

/// Limit of callers for which an endpoint remembers connections.
const MAX_CALLERS: usize = 64;

/// The calling end of one connection.
#[derive(Debug)]
pub(super) struct Calling {
    pub(super) key: Key,
    pub(super) shared: Shared,
    /// Opens streams. After it is dropped, the connection ends with its last stream.
    sender: RefCell<Option<SendRequest<Bytes>>>,
}

impl Calling {
    /// A handle to open a stream. Each stream has its own, so that one that waits for its turn does not block others.
    pub(super) fn sender(&self) -> Option<SendRequest<Bytes>> {
        self.sender.borrow().clone()
    }

    /// Allows no new streams.
    pub(super) fn close(&self) {
        self.shared.closing.set(true);
        let sender = self.sender.take();
        drop(sender);
    }

    /// Whether the other end accepts no new streams.
    pub(super) fn is_told_to_go(&self) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        let mut sender = self.sender.borrow_mut();
        let ready = sender.as_mut().map(|sender| sender.poll_ready(cx));
        matches!(ready, Some(std::task::Poll::Ready(Err(_))))
    }
}

/// The HTTP/2 connections of a Worker.
pub(crate) struct Connections {
    pub(super) env: Rc<Env>,
    /// Limits the connections of other nodes with this one.
    pub(super) places: Rc<Places>,
    to: RefCell<HashMap<Key, Rc<Calling>, RandomState>>,
    /// New requests of other nodes, until [`Connections::take_arrived`].
    arrived: RefCell<VecDeque<ArrivedExchange>>,
}

/// A request of another node without a Collaborator.
pub(crate) struct ArrivedExchange {
    pub(crate) door: Arc<Door>,
    pub(crate) permit: Permit,
    pub(crate) exchange: Box<Http2Exchange>,
    pub(crate) peer: SocketAddr,
}

impl Connections {
    pub(crate) fn new(env: Rc<Env>, places: Rc<Places>) -> Self {
        Connections {
            env,
            places,
            to: RefCell::default(),
            arrived: RefCell::default(),
        }
    }

    pub(super) fn arrives(&self, arrived: ArrivedExchange) {
        self.arrived.borrow_mut().push_back(arrived);
    }

    /// Takes the next new request.
    pub(crate) fn take_arrived(&self) -> Option<ArrivedExchange> {
        self.arrived.borrow_mut().pop_front()
    }

    /// Begins an exchange with an endpoint of another node, with the head of its request. It never waits: if there is
    /// no connection yet, the data waits for one. `None` if HTTP/2 cannot represent the request.
    ///
    /// # Errors
    /// When the limit of connections is reached.
    pub(crate) fn exchange(
        self: &Rc<Self>,
        (far, reached): (Far<'_>, &Reached),
        caller: Option<&ServiceAccountName>,
        head: &[u8],
    ) -> Result<Option<Box<Http2Exchange>>, Reason> {
        let destination = reached.destination(far)?;
        let Some(request) = head::request(head, &destination) else {
            return Ok(None);
        };
        let calling = match reached.find(caller) {
            Some(calling) => calling,
            None => {
                let calling = self.open(far.via, caller)?;
                reached.keep(caller, &calling);
                calling
            }
        };
        Ok(Some(Http2Exchange::calling(&calling, request)))
    }

    /// The connection for a pair of caller and called account, or a new one.
    fn open(
        self: &Rc<Self>,
        via: &Via,
        caller: Option<&ServiceAccountName>,
    ) -> Result<Rc<Calling>, Reason> {
        let key = Key {
            caller: caller.cloned(),
            called: via.account.clone(),
            node: via.node,
        };
        if let Some(calling) = self.to.borrow().get(&key) {
            return Ok(Rc::clone(calling));
        }
        if self.to.borrow().len() >= self.env.settings.bounds.links && !self.make_room() {
            return Err(Reason::UpstreamOverflow);
        }
        let (connection, sender, wire) = begin().ok_or(Reason::NodeConnectFailed)?;
        let calling = Rc::new(Calling {
            key: key.clone(),
            shared: Shared::new(self.env.clock.now_ms()),
            sender: RefCell::new(Some(sender)),
        });
        self.to.borrow_mut().insert(key, Rc::clone(&calling));
        let driver = call(Rc::clone(self), Rc::clone(&calling), connection, wire);
        self.env.gate.spawn(WorkKey::OWN, driver);
        Ok(calling)
    }

    /// Closes the connection that has been idle for longest. False if none is idle.
    fn make_room(&self) -> bool {
        let all = self.to.borrow();
        let idle = all.values().filter(|one| one.shared.open.get() == 0);
        let oldest = idle.min_by_key(|one| one.shared.idle_since.get());
        let oldest = oldest.map(Rc::clone);
        drop(all);
        oldest.inspect(|calling| self.forget(calling)).is_some()
    }

    /// Adds the connections to the status of their nodes.
    pub(crate) fn show(&self, shown: &mut BTreeMap<Peer, PeerStatus>) {
        for (key, calling) in &*self.to.borrow() {
            let status = shown.entry(Peer::At(key.node)).or_default();
            calling.shared.show(status);
        }
    }

    /// Begins no more streams on a connection, and removes it.
    pub(super) fn forget(&self, calling: &Rc<Calling>) {
        calling.close();
        let mut all = self.to.borrow_mut();
        let is_it = |known: &Rc<Calling>| Rc::ptr_eq(known, calling);
        if all.get(&calling.key).is_some_and(is_it) {
            all.remove(&calling.key);
        }
    }
}

/// Cache for an endpoint behind another node's proxy, so that a request needs no look-up.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    /// The encoded destination for each caller.
    destinations: RefCell<Vec<(Option<WorkloadName>, HeaderValue)>>,
    by_caller: RefCell<Vec<(Option<ServiceAccountName>, Weak<Calling>)>>,
}

impl Reached {
    /// The value of [`head::DESTINATION`]: the preface of a separate connection, in hexadecimal digits.
    fn destination(&self, far: Far<'_>) -> Result<HeaderValue, Reason> {
        let mut destinations = self.destinations.borrow_mut();
        let mut known = destinations.iter();
        if let Some((_, known)) = known.find(|(caller, _)| caller.as_ref() == far.caller) {
            return Ok(known.clone());
        }
        let preface = far.destination(Kind::Http)?;
        let value = HeaderValue::from_maybe_shared(Bytes::from(hex(&preface)));
        let value = value.map_err(|_| Reason::ServiceGone)?;
        if destinations.len() >= MAX_CALLERS {
            // Of this many callers, most are gone.
            destinations.clear();
        }
        destinations.push((far.caller.cloned(), value.clone()));
        Ok(value)
    }

    /// The caller's last connection to the endpoint's node, if it can still be used.
    fn find(&self, caller: Option<&ServiceAccountName>) -> Option<Rc<Calling>> {
        let known = self.by_caller.borrow();
        let mut known = known.iter();
        let (_, calling) = known.find(|(other, _)| other.as_ref() == caller)?;
        let calling = calling.upgrade();
        calling.filter(|calling| !calling.shared.closing.get())
    }

    fn keep(&self, caller: Option<&ServiceAccountName>, calling: &Rc<Calling>) {
        let mut known = self.by_caller.borrow_mut();
        known.retain(|(other, one)| other.as_ref() != caller && one.strong_count() > 0);
        if known.len() < MAX_CALLERS {
            known.push((caller.cloned(), Rc::downgrade(calling)));
        }
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn hex(bytes: &[u8]) -> Vec<u8> {
    let digits = |byte: &u8| {
        [
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ]
    };
    bytes.iter().flat_map(digits).collect()
}

/// Decodes hexadecimal digits; `None` for anything else.
pub(super) fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    // Only lower case: two spellings would be two destinations.
    let value = |digit: &u8| match digit {
        b'A'..=b'F' => None,
        digit => (*digit as char).to_digit(16),
    };
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(value(high)? << 4 | value(low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_for_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&bytes)), Some(bytes));
        for other in ["a", "0g", "+1", "0x", "é"] {
            assert_eq!(unhex(other.as_bytes()), None, "{other}");
        }
    }
}
