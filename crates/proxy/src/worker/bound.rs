//! A configuration snapshot bound to one Worker: its endpoints refer to the Worker's own entries, and the series of its
//! routes are at hand.

use std::cell::{Cell, OnceCell, RefCell};
use std::iter;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use heddle_model::Balancer;

use crate::balance::{self, Budget, Choice, Load, Picker, Random};
use crate::clock::Millis;
use crate::place::Pods;
use crate::place::{Place, Way};
use crate::rooms::Room;
use crate::route::{Found, PortEntry, PortIndex, Snapshot};
use crate::upstream::{Endpoint, Upstreams};
use crate::worker::series::RequestSeries;

#[cfg(test)]
mod tests;

/// A snapshot and the state that one Worker keeps for it.
pub(crate) struct Bound {
    pub(crate) snapshot: Arc<Snapshot>,
    /// By port, in the order of the snapshot.
    ports: Vec<BoundPort>,
    pods: Arc<Pods>,
    upstreams: Rc<Upstreams>,
    pub(crate) series: RequestSeries,
}

/// What a Worker has of a port.
#[derive(Default)]
struct BoundPort {
    /// The Worker's entries for the endpoints. They are looked up when the port is first used: of the ports that a node
    /// knows, most Workers use few.
    endpoints: OnceCell<Rc<[Rc<Endpoint>]>>,
    /// Number of endpoint choices made so far.
    turn: Cell<u64>,
    /// Counts of recent requests and retries; `None` before the first request.
    budget: RefCell<Option<Box<Budget>>>,
}

/// The Worker's entries for the endpoints of a port.
#[cold]
fn endpoints(port: &PortEntry, pods: &Pods, upstreams: &Upstreams) -> Rc<[Rc<Endpoint>]> {
    let bind = |(index, place): (usize, &Place)| {
        let workload = port.workload_at(place.address);
        let endpoint = match workload.and_then(|workload| pods.of(workload)) {
            Some(pod) => upstreams.endpoint(&Place {
                address: place.address,
                way: Way::Inside(pod),
            }),
            None => upstreams.endpoint(place),
        };
        endpoint.is_configured();
        endpoint.stands_for(port.cluster.workload(index));
        endpoint
    };
    let places = port.cluster.endpoints.iter();
    places.enumerate().map(bind).collect()
}

impl Bound {
    pub(crate) fn new(snapshot: Arc<Snapshot>, pods: Arc<Pods>, upstreams: Rc<Upstreams>) -> Self {
        let ports = snapshot.ports().iter();
        Bound {
            ports: ports.map(|_| BoundPort::default()).collect(),
            snapshot,
            pods,
            upstreams,
            series: RequestSeries::default(),
        }
    }

    /// Binds the next snapshot. What this Worker has of a port stays while it is the same. Turns and retry budgets stay
    /// even if it has changed: otherwise every change would restart with the first endpoint, and the last would never
    /// have a turn.
    pub(crate) fn followed_by(&self, snapshot: Arc<Snapshot>) -> Self {
        let before = self.snapshot.ports().iter().zip(&self.ports);
        let before = before.map(Some).chain(iter::repeat(None));
        let follow = |(entry, before): (&Arc<PortEntry>, Option<(&Arc<PortEntry>, &BoundPort)>)| {
            let Some((was, port)) = before else {
                return BoundPort::default();
            };
            if Arc::ptr_eq(was, entry) {
                return port.with(port.endpoints.clone());
            }
            if entry.name.is_none() || entry.name != was.name {
                return BoundPort::default();
            }
            // Connections to endpoints that are still there stay open.
            let is_used = port.endpoints.get().is_some();
            let endpoints = is_used.then(|| endpoints(entry, &self.pods, &self.upstreams));
            port.with(endpoints.map_or_else(OnceCell::new, OnceCell::from))
        };
        Bound {
            ports: snapshot.ports().iter().zip(before).map(follow).collect(),
            snapshot,
            pods: Arc::clone(&self.pods),
            upstreams: Rc::clone(&self.upstreams),
            series: RequestSeries::default(),
        }
    }

    /// Whether all ports of another one are the same here.
    pub(crate) fn has_all_of(&self, other: &Bound) -> bool {
        let [now, before] = [self, other].map(|one| one.snapshot.ports());
        let mut pairs = before.iter().zip(now);
        before.len() <= now.len() && pairs.all(|(before, now)| Arc::ptr_eq(before, now))
    }

    /// Binds the same snapshot again after workloads have moved to other pods. Only the ports that have workloads of
    /// this node are bound anew: a mesh may have many more endpoints than a node has workloads, and pods come and go.
    pub(crate) fn with_pods(&self, pods: Arc<Pods>) -> Self {
        let ports = self.ports.iter();
        let mut ports: Vec<BoundPort> = ports
            .map(|port| port.with(port.endpoints.clone()))
            .collect();
        for index in self.snapshot.with_workloads() {
            if let Some(bound) = ports[index.get()].endpoints.get_mut() {
                *bound = endpoints(self.snapshot.port(index), &pods, &self.upstreams);
            }
        }
        Bound {
            snapshot: Arc::clone(&self.snapshot),
            ports,
            pods,
            upstreams: Rc::clone(&self.upstreams),
            // A task that continues with the old `Bound` looks its series up again.
            series: self.series.take(),
        }
    }

