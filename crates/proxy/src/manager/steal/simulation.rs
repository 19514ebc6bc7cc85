//! Simulates callers that are asked to open links to another Worker: both controllers, the choice of links, and callers
//! that comply after a while. Time is counted in ticks.

use std::time::Duration;

use heddle_wire::link::Another;
use proptest::prelude::*;

use super::{GAP, Loads, Stealing};
use crate::env::Standing;
use crate::env::portion::{Fate, Item, Kind, choose};

const TICK: Duration = Duration::from_millis(100);
/// Ticks for which a new link is left alone, an answer is awaited, and nothing is asked for again.
const FRESH: u32 = 10;
const ANSWERED: u32 = 20;
const INSTEAD_AGAIN: u32 = 300;
const BESIDE_AGAIN: u32 = 50;
/// Limit of links of a caller with one Worker of its own.
const MOST_LINKS: usize = 2;

#[derive(Debug, Clone)]
struct SimLink {
    caller: usize,
    worker: usize,
    /// Whether new requests start on it. Their cost is measured late.
    begins: bool,
    seen: f64,
    born: u32,
    asked: Option<(Another, u32)>,
    /// Load of flows that last, and stay on the link.
    flows: f64,
}

#[derive(Debug, Clone, Copy)]
struct SimCaller {
    /// Demand, as a part of one Worker's time.
    demand: f64,
    keeps_two: bool,
    /// Ticks until it has opened another link.
    takes: u32,
}

struct WorkersAndLoads {
    now: u32,
    callers: Vec<SimCaller>,
    links: Vec<SimLink>,
    workers: usize,
    loads: Loads,
    stealing: Stealing,
    /// When each caller opens another link, and which link was asked.
    coming: Vec<(u32, usize)>,
    asked: u32,
}

impl WorkersAndLoads {
    /// Every caller has one link, with the first Worker.
    fn new(callers: Vec<SimCaller>, workers: usize) -> Self {
        let links = (0..callers.len()).map(|caller| SimLink {
            caller,
            worker: 0,
            begins: true,
            seen: 0.0,
            born: 0,
            asked: None,
            flows: 0.0,
        });
        WorkersAndLoads {
            now: 20,
            links: links.collect(),
            callers,
            workers,
            loads: Loads::default(),
            stealing: Stealing::default(),
            coming: Vec::new(),
            asked: 0,
        }
    }

    /// The cost of each link.
    fn costs(&self) -> Vec<f64> {
        let mut sharing = vec![0_u32; self.callers.len()];
        for link in self.links.iter().filter(|link| link.begins) {
            sharing[link.caller] += 1;
        }
        let cost = |link: &SimLink| match link.begins {
            true => self.callers[link.caller].demand / f64::from(sharing[link.caller]),
            false => 0.0,
        };
        let links = self.links.iter();
        links.map(|link| cost(link) + link.flows).collect()
    }

    fn busy(&self) -> Vec<f64> {
        let mut busy = vec![0.0; self.workers];
        for (link, cost) in self.links.iter().zip(self.costs()) {
            busy[link.worker] += cost;
        }
        busy.iter().map(|sum: &f64| sum.min(1.0)).collect()
    }

    fn tick(&mut self) {
        self.now += 1;
        self.open_those_that_come();
        let costs = self.costs();
        for (link, cost) in self.links.iter_mut().zip(costs) {
            link.seen += 0.4 * (cost - link.seen);
        }
        let count = self.links.len();
        self.loads.observe(&self.busy(), count);
        if let Some(taking) = self.stealing.observe(TICK, &self.loads) {
            self.give(taking.from, taking.share);
        }
    }

    fn give(&mut self, from: usize, share: f64) {
        let links = self.links.iter().enumerate();
        let items: Vec<Item<usize>> = links
            .filter(|(_, link)| link.worker == from)
            .map(|(at, link)| {
                let flows = link.flows.min(link.seen);
                Item {
                    who: at,
                    all_ns: (link.seen * 1e9) as u64,
                    goes_ns: ((link.seen - flows) * 1e9) as u64,
                    kind: Kind::Link(self.standing(link)),
                }
            })
            .collect();
        for (at, fate) in choose(&items, share) {
            let Fate::Asked(what) = fate else {
                panic!("there are no connections");
            };
            let link = &mut self.links[at];
            link.asked = Some((what, self.now));
            let takes = self.callers[link.caller].takes;
            self.coming.push((self.now + takes, at));
            self.asked += 1;
        }
    }

    fn standing(&self, link: &SimLink) -> Standing {
        let keeps_two = self.callers[link.caller].keeps_two;
        if self.now - link.born < FRESH {
            return Standing::Resting;
        }
        let Some((what, at)) = link.asked else {
            return Standing::Ready { keeps_two };
        };
        let again = match what {
            Another::Instead => INSTEAD_AGAIN,
            Another::Beside => BESIDE_AGAIN,
        };
        match self.now - at {
            passed if passed < ANSWERED => Standing::Asked(what),
            passed if passed < again => Standing::Resting,
            _ => Standing::Ready { keeps_two },
        }
    }

