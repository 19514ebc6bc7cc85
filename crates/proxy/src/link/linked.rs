//! State kept for an endpoint behind another node's proxy, so that a stream to it needs no lookup.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use heddle_model::{ServiceAccountName, WorkloadName};
use heddle_wire::preface::{Kind, Preface};

use super::Link;
use crate::failure::Reason;
use crate::place::Via;

/// Limit of the callers of an endpoint whose links and destinations are kept.
const MAX_CALLERS: usize = 64;

/// The destination's name on links, for each caller and kind, and the last link that each caller used.
#[derive(Debug, Default)]
pub(crate) struct Linked {
    destinations: RefCell<Vec<Named>>,
    by_caller: RefCell<Vec<(Option<ServiceAccountName>, Weak<Link>)>>,
}

/// The encoded destination of a caller's streams to the endpoint.
#[derive(Debug)]
struct Named {
    caller: Option<WorkloadName>,
    kind: Kind,
    destination: Rc<[u8]>,
}

/// An endpoint behind another node's proxy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Far<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) via: &'a Arc<Via>,
    /// The calling workload, which is named to the other node.
    pub(crate) caller: Option<&'a WorkloadName>,
    pub(crate) linked: &'a Linked,
}

impl Far<'_> {
    /// The encoded destination of a stream to it.
    ///
    /// # Errors
    /// When its Service's name cannot be encoded, which does not occur for Services of a mesh.
    pub(crate) fn destination(&self, kind: Kind) -> Result<Rc<[u8]>, Reason> {
        let Far {
            address,
            via,
            caller,
            linked,
        } = *self;
        let mut kept = linked.destinations.borrow_mut();
        let mut known = kept.iter();
        let known = known.find(|named| named.kind == kind && named.caller.as_ref() == caller);
        if let Some(known) = known {
            return Ok(Rc::clone(&known.destination));
        }
        let mut bytes = Vec::new();
        let written = Preface {
            kind,
            endpoint: address,
            namespace: via.service.namespace.as_str(),
            service: via.service.name.as_str(),
            port: via.port,
            caller: caller.map(|caller| caller.name.as_str()),
        }
        .write_to(&mut bytes);
        written.map_err(|_| Reason::ServiceGone)?;
        let destination: Rc<[u8]> = bytes.into();
        if kept.len() >= MAX_CALLERS {
            // Most of that many callers no longer exist.
            kept.clear();
        }
        kept.push(Named {
            caller: caller.cloned(),
            kind,
            destination: Rc::clone(&destination),
        });
        Ok(destination)
    }
}

impl Linked {
    /// The link that this caller used last.
    pub(super) fn link_of(&self, caller: Option<&ServiceAccountName>) -> Option<Rc<Link>> {
        let known = self.by_caller.borrow();
        let mut known = known.iter();
        let (_, link) = known.find(|(other, _)| other.as_ref() == caller)?;
        link.upgrade()
    }

    pub(super) fn keep_link(&self, caller: Option<&ServiceAccountName>, link: &Rc<Link>) {
        let mut known = self.by_caller.borrow_mut();
        known.retain(|(other, link)| other.as_ref() != caller && link.strong_count() > 0);
        if known.len() < MAX_CALLERS {
            known.push((caller.cloned(), Rc::downgrade(link)));
        }
    }
}
