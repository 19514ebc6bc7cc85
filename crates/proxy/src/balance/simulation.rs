//! A seeded simulation of three unequal providers behind one queue, as in the experiment for which the request limits
//! were made: each provider serves a limited number of requests at the same time.
//!
//! Events follow a virtual clock. After each event the simulation checks that no provider exceeds its limit, and that
//! no client waits while a provider has room.

use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use super::{Choice, FULL_SHARE, Load, Picker, Random, Schedule, choose};
use crate::clock::Millis;
use crate::rooms::testing::rooms;
use crate::rooms::{Joined, LinePlace, RequestPermit, Rooms, Wants, join};

const LIMITS: [u32; 3] = [67, 133, 200];
/// Service time of a request at a provider, in microseconds, without the random part.
const SERVICE_US: u64 = 50_000;

/// Parameters of one run.
struct Scene {
    seed: u64,
    /// Clients, each with one request at a time.
    clients: usize,
    /// Percentage of requests that take five times as long.
    slow_percent: u64,
    /// Percentage of waits that the client gives up.
    impatient_percent: u64,
    duration_us: u64,
}

/// Result of one run.
#[derive(Debug, Default)]
struct RunSummary {
    served: [u64; 3],
    most_used: [u32; 3],
    longest_wait_us: u64,
    gave_up: u64,
    /// Time for which places were in use, in microseconds, summed over all places.
    worked_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SimEvent {
    /// A client sends a request.
    Asks,
    /// A client's request is done.
    Done,
    /// A client that waits may give up.
    Tires,
}

/// Records which client was woken.
struct ClientWaker {
    client: usize,
    woken: Arc<Mutex<Vec<usize>>>,
}

impl Wake for ClientWaker {
    fn wake(self: Arc<Self>) {
        self.woken.lock().unwrap().push(self.client);
    }
}

struct ClientsAndRooms {
    rooms: Arc<Rooms>,
    schedule: Schedule,
    random: Random,
    now_us: u64,
    /// Time, client and event; the earliest first.
    events: BinaryHeap<std::cmp::Reverse<(u64, usize, SimEvent)>>,
    /// The permit of each client whose request is being served.
    served: HashMap<usize, RequestPermit>,
    /// Clients that wait, and the start of their wait.
    waiting: HashMap<usize, (LinePlace, u64)>,
    woken: Arc<Mutex<Vec<usize>>>,
    outcome: RunSummary,
}

impl ClientsAndRooms {
    fn ms(&self) -> Millis {
        self.now_us / 1_000 + 1
    }

    fn at(&mut self, after_us: u64, client: usize, what: SimEvent) {
        let event = (self.now_us + after_us, client, what);
        self.events.push(std::cmp::Reverse(event));
    }

    fn begin(&mut self, client: usize, permit: RequestPermit, scene: &Scene) {
        let at = (0..3).find(|&i| {
            self.rooms
                .at(i)
                .is_some_and(|room| Arc::ptr_eq(room, permit.room()))
        });
        let at = at.expect("a permit is one of the rooms'");
        let factor = match self.random.below(100) < scene.slow_percent {
            true => 5,
            false => 1,
        };
        let takes = factor * (SERVICE_US + self.random.below(SERVICE_US / 5));
        self.outcome.served[at] += 1;
        self.outcome.worked_us += takes;
        self.served.insert(client, permit);
        self.at(takes, client, SimEvent::Done);
    }

    fn ask(&mut self, client: usize, scene: &Scene) {
        let now = self.ms();
        if !self.rooms.has_line() {
            let random = self.random.next();
            let load = |i: usize| {
                let standing = self.rooms.standing(i, now).expect("it is there");
                Load {
                    cost: u64::from(standing.used) + 1,
                    share: FULL_SHARE,
                    avoid: !standing.is_open,
                    full: standing.is_full,
                }
            };
            if let Choice::At(i) = choose(Picker::LessBusy, &self.schedule, random, load) {
                let permit = self.rooms.at(i).and_then(|room| room.take());
                return self.begin(client, permit.expect("it was free"), scene);
            }
        }
        let woken = Arc::clone(&self.woken);
        let waker = Waker::from(Arc::new(ClientWaker { client, woken }));
        match join(Wants::Any(Arc::clone(&self.rooms)), &waker, now) {
            Joined::Permitted(permit) => self.begin(client, permit, scene),
            Joined::Waiting(waiting) => {
                self.waiting.insert(client, (waiting, self.now_us));
                if self.random.below(100) < scene.impatient_percent {
                    let after = self.random.below(SERVICE_US);
                    self.at(after, client, SimEvent::Tires);
                }
            }
            Joined::Full => panic!("the queue has room for all"),
        }
    }

    /// Starts the requests of clients that were handed a permit.
    fn begin_woken(&mut self, scene: &Scene) {
        let woken = std::mem::take(&mut *self.woken.lock().unwrap());
        for client in woken {
            // A client that gave up at that moment was woken for nothing: its permit went to the next client.
            let Some((waiting, since)) = self.waiting.remove(&client) else {
                continue;
            };
            let permit = waiting.take().expect("a client that is woken has a permit");
            let waited = self.now_us - since;
            self.outcome.longest_wait_us = self.outcome.longest_wait_us.max(waited);
            self.begin(client, permit, scene);
        }
    }