    fn open_those_that_come(&mut self) {
        let now = self.now;
        let due: Vec<usize> = {
            let coming = self.coming.iter();
            coming
                .filter(|(at, _)| *at <= now)
                .map(|(_, link)| *link)
                .collect()
        };
        self.coming.retain(|(at, _)| *at > now);
        for asked in due {
            let SimLink {
                caller, asked: why, ..
            } = self.links[asked].clone();
            let of_caller = |link: &&SimLink| link.caller == caller && link.begins;
            let has = self.links.iter().filter(of_caller).count();
            match why {
                Some((Another::Beside, _)) if has >= MOST_LINKS => continue,
                Some((Another::Instead, _)) => self.links[asked].begins = false,
                _ => {}
            }
            if why.is_some_and(|(what, _)| what == Another::Instead) && has > 1 {
                continue;
            }
            let worker = self.loads.place(|_| false).expect("a worker");
            self.links.push(SimLink {
                worker,
                begins: true,
                seen: 0.0,
                born: now,
                asked: None,
                flows: 0.0,
                caller,
            });
        }
    }

    fn run(&mut self, ticks: u32) -> u32 {
        let before = self.asked;
        (0..ticks).for_each(|_| self.tick());
        self.asked - before
    }

    fn gap(&self) -> f64 {
        let busy = self.busy();
        let most = busy.iter().copied().fold(0.0, f64::max);
        most - busy.iter().copied().fold(1.0, f64::min)
    }
}

fn caller(demand: f64) -> SimCaller {
    SimCaller {
        demand,
        keeps_two: true,
        takes: 2,
    }
}

#[test]
fn twenty_callers_and_one_alike_are_shared_within_three_seconds_and_then_left_alone() {
    for callers in [1, 2, 3, 20, 300] {
        let each = caller(1.2 / f64::from(callers));
        let mut world = WorkersAndLoads::new(vec![each; callers as usize], 2);
        world.run(30);
        let gap = world.gap();
        assert!(gap <= GAP, "{callers} callers: {gap} after three seconds");
        let asked = world.run(600);
        assert!(asked <= 2, "{callers} callers: {asked} were asked later");
    }
}

#[test]
fn one_caller_that_keeps_one_link_is_not_asked_to_carry_it_to_and_fro() {
    let alone = SimCaller {
        keeps_two: false,
        ..caller(0.9)
    };
    let mut world = WorkersAndLoads::new(vec![alone], 2);
    assert_eq!(world.run(600), 0);
}

#[test]
fn a_link_of_flows_is_not_asked_for() {
    let mut world = WorkersAndLoads::new(vec![caller(0.0)], 2);
    world.links[0].flows = 0.9;
    assert_eq!(world.run(600), 0);
    // Flows stay; the requests beside them move.
    let mut world = WorkersAndLoads::new(vec![caller(0.3)], 2);
    world.links[0].flows = 0.6;
    world.run(30);
    assert_eq!(world.busy(), [0.6, 0.3]);
    assert_eq!(world.run(600), 0, "the caller was asked once");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn whatever_callers_there_are_two_workers_share_them_and_callers_are_left_alone(
        demands in prop::collection::vec((1..100u32, 1..10u32), 1..40),
        all in 5..18u32,
    ) {
        let sum: u32 = demands.iter().map(|(demand, _)| demand).sum();
        let scale = f64::from(all) / 10.0 / f64::from(sum);
        let callers = demands.iter().map(|&(demand, takes)| SimCaller {
            takes,
            ..caller(f64::from(demand) * scale)
        });
        let mut world = WorkersAndLoads::new(callers.collect(), 2);
        let links = 2 * demands.len() as u32;
        let asked = world.run(150);
        prop_assert!(asked <= 2 * links, "{asked} were asked for {links} links");
        let busy = world.busy();
        let (most, least) = (busy[0].max(busy[1]), busy[0].min(busy[1]));
        prop_assert!(most <= 1.5 * least || most - least <= GAP, "{busy:?}");
        let later = world.run(300);
        // A caller that has two links is asked in vain, and not again for five seconds; there are at most two callers
        // that large.
        prop_assert!(later <= 12, "{later} were asked in half a minute, for {:?}", world.busy());
    }

    #[test]
    fn callers_of_old_versions_among_them_do_no_harm(
        demands in prop::collection::vec((1..100u32, any::<bool>()), 1..40),
        workers in 2..5usize,
    ) {
        let sum: u32 = demands.iter().map(|(demand, _)| demand).sum();
        let scale = 0.7 * workers as f64 / f64::from(sum);
        let callers = demands.iter().map(|&(demand, keeps_two)| SimCaller {
            keeps_two,
            ..caller(f64::from(demand) * scale)
        });
        let mut world = WorkersAndLoads::new(callers.collect(), workers);
        world.run(300);
        let later = world.run(300);
        prop_assert!(later <= 40, "{later} were asked in half a minute, for {:?}", world.busy());
    }
}
