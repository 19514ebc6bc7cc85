//! The endpoints of one Service's port, and how one of them is chosen.

use std::net::SocketAddr;
use std::sync::Arc;

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
    /// Where requests are told apart by a hash.
    pub(crate) hashed: Option<Box<Hashed>>,
    pub(crate) retry_budget: RetryBudget,
    /// What all Workers know of the endpoints, where there is anything to know.
    pub(crate) rooms: Option<Arc<Rooms>>,
    /// Those of workloads of this node, sorted by address.
    hosted: Vec<Hosted>,
    /// The workload behind each endpoint, on whichever node, as metrics and logs name it.
    workloads: Vec<Option<Arc<str>>>,
}

/// How a hash leads to an endpoint.
#[derive(Debug)]
pub(crate) struct Hashed {
    pub(crate) on: HashOn,
    pub(crate) ring: Ring,
}

/// An endpoint that is a workload of this node. Other nodes may call it here.
#[derive(Debug)]
pub(super) struct Hosted {
    address: SocketAddr,
    pub(super) workload: WorkloadName,
    /// The service account that it proves.
    pub(super) account: ServiceAccountName,
}

impl Cluster {
    /// The endpoints of a port that are reached, and where.
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
        let hosted = port.endpoints.iter().filter_map(|endpoint| {
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
            endpoints: places,
        }
    }

    pub(super) fn hosted(&self, endpoint: SocketAddr) -> Option<&Hosted> {
        let hosted = &self.hosted;
        let found = hosted.binary_search_by_key(&endpoint, |hosted| hosted.address);
        Some(&hosted[found.ok()?])
    }

    /// Whether any workload of this node is an endpoint.
    pub(super) fn has_hosted(&self) -> bool {
        !self.hosted.is_empty()
    }

    /// The workload behind the endpoint at an index, as metrics and logs name it.
    pub(crate) fn workload(&self, index: usize) -> Option<&Arc<str>> {
        self.workloads.get(index)?.as_ref()
    }

    /// Where the endpoint of that address stands among the endpoints.
    pub(crate) fn position(&self, endpoint: SocketAddr) -> Option<usize> {
        let found = self
            .endpoints
            .binary_search_by_key(&endpoint, |place| place.address);
        found.ok()
    }
}

/// The weights of endpoints. Where none was given a weight of its own, what they take at once is their weight: one
/// that takes twice as many requests gets twice as many.
fn weights(endpoints: &[&Endpoint]) -> Vec<u32> {
    let weights = || endpoints.iter().map(|endpoint| endpoint.weight);
    let is_unweighted = weights().all(|weight| Some(weight) == weights().next());
    let rooms: Option<Vec<u32>> = endpoints.iter().map(|one| one.max_requests).collect();
    rooms
        .filter(|_| is_unweighted)
        .unwrap_or_else(|| weights().collect())
}