    fn check(&mut self) {
        let now = self.ms();
        let mut is_room = false;
        let most = self.outcome.most_used.iter_mut();
        for (i, (limit, most)) in LIMITS.into_iter().zip(most).enumerate() {
            let standing = self.rooms.standing(i, now).expect("it is there");
            assert!(standing.used <= limit, "{i} has {}", standing.used);
            is_room |= !standing.is_full;
            *most = (*most).max(standing.used);
        }
        assert!(
            self.waiting.is_empty() || !is_room,
            "no client waits while there is room"
        );
        assert_eq!(self.rooms.has_line(), !self.waiting.is_empty());
    }
}

fn run(scene: &Scene) -> RunSummary {
    let mut world = ClientsAndRooms {
        rooms: rooms(&LIMITS, scene.clients),
        schedule: Schedule::new(&LIMITS),
        random: Random::new(scene.seed),
        now_us: 0,
        events: BinaryHeap::new(),
        served: HashMap::new(),
        waiting: HashMap::new(),
        woken: Arc::default(),
        outcome: RunSummary::default(),
    };
    for client in 0..scene.clients {
        let after = world.random.below(1_000);
        world.at(after, client, SimEvent::Asks);
    }
    while let Some(std::cmp::Reverse((at, client, what))) = world.events.pop() {
        if at > scene.duration_us {
            // Work after the end of the run is not counted.
            if what == SimEvent::Done {
                world.outcome.worked_us -= at - scene.duration_us;
            }
            continue;
        }
        world.now_us = at;
        match what {
            SimEvent::Asks => world.ask(client, scene),
            SimEvent::Done => {
                drop(world.served.remove(&client));
                world.begin_woken(scene);
                world.ask(client, scene);
            }
            SimEvent::Tires => {
                if world.waiting.remove(&client).is_some() {
                    world.outcome.gave_up += 1;
                    // The client may have been handed a permit, which now goes to the next one.
                    world.begin_woken(scene);
                    world.at(SERVICE_US, client, SimEvent::Asks);
                }
            }
        }
        world.check();
    }
    let rooms = Arc::clone(&world.rooms);
    drop(world.served);
    drop(world.waiting);
    assert!(!rooms.has_line(), "no client is left in line");
    for i in 0..3 {
        assert_eq!(rooms.standing(i, 1).map(|standing| standing.used), Some(0));
    }
    world.outcome
}

#[test]
fn unequal_providers_are_full_and_never_more() {
    for seed in 1..=3 {
        for clients in [450, 600, 1_000] {
            let scene = Scene {
                seed,
                clients,
                slow_percent: 5,
                impatient_percent: 0,
                duration_us: 4_000_000,
            };
            let outcome = run(&scene);
            let ceiling = u64::from(LIMITS.iter().sum::<u32>()) * scene.duration_us;
            let used = outcome.worked_us as f64 / ceiling as f64;
            assert!(
                (0.97..=1.0).contains(&used),
                "{clients} clients, seed {seed}: {used:.3} of the ceiling"
            );
            assert_eq!(outcome.most_used, LIMITS);
            let total: u64 = outcome.served.iter().sum();
            for (served, limit) in outcome.served.iter().zip(LIMITS) {
                let share = *served as f64 / total as f64;
                let want = f64::from(limit) / 400.0;
                assert!(
                    (share - want).abs() < 0.02,
                    "a share of {share:.3}, not {want:.3}"
                );
            }
            // First come, first served: no client waits longer than it takes to serve all clients before it.
            let ahead = (clients as u64 - 400).div_ceil(400) + 1;
            let most = ahead * 5 * SERVICE_US * 12 / 10;
            assert!(
                outcome.longest_wait_us <= most,
                "{} µs",
                outcome.longest_wait_us
            );
        }
    }
}

#[test]
fn below_the_ceiling_no_client_waits() {
    for seed in 1..=4 {
        let scene = Scene {
            seed,
            clients: 400,
            slow_percent: 20,
            impatient_percent: 0,
            duration_us: 3_000_000,
        };
        assert_eq!(run(&scene).longest_wait_us, 0);
    }
}

#[test]
fn a_client_that_gives_up_leaves_no_trace() {
    for seed in 1..=4 {
        let scene = Scene {
            seed,
            clients: 800,
            slow_percent: 5,
            impatient_percent: 60,
            duration_us: 3_000_000,
        };
        let outcome = run(&scene);
        assert!(outcome.gave_up > 1_000, "{}", outcome.gave_up);
    }
}

/// Prints the results of some runs: `cargo test -p heddle-proxy --lib figures -- --ignored --nocapture`.
#[test]
#[ignore = "it only prints"]
fn figures() {
    println!("clients  of the ceiling  shares                longest wait");
    for clients in [128, 256, 400, 512, 1_024] {
        let scene = Scene {
            seed: 1,
            clients,
            slow_percent: 0,
            impatient_percent: 0,
            duration_us: 20_000_000,
        };
        let outcome = run(&scene);
        let ceiling = 400 * scene.duration_us;
        let total: u64 = outcome.served.iter().sum();
        let shares = outcome
            .served
            .map(|served| 100.0 * served as f64 / total as f64);
        println!(
            "{clients:>7}  {:>14.3}  {:>5.1} {:>5.1} {:>5.1} %  {:>9.1} ms",
            outcome.worked_us as f64 / ceiling as f64,
            shares[0],
            shares[1],
            shares[2],
            outcome.longest_wait_us as f64 / 1_000.0
        );
    }
}
