//! A configuration snapshot bound to one Worker: its endpoints refer to the Worker's own entries, and the series of its
//! routes are at hand.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use heddle_model::Balancer;

use crate::balance::{self, Budget, Choice, Load, Picker, Random};
use crate::clock::Millis;
use crate::place::Pods;
use crate::place::{Place, Way};
use crate::rooms::Room;
use crate::route::{PortEntry, PortIndex, Snapshot};
use crate::upstream::{Endpoint, Upstreams};
use crate::worker::series::RequestSeries;

/// A snapshot and the state that one Worker keeps for it.
pub(crate) struct Bound {
    pub(crate) snapshot: Arc<Snapshot>,
    /// By port, in the order of the snapshot.
    clusters: Vec<BoundCluster>,
    pub(crate) series: RequestSeries,
}

struct BoundCluster {
    endpoints: Rc<[Rc<Endpoint>]>,
    /// Number of endpoint choices made so far.
    turn: Cell<u64>,
    /// Counts of recent requests and retries; `None` before the first request.
    budget: RefCell<Option<Box<Budget>>>,
}

/// The Worker's entries for the endpoints of a port.
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
    pub(crate) fn new(snapshot: Arc<Snapshot>, pods: &Pods, upstreams: &Upstreams) -> Self {
        let ports = snapshot.ports().iter();
        let clusters = ports
            .map(|port| BoundCluster {
                endpoints: endpoints(port, pods, upstreams),
                turn: Cell::new(0),
                budget: RefCell::default(),
            })
            .collect();
        Bound {
            snapshot,
            clusters,
            series: RequestSeries::default(),
        }
    }

    /// Binds the same snapshot again after workloads have moved to other pods. Only the ports that have workloads of
    /// this node are bound anew: a mesh may have many more endpoints than a node has workloads, and pods come and go.
    pub(crate) fn with_pods(&self, pods: &Pods, upstreams: &Upstreams) -> Self {
        let ports = self.snapshot.ports().iter().zip(&self.clusters);
        let clusters = ports.map(|(port, cluster)| BoundCluster {
            endpoints: match port.has_workloads() {
                true => endpoints(port, pods, upstreams),
                false => Rc::clone(&cluster.endpoints),
            },
            turn: cluster.turn.clone(),
            budget: RefCell::new(cluster.budget.take()),
        });
        Bound {
            snapshot: Arc::clone(&self.snapshot),
            clusters: clusters.collect(),
            // A task that continues with the old `Bound` looks its series up again.
            series: self.series.take(),
        }
    }

    /// Takes over the turns and the retry budgets of the previous configuration.
    pub(crate) fn remember(&self, before: &Bound) {
        for (port, cluster) in before.snapshot.ports().iter().zip(&before.clusters) {
            let Some((service, number)) = port.name.as_ref() else {
                continue;
            };
            if cluster.turn.get() == 0 && cluster.budget.borrow().is_none() {
                // No request has used this port.
                continue;
            }
            let found = self.snapshot.find(service, *number);
            if let Some(now) = found.and_then(|found| self.clusters.get(found.get())) {
                // Without this, every configuration change would restart with the first endpoint, and the last would
                // never have a turn.
                now.turn.set(cluster.turn.get());
                now.budget.replace(cluster.budget.take());
            }
        }
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
        let Some(cluster) = self.clusters.get(port.get()) else {
            return Choice::NoEndpoint;
        };
        let turn = cluster.turn.get();
        cluster.turn.set(turn.wrapping_add(1));
        let wanted = &self.snapshot.port(port).cluster;
        let picker = match (wanted.balancer, &wanted.hashed, hash) {
            (Balancer::RoundRobin, ..) => Picker::Turn(turn),
            (_, Some(hashed), Some(hash)) => Picker::Ring(&hashed.ring, hash),
            (Balancer::PeakEwma, ..) => Picker::Faster,
            _ => Picker::LessBusy,
        };
        balance::choose(picker, &wanted.schedule, random.next(), |index| {
            let endpoint = cluster.endpoints.get(index);
            endpoint.map_or(Load::NONE, |endpoint| load(index, endpoint))
        })
    }

    /// The endpoint of a port that has exactly one.
    pub(crate) fn only(&self, port: PortIndex) -> Option<&Rc<Endpoint>> {
        match &*self.clusters.get(port.get())?.endpoints {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The endpoint of a port at this index.
    pub(crate) fn endpoint(&self, port: PortIndex, index: usize) -> Option<&Rc<Endpoint>> {
        self.clusters.get(port.get())?.endpoints.get(index)
    }

    /// The room of the port's endpoint with this address, if its endpoints have rooms.
    pub(crate) fn room(&self, port: PortIndex, address: SocketAddr) -> Option<&Arc<Room>> {
        let cluster = &self.snapshot.port(port).cluster;
        let rooms = cluster.rooms.as_ref()?;
        rooms.at(cluster.position(address)?)
    }

    /// Counts a request for a port.
    pub(crate) fn count_request(&self, port: PortIndex, now: Millis) {
        if let Some(cluster) = self.clusters.get(port.get()) {
            let mut budget = cluster.budget.borrow_mut();
            budget.get_or_insert_default().request(now);
        }
    }

    /// Whether a request for a port may be retried, as one of `workers` Workers judges. If so, the retry is counted.
    pub(crate) fn take_retry(&self, port: PortIndex, now: Millis, workers: usize) -> bool {
        let rules = &self.snapshot.port(port).cluster.retry_budget;
        let Some(cluster) = self.clusters.get(port.get()) else {
            return false;
        };
        let mut budget = cluster.budget.borrow_mut();
        budget.get_or_insert_default().retry(rules, now, workers)
    }

    /// The endpoint of a port that has this address.
    pub(crate) fn at(&self, port: PortIndex, address: SocketAddr) -> Option<&Rc<Endpoint>> {
        let position = self.snapshot.port(port).cluster.position(address)?;
        self.clusters.get(port.get())?.endpoints.get(position)
    }
}
