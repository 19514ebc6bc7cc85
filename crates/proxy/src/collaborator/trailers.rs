//! Decides which trailers are passed on: a field that a route sets or removes, or that a policy checks in the head,
//! must not come back after the body, where a server may treat it like a field of the head.

use std::net::SocketAddr;

use heddle_model::{Filters, HeaderEdits};
use heddle_wire::http1::may_be_trailer;

use super::edits::takes_out;
use super::exchange::Exchange;
use crate::authorize::Guards;
use crate::door::Door;
use crate::pump::Pump;
use crate::route::Rule;

/// The rules about the trailers of an exchange. Used only if there are trailers.
pub(super) struct Trailers<'a> {
    rule: Option<&'a Rule>,
    /// Index in the rule's backends.
    backend: usize,
    guards: &'a Guards,
    door: &'a Door,
    endpoint: Option<SocketAddr>,
}

impl Exchange {
    /// The pump of the request's body, and the rules about its trailers.
    pub(super) fn upload<'a>(&'a mut self, door: &'a Door) -> (&'a mut Pump, Trailers<'a>) {
        let (upload, _, trailers) = self.bodies(door);
        (upload, trailers)
    }

    /// The pump of the response's body, and the rules about its trailers.
    pub(super) fn download<'a>(&'a mut self, door: &'a Door) -> (&'a mut Pump, Trailers<'a>) {
        let (_, download, trailers) = self.bodies(door);
        (download, trailers)
    }

    fn bodies<'a>(&'a mut self, door: &'a Door) -> (&'a mut Pump, &'a mut Pump, Trailers<'a>) {
        let trailers = Trailers {
            rule: self.decision.rule(),
            backend: self.decision.backend as usize,
            guards: &self.decision.bound.snapshot.guards,
            door,
            endpoint: self.tried.as_ref().map(|endpoint| endpoint.address),
        };
        (
            &mut self.request.upload,
            &mut self.response.download,
            trailers,
        )
    }
}

impl Trailers<'_> {
    /// Whether a trailer of the request is passed on to the endpoint.
    pub(super) fn keep_of_request(&self, name: &[u8]) -> bool {
        may_be_trailer(name)
            && !self.is_taken_out(name, |filters| &filters.request)
            && !self
                .endpoint
                .is_some_and(|endpoint| self.guards.look_at_header(self.door, endpoint, name))
    }

    /// Whether a trailer of the response is passed on to the client.
    pub(super) fn keep_of_response(&self, name: &[u8]) -> bool {
        may_be_trailer(name) && !self.is_taken_out(name, |filters| &filters.response)
    }

    fn is_taken_out(&self, name: &[u8], of: impl Fn(&Filters) -> &HeaderEdits) -> bool {
        self.rule.is_some_and(|rule| {
            let backend = rule.action.backends.get(self.backend);
            takes_out(of(&rule.action.route.filters), name)
                || backend.is_some_and(|backend| takes_out(of(&backend.filters), name))
        })
    }
}
