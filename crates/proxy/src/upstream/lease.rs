//! A request's claim on an endpoint.

use std::rc::Rc;

use super::Endpoint;
use crate::rooms::Seat;

/// A request's claim on an endpoint: counts as its load until dropped, and takes one of its places where it has
/// so many.
#[derive(Debug)]
pub(crate) struct Lease {
    endpoint: Rc<Endpoint>,
    seat: Option<Seat>,
}

impl Lease {
    pub(crate) fn new(endpoint: Rc<Endpoint>) -> Self {
        Lease::with(endpoint, None)
    }

    pub(crate) fn with(endpoint: Rc<Endpoint>, seat: Option<Seat>) -> Self {
        endpoint.active.set(endpoint.active.get() + 1);
        Lease { endpoint, seat }
    }

    pub(crate) fn endpoint(&self) -> &Rc<Endpoint> {
        &self.endpoint
    }

    pub(crate) fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref()
    }

    /// Gives up its place, or takes it elsewhere.
    pub(crate) fn take_seat(&mut self) -> Option<Seat> {
        self.seat.take()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let active = &self.endpoint.active;
        active.set(active.get().saturating_sub(1));
    }
}
