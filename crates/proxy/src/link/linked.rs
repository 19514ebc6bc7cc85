//! What is kept of an endpoint behind another node's proxy, so that a stream to it costs no look-up.

use std::cell::{OnceCell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use heddle_model::ServiceAccountName;
use heddle_wire::preface::{Kind, Preface};

use super::Link;
use crate::failure::Reason;
use crate::place::Via;

/// Callers of an endpoint whose links are remembered.
const MAX_CALLERS: usize = 64;

/// The destination's name on links, for each kind, and the links by which it was reached last.
#[derive(Debug, Default)]
pub(crate) struct Linked {
    http: OnceCell<Rc<[u8]>>,
    bytes: OnceCell<Rc<[u8]>>,
    by_caller: RefCell<Vec<(Option<ServiceAccountName>, Weak<Link>)>>,
}

/// An endpoint behind another node's proxy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Far<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) via: &'a Arc<Via>,
    pub(crate) linked: &'a Linked,
}

impl Far<'_> {
    /// What a stream to it begins with.
    ///
    /// # Errors
    /// When its Service has a name that cannot be said, which no Service of a mesh has.
    pub(crate) fn destination(&self, kind: Kind) -> Result<Rc<[u8]>, Reason> {
        let Far {
            address,
            via,
            linked,
        } = *self;
        let kept = match kind {
            Kind::Http => &linked.http,
            Kind::Bytes => &linked.bytes,
        };
        if let Some(destination) = kept.get() {
            return Ok(Rc::clone(destination));
        }
        let mut bytes = Vec::new();
        let written = Preface {
            kind,
            endpoint: address,
            namespace: via.service.namespace.as_str(),
            service: via.service.name.as_str(),
            port: via.port,
        }
        .write_to(&mut bytes);
        written.map_err(|_| Reason::ServiceGone)?;
        Ok(Rc::clone(kept.get_or_init(|| bytes.into())))
    }
}

impl Linked {
    /// The link by which it was reached last in a caller's name.
    pub(super) fn link_of(&self, caller: Option<&ServiceAccountName>) -> Option<Rc<Link>> {
        let known = self.by_caller.borrow();
        let mut known = known.iter();
        let (_, link) = known.find(|(other, _)| other.as_ref() == caller)?;
        link.upgrade()
    }

    /// Remembers it.
    pub(super) fn keep_link(&self, caller: Option<&ServiceAccountName>, link: &Rc<Link>) {
        let mut known = self.by_caller.borrow_mut();
        known.retain(|(other, link)| other.as_ref() != caller && link.strong_count() > 0);
        if known.len() < MAX_CALLERS {
            known.push((caller.cloned(), Rc::downgrade(link)));
        }
    }
}
