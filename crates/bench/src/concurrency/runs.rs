//! The sequence of runs: the wait is chosen, configurations of Envoy are screened, then each setting of each system is
//! measured in turn, over and over.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use super::figures::{ConcurrencyRun, shared_out};
use super::mesh::{self, Contender};
use super::plan::{
    CALIBRATED_FOR, ConcurrencyPlan, LENGTHENED, MOST_OF_A_CORE, ROOMS, Room, SMALL_QUOTA, WAIT_MS,
};
use super::registry::Abilities;
use super::report::{self, RoomReport, Scale, Screened};
use super::setups::{EnvoySetup, best, may_be_best};
use super::stage::{ConcurrencyStage, LoadProfile};
use crate::findings::Findings;
use crate::systems::{ProxyKind, Running, System};

/// How long a system is loaded before anything counts, in seconds.
const FILL_S: f64 = 3.0;

/// Inputs that stay the same for the whole experiment.
pub(super) struct ConcurrencyExperiment<'a> {
    pub(super) plan: &'a ConcurrencyPlan,
    pub(super) systems: &'a [System],
    pub(super) abilities: &'a Abilities,
}

/// Runs the whole experiment. Returns how many requests failed or had a wrong hash.
///
/// # Errors
/// When something does not start, or a run cannot be made.
pub(super) fn run(
    experiment: &ConcurrencyExperiment,
    findings: &mut Findings,
) -> anyhow::Result<u64> {
    let versions = experiment.systems.iter();
    let versions = versions.map(|system| format!("{} {}", system.name, system.version));
    findings.say(versions.collect::<Vec<_>>().join(" · "));
    let said = experiment.abilities.said();
    said.iter().for_each(|line| findings.say(line));
    let mut waits = &LENGTHENED[..];
    loop {
        let scale = experiment.calibrate(waits)?;
        let longer = waits
            .iter()
            .position(|factor| WAIT_MS * factor > scale.wait_ms);
        let mut rooms = Vec::new();
        for room in &ROOMS {
            rooms.push(experiment.measure_room(room, &scale)?);
        }
        let busiest = rooms.iter().map(RoomReport::busiest_core);
        let busiest = busiest.fold(0.0, f64::max);
        match longer {
            Some(longer) if busiest > MOST_OF_A_CORE && experiment.plan.insists => {
                findings.say(format!(
                    "With a wait of {} ms {:.0} % of a core was in use in one run: measured again with a longer one",
                    scale.wait_ms,
                    busiest * 100.0
                ));
                waits = &waits[longer..];
            }
            _ => {
                report::scale(&scale, busiest, findings);
                return Ok(report::rooms(experiment.plan, &rooms, findings));
            }
        }
    }
}

