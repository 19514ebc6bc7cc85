//! Keeps rooms from one configuration to the next: taken permits stay taken, and requests that wait continue to wait.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::RandomState;
use heddle_model::{Service, ServiceName, ServicePort};

use super::{Line, Room, Rooms, UNLIMITED};

/// The rooms of the process, by Service and port.
#[derive(Debug)]
pub(crate) struct Keeper {
    epoch: Instant,
    ports: HashMap<(ServiceName, u16), Kept, RandomState>,
}

#[derive(Debug, Default)]
struct Kept {
    line: Arc<Line>,
    /// The rooms of the newest configuration, and older ones that still have a request.
    rooms: BTreeMap<SocketAddr, Arc<Room>>,
    newest: Option<Arc<Rooms>>,
}

impl Keeper {
    pub(crate) fn new(epoch: Instant) -> Self {
        Keeper {
            epoch,
            ports: HashMap::default(),
        }
    }

    /// The rooms of a port's endpoints; those at `addresses` can be reached. `None` if the endpoints have no limits, no
    /// ejection and no slow start.
    pub(crate) fn rooms(
        &mut self,
        service: &Service,
        port: &ServicePort,
        addresses: &[SocketAddr],
        now: Instant,
    ) -> Option<Arc<Rooms>> {
        let balancing = &service.balancing;
        let is_limited = port.endpoints.iter().any(|one| one.max_requests.is_some());
        let key = (service.name.clone(), port.port);
        if !is_limited && balancing.ejection.is_none() && balancing.slow_start_ms == 0 {
            self.ports.remove(&key);
            return None;
        }
        let is_first = !self.ports.contains_key(&key);
        let kept = self.ports.entry(key).or_default();
        let most = usize::try_from(balancing.line.max_waiting).unwrap_or(usize::MAX);
        kept.line.bound(most, balancing.line.max_wait_ms);
        let mut rooms = Rooms {
            each: Box::default(),
            line: Arc::clone(&kept.line),
            ejection: balancing.ejection,
            slow_start_ms: balancing.slow_start_ms,
            epoch: self.epoch,
        };
        let now = rooms.ms(now);
        let before = kept.newest.take();
        let mut endpoints = port.endpoints.iter();
        let each = addresses.iter().map(|&address| {
            // It is not known how long the port's first endpoints have existed.
            let since = if is_first { 0 } else { now };
            let room = kept.rooms.entry(address);
            let room = room.or_insert_with(|| Arc::new(Room::new(address, &kept.line, since)));
            if !is_first && !before.as_deref().is_some_and(|before| before.has(room)) {
                room.returns(now);
            }
            // `addresses` and `port.endpoints` are in the same order.
            let endpoint = endpoints.find(|endpoint| endpoint.address == address);
            let limit = endpoint.and_then(|endpoint| endpoint.max_requests);
            room.limit(limit.unwrap_or(UNLIMITED));
            Arc::clone(room)
        });
        rooms.each = each.collect();
        kept.rooms
            .retain(|_, room| rooms.has(room) || room.is_used());
        let rooms = match before {
            // The same `Arc` shows waiting requests that nothing has changed.
            Some(before) if before.is_like(&rooms) => before,
            _ => Arc::new(rooms),
        };
        // Limits may have risen.
        rooms.serve(now);
        kept.newest = Some(Arc::clone(&rooms));
        Some(rooms)
    }

    /// Forgets the ports for which `is_there` is false.
    pub(crate) fn forget(&mut self, is_there: impl Fn(&ServiceName, u16) -> bool) {
        self.ports
            .retain(|(service, port), _| is_there(service, *port));
    }
}

#[cfg(test)]
mod tests;
