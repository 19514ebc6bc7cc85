//! The endpoints of one Service's port, and how one of them is chosen.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use heddle_model::{
    Balancer, Endpoint, HashOn, RetryBudget, Service, ServiceAccountName, ServicePort, WorkloadName,
};

use crate::balance::{Ring, Schedule};
use crate::place::Place;
use crate::rooms::Rooms;

/// The endpoints of one Service's port.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) balancer: Balancer,
    pub(crate) endpoints: Vec<Place>,
    pub(crate) schedule: Schedule,
    /// The ring, with the `RingHash` balancer.
    pub(crate) hashed: Option<Box<Hashed>>,
    pub(crate) retry_budget: RetryBudget,
    /// The state of the endpoints that all Workers share, if there is any.
    pub(crate) rooms: Option<Arc<Rooms>>,
    /// Endpoints that are workloads of this node and are served by its proxy, sorted by address.
    hosted: Vec<Hosted>,
    /// Number of times that this node has chosen one of them for a stock proxy.
    hosted_turn: AtomicUsize,
    /// The workload behind each endpoint, on any node, as metrics and logs name it.
    workloads: Vec<Option<Arc<str>>>,
}

/// How a request's hash determines its endpoint.
#[derive(Debug)]
pub(crate) struct Hashed {
    pub(crate) on: HashOn,
    pub(crate) ring: Ring,
}

/// An endpoint that is a workload of this node, without an Envoy of its own. Other nodes may call it here.
#[derive(Debug)]
pub(super) struct Hosted {
    address: SocketAddr,
    pub(super) workload: WorkloadName,
    /// The service account that it proves.
    pub(super) account: ServiceAccountName,
}

impl Cluster {
    /// `reached` are the endpoints of the port that can be reached, with their places.
    pub(super) fn new(
        service: &Service,
        port: &ServicePort,
        reached: Vec<(Place, &Endpoint)>,
    ) -> Self {
        let (places, reached): (Vec<Place>, Vec<&Endpoint>) = reached.into_iter().unzip();
        let weights = weights(&reached);
        let balancing = &service.balancing;
        let hashed = (service.balancer == Balancer::RingHash).then(|| {
            let addresses = places.iter().map(|place| place.address);
            let weighted: Vec<_> = addresses.zip(weights.iter().copied()).collect();
            Box::new(Hashed {
                on: balancing.hash_on.clone(),
                ring: Ring::new(&weighted),
            })
        });
        let served = port.endpoints.iter().filter(|one| !one.has_envoy);
        let hosted = served.filter_map(|endpoint| {
            Some(Hosted {
                address: endpoint.address,
                workload: endpoint.workload.clone()?,
                account: endpoint.account.clone()?,
            })
        });
        let workload = |endpoint: &&Endpoint| Some(endpoint.workload_name()?.to_string().into());
        Cluster {
            workloads: reached.iter().map(workload).collect(),
            balancer: service.balancer,
            schedule: Schedule::new(&weights),
            hashed,
            retry_budget: balancing.retry_budget,
            rooms: None,
            hosted: hosted.collect(),
            hosted_turn: AtomicUsize::new(0),
            endpoints: places,
        }
    }

    pub(super) fn hosted(&self, endpoint: SocketAddr) -> Option<&Hosted> {
        let hosted = &self.hosted;
        let found = hosted.binary_search_by_key(&endpoint, |hosted| hosted.address);
        Some(&hosted[found.ok()?])
    }

    /// The next endpoint that is a workload of this node with that identity: each has its turn.
    pub(super) fn next_hosted(&self, account: &ServiceAccountName) -> Option<SocketAddr> {
        let suitable = || self.hosted.iter().filter(|one| one.account == *account);
        let count = suitable().count();
        let turn = self.hosted_turn.fetch_add(1, Ordering::Relaxed);
        let next = suitable().nth(turn.checked_rem(count)?)?;
        Some(next.address)
    }

    /// The workload behind the endpoint at an index, as metrics and logs name it.
    pub(crate) fn workload(&self, index: usize) -> Option<&Arc<str>> {
        self.workloads.get(index)?.as_ref()
    }

    /// The index of the endpoint with that address.
    pub(crate) fn position(&self, endpoint: SocketAddr) -> Option<usize> {
        let found = self
            .endpoints
            .binary_search_by_key(&endpoint, |place| place.address);
        found.ok()
    }
}

/// The weights of endpoints. If all weights are equal and every endpoint has a request limit, the limits are the
/// weights: an endpoint that takes twice as many requests gets twice as many.
fn weights(endpoints: &[&Endpoint]) -> Vec<u32> {
    let weights = || endpoints.iter().map(|endpoint| endpoint.weight);
    let is_unweighted = weights().all(|weight| Some(weight) == weights().next());
    let rooms: Option<Vec<u32>> = endpoints.iter().map(|one| one.max_requests).collect();
    rooms
        .filter(|_| is_unweighted)
        .unwrap_or_else(|| weights().collect())
}
