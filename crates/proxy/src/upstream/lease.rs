//! An endpoint that was chosen for a request.

use std::rc::Rc;

use super::Endpoint;
use crate::rooms::RequestPermit;

/// An endpoint that was chosen for a request. Counts as the endpoint's load until dropped, and holds one of its permits
/// if it has a request limit.
#[derive(Debug)]
pub(crate) struct Lease {
    endpoint: Rc<Endpoint>,
    permit: Option<RequestPermit>,
}

impl Lease {
    pub(crate) fn new(endpoint: Rc<Endpoint>) -> Self {
        Lease::with(endpoint, None)
    }

    pub(crate) fn with(endpoint: Rc<Endpoint>, permit: Option<RequestPermit>) -> Self {
        endpoint.active.set(endpoint.active.get() + 1);
        Lease { endpoint, permit }
    }

    pub(crate) fn endpoint(&self) -> &Rc<Endpoint> {
        &self.endpoint
    }

    pub(crate) fn permit(&self) -> Option<&RequestPermit> {
        self.permit.as_ref()
    }

    /// Takes the permit out, to drop it or to move it to another Worker.
    pub(crate) fn take_permit(&mut self) -> Option<RequestPermit> {
        self.permit.take()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let active = &self.endpoint.active;
        active.set(active.get().saturating_sub(1));
    }
}