impl ConcurrencyExperiment<'_> {
    /// The systems that can be loaded with a room: Heddle, and Envoy in each of its configurations.
    fn candidates(&self, room: &Room) -> Vec<Contender<'_>> {
        let of = |system| {
            let setups = EnvoySetup::candidates(room).iter().copied();
            let contender = move |setup| Contender { system, setup };
            match system.kind {
                ProxyKind::Envoy => setups.map(|setup| contender(Some(setup))).collect(),
                _ => vec![contender(None)],
            }
        };
        self.systems.iter().flat_map(of).collect()
    }

    fn start(
        &self,
        contender: &Contender,
        stage: &ConcurrencyStage,
        room: &Room,
    ) -> anyhow::Result<Running> {
        let systems = &mut self.systems.iter();
        let index = systems.position(|system| system.name == contender.system.name);
        let place = stage.place(index.unwrap_or(0));
        mesh::start(contender, &stage.endpoints, room, place, self.abilities)
    }

    /// Loads a system that has just been started, without measuring: its proxies open the connections to each other,
    /// whose handshakes keep a core busy for a second or two where each connection carries one request at a time.
    fn fill(
        &self,
        running: &Running,
        stage: &ConcurrencyStage,
        wait_ms: u64,
    ) -> anyhow::Result<()> {
        let load = LoadProfile {
            warm_up_s: 0.0,
            ..self
                .plan
                .load(self.plan.most_connections(), wait_ms, FILL_S)
        };
        stage.load(running, load)?;
        rest(wait_ms);
        Ok(())
    }

    /// Finds the shortest wait at a provider with which no system makes a core too busy, and the CPU time of answers,
    /// from which the quotas follow.
    fn calibrate(&self, waits: &[u64]) -> anyhow::Result<Scale> {
        let room = &ROOMS[0];
        let stage = ConcurrencyStage::set(self.systems, room)?;
        let most = self.plan.most_connections();
        let mut waits = waits.iter().map(|factor| WAIT_MS * factor).peekable();
        let mut scale = Scale::default();
        for contender in self.candidates(room) {
            eprintln!("calibration: {}", contender.name());
            let running = self.start(&contender, &stage, room)?;
            self.fill(&running, &stage, waits.peek().copied().unwrap_or(WAIT_MS))?;
            while let Some(wait_ms) = waits.peek().copied() {
                let load = self.plan.load(most, wait_ms, self.plan.calibration_s);
                let found = ConcurrencyRun::of(&stage.load(&running, load)?);
                scale.wait_ms = wait_ms;
                if found.busiest_core() <= CALIBRATED_FOR {
                    scale.busiest = scale.busiest.max(found.busiest_core());
                    break;
                }
                scale.busiest = 0.0;
                waits.next();
            }
        }
        let load = self.plan.load(most, scale.wait_ms, self.plan.calibration_s);
        let direct = stage.load_directly(shared_out(most, [1.0; 3]), load)?;
        scale.answer_us = direct.outcome.cpu_us("provider");
        let third = f64::from(most) / (scale.wait_ms as f64 / 1e3) / 3.0;
        scale.third_cores = third * scale.answer_us / 1e6;
        Ok(scale)
    }

    fn measure_room(&self, room: &Room, scale: &Scale) -> anyhow::Result<RoomReport> {
        let stage = ConcurrencyStage::set(self.systems, room)?;
        let mut report = RoomReport {
            quotas: stage.hold(SMALL_QUOTA * scale.third_cores)?,
            third_cores: scale.third_cores,
            window_s: self.plan.window_s(scale.wait_ms),
            screening_s: self.plan.screening_s(scale.wait_ms),
            no_quotas: stage.no_groups.clone(),
            ..RoomReport::of(*room)
        };
        report.screened = self.screen(&stage, room, scale.wait_ms)?;
        for &connections in self.plan.connections {
            let here = report.screened.iter();
            let here = here.filter(|one| one.connections == connections);
            let shown: Vec<_> = here
                .filter_map(|one| Some((one.setup, one.shown()?)))
                .collect();
            let best = best(&shown);
            report.best.extend(best.map(|best| (connections, best)));
        }
        self.measure(&stage, &mut report, scale.wait_ms)?;
        Ok(report)
    }

    /// Screens each configuration of Envoy with each number of connections, in several runs as long as those that
    /// follow.
    fn screen(
        &self,
        stage: &ConcurrencyStage,
        room: &Room,
        wait_ms: u64,
    ) -> anyhow::Result<Vec<Screened>> {
        let mut found = Vec::new();
        // The highest rate of requests that a configuration has shown, by number of connections.
        let mut most: BTreeMap<u32, f64> = BTreeMap::new();
        for contender in self.candidates(room) {
            let Some(setup) = contender.setup else {
                continue;
            };
            eprintln!("{}: screening {}", room.name, contender.name());
            let running = self.start(&contender, stage, room)?;
            // `screen_one` reports a configuration that fails too often.
            drop(self.fill(&running, stage, wait_ms));
            for &connections in self.plan.connections {
                let most = most.entry(connections).or_default();
                let screened =
                    self.screen_one(stage, &running, (connections, setup), wait_ms, *most);
                let sound = screened.shown().filter(ConcurrencyRun::is_right);
                *most = sound.map_or(*most, |shown| most.max(shown.qps));
                found.push(screened);
            }
        }
        Ok(found)
    }

    /// The runs of a configuration that is being screened; a single one if it shows that the configuration is not the
    /// best.
    fn screen_one(
        &self,
        stage: &ConcurrencyStage,
        running: &Running,
        (connections, setup): (u32, EnvoySetup),
        wait_ms: u64,
        most: f64,
    ) -> Screened {
        let window_s = self.plan.screening_s(wait_ms);
        let load = self.plan.load(connections, wait_ms, window_s);
        let mut screened = Screened {
            connections,
            setup,
            runs: Vec::new(),
            failure: None,
        };
        while screened.runs.len() < self.plan.screening_runs {
            // Too many failures end the load generator with an error: the configuration is not the best.
            let loaded = stage.load(running, load);
            rest(wait_ms);
            match loaded {
                Ok(found) => screened.runs.push(ConcurrencyRun::of(&found)),
                Err(error) => {
                    screened.failure = Some(format!("{error:#}"));
                    break;
                }
            }
            if !may_be_best(&screened.runs[0], most) {
                break;
            }
        }
        screened
    }

    /// Makes all runs of a room: Heddle, the Envoys that are the best for a number of connections, and no proxy at all.
    fn measure(
        &self,
        stage: &ConcurrencyStage,
        report: &mut RoomReport,
        wait_ms: u64,
    ) -> anyhow::Result<()> {
        let room = report.room;
        let wanted = |contender: &Contender| {
            let chosen = |setup| {
                report
                    .best
                    .values()
                    .any(|best| best.each().contains(&setup))
            };
            contender.setup.is_none_or(chosen)
        };
        let mut running = Vec::new();
        for contender in self.candidates(&room).into_iter().filter(wanted) {
            let started = self.start(&contender, stage, &room)?;
            self.fill(&started, stage, wait_ms)?;
            running.push((started, contender));
        }
        for number in 0..self.plan.runs {
            eprintln!("{}: run {} of {}", room.name, number + 1, self.plan.runs);
            for &connections in self.plan.connections {
                let best = report.best.get(&connections);
                let chosen = best.map(|best| best.each()).unwrap_or_default();
                let here = running.iter().filter(|(_, contender)| {
                    contender.setup.is_none_or(|setup| chosen.contains(&setup))
                });
                let here: Vec<_> = here.collect();
                let load = self.plan.load(connections, wait_ms, report.window_s);
                let mut fastest: Option<ConcurrencyRun> = None;
                // The order rotates from run to run, so that drift of the machine affects all alike.
                for turn in 0..here.len() {
                    let (running, contender) = here[(turn + number) % here.len()];
                    let found = ConcurrencyRun::of(&stage.load(running, load)?);
                    report.add(connections, &contender.system.name, contender.setup, found);
                    if fastest.is_none_or(|fastest| found.qps > fastest.qps) {
                        fastest = Some(found);
                    }
                    rest(wait_ms);
                }
                // The ceiling: connections are shared out as the fastest system had its requests at the providers.
                let at = fastest.map_or([1.0; 3], |fastest| fastest.mean_at_each);
                let direct = stage.load_directly(shared_out(connections, at), load)?;
                report.add(
                    connections,
                    report::CEILING,
                    None,
                    ConcurrencyRun::of(&direct),
                );
                rest(wait_ms);
            }
        }
        Ok(())
    }
}

