//! How long the experiment runs, and how many requests each provider takes at once.

use serde::Serialize;

/// The name and the size of a provider.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) name: &'static str,
    /// Quota of CPU time, in multiples of the small provider's.
    pub(super) times: u32,
}

/// Small, medium and large: 1, 2 and 3 parts of CPU time.
pub(super) const SIZES: [Size; 3] = [
    Size {
        name: "small",
        times: 1,
    },
    Size {
        name: "medium",
        times: 2,
    },
    Size {
        name: "large",
        times: 3,
    },
];

/// How many requests each provider takes at once, and whether the proxies know that limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Room {
    pub(super) name: &'static str,
    /// In the order of [`SIZES`].
    pub(super) at_once: [u32; 3],
    /// Whether the proxies know the limit and keep excess requests waiting.
    pub(super) told: bool,
}

pub(super) const ROOMS: [Room; 2] = [
    Room {
        name: "as published",
        at_once: [200; 3],
        told: false,
    },
    Room {
        name: "with room",
        at_once: [67, 133, 200],
        told: true,
    },
];

/// How long a provider waits before it answers, as published, in milliseconds.
pub(super) const WAIT_MS: u64 = 50;
/// CPU time that an answer takes a provider beside the wait, in microseconds. The kernel's smallest quota, 1 ms in 100,
/// has to be less than the small provider needs, however long all providers wait.
pub(super) const WORK_US: u64 = 200;
/// Factors for the wait, tried in turn until no core is too busy.
pub(super) const LENGTHENED: [u64; 9] = [1, 2, 3, 4, 5, 6, 8, 10, 12];
/// A window lasts at least this many waits, that is, as many requests one after the other.
const WAVES: f64 = 10.0;
/// Maximum use of either core in any run.
pub(super) const MOST_OF_A_CORE: f64 = 0.6;
/// Maximum use of either core when the wait is chosen: lower, because runs differ.
pub(super) const CALIBRATED_FOR: f64 = 0.52;
/// The small provider's quota as a fraction of what answering a third of all requests takes with the most connections.
/// Below 1, so that the quota binds: a proxy that sends equally many requests to all providers waits for the small one.
pub(super) const SMALL_QUOTA: f64 = 0.9;

/// The measurements, and how long they take. Times are in seconds.
///
/// At a wait of 600 ms a run of [`full`](Self::full) takes 8.2 s: 1 s of warm-up, a window of 6 s, a rest of two
/// waits. Minutes:
///
/// | what | runs | minutes |
/// |---|---|---|
/// | the wait is chosen: 7 systems started, filled, loaded | | 2 |
/// | 18 setups of Envoy started and filled | | 2 |
/// | each screened with 3 numbers of connections: 3 runs, or 1 where it is far behind | about 110, at most 162 | 15, at most 22 |
/// | 10 runs with 3 numbers of connections in 2 rooms of Heddle, the ceiling and 1 to 3 setups | about 200, at most 300 | 27, at most 41 |
/// | together | | about 46, at most 67 |
pub(super) struct ConcurrencyPlan {
    pub(super) runs: usize,
    pub(super) connections: &'static [u32],
    pub(super) warm_up_s: f64,
    pub(super) window_s: f64,
    /// Runs of each setup of Envoy in each setting; their medians count.
    pub(super) screening_runs: usize,
    /// The window of each of those runs; `None`: as long as the window of the runs that follow.
    pub(super) screening_s: Option<f64>,
    pub(super) calibration_s: f64,
    /// Whether everything is measured again with a longer wait when a core was too busy in a run.
    pub(super) insists: bool,
}

impl ConcurrencyPlan {
    /// Ten runs of 60 s, as published: about six and a half hours.
    pub(super) fn published() -> ConcurrencyPlan {
        ConcurrencyPlan {
            runs: 10,
            connections: &[128, 256, 512],
            warm_up_s: 2.0,
            window_s: 60.0,
            screening_runs: 3,
            screening_s: None,
            calibration_s: 3.0,
            insists: true,
        }
    }

    /// Ten short runs: about three quarters of an hour.
    pub(super) fn full() -> ConcurrencyPlan {
        ConcurrencyPlan {
            warm_up_s: 1.0,
            window_s: 4.0,
            ..ConcurrencyPlan::published()
        }
    }

    /// Less than twenty minutes, for use while developing: the best setups are chosen by one short run.
    pub(super) fn quick() -> ConcurrencyPlan {
        ConcurrencyPlan {
            runs: 4,
            warm_up_s: 0.6,
            window_s: 2.0,
            screening_runs: 1,
            screening_s: Some(1.5),
            calibration_s: 1.5,
            insists: false,
            ..ConcurrencyPlan::full()
        }
    }

    /// The window of a screening run in seconds, where providers wait `wait_ms`.
    pub(super) fn screening_s(&self, wait_ms: u64) -> f64 {
        self.screening_s.unwrap_or_else(|| self.window_s(wait_ms))
    }

    /// The window of a run in seconds, where providers wait `wait_ms`.
    pub(super) fn window_s(&self, wait_ms: u64) -> f64 {
        self.window_s.max(WAVES * wait_ms as f64 / 1e3)
    }

    /// The largest number of connections, the setting that the thresholds are for.
    pub(super) fn most_connections(&self) -> u32 {
        self.connections.iter().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_of_the_names_is_measured() {
        let plans = [
            ConcurrencyPlan::quick(),
            ConcurrencyPlan::full(),
            ConcurrencyPlan::published(),
        ];
        for plan in plans {
            assert_eq!(plan.most_connections(), 512);
            assert!(plan.runs > 2, "the best and the worst are left out");
        }
        let places = ROOMS.map(|room| room.at_once.iter().sum::<u32>());
        assert_eq!(
            places,
            [600, 400],
            "fewer than the most connections only with room"
        );
    }

    #[test]
    fn a_window_has_ten_waves_however_long_providers_wait() {
        let plan = ConcurrencyPlan::full();
        assert_eq!((plan.window_s(50), plan.window_s(600)), (4.0, 6.0));
        assert_eq!(ConcurrencyPlan::published().window_s(600), 60.0);
    }

    #[test]
    fn setups_are_screened_in_several_runs_of_the_same_window() {
        for plan in [ConcurrencyPlan::full(), ConcurrencyPlan::published()] {
            assert!(plan.screening_runs >= 3);
            assert_eq!(plan.screening_s(600), plan.window_s(600));
        }
    }

    #[test]
    fn what_is_published_is_ten_runs_of_a_minute() {
        let plan = ConcurrencyPlan::published();
        assert_eq!((plan.runs, plan.window_s), (10, 60.0));
        assert_eq!(SIZES.map(|size| size.times), [1, 2, 3]);
    }
}
