//! The rounds: in which order pairs are loaded, with which requests, and which counters are read.

use std::time::Duration;

use super::bytes::ByteReading;
use super::plan::{LinkPlan, RequestKind};
use super::way::{Way, Ways};
use crate::child::{Child, words};
use crate::findings::Findings;
use crate::fixed_rate::{self, Carried};
use crate::load::{Head, Outcome};
use crate::report::Cell;
use crate::sheet::Sheet;
use crate::stage::{self, Stage};
use crate::systems::{Running, Traffic, Work};

/// Half a core for both proxies: little enough that they saturate before load generator and upstream.
const HELD_TO_CORES: f64 = 0.5;
/// The highest offered rate, as a fraction of what the slowest pair carries.
const OFFERED_SHARE: f64 = 0.7;
/// Connections of a busy pair.
const BUSY: u32 = 64;
/// Requests per second of a pair with little traffic, over one connection.
pub(super) const QUIET_RATE: f64 = 20.0;
/// The number of kinds, from the first, for measures that only the thresholds need.
const MAIN_KINDS: usize = 2;
/// Requests before bytes are counted, so that bytes that are sent only once do not count.
const WARM_UP_REQUESTS: u64 = 500;
/// How much longer than planned a load generator may take.
const LATE: Duration = Duration::from_secs(20);

/// Requests of one kind, over a number of connections.
#[derive(Clone, Copy)]
struct Offer {
    kind: RequestKind,
    connections: u32,
    rate: Option<f64>,
}

struct Rounds<'a> {
    plan: &'a LinkPlan,
    ways: &'a Ways,
    stage: Stage<'a>,
    sheet: &'a mut Sheet,
}

/// Runs the whole experiment.
///
/// # Errors
/// When something does not start, or nothing could be measured. Failures within a run are noted.
pub(super) fn run(
    plan: &LinkPlan,
    ways: &Ways,
    sheet: &mut Sheet,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let stage = Stage::set(&ways.systems, 1, plan.warm_up_s, Traffic::MutualTls)?;
    if let Err(reason) = &stage.groups {
        findings.say(format!(
            "Not measured: throughput with half a core: {reason}"
        ));
    }
    let mut rounds = Rounds {
        plan,
        ways,
        stage,
        sheet,
    };
    rounds.all()?;
    anyhow::ensure!(!sheet.is_empty(), "nothing was measured");
    Ok(())
}