    /// The Worker's entries for the endpoints of a port.
    fn endpoints(&self, port: PortIndex) -> &[Rc<Endpoint>] {
        let Some(bound) = self.ports.get(port.get()) else {
            return &[];
        };
        bound.endpoints.get_or_init(|| {
            let entry = self.snapshot.port(port);
            endpoints(entry, &self.pods, &self.upstreams)
        })
    }

    /// Looks the endpoints of a port up, if it is the one that a place belongs to: the entry of the place is one of
    /// theirs then.
    pub(crate) fn expect(&self, place: &Place) {
        let port = match &place.way {
            Way::Through(via) => self.snapshot.find(&via.service, via.port),
            Way::Envoy(envoy) => self.snapshot.find(&envoy.service, envoy.port),
            Way::Here | Way::Inside(_) | Way::Outside(_) => {
                match self.snapshot.addresses.find(place.address) {
                    Found::Endpoint(port) => Some(port),
                    _ => None,
                }
            }
        };
        if let Some(port) = port {
            self.use_port(port);
        }
    }

    /// Looks the endpoints of a port up, so that entries for the same places are theirs.
    pub(crate) fn use_port(&self, port: PortIndex) {
        self.endpoints(port);
    }

    /// Chooses among the endpoints of a port by `load`, which gets an endpoint and its index. With a ring-hash
    /// balancer, `hash` determines the endpoint.
    pub(crate) fn choose(
        &self,
        port: PortIndex,
        random: &mut Random,
        hash: Option<u64>,
        load: impl Fn(usize, &Endpoint) -> Load,
    ) -> Choice {
        let Some(bound) = self.ports.get(port.get()) else {
            return Choice::NoEndpoint;
        };
        let endpoints = self.endpoints(port);
        let turn = bound.turn.get();
        bound.turn.set(turn.wrapping_add(1));
        let wanted = &self.snapshot.port(port).cluster;
        let picker = match (wanted.balancer, &wanted.hashed, hash) {
            (Balancer::RoundRobin, ..) => Picker::Turn(turn),
            (_, Some(hashed), Some(hash)) => Picker::Ring(&hashed.ring, hash),
            (Balancer::PeakEwma, ..) => Picker::Faster,
            _ => Picker::LessBusy,
        };
        balance::choose(picker, &wanted.schedule, random.next(), |index| {
            let endpoint = endpoints.get(index);
            endpoint.map_or(Load::NONE, |endpoint| load(index, endpoint))
        })
    }

    /// The endpoint of a port that has exactly one.
    pub(crate) fn only(&self, port: PortIndex) -> Option<&Rc<Endpoint>> {
        match self.endpoints(port) {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The endpoint of a port at this index.
    pub(crate) fn endpoint(&self, port: PortIndex, index: usize) -> Option<&Rc<Endpoint>> {
        self.endpoints(port).get(index)
    }

    /// The room of the port's endpoint with this address, if its endpoints have rooms.
    pub(crate) fn room(&self, port: PortIndex, address: SocketAddr) -> Option<&Arc<Room>> {
        let cluster = &self.snapshot.port(port).cluster;
        let rooms = cluster.rooms.as_ref()?;
        rooms.at(cluster.position(address)?)
    }

    /// Counts a request for a port.
    pub(crate) fn count_request(&self, port: PortIndex, now: Millis) {
        if let Some(bound) = self.ports.get(port.get()) {
            let mut budget = bound.budget.borrow_mut();
            budget.get_or_insert_default().request(now);
        }
    }

    /// Whether a request for a port may be retried, as one of `workers` Workers judges. If so, the retry is counted.
    pub(crate) fn take_retry(&self, port: PortIndex, now: Millis, workers: usize) -> bool {
        let rules = &self.snapshot.port(port).cluster.retry_budget;
        let Some(bound) = self.ports.get(port.get()) else {
            return false;
        };
        let mut budget = bound.budget.borrow_mut();
        budget.get_or_insert_default().retry(rules, now, workers)
    }

    /// The endpoint of a port that has this address.
    pub(crate) fn at(&self, port: PortIndex, address: SocketAddr) -> Option<&Rc<Endpoint>> {
        let position = self.snapshot.port(port).cluster.position(address)?;
        self.endpoints(port).get(position)
    }
}

impl BoundPort {
    /// The same with other entries. The retry budget moves: requests that go on with the old one begin another.
    fn with(&self, endpoints: OnceCell<Rc<[Rc<Endpoint>]>>) -> Self {
        BoundPort {
            endpoints,
            turn: self.turn.clone(),
            budget: RefCell::new(self.budget.take()),
        }
    }
}
