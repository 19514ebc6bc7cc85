//! One endpoint, as one Worker knows it.

use std::cell::{Cell, Ref, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use heddle_model::{ServiceAccountName, WorkloadName};

use super::idle::Idle;
use super::turn::Open;
use crate::balance::Ewma;
use crate::clock::Millis;
use crate::http2::Reached;
use crate::link::{Far, Linked};
use crate::place::Place;
use crate::place::Via;

/// How long no handshake is tried for a caller after one was refused, in milliseconds.
const REFUSED_MS: Millis = 500;
/// How long connections to an endpoint are not reused after it has sent data on an idle one, in milliseconds.
const DISTRUST_MS: Millis = 60_000;
/// Limit of callers whose refusal is remembered, for each endpoint.
const MAX_REFUSALS: usize = 64;

#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) place: Place,
    /// The endpoint's own address, even if its node is dialled instead.
    pub(crate) address: SocketAddr,
    /// The address as the log shows it.
    pub(crate) label: Box<str>,
    /// Name of the workload behind it, in metrics and in the access log.
    workload: RefCell<Option<Arc<str>>>,
    /// Unique among all endpoints that the Worker has or had.
    pub(crate) id: u32,
    /// Requests in progress.
    pub(super) active: Cell<u32>,
    /// Its response latency, if that is measured.
    pub(crate) latency: Cell<Ewma>,
    pub(super) open: Rc<Open>,
    pub(super) idle: RefCell<Vec<Idle>>,
    pub(super) failures: Cell<u32>,
    pub(super) avoid_until: Cell<Millis>,
    /// Callers whose handshakes were refused, and until when none is tried for them.
    refusals: RefCell<Vec<(Option<ServiceAccountName>, Millis)>>,
    /// When its failure was last logged; 0 if never.
    pub(super) said: Cell<Millis>,
    /// Whether the present series of failures was logged.
    pub(super) told: Cell<bool>,
    /// Whether the configuration contains it. Endpoints that only callers name are not logged.
    pub(super) configured: Cell<bool>,
    /// Until when its connections are not reused, because it has sent data that no request asked for.
    pub(super) distrusted_until: Cell<Millis>,
    /// Its pod does not exist any more: no connection to it is kept.
    pub(super) gone: Cell<bool>,
    /// Its names and links, for streams of links.
    pub(crate) linked: Linked,
    /// The same for HTTP/2.
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

    /// The data with which it is reached through another node, on behalf of that workload.
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

    /// Sets the workload behind it, from the present configuration.
    pub(crate) fn stands_for(&self, workload: Option<&Arc<str>>) {
        let mut known = self.workload.borrow_mut();
        if known.as_ref() != workload {
            *known = workload.cloned();
        }
    }

    /// The name of the workload behind it, if it belongs to the mesh.
    pub(crate) fn workload(&self) -> Ref<'_, Option<Arc<str>>> {
        self.workload.borrow()
    }

    /// How much longer it is avoided after `now` because connecting to it failed, in milliseconds.
    pub(crate) fn avoided_for(&self, now: Millis) -> Millis {
        self.avoid_until.get().saturating_sub(now)
    }

    /// Records that the configuration contains it.
    pub(crate) fn is_configured(&self) {
        self.configured.set(true);
    }

    /// Records that it has sent data between two requests, such as a second response. The next time, such data could
    /// arrive while another request is in progress, whose client would take it for its own response.
    pub(crate) fn spoke_out_of_turn(&self, now: Millis) {
        let until = now.saturating_add(DISTRUST_MS);
        let before = self.distrusted_until.replace(until);
        if before <= now {
            tracing::warn!(
                endpoint = %self.label,
                seconds = DISTRUST_MS / 1000,
                "an endpoint has sent data that no request asked for: its connections are not reused for a while"
            );
        }
    }

    /// Whether a connection between two requests may be used for another one.
    pub(super) fn may_keep(&self, now: Millis) -> bool {
        !self.gone.get() && self.distrusted_until.get() <= now
    }

    /// Whether a handshake for this caller was refused a moment ago. A handshake costs both nodes more than many
    /// requests: a caller that is refused must not cause one for each of its requests.
    pub(crate) fn refuses(&self, caller: Option<&ServiceAccountName>, now: Millis) -> bool {
        let refusals = self.refusals.borrow();
        let mut refusals = refusals.iter();
        refusals.any(|(refused, until)| refused.as_ref() == caller && now < *until)
    }

    /// Records that a handshake for this caller was refused.
    pub(crate) fn refused(&self, caller: Option<ServiceAccountName>, now: Millis) {
        let mut refusals = self.refusals.borrow_mut();
        refusals.retain(|(refused, until)| *refused != caller && now < *until);
        if refusals.len() < MAX_REFUSALS {
            refusals.push((caller, now.saturating_add(REFUSED_MS)));
        }
    }
}