impl Rounds<'_> {
    fn all(&mut self) -> anyhow::Result<()> {
        let mut rates = Vec::new();
        for round in 0..self.plan.rounds {
            eprintln!("round {} of {}", round + 1, self.plan.rounds);
            let running = self.start_all()?;
            if rates.is_empty() {
                rates = self.calibrate(&running)?;
            }
            for (number, (&kind, &rate)) in self.plan.kinds.iter().zip(&rates).enumerate() {
                for index in self.stage.order(round + number) {
                    self.fixed_rate(round, index, &running[index], kind, rate);
                }
            }
            for &kind in &self.plan.kinds[..MAIN_KINDS] {
                for index in self.stage.order(round) {
                    self.half_a_core(round, index, &running[index], kind)?;
                }
            }
            if round < self.plan.count_rounds {
                for index in self.stage.order(round) {
                    self.count(round, index, &running[index]);
                }
            }
        }
        Ok(())
    }

    fn start_all(&self) -> anyhow::Result<Vec<Running>> {
        let mesh = Work {
            methods: &["GET", "POST"],
            ..self.stage.work(1, 1)
        };
        let start = |(index, way): (usize, &Way)| {
            let work = match way {
                Way::Http1Plain => Work {
                    traffic: Traffic::Http,
                    ..mesh.clone()
                },
                _ => mesh.clone(),
            };
            self.ways.start(index, &work, &self.stage.place(index))
        };
        self.ways.ways.iter().enumerate().map(start).collect()
    }

    /// The rate that all pairs are offered, for each kind of request.
    fn calibrate(&mut self, running: &[Running]) -> anyhow::Result<Vec<f64>> {
        let mut rates = Vec::new();
        for &kind in &self.plan.kinds {
            let mut all = Vec::new();
            for (index, pair) in running.iter().enumerate() {
                let offer = Offer::busy(kind);
                let found = self.load(pair, offer, self.plan.calibration_s);
                let held = self.held(index, pair, kind, self.plan.calibration_s)?;
                match found {
                    Ok(outcome) => {
                        all.push(Carried::of(&outcome, held.and_then(Result::ok).as_ref()));
                    }
                    Err(error) => self.problem(index, kind, 0, &error),
                }
            }
            let Some(rate) = fixed_rate::guess(&all, OFFERED_SHARE) else {
                anyhow::bail!("no pair carried {kind}");
            };
            rates.push(self.settled(running, kind, rate)?);
        }
        Ok(rates)
    }

    /// Lowers that rate until no pair is close to its limit.
    fn settled(&self, running: &[Running], kind: RequestKind, rate: f64) -> anyhow::Result<f64> {
        let mut busy: Vec<&Running> = running.iter().collect();
        fixed_rate::settle(rate, |rate| {
            let mut most: f64 = 0.0;
            for pair in std::mem::take(&mut busy) {
                let offer = Offer {
                    rate: Some(rate),
                    ..Offer::busy(kind)
                };
                let seconds = self.plan.calibration_s;
                let found = self.offered(pair, offer, seconds);
                let used = found.map_or(0.0, |outcome| outcome.cores("proxy"));
                if !fixed_rate::is_enough(used) {
                    busy.push(pair);
                }
                most = most.max(used);
            }
            Ok(most)
        })
    }

    fn fixed_rate(
        &mut self,
        round: usize,
        index: usize,
        pair: &Running,
        kind: RequestKind,
        rate: f64,
    ) {
        let offer = Offer {
            rate: Some(rate),
            ..Offer::busy(kind)
        };
        let found = self.load(pair, offer, self.plan.window_s);
        let found = found.and_then(|outcome| match fixed_rate::at_its_limit(&outcome) {
            Some(why) => Err(anyhow::anyhow!(why)),
            None => Ok(outcome),
        });
        match found {
            Ok(outcome) => self.add_times(round, index, &kind.to_string(), &outcome),
            Err(error) => self.problem(index, kind, round, &error),
        }
    }

    fn half_a_core(
        &mut self,
        round: usize,
        index: usize,
        pair: &Running,
        kind: RequestKind,
    ) -> anyhow::Result<()> {
        let Some(found) = self.held(index, pair, kind, self.plan.window_s)? else {
            return Ok(());
        };
        match found {
            Ok(outcome) => {
                self.add("qps", index, &kind.to_string(), round, outcome.per_s());
            }
            Err(error) => self.problem(index, kind, round, &error),
        }
        Ok(())
    }

    /// Loads a pair at full speed with half a core. `None`: without a group there is no quota.
    fn held(
        &self,
        index: usize,
        pair: &Running,
        kind: RequestKind,
        seconds: f64,
    ) -> anyhow::Result<Option<anyhow::Result<Outcome>>> {
        let Ok(groups) = &self.stage.groups else {
            return Ok(None);
        };
        groups[index].hold(Some(HELD_TO_CORES))?;
        let found = self.load(pair, Offer::busy(kind), seconds);
        groups[index].hold(None)?;
        Ok(Some(found))
    }

    /// Counts bytes of every kind of request on a busy pair, and of the main kinds on a pair with little traffic.
    fn count(&mut self, round: usize, index: usize, pair: &Running) {
        for (number, &kind) in self.plan.kinds.iter().enumerate() {
            let counted = self.plan.counted;
            let cell = kind.to_string();
            if let Err(error) =
                self.exchanges(round, index, pair, Offer::busy(kind), counted, &cell)
            {
                self.problem(index, kind, round, &error);
            }
            if number >= MAIN_KINDS {
                continue;
            }
            let quiet = Offer {
                kind,
                connections: 1,
                rate: Some(QUIET_RATE),
            };
            let counted = (QUIET_RATE * self.plan.quiet_s) as u64;
            let cell = quiet_cell(kind);
            match self.exchanges(round, index, pair, quiet, counted, &cell) {
                Ok(outcome) => self.add_times(round, index, &cell, &outcome),
                Err(error) => self.problem(index, kind, round, &error),
            }
        }
    }

    /// Counts the bytes of `exchanges` exchanges.
    fn exchanges(
        &mut self,
        round: usize,
        index: usize,
        pair: &Running,
        offer: Offer,
        exchanges: u64,
        cell: &str,
    ) -> anyhow::Result<Outcome> {
        let between = pair.between.expect("it is a pair");
        let plain = self.ways.ways[index] == Way::Http1Plain;
        let read = || {
            let reading = ByteReading::take(pair.meter.as_ref(), between)?;
            anyhow::Ok(if plain {
                reading.in_the_clear()
            } else {
                reading
            })
        };
        // The warm-up runs at full speed: over one connection that is little traffic, too.
        let warm_up = Offer {
            rate: None,
            ..offer
        };
        self.bounded(pair, warm_up, WARM_UP_REQUESTS)?;
        let start = read()?;
        let outcome = self.bounded(pair, offer, exchanges)?;
        let found = start.until(&read()?, exchanges, offer.kind.body_bytes);
        for (name, figure) in [
            ("bytes", found.bytes),
            ("overhead_bytes", found.overhead_bytes),
            ("socket_bytes", found.socket_bytes),
            ("segments", found.segments),
        ] {
            if let Some(figure) = figure {
                self.add(name, index, cell, round, figure);
            }
        }
        Ok(outcome)
    }

    /// Loads a pair for a window of `seconds`, and checks the outcome.
    fn load(&self, pair: &Running, offer: Offer, seconds: f64) -> anyhow::Result<Outcome> {
        let outcome = self.offered(pair, offer, seconds)?;
        outcome.check(offer.rate)?;
        Ok(outcome)
    }

    /// The same without the check.
    fn offered(&self, pair: &Running, offer: Offer, seconds: f64) -> anyhow::Result<Outcome> {
        let more = offer.words();
        self.stage
            .load_with(pair, offer.cell(), &more, offer.rate, seconds)
    }

    /// Loads a pair with `requests` requests.
    fn bounded(&self, pair: &Running, offer: Offer, requests: u64) -> anyhow::Result<Outcome> {
        let mut command = self.stage.load_command(&pair.targets, offer.cell());
        command.extend(offer.words());
        command.extend(words(["--requests", &requests.to_string()]));
        command.extend(pair.watched());
        let mut within = LATE;
        if let Some(rate) = offer.rate {
            command.extend(words(["--rate", &rate.to_string()]));
            within += Duration::from_secs_f64(requests as f64 / rate * 2.0);
        }
        let log = self.stage.dir.path().join("load.log");
        let place = &self.stage.client;
        let child = Child::start("the load generator", place, &command, &log, true)?;
        let outcome = stage::parse(&child.finish(within)?)?;
        outcome.check(None)?;
        Ok(outcome)
    }

    fn add_times(&mut self, round: usize, index: usize, cell: &str, outcome: &Outcome) {
        for (name, figure) in [
            ("cpu_us", outcome.cpu_us("proxy")),
            ("core_percent", outcome.cores("proxy") * 100.0),
            ("offered_per_s", outcome.per_s()),
            ("p50_us", outcome.p50_us),
            ("p99_us", outcome.p99_us),
        ] {
            self.add(name, index, cell, round, figure);
        }
    }

    fn add(&mut self, name: &'static str, index: usize, cell: &str, round: usize, figure: f64) {
        let way = self.ways.name(index);
        self.sheet.add(name, way, cell, round, figure);
    }

    fn problem(&mut self, index: usize, kind: RequestKind, round: usize, why: &anyhow::Error) {
        let way = self.ways.name(index);
        self.sheet.problem(way, &kind.to_string(), round, why);
    }
}

impl Offer {
    fn busy(kind: RequestKind) -> Offer {
        Offer {
            kind,
            connections: BUSY,
            rate: None,
        }
    }

    fn cell(self) -> Cell {
        Cell {
            connections: self.connections,
            body_bytes: self.kind.body_bytes,
        }
    }

    fn words(self) -> Vec<std::ffi::OsString> {
        let head = match self.kind.head {
            Head::Plain => "plain",
            Head::Browser => "browser",
            Head::Grpc => "grpc",
        };
        let mut all = words(["--head", head]);
        all.extend(words(["--send-bytes", &self.kind.body_bytes.to_string()]));
        all.extend(self.kind.changing.then_some("--changing").map(Into::into));
        all
    }
}

/// The name in tables of the main kinds of requests on a pair with little traffic.
pub(super) fn quiet_cell(kind: RequestKind) -> String {
    format!("{kind}, {QUIET_RATE:.0}/s")
}
