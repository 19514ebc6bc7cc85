//! The rounds: who is loaded when, and what is read.

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use super::plan::ProxyPlan;
use super::proof;
use crate::account::Memory;
use crate::child::words;
use crate::fixed_rate::{self, Carried};
use crate::instructions;
use crate::load::Outcome;
use crate::report::{Cell, Measure, Run};
use crate::stage::{self, Stage};
use crate::syscalls::Method;
use crate::systems::{ProxyKind, Running, System, Traffic};
use crate::wire::Wire;

/// Half a core: little enough that the proxy saturates before the load generator and the upstream.
const HELD_TO_CORES: f64 = 0.5;
/// The scenario `memory`: a small mesh, and clients that stay connected.
const MESH_SERVICES: u32 = 100;
const MESH_ENDPOINTS: u32 = 10;
const MESH_CELL: Cell = Cell {
    connections: 500,
    body_bytes: 128,
};
const MESH_RATE: f64 = 5_000.0;

/// What a run was, for its row.
#[derive(Clone, Copy)]
struct Label {
    round: usize,
    index: usize,
    measure: Measure,
    cell: Cell,
    offered_per_s: Option<f64>,
}

struct Experiment<'a> {
    plan: &'a ProxyPlan,
    stage: Stage<'a>,
    method: Option<Method>,
    progress: ProgressBar,
    runs: Vec<Run>,
    notes: Vec<String>,
}

