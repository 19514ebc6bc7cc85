use std::time::Duration;

use proptest::prelude::*;

use super::{Bandwidth, INTERVAL, Settings};

const MIB: u64 = 1 << 20;
const LINK: u64 = 60 * MIB;

fn published() -> Settings {
    Settings {
        waterline: 20 * MIB,
        low: 20 * MIB,
        high: 1_024 * MIB,
        link: None,
    }
}

fn with_link() -> Settings {
    Settings {
        link: Some(LINK),
        ..published()
    }
}

/// A link that both classes share, in steps of [`INTERVAL`]. Offline pods send as fast as they may.
struct Network {
    bandwidth: Bandwidth,
    link: f64,
    steps: u32,
    online: f64,
    offline: f64,
    /// What the online connection would send in the next step, in bytes per second.
    window: f64,
}

impl Network {
    fn new(settings: Settings) -> Self {
        Network {
            bandwidth: Bandwidth::new(settings),
            link: LINK as f64,
            steps: 0,
            online: 0.0,
            offline: 0.0,
            window: 0.0,
        }
    }

    /// Online pods want `want` bytes per second, and offline pods everything. Returns the rates of both.
    fn step(&mut self, want: f64, has_offline: bool) -> (f64, f64) {
        // Slow start: twice as much each step, from a hundredth of the link.
        self.window = want.min((2.0 * self.window).max(self.link / 100.0));
        let offline = match has_offline {
            true => self.bandwidth.rate() as f64,
            false => 0.0,
        };
        // A full link is shared by what each offers.
        let fits = (self.link / (self.window + offline).max(1.0)).min(1.0);
        let (online, offline) = (self.window * fits, offline * fits);
        self.window = online;
        let seconds = INTERVAL.as_secs_f64();
        self.online += online * seconds;
        self.offline += offline * seconds;
        self.steps += 1;
        let now = INTERVAL * self.steps;
        self.bandwidth
            .step(now, self.online as u64, self.offline as u64);
        (online, offline)
    }

    /// The average of both rates over some steps.
    fn steps(&mut self, steps: u32, want: f64, has_offline: bool) -> (f64, f64) {
        let mut sum = (0.0, 0.0);
        for _ in 0..steps {
            let rates = self.step(want, has_offline);
            sum = (sum.0 + rates.0, sum.1 + rates.1);
        }
        (sum.0 / f64::from(steps), sum.1 / f64::from(steps))
    }
}

#[test]
fn the_waterline_decides_between_two_rates() {
    let mut bandwidth = Bandwidth::new(published());
    let (mut sent, mut now) = (0, Duration::ZERO);
    let mut steps = |count: u32, per_s: u64| {
        for _ in 0..count {
            sent += per_s / 100;
            now += INTERVAL;
            bandwidth.step(now, sent, 0);
        }
        bandwidth.rate()
    };
    assert_eq!(steps(1, 0), 20 * MIB, "nothing is known yet");
    assert_eq!(steps(20, 19 * MIB), 1_024 * MIB);
    assert_eq!(steps(1, 21 * MIB), 20 * MIB, "at once");
    assert_eq!(steps(9, 19 * MIB), 20 * MIB, "and for 100 ms");
    assert_eq!(steps(2, 19 * MIB), 1_024 * MIB);
}

#[test]
fn a_low_rate_that_is_a_large_part_of_the_link_protects_nothing() {
    // Why the speed of the link is asked for.
    let mut network = Network::new(published());
    network.steps(50, f64::INFINITY, false);
    let (online, _) = network.steps(100, f64::INFINITY, true);
    assert!(online < 0.9 * LINK as f64, "{online}");
}

#[test]
fn the_schedule_of_two_flows_is_carried() {
    let link = LINK as f64;
    let mut network = Network::new(with_link());
    network.steps(50, f64::INFINITY, false);
    let (online, _) = network.steps(10, f64::INFINITY, true);
    assert!(online >= 0.95 * link, "offline starts: {online}");
    network.steps(500, f64::INFINITY, true);
    // Online stops: offline takes over within 200 ms.
    network.steps(20, 0.0, true);
    let (_, offline) = network.steps(100, 0.0, true);
    assert!(offline >= 0.95 * link, "online stopped: {offline}");
    // Online starts again: back within 100 ms.
    network.steps(10, f64::INFINITY, true);
    let (online, _) = network.steps(100, f64::INFINITY, true);
    assert!(online >= 0.95 * link, "online is back: {online}");
    // Online wants a little more than half.
    network.steps(50, 0.55 * link, true);
    let (online, offline) = network.steps(200, 0.55 * link, true);
    assert!(online >= 0.549 * link, "{online}");
    assert!(
        offline >= 0.9 * (link - online),
        "{offline} beside {online}"
    );
}

#[test]
fn counters_that_begin_anew_are_no_traffic() {
    let mut bandwidth = Bandwidth::new(with_link());
    for step in 1..50 {
        bandwidth.step(INTERVAL * step, 1 << 40, 0);
    }
    assert_eq!(bandwidth.rate(), (LINK as f64 * 0.96) as u64);
    assert_eq!(
        bandwidth.step(INTERVAL * 50, 0, 0),
        LINK / 50,
        "nothing is known"
    );
    for step in 51..80 {
        bandwidth.step(INTERVAL * step, 0, 0);
    }
    assert_eq!(bandwidth.rate(), (LINK as f64 * 0.96) as u64);
}

proptest! {
    /// Online gets what it wants within 100 ms, keeps it, and offline gets most of the rest within a second.
    #[test]
    fn both_get_their_part(wants in prop::collection::vec(0u32..=120, 1..8)) {
        let link = LINK as f64;
        let mut network = Network::new(with_link());
        for percent in wants {
            let want = link * f64::from(percent) / 100.0;
            let right = want.min(link * 0.98);
            network.steps(20, want, true);
            let (online, _) = network.steps(80, want, true);
            prop_assert!(online >= 0.95 * right, "{online} of {right}");
            let (online, offline) = network.steps(100, want, true);
            let left = link - online;
            let wanted = 0.9 * left - 0.05 * link;
            prop_assert!(online >= 0.97 * right && offline >= wanted, "{offline} of {left}, {online} of {right}");
        }
    }

    /// A steady load makes a steady rate.
    #[test]
    fn it_does_not_swing(percent in 0u32..=94) {
        let want = LINK as f64 * f64::from(percent) / 100.0;
        let mut network = Network::new(with_link());
        network.steps(200, want, true);
        let rate = network.bandwidth.rate();
        for _ in 0..300 {
            network.step(want, true);
            let now = network.bandwidth.rate();
            prop_assert!(now.abs_diff(rate) <= LINK / 50, "{now} after {rate}");
        }
    }

    /// The rate stays within its bounds, whatever the counters and the clock say.
    #[test]
    fn the_rate_is_within_its_bounds(
        link in prop::option::of(0u64..u64::MAX / 2),
        low in 0u64..1 << 40,
        high in 0u64..1 << 40,
        samples in prop::collection::vec((0u64..1 << 50, any::<u64>(), any::<u64>()), 0..60),
    ) {
        let settings = Settings { waterline: 20 * MIB, low, high, link };
        let mut bandwidth = Bandwidth::new(settings);
        for (ns, online, offline) in samples {
            let rate = bandwidth.step(Duration::from_nanos(ns), online, offline);
            prop_assert!((settings.lowest()..=settings.highest()).contains(&rate));
            prop_assert!(rate >= 1);
        }
    }
}
