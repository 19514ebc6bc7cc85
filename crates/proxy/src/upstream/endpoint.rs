//! One endpoint: what a Worker knows of it.

use std::cell::{Cell, Ref, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use heddle_model::{ServiceAccountName, WorkloadName};

use super::idle::Idle;
use crate::balance::Ewma;
use crate::clock::Millis;
use crate::http2::Reached;
use crate::link::{Far, Linked};
use crate::place::Place;
use crate::place::Via;

/// How long a handshake that was refused is not tried again for the same caller, in milliseconds.
const REFUSED_MS: Millis = 500;
/// For how long no connection is used again to an endpoint that has said something on an idle one, in
/// milliseconds.
const DISTRUST_MS: Millis = 60_000;
/// Callers of which that is remembered, for each endpoint.
const MAX_REFUSALS: usize = 64;

/// One endpoint.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) place: Place,
    /// Its own address, even where its node is dialled instead.
    pub(crate) address: SocketAddr,
    /// The address as the log of events shows it.
    pub(crate) label: Box<str>,
    /// The workload behind it, in metrics and in the access log.
    workload: RefCell<Option<Arc<str>>>,
    /// No other endpoint of the Worker has or had the same.
    pub(crate) id: u32,
    /// Requests under way.
    pub(super) active: Cell<u32>,
    /// How long it takes to answer, where that is measured.
    pub(crate) latency: Cell<Ewma>,
    /// Connections, idle ones and those in the making included.
    pub(super) open: Rc<Cell<u32>>,
    pub(super) idle: RefCell<Vec<Idle>>,
    pub(super) failures: Cell<u32>,
    pub(super) avoid_until: Cell<Millis>,
    /// Callers whose handshakes were refused, and until when it is not tried again in their names.
    refusals: RefCell<Vec<(Option<ServiceAccountName>, Millis)>>,
    /// When it was last said in the log that it fails; 0 if never.
    pub(super) said: Cell<Millis>,
    /// Whether that was said of the failures that last.
    pub(super) told: Cell<bool>,
    /// The configuration names it. Of others, which callers name, the log does not speak.
    pub(super) configured: Cell<bool>,
    /// It has said what no request asked for: until when none of its connections is used again.
    pub(super) distrusted_until: Cell<Millis>,
    /// The pod that it was reached in is none any more: no connection there is kept.
    pub(super) gone: Cell<bool>,
    /// How it is named on links.
    pub(crate) linked: Linked,
    /// The same over HTTP/2.
    pub(crate) reached: Reached,
}

impl Endpoint {
    pub(super) fn new(place: Place, id: u32) -> Self {
        let address = place.address;
        Endpoint {
            label: address.to_string().into(),
            workload: RefCell::default(),
            id,
            address,
            place,
            active: Cell::new(0),
            latency: Cell::default(),
            open: Rc::default(),
            idle: RefCell::default(),
            failures: Cell::new(0),
            avoid_until: Cell::new(0),
            refusals: RefCell::default(),
            said: Cell::new(0),
            told: Cell::new(false),
            configured: Cell::new(false),
            distrusted_until: Cell::new(0),
            gone: Cell::new(false),
            linked: Linked::default(),
            reached: Reached::default(),
        }
    }

    /// What finds it on another node, through which it is reached for that workload.
    pub(crate) fn far<'a>(
        &'a self,
        via: &'a Arc<Via>,
        caller: Option<&'a WorkloadName>,
    ) -> Far<'a> {
        Far {
            address: self.address,
            via,
            caller,
            linked: &self.linked,
        }
    }

    /// This workload is behind it, as the configuration of now says.
    pub(crate) fn stands_for(&self, workload: Option<&Arc<str>>) {
        let mut known = self.workload.borrow_mut();
        if known.as_ref() != workload {
            *known = workload.cloned();
        }
    }

    /// The workload behind it, if it is one of the mesh.
    pub(crate) fn workload(&self) -> Ref<'_, Option<Arc<str>>> {
        self.workload.borrow()
    }

    /// For how long it is passed over from `now` on, in milliseconds, since it could not be connected to.
    pub(crate) fn avoided_for(&self, now: Millis) -> Millis {
        self.avoid_until.get().saturating_sub(now)
    }

    /// The configuration names it.
    pub(crate) fn is_configured(&self) {
        self.configured.set(true);
    }

    /// It has said something between two requests, such as a second answer. The next time that may come at the
    /// moment when another request is on its way, whose client would take it for its own.
    pub(crate) fn spoke_out_of_turn(&self, now: Millis) {
        let until = now.saturating_add(DISTRUST_MS);
        let before = self.distrusted_until.replace(until);
        if before <= now {
            tracing::warn!(
                endpoint = %self.label,
                seconds = DISTRUST_MS / 1000,
                "an endpoint has sent what no request asked for: its connections are not used again for a while"
            );
        }
    }

    /// Whether a connection that is between two requests may carry another one.
    pub(super) fn may_keep(&self, now: Millis) -> bool {
        !self.gone.get() && self.distrusted_until.get() <= now
    }

    /// Whether a handshake in the name of a caller was refused a moment ago. Each costs both nodes more than
    /// many requests: a caller that is shut out must not make them as fast as it asks.
    pub(crate) fn refuses(&self, caller: Option<&ServiceAccountName>, now: Millis) -> bool {
        let refusals = self.refusals.borrow();
        let mut refusals = refusals.iter();
        refusals.any(|(refused, until)| refused.as_ref() == caller && now < *until)
    }

    /// A handshake in the name of a caller was refused.
    pub(crate) fn refused(&self, caller: Option<ServiceAccountName>, now: Millis) {
        let mut refusals = self.refusals.borrow_mut();
        refusals.retain(|(refused, until)| *refused != caller && now < *until);
        if refusals.len() < MAX_REFUSALS {
            refusals.push((caller, now.saturating_add(REFUSED_MS)));
        }
    }
}
