//! What is kept of an endpoint behind another node's proxy, so that a stream to it costs no look-up.

use std::cell::{OnceCell, RefCell};
use std::rc::{Rc, Weak};

use heddle_model::ServiceAccountName;
use heddle_wire::preface::{Kind, Preface};

use super::Endpoint;
use crate::door::Door;
use crate::failure::{Failure, Reason};
use crate::link::Link;
use crate::place::Via;
use crate::worker::Worker;

/// Callers of an endpoint whose links are remembered.
const MAX_CALLERS: usize = 64;

/// The destination's name on links, for each kind, and the links by which it was reached last.
#[derive(Debug, Default)]
pub(super) struct Linked {
    http: OnceCell<Rc<[u8]>>,
    bytes: OnceCell<Rc<[u8]>>,
    by_caller: RefCell<Vec<(Option<ServiceAccountName>, Weak<Link>)>>,
}

impl Endpoint {
    /// What a stream to it begins with.
    ///
    /// # Errors
    /// When its Service has a name that cannot be said, which no Service of a mesh has.
    pub(crate) fn destination(&self, via: &Via, kind: Kind) -> Result<Rc<[u8]>, Reason> {
        let kept = match kind {
            Kind::Http => &self.linked.http,
            Kind::Bytes => &self.linked.bytes,
        };
        if let Some(destination) = kept.get() {
            return Ok(Rc::clone(destination));
        }
        let mut bytes = Vec::new();
        let written = Preface {
            kind,
            endpoint: self.address,
            namespace: via.service.namespace.as_str(),
            service: via.service.name.as_str(),
            port: via.port,
        }
        .write_to(&mut bytes);
        written.map_err(|_| Reason::ServiceGone)?;
        Ok(Rc::clone(kept.get_or_init(|| bytes.into())))
    }

    /// A stream to it failed for want of a link.
    pub(crate) fn link_failed(&self, worker: &Worker, door: &Door, reason: Reason) {
        let now = worker.clock.now_ms();
        if reason == Reason::PeerRefused {
            let caller = worker.bound().snapshot.guards.account(door).cloned();
            self.refused(caller, now);
        }
        if reason.is_safe_to_retry() {
            let failed = Failure::from(reason);
            worker.upstreams.failed(self, now, &failed.detail());
        }
    }

    /// The link by which it was reached last in a caller's name.
    pub(crate) fn link_of(&self, caller: Option<&ServiceAccountName>) -> Option<Rc<Link>> {
        let known = self.linked.by_caller.borrow();
        let mut known = known.iter();
        let (_, link) = known.find(|(other, _)| other.as_ref() == caller)?;
        link.upgrade()
    }

    /// Remembers it.
    pub(crate) fn keep_link(&self, caller: Option<&ServiceAccountName>, link: &Rc<Link>) {
        let mut known = self.linked.by_caller.borrow_mut();
        known.retain(|(other, link)| other.as_ref() != caller && link.strong_count() > 0);
        if known.len() < MAX_CALLERS {
            known.push((caller.cloned(), Rc::downgrade(link)));
        }
    }
}
