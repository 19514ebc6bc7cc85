//! Chooses the endpoint for a request or a connection, from what this Worker knows and from what all Workers share.

use std::rc::Rc;

use heddle_model::Balancer;

use super::{Bound, Worker};
use crate::balance::{Choice, FULL_SHARE, Load, cost};
use crate::clock::Millis;
use crate::failure::Reason;
use crate::route::PortIndex;
use crate::upstream::{Endpoint, Lease};

/// Limit of repeated choices, when another request has taken the last permit of the chosen endpoint in the meantime.
const MAX_CHOICES: usize = 4;

impl Worker {
    /// Chooses an endpoint of a port for an opaque connection, avoiding the one that `failed` if there is another.
    /// Opaque connections need no request permit of the endpoint.
    ///
    /// # Errors
    /// When the port has no endpoint.
    pub(crate) fn choose(
        &self,
        bound: &Bound,
        port: PortIndex,
        failed: Option<&Rc<Endpoint>>,
    ) -> Result<Rc<Endpoint>, Reason> {
        if let Some(only) = bound.only(port) {
            return Ok(Rc::clone(only));
        }
        let load = self.loads(bound, port, failed);
        let roomy = |index: usize, endpoint: &Endpoint| Load {
            full: false,
            ..load(index, endpoint)
        };
        let chosen = bound.choose(port, &mut self.random.borrow_mut(), None, roomy);
        match chosen {
            Choice::At(index) => bound.endpoint(port, index).map(Rc::clone),
            Choice::Full | Choice::NoEndpoint => None,
        }
        .ok_or(Reason::NoEndpoint)
    }

    /// Chooses an endpoint of a port for a request in the same way, and takes one of its permits. `None`: there are
    /// endpoints, but none has a permit left, or other requests wait already.
    ///
    /// # Errors
    /// When the port has no endpoint.
    pub(crate) fn lease(
        &self,
        bound: &Bound,
        port: PortIndex,
        failed: Option<&Rc<Endpoint>>,
        hash: Option<u64>,
    ) -> Result<Option<Lease>, Reason> {
        let rooms = bound.snapshot.port(port).cluster.rooms.as_ref();
        if let (None, Some(only)) = (rooms, bound.only(port)) {
            return Ok(Some(Lease::new(Rc::clone(only))));
        }
        if rooms.is_some_and(|rooms| rooms.has_line()) {
            return Ok(None);
        }
        let load = self.loads(bound, port, failed);
        for _ in 0..MAX_CHOICES {
            let index = match bound.choose(port, &mut self.random.borrow_mut(), hash, &load) {
                Choice::At(index) => index,
                Choice::Full => return Ok(None),
                Choice::NoEndpoint => return Err(Reason::NoEndpoint),
            };
            let endpoint = bound.endpoint(port, index).ok_or(Reason::NoEndpoint)?;
            let permit = match rooms {
                None => None,
                Some(rooms) => match rooms.at(index).and_then(|room| room.take()) {
                    None => continue,
                    permit => permit,
                },
            };
            return Ok(Some(Lease::with(Rc::clone(endpoint), permit)));
        }
        Ok(None)
    }

    /// Takes a permit of the endpoint that another node or the client has chosen. `None`: it has none left, or other
    /// requests wait already.
    pub(crate) fn lease_at(
        &self,
        bound: &Bound,
        port: PortIndex,
        endpoint: Rc<Endpoint>,
    ) -> Option<Lease> {
        let Some(room) = bound.room(port, endpoint.address) else {
            return Some(Lease::new(endpoint));
        };
        let rooms = bound.snapshot.port(port).cluster.rooms.as_ref();
        if rooms.is_some_and(|rooms| rooms.has_line()) {
            return None;
        }
        let permit = room.take()?;
        Some(Lease::with(endpoint, Some(permit)))
    }

    /// How much longer an endpoint is avoided because its node accepts no connections, in milliseconds.
    pub(crate) fn away_for(&self, endpoint: &Endpoint, now: Millis) -> Millis {
        let via = endpoint.place.via();
        via.map_or(0, |via| self.peers.away_for(via.node, now))
    }

    /// Returns a function that gives the present load of each endpoint of a port.
    fn loads<'a>(
        &self,
        bound: &'a Bound,
        port: PortIndex,
        failed: Option<&'a Rc<Endpoint>>,
    ) -> impl Fn(usize, &Endpoint) -> Load + use<'a, '_> {
        let now = self.clock.now_ms();
        let cluster = &bound.snapshot.port(port).cluster;
        let rooms = cluster.rooms.as_ref();
        let rooms = rooms.map(|rooms| (rooms, rooms.ms(self.clock.now())));
        let by_latency = cluster.balancer == Balancer::PeakEwma;
        let now_us = if by_latency { self.clock.now_us() } else { 0 };
        move |index, endpoint| {
            let busy = self.upstreams.load(endpoint, now);
            let was_tried = failed.is_some_and(|failed| std::ptr::eq(&**failed, endpoint));
            let mut active = busy.active;
            let mut load = Load {
                cost: 0,
                share: FULL_SHARE,
                avoid: busy.avoid || was_tried || self.away_for(endpoint, now) > 0,
                full: false,
            };
            if let Some(standing) = rooms.and_then(|(rooms, now)| rooms.standing(index, now)) {
                active = standing.used;
                load.share = standing.share;
                load.avoid |= !standing.is_open;
                load.full = standing.is_full;
            }
            load.cost = match by_latency {
                true => cost(endpoint.latency.get(), active, now_us),
                false => u64::from(active) + 1,
            };
            load
        }
    }
}
