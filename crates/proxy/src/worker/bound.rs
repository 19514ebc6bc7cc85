//! A configuration snapshot bound to one Worker: its endpoints are the Worker's own entries, and
//! what is counted for its routes is at hand.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use foldhash::fast::RandomState;
use heddle_telemetry::{HttpLabels, HttpSeries, Registry};

use crate::balance::{self, Load, Random};
use crate::intercepted::Pods;
use crate::route::{PortEntry, PortIndex, Snapshot};
use crate::upstream::{Endpoint, Place, Upstreams, Way};

/// A snapshot and what one Worker keeps beside it.
pub(crate) struct Bound {
    pub(crate) snapshot: Arc<Snapshot>,
    /// By port, in the order of the snapshot.
    clusters: Vec<Cluster>,
    series: RefCell<HashMap<SeriesKey, Arc<HttpSeries>, RandomState>>,
}

struct Cluster {
    endpoints: Rc<[Rc<Endpoint>]>,
    /// Choices made so far.
    turn: Cell<u64>,
}

/// The endpoints of a port, as a Worker reaches them.
fn endpoints(port: &PortEntry, pods: &Pods, upstreams: &Upstreams) -> Rc<[Rc<Endpoint>]> {
    let bind = |place: &Place| {
        let workload = port.workload_at(place.address);
        let endpoint = match workload.and_then(|workload| pods.of(workload)) {
            Some(pod) => upstreams.endpoint(&Place {
                address: place.address,
                way: Way::Inside(pod),
            }),
            None => upstreams.endpoint(place),
        };
        endpoint.is_configured();
        endpoint
    };
    port.cluster.endpoints.iter().map(bind).collect()
}

/// Which series a request belongs to, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SeriesKey {
    /// The listener's source, as the gate numbers accounts.
    pub(crate) source: u32,
    /// The port that was called; `u32::MAX` when there is none.
    pub(crate) port: u32,
    /// The rule that matched; 0 when there is none.
    pub(crate) rule: u32,
}

impl Bound {
    pub(crate) fn new(snapshot: Arc<Snapshot>, pods: &Pods, upstreams: &Upstreams) -> Self {
        let ports = snapshot.ports().iter();
        let clusters = ports
            .map(|port| Cluster {
                endpoints: endpoints(port, pods, upstreams),
                turn: Cell::new(0),
            })
            .collect();
        Bound {
            snapshot,
            clusters,
            series: RefCell::default(),
        }
    }

    /// The same snapshot where workloads are in other pods. A mesh may have many more endpoints than a node
    /// has workloads, and pods come and go: only the ports of those are bound anew.
    pub(crate) fn with_pods(&self, pods: &Pods, upstreams: &Upstreams) -> Self {
        let ports = self.snapshot.ports().iter().zip(&self.clusters);
        let clusters = ports.map(|(port, cluster)| Cluster {
            endpoints: match port.has_workloads() {
                true => endpoints(port, pods, upstreams),
                false => Rc::clone(&cluster.endpoints),
            },
            turn: cluster.turn.clone(),
        });
        Bound {
            snapshot: Arc::clone(&self.snapshot),
            clusters: clusters.collect(),
            // Whoever goes on with the old one makes its own.
            series: RefCell::new(self.series.take()),
        }
    }

    /// Chooses an endpoint of a port, passing over `tried` as long as there is another.
    ///
    /// Returns `None` when the port has no endpoint.
    pub(crate) fn choose(
        &self,
        port: PortIndex,
        random: &mut Random,
        load: impl Fn(&Endpoint) -> Load,
    ) -> Option<&Rc<Endpoint>> {
        let cluster = self.clusters.get(port.get())?;
        if let [only] = &*cluster.endpoints {
            return Some(only);
        }
        let turn = cluster.turn.get();
        cluster.turn.set(turn.wrapping_add(1));
        let wanted = &self.snapshot.port(port).cluster;
        let index = balance::choose(
            wanted.balancer,
            &wanted.schedule,
            turn,
            random.next(),
            |index| {
                cluster.endpoints.get(index).map_or(
                    Load {
                        active: 0,
                        avoid: true,
                    },
                    |e| load(e),
                )
            },
        )?;
        cluster.endpoints.get(index)
    }

    /// The endpoint of a port that has this address.
    pub(crate) fn at(&self, port: PortIndex, address: SocketAddr) -> Option<&Rc<Endpoint>> {
        let position = self.snapshot.port(port).cluster.position(address)?;
        self.clusters.get(port.get())?.endpoints.get(position)
    }

    /// The series of a key, made from `labels` when the key is met for the first time.
    pub(crate) fn series(
        &self,
        key: SeriesKey,
        registry: &Registry,
        labels: impl FnOnce() -> HttpLabels,
    ) -> Arc<HttpSeries> {
        let mut series = self.series.borrow_mut();
        Arc::clone(
            series
                .entry(key)
                .or_insert_with(|| registry.http_series(labels())),
        )
    }
}
