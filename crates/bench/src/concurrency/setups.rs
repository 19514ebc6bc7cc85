//! Configurations of Envoy that an expert would try, and the choice of the best one for each setting.

use serde::Serialize;

use super::figures::ConcurrencyRun;
use super::plan::Room;

/// Runs whose requests per second differ by less than this part carry the same: latency decides then.
const SAME_QPS: f64 = 0.01;

/// How an Envoy picks a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum Policy {
    LeastRequest,
    /// Least request of all providers, not of two picked at random.
    FullScan,
    RoundRobin,
    Random,
}

/// Where requests wait for which a provider has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Waiting {
    /// At the provider: circuit breakers are wide open.
    Provider,
    /// In the consumer's Envoy, in a line for each provider: HTTP/2, one connection to each, on which the
    /// provider's Envoy allows as many streams as there is room.
    Streams,
    /// Likewise, with a cluster for each provider, whose circuit breaker allows as many connections as there is
    /// room. The route picks a cluster at random, by weight.
    Clusters,
}

/// A configuration of all Envoys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct EnvoySetup {
    pub(super) policy: Policy,
    /// Whether they speak HTTP/2 with each other.
    pub(super) http2: bool,
    pub(super) waiting: Waiting,
    /// Whether providers have the weights of their room.
    pub(super) weights: bool,
}

const fn open(policy: Policy, http2: bool, weights: bool) -> EnvoySetup {
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
        weights: true,
    }
}

/// Where no proxy is told of room.
const UNTOLD: [EnvoySetup; 7] = [
    open(Policy::LeastRequest, false, false),
    open(Policy::FullScan, false, false),
    open(Policy::RoundRobin, false, false),
    open(Policy::Random, false, false),
    open(Policy::LeastRequest, true, false),
    open(Policy::RoundRobin, true, false),
    open(Policy::Random, true, false),
];

/// Where it is known.
const TOLD: [EnvoySetup; 8] = [
    streams(Policy::LeastRequest),
    streams(Policy::RoundRobin),
    streams(Policy::Random),
    EnvoySetup {
        policy: Policy::Random,
        http2: false,
        waiting: Waiting::Clusters,
        weights: true,
    },
    open(Policy::LeastRequest, false, true),
    open(Policy::RoundRobin, false, true),
    open(Policy::Random, false, true),
    open(Policy::RoundRobin, true, true),
];

impl EnvoySetup {
    /// What is screened for a room.
    pub(super) fn candidates(room: &Room) -> &'static [EnvoySetup] {
        if room.told { &TOLD } else { &UNTOLD }
    }

    /// What a report calls it.
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
        let weights = if self.weights { ", weights" } else { "" };
        format!("{policy}, {protocol}{waiting}{weights}")
    }
}

/// Which run is the best: without errors, the most requests per second; of those that carry as much, the one with
/// the lowest p99.
pub(super) fn best(runs: &[Option<ConcurrencyRun>]) -> Option<usize> {
    let sound = || {
        let sound = runs.iter().enumerate();
        sound.filter_map(|(index, run)| Some((index, run.filter(ConcurrencyRun::is_right)?)))
    };
    let most = sound().map(|(_, run)| run.qps).reduce(f64::max)?;
    let as_good = sound().filter(|(_, run)| run.qps >= most * (1.0 - SAME_QPS));
    as_good
        .min_by(|(_, one), (_, other)| one.p99_ms.total_cmp(&other.p99_ms))
        .map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::concurrency::figures::run;
    use crate::concurrency::plan::ROOMS;

    #[test]
    fn the_best_carries_most_and_of_equals_has_the_lowest_p99() {
        let with = |qps, p99_ms, errors| {
            Some(ConcurrencyRun {
                qps,
                p99_ms,
                errors,
                ..run(1.0, 1.0, 0)
            })
        };
        let runs = [
            with(4000.0, 300.0, 0),
            None,
            with(3985.0, 200.0, 0),
            with(3900.0, 100.0, 0),
            with(5000.0, 50.0, 1),
        ];
        assert_eq!(best(&runs), Some(2));
        assert_eq!(best(&runs[..2]), Some(0));
        assert_eq!(best(&[None, with(1.0, 1.0, 3)]), None);
        let wrong = run(1.0, 1.0, 0);
        let wrong = ConcurrencyRun {
            wrong_hashes: 1,
            ..wrong
        };
        assert_eq!(best(&[Some(wrong)]), None);
    }

    #[test]
    fn every_candidate_has_a_name_of_its_own_and_room_is_kept_only_where_it_is_known() {
        for room in ROOMS {
            let candidates = EnvoySetup::candidates(&room);
            let mut names: Vec<String> = candidates.iter().map(EnvoySetup::name).collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), candidates.len());
            let knows = |setup: &EnvoySetup| setup.weights || setup.waiting != Waiting::Provider;
            assert!(candidates.iter().all(|setup| knows(setup) == room.told));
        }
    }
}