/// Waits until the providers have answered the requests that the last run left behind.
fn rest(wait_ms: u64) {
    thread::park_timeout(Duration::from_millis(2 * wait_ms));
}

impl Contender<'_> {
    /// The name in progress messages.
    fn name(&self) -> String {
        let system = &self.system.name;
        match &self.setup {
            Some(setup) => format!("{system}, {}", setup.name()),
            None => system.clone(),
        }
    }
}

impl ConcurrencyPlan {
    fn load(&self, connections: u32, wait_ms: u64, window_s: f64) -> LoadProfile {
        LoadProfile {
            connections,
            wait_ms,
            warm_up_s: self.warm_up_s,
            window_s,
        }
    }
}

impl RoomReport {
    /// A report without any results yet.
    fn of(room: Room) -> RoomReport {
        RoomReport {
            room,
            quotas: Vec::new(),
            third_cores: 0.0,
            window_s: 0.0,
            screening_s: 0.0,
            no_quotas: None,
            screened: Vec::new(),
            best: BTreeMap::new(),
            runs: BTreeMap::new(),
        }
    }

    fn add(
        &mut self,
        connections: u32,
        system: &str,
        setup: Option<EnvoySetup>,
        run: ConcurrencyRun,
    ) {
        let setting = (connections, system.to_owned(), setup);
        self.runs.entry(setting).or_default().push(run);
    }
}
