//! How long the experiment runs, and what each provider has room for.

use serde::Serialize;

/// A provider: what it is called, and its part of a processor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) name: &'static str,
    /// Weight of its control group, in that of the largest.
    pub(super) share: f64,
}

/// Small, medium and large: 1, 2 and 3 parts.
pub(super) const SIZES: [Size; 3] = [
    Size {
        name: "small",
        share: 1.0 / 3.0,
    },
    Size {
        name: "medium",
        share: 2.0 / 3.0,
    },
    Size {
        name: "large",
        share: 1.0,
    },
];

/// How many requests each provider takes at once, and whether the proxies know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Room {
    pub(super) name: &'static str,
    /// In the order of [`SIZES`].
    pub(super) at_once: [u32; 3],
    /// Whether proxies are told, and keep what is more waiting.
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

impl Room {
    /// Requests that all providers take at once.
    pub(super) fn sum(&self) -> u32 {
        self.at_once.iter().sum()
    }
}

/// What a provider waits before it answers, as published, in milliseconds.
pub(super) const WAIT_MS: u64 = 50;
/// What it may be lengthened to, in turn, until no process is short of processors.
pub(super) const LENGTHENED: [u64; 4] = [1, 2, 3, 4];
/// The part of either core that may be in use.
pub(super) const MOST_OF_A_CORE: f64 = 0.6;

/// What is measured, and for how long. Times are in seconds.
pub(super) struct ConcurrencyPlan {
    pub(super) runs: usize,
    pub(super) connections: &'static [u32],
    pub(super) warm_up_s: f64,
    pub(super) window_s: f64,
    pub(super) calibration_s: f64,
}

impl ConcurrencyPlan {
    /// About twenty minutes.
    pub(super) fn full() -> ConcurrencyPlan {
        ConcurrencyPlan {
            runs: 10,
            connections: &[128, 256, 512],
            warm_up_s: 2.0,
            window_s: 8.0,
            calibration_s: 3.0,
        }
    }

    /// A few minutes.
    pub(super) fn quick() -> ConcurrencyPlan {
        ConcurrencyPlan {
            runs: 4,
            warm_up_s: 1.0,
            window_s: 2.5,
            calibration_s: 1.5,
            ..ConcurrencyPlan::full()
        }
    }

    /// The setting that the bars are about.
    pub(super) fn most_connections(&self) -> u32 {
        self.connections.iter().copied().max().unwrap_or(0)
    }
}