/// Runs the whole experiment.
///
/// # Errors
/// When something does not start. What goes wrong within a run makes that run invalid instead.
pub(super) fn run(
    plan: &ProxyPlan,
    systems: &[System],
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<Run>> {
    let stage = Stage::set(
        systems,
        MESH_SERVICES * MESH_ENDPOINTS,
        plan.warm_up_s,
        plan.traffic,
    )?;
    if let Err(reason) = &stage.groups {
        notes.push(format!("Throughput at half a core was skipped: {reason}"));
    }
    let method = Method::probe();
    notes.push(match method {
        Some(method) => format!("System calls counted by {}", method.name()),
        None => "System calls not counted: neither perf nor strace works here".to_owned(),
    });
    let progress = ProgressBar::new(plan.steps(systems.len()) as u64);
    progress.set_style(ProgressStyle::with_template(
        "{bar:30} {pos}/{len} {elapsed} (about {eta} left) {msg}",
    )?);
    let mut experiment = Experiment {
        plan,
        stage,
        method,
        progress,
        runs: Vec::new(),
        notes: Vec::new(),
    };
    experiment.all()?;
    experiment.progress.finish_and_clear();
    notes.append(&mut experiment.notes);
    Ok(experiment.runs)
}

impl Experiment<'_> {
    fn all(&mut self) -> anyhow::Result<()> {
        let rates = self.calibrate()?;
        for round in 0..self.plan.rounds {
            self.round(round, &rates)?;
        }
        if self.plan.traffic == Traffic::Http {
            for round in 0..self.plan.count_rounds.min(self.plan.rounds) {
                self.meshes(round)?;
            }
        }
        if matches!(self.plan.traffic, Traffic::Http | Traffic::Grpc) {
            self.instructions();
        }
        Ok(())
    }

    /// Finds the best of each system in each cell, and from the slowest the rate that all are offered.
    fn calibrate(&mut self) -> anyhow::Result<Vec<f64>> {
        let pairs = self.plan.traffic == Traffic::MutualTls;
        let wire = pairs.then(Wire::open);
        let running = self.stage.start_all()?;
        if let Some(wire) = &wire {
            let work = self.stage.work(1, 1);
            let found = proof::of_all(self.stage.systems, &running, &work, wire)?;
            self.notes.extend(found);
        }
        drop(wire);
        let mut rates = Vec::new();
        for &cell in &self.plan.cells {
            let mut all = Vec::new();
            for (index, proxy) in running.iter().enumerate() {
                self.say(index, "its best");
                let outcome = self.stage.load(proxy, cell, None, self.plan.calibration_s);
                let held = self.held(index, proxy, cell, self.plan.calibration_s)?;
                if let Ok(outcome) = &outcome {
                    all.push(Carried::of(outcome, held.and_then(Result::ok).as_ref()));
                }
                self.progress.inc(1);
                self.record(Label::new(0, index, Measure::WholeCore, cell), outcome);
            }
            let Some(rate) = fixed_rate::guess(&all, self.plan.offered_share) else {
                anyhow::bail!("no system carried {cell}: {:?}", self.problems());
            };
            rates.push(self.settled(&running, cell, rate)?);
        }
        Ok(rates)
    }

    /// That rate, lowered until no proxy is close to its limit.
    fn settled(&mut self, running: &[Running], cell: Cell, rate: f64) -> anyhow::Result<f64> {
        let mut busy: Vec<usize> = (0..running.len()).collect();
        self.progress.inc(running.len() as u64);
        fixed_rate::settle(rate, |rate| {
            let mut most: f64 = 0.0;
            let tried = std::mem::take(&mut busy);
            for index in tried {
                self.say(index, "a rate for all");
                let seconds = self.plan.calibration_s;
                // What goes wrong here goes wrong in the rounds too, which say it.
                let found = self.stage.load(&running[index], cell, Some(rate), seconds);
                let used = found.map_or(0.0, |outcome| outcome.cores("proxy"));
                if !fixed_rate::is_enough(used) {
                    busy.push(index);
                }
                most = most.max(used);
            }
            Ok(most)
        })
    }

    fn round(&mut self, round: usize, rates: &[f64]) -> anyhow::Result<()> {
        let running = self.stage.start_all()?;
        for (index, proxy) in running.iter().enumerate() {
            let memory = proxy.idle_memory();
            self.record_memory(
                Label::new(round, index, Measure::MemoryIdle, Cell::NONE),
                memory,
            );
        }
        let by_cell = self.plan.cells.iter().copied().zip(rates.iter().copied());
        // The main cell at both ends of the round, the second time in the opposite order: what drifts
        // steadily in between falls on all systems alike.
        let mut order = self.stage.order(round);
        self.main_cell(2 * round, &order, &running, rates[0])?;
        for (number, (cell, rate)) in by_cell.enumerate().skip(1) {
            for index in self.stage.order(round + number) {
                self.fixed_rate(round, index, &running[index], cell, rate);
            }
        }
        order.reverse();
        self.main_cell(2 * round + 1, &order, &running, rates[0])?;
        if round < self.plan.count_rounds {
            for index in self.stage.order(round) {
                self.say(index, "system calls");
                let cell = self.plan.main();
                let label = Label::new(round, index, Measure::SystemCallsBusy, cell);
                self.system_calls(label, &running[index]);
                // strace slows a proxy so much that it would not keep up with a rate
                if self.method == Some(Method::Perf) {
                    let label = Label::new(round, index, Measure::SystemCallsFixedRate, cell);
                    self.system_calls(label.at(rates[0]), &running[index]);
                }
            }
        }
        Ok(())
    }

    /// What the bars use: CPU per request at the fixed rate, and throughput at half a core.
    fn main_cell(
        &mut self,
        round: usize,
        order: &[usize],
        running: &[Running],
        rate: f64,
    ) -> anyhow::Result<()> {
        for &index in order {
            self.fixed_rate(round, index, &running[index], self.plan.main(), rate);
        }
        for &index in order {
            self.half_a_core(round, index, &running[index])?;
        }
        for &index in order.iter().filter(|_| self.plan.whole_cores) {
            self.whole_core(round, index, &running[index]);
        }
        Ok(())
    }

    fn fixed_rate(&mut self, round: usize, index: usize, proxy: &Running, cell: Cell, rate: f64) {
        self.say(index, "a fixed rate");
        let outcome = self
            .stage
            .load(proxy, cell, Some(rate), self.plan.window(cell));
        self.record(
            Label::new(round, index, Measure::FixedRate, cell).at(rate),
            outcome,
        );
    }

    fn whole_core(&mut self, round: usize, index: usize, proxy: &Running) {
        self.say(index, "a whole core");
        let cell = self.plan.main();
        let seconds = self.plan.main_window_s / 2.0;
        let outcome = self.stage.load(proxy, cell, None, seconds);
        self.record(Label::new(round, index, Measure::WholeCore, cell), outcome);
    }

    fn half_a_core(&mut self, round: usize, index: usize, proxy: &Running) -> anyhow::Result<()> {
        self.say(index, "half a core");
        let cell = self.plan.main();
        let seconds = self.plan.main_window_s / 2.0;
        match self.held(index, proxy, cell, seconds)? {
            Some(outcome) => {
                self.record(Label::new(round, index, Measure::HalfCore, cell), outcome);
            }
            None => self.progress.inc(1),
        }
        Ok(())
    }

    /// Loads one as fast as it goes with half a core. `None`: without a group there is no quota.
    fn held(
        &self,
        index: usize,
        proxy: &Running,
        cell: Cell,
        seconds: f64,
    ) -> anyhow::Result<Option<anyhow::Result<Outcome>>> {
        let Ok(groups) = &self.stage.groups else {
            return Ok(None);
        };
        groups[index].hold(Some(HELD_TO_CORES))?;
        let outcome = self.stage.load(proxy, cell, None, seconds);
        groups[index].hold(None)?;
        Ok(Some(outcome))
    }

    fn system_calls(&mut self, label: Label, proxy: &Running) {
        self.progress.inc(1);
        let Some(method) = self.method else {
            return;
        };
        let mut command = self.stage.load_command(&proxy.targets, label.cell);
        command.extend(words(["--requests", &method.requests().to_string()]));
        if let Some(rate) = label.offered_per_s {
            command.extend(words(["--rate", &rate.to_string()]));
        }
        let counted = method
            .count(
                &proxy.pids(),
                &command,
                &self.stage.client,
                self.stage.dir.path(),
            )
            .and_then(|(count, printed)| Ok((count, stage::parse(&printed)?)));
        let run = self.run(label, counted, |run, (count, outcome)| {
            run.problem = problem(&outcome, label.offered_per_s);
            let per_request = count as f64 / outcome.requests as f64;
            run.figures.insert("system_calls_per_request", per_request);
        });
        self.runs.push(run);
    }

    /// The scenario `memory`: every system by itself, with a mesh's configuration and many clients.
    fn meshes(&mut self, round: usize) -> anyhow::Result<()> {
        let mesh = self.stage.work(MESH_SERVICES, MESH_ENDPOINTS);
        for index in self.stage.order(round) {
            self.say(index, "memory");
            let proxy = self.stage.systems[index].start(&mesh, &self.stage.place(index), &[])?;
            let idle = proxy.idle_memory();
            self.record_memory(
                Label::new(round, index, Measure::MemoryConfigured, Cell::NONE),
                idle,
            );
            let outcome = self.stage.load(&proxy, MESH_CELL, Some(MESH_RATE), 2.0);
            let memory = outcome.and_then(|outcome| {
                if let Some(problem) = problem(&outcome, Some(MESH_RATE)) {
                    anyhow::bail!(problem);
                }
                outcome
                    .memory
                    .get("proxy")
                    .copied()
                    .context("no account of the proxy")
            });
            self.record_memory(
                Label::new(round, index, Measure::MemoryLoaded, MESH_CELL),
                memory,
            );
            self.progress.inc(1);
        }
        Ok(())
    }

    /// Instructions are counted for what is built here alone: they compare versions of it, not programs.
    fn instructions(&mut self) {
        let work = self.stage.work(1, 1);
        let cell = self.plan.main();
        for (index, system) in self.stage.systems.iter().enumerate() {
            if !matches!(system.kind, ProxyKind::Heddle | ProxyKind::H2) {
                continue;
            }
            self.say(index, "instructions");
            let place = self.stage.place(index);
            let load = |targets: &[String], requests: u64| {
                let mut command = self.stage.load_command(targets, cell);
                command.extend(words(["--requests", &requests.to_string()]));
                command
            };
            let counted =
                instructions::per_request(system, &work, &place, &self.stage.client, load);
            let label = Label::new(0, index, Measure::Instructions, cell);
            let run = self.run(label, counted, |run, count| {
                run.figures.insert("user_instructions_per_request", count);
            });
            self.runs.push(run);
        }
    }

    fn say(&self, index: usize, what: &str) {
        self.progress
            .set_message(format!("{}: {what}", self.stage.systems[index].name));
    }

    fn problems(&self) -> Vec<&String> {
        self.runs
            .iter()
            .filter_map(|run| run.problem.as_ref())
            .collect()
    }

    fn record(&mut self, label: Label, outcome: anyhow::Result<Outcome>) {
        let run = self.run(label, outcome, |run, outcome| {
            run.problem = problem(&outcome, label.offered_per_s);
            if label.measure == Measure::FixedRate && run.problem.is_none() {
                run.problem = fixed_rate::at_its_limit(&outcome);
            }
            run.add_load(&outcome);
        });
        self.runs.push(run);
        self.progress.inc(1);
    }

    fn record_memory(&mut self, label: Label, memory: anyhow::Result<Memory>) {
        let run = self.run(label, memory, |run, memory| {
            run.figures
                .insert("rss_mib", memory.rss_kib as f64 / 1024.0);
            run.figures
                .insert("pss_mib", memory.pss_kib as f64 / 1024.0);
            run.figures
                .insert("private_mib", memory.private_kib as f64 / 1024.0);
        });
        self.runs.push(run);
    }

    /// A run of what was found, or of why nothing was.
    fn run<T>(&self, label: Label, found: anyhow::Result<T>, add: impl FnOnce(&mut Run, T)) -> Run {
        let Label {
            round,
            index,
            measure,
            cell,
            offered_per_s,
        } = label;
        let system = self.stage.systems[index].name.clone();
        let mut run = Run {
            round,
            system,
            measure,
            cell,
            offered_per_s,
            ..Run::default()
        };
        match found {
            Ok(found) => add(&mut run, found),
            Err(error) => run.problem = Some(format!("{error:#}")),
        }
        run
    }
}

impl Label {
    fn new(round: usize, index: usize, measure: Measure, cell: Cell) -> Label {
        Label {
            round,
            index,
            measure,
            cell,
            offered_per_s: None,
        }
    }

    fn at(self, rate: f64) -> Label {
        Label {
            offered_per_s: Some(rate),
            ..self
        }
    }
}

/// Why a run does not count, if it does not.
fn problem(outcome: &Outcome, rate: Option<f64>) -> Option<String> {
    if !outcome.errors.is_empty() {
        return Some(format!("errors: {:?}", outcome.errors));
    }
    if outcome.requests == 0 {
        return Some("no request was answered".to_owned());
    }
    let reached = outcome.requests as f64 / outcome.seconds;
    // Arrivals are random: short windows of few requests miss the rate by a few per cent.
    rate.filter(|rate| reached < rate * 0.93)
        .map(|rate| format!("carried {reached:.0} of {rate:.0} requests per second"))
}

#[cfg(test)]
mod tests;
