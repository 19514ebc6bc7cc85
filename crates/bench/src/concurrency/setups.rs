//! Configurations of Envoy that an expert would try, and the choice of the best ones for each setting: one by
//! requests per second, one by p99, one by the maximum.

use serde::Serialize;

use super::figures::{ConcurrencyRun, SAME};
use super::plan::Room;

/// Setups whose requests per second differ by less than this fraction count as equal: latency decides then.
const SAME_QPS: f64 = 0.01;
/// A setup whose first run carries less than the most by more than this fraction is not run again: it could not come
/// within [`SAME_QPS`].
const FAR_BEHIND: f64 = 0.03;

/// How an Envoy picks a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum Policy {
    LeastRequest,
    /// Least request of all providers, not of two picked at random.
    FullScan,
    RoundRobin,
    /// The route picks a cluster at random; each cluster has one provider.
    Random,
}

/// Where requests wait while their provider is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Waiting {
    /// At the provider: circuit breakers are wide open.
    Provider,
    /// In the consumer's Envoy, in a queue for each provider: HTTP/2, one connection to each, on which the provider's
    /// Envoy allows as many streams as there is room.
    Streams,
    /// Likewise, with a cluster for each provider, whose circuit breaker allows as many connections as there is
    /// room. The route picks a cluster at random, by weight.
    Clusters,
}

/// How the configuration of Envoy reflects the sizes of the providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Weights {
    /// Not at all: all providers are alike.
    None,
    /// The weight of each is its room. Least request picks by weight / (active requests + 1), so that with this
    /// weight full providers of unequal room have equally many requests.
    Room,
    /// The weight of each is the square of its room: with least request, full providers have requests in the
    /// proportions of their room.
    RoomSquared,
    /// Weights are equal, and each provider is listed once, twice or three times by its size, at addresses of its own.
    /// Least request scans all hosts only where weights are equal.
    Listed,
}

/// A configuration of all Envoys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct EnvoySetup {
    pub(super) policy: Policy,
    /// Whether the Envoys speak HTTP/2 with each other.
    pub(super) http2: bool,
    pub(super) waiting: Waiting,
    pub(super) weights: Weights,
}

const fn open(policy: Policy, http2: bool, weights: Weights) -> EnvoySetup {
    EnvoySetup {
        policy,
        http2,
        waiting: Waiting::Provider,
        weights,
    }
}

const fn streams(policy: Policy) -> EnvoySetup {
    EnvoySetup {
        policy,
        http2: true,
        waiting: Waiting::Streams,
        weights: Weights::Room,
    }
}

/// The setups where the proxies do not know the room.
const UNTOLD: [EnvoySetup; 6] = [
    open(Policy::FullScan, false, Weights::None),
    open(Policy::FullScan, true, Weights::None),
    open(Policy::LeastRequest, false, Weights::None),
    open(Policy::LeastRequest, true, Weights::None),
    open(Policy::RoundRobin, false, Weights::None),
    open(Policy::RoundRobin, true, Weights::None),
];

/// The setups where the proxies know it. Those that should do well come first: a setup far behind them is run only
/// once.
const TOLD: [EnvoySetup; 12] = [
    open(Policy::FullScan, false, Weights::Listed),
    open(Policy::FullScan, true, Weights::Listed),
    open(Policy::LeastRequest, false, Weights::RoomSquared),
    open(Policy::LeastRequest, true, Weights::RoomSquared),
    open(Policy::LeastRequest, false, Weights::Listed),
    streams(Policy::LeastRequest),
    streams(Policy::RoundRobin),
    EnvoySetup {
        policy: Policy::Random,
        http2: false,
        waiting: Waiting::Clusters,
        weights: Weights::Room,
    },
    open(Policy::LeastRequest, false, Weights::Room),
    open(Policy::LeastRequest, true, Weights::Room),
    open(Policy::RoundRobin, false, Weights::Room),
    open(Policy::RoundRobin, true, Weights::Room),
];

impl EnvoySetup {
    /// The setups that are screened for a room.
    pub(super) fn candidates(room: &Room) -> &'static [EnvoySetup] {
        if room.told { &TOLD } else { &UNTOLD }
    }

    /// The name in reports.
    pub(super) fn name(&self) -> String {
        let policy = match self.policy {
            Policy::LeastRequest => "least request",
            Policy::FullScan => "least request of all",
            Policy::RoundRobin => "round robin",
            Policy::Random => "random",
        };
        let protocol = if self.http2 { "HTTP/2" } else { "HTTP/1.1" };
        let waiting = match self.waiting {
            Waiting::Provider => "",
            Waiting::Streams => ", streams for room",
            Waiting::Clusters => ", connections for room",
        };
        let weights = match self.weights {
            Weights::None => "",
            Weights::Room => ", weights",
            Weights::RoomSquared => ", weights squared",
            Weights::Listed => ", listed by size",
        };
        format!("{policy}, {protocol}{waiting}{weights}")
    }
}

/// The setups that run in full: the best one in each figure. One setup may be the best in several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BestSetups {
    qps: EnvoySetup,
    p99: EnvoySetup,
    max: EnvoySetup,
}

impl BestSetups {
    /// Each of them once.
    pub(super) fn each(&self) -> Vec<EnvoySetup> {
        let mut setups = vec![self.qps, self.p99, self.max];
        setups.sort();
        setups.dedup();
        setups
    }

    /// The names of the figures in which a setup is the best.
    pub(super) fn figures_of(&self, setup: &EnvoySetup) -> Vec<&'static str> {
        let figures = [("qps", self.qps), ("p99", self.p99), ("max", self.max)];
        let of_it = figures.into_iter().filter(|(_, best)| best == setup);
        of_it.map(|(figure, _)| figure).collect()
    }
}

/// Chooses the best setups among those without errors and wrong hashes: the one with the most requests per second; and
/// of those that carry as much within [`SAME_QPS`], the one with the lowest p99 and the one with the lowest maximum.
/// Where figures are equal, a setup that is already chosen is preferred.
pub(super) fn best(screened: &[(EnvoySetup, ConcurrencyRun)]) -> Option<BestSetups> {
    let sound = || screened.iter().filter(|(_, run)| run.is_right());
    let (qps, most) = sound().max_by(|(_, one), (_, other)| one.qps.total_cmp(&other.qps))?;
    let lowest = |figure: fn(&ConcurrencyRun) -> f64, chosen: &[EnvoySetup]| {
        let as_many = || sound().filter(|(_, run)| run.qps >= most.qps * (1.0 - SAME_QPS));
        let least = as_many().map(|(_, run)| figure(run)).reduce(f64::min)?;
        let same = as_many().filter(|(_, run)| figure(run) <= least * (1.0 + SAME));
        let same = same.min_by(|(one, run), (other, other_run)| {
            let new = |setup| !chosen.contains(setup);
            let order = new(one).cmp(&new(other));
            order.then(figure(run).total_cmp(&figure(other_run)))
        });
        same.map(|(setup, _)| *setup)
    };
    let p99 = lowest(|run| run.p99_ms, &[*qps])?;
    let max = lowest(|run| run.max_ms, &[*qps, p99])?;
    Some(BestSetups {
        qps: *qps,
        p99,
        max,
    })
}

/// Whether a setup may still be one of the best after its first run, where `most` are the most requests per second of
/// the setups before it.
pub(super) fn may_be_best(first: &ConcurrencyRun, most: f64) -> bool {
    first.is_right() && first.qps >= most * (1.0 - FAR_BEHIND)
}

#[cfg(test)]
mod tests;
