//! How long requests to the workloads of this node take: the answer to `GET /latencies`.

use std::collections::BTreeMap;

use heddle_telemetry::{Registry, latency_bounds_us};
use serde::{Deserialize, Serialize};

/// Histograms of the durations of requests, from the first byte of a request to the last one of its response, since the
/// proxy's start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// Upper bounds of the buckets in microseconds, inclusive. One bucket more is above all bounds.
    pub bounds_us: Vec<u64>,
    /// Requests in each bucket (not cumulative), by the workload behind the endpoint, `namespace/workload`. Only
    /// endpoints of this node.
    pub workloads: BTreeMap<String, Vec<u64>>,
}

impl Latencies {
    /// What a registry has counted.
    pub fn of(registry: &Registry) -> Self {
        let workloads = registry.latencies().into_iter();
        Latencies {
            bounds_us: latency_bounds_us().to_vec(),
            workloads: workloads
                .map(|(workload, counts)| (workload.to_string(), counts))
                .collect(),
        }
    }
}
