//! The rounds: in which order systems are loaded, and what is read.

use indicatif::{ProgressBar, ProgressStyle};

use super::plan::ProxyPlan;
use super::proof;
use crate::account::Memory;
use crate::fixed_rate::{self, Carried};
use crate::load::Outcome;
use crate::report::{Cell, Measure, Run};
use crate::stage::Stage;
use crate::syscalls::Method;
use crate::systems::{Running, System, Traffic};
use crate::wire::Wire;

mod counted;

/// Half a core: little enough that the proxy saturates before the load generator and the upstream.
const HELD_TO_CORES: f64 = 0.5;
/// The description of a run, for its row.
#[derive(Clone, Copy)]
struct Label {
    round: usize,
    index: usize,
    measure: Measure,
    cell: Cell,
    offered_per_s: Option<f64>,
    /// Whether memory is that of this load, and not of an earlier one.
    memory: bool,
}

/// The rates that all systems are offered.
struct Rates {
    /// In each cell.
    by_cell: Vec<f64>,
    /// The lower rate of the main cell.
    quiet: Option<f64>,
}

/// The first and the second time that a round sees the main cell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    First,
    Second,
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
/// When something does not start. A failure within a run makes that run invalid instead.
pub(super) fn run(
    plan: &ProxyPlan,
    systems: &[System],
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<Run>> {
    let stage = Stage::set(
        systems,
        counted::MESH_SERVICES * counted::MESH_ENDPOINTS,
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

    /// Finds the throughput of each system in each cell at full speed, and from the slowest one the rate that all are
    /// offered.
    fn calibrate(&mut self) -> anyhow::Result<Rates> {
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
        let quiet = || fixed_rate::quiet(rates[0], self.plan.offered_share);
        Ok(Rates {
            quiet: self.plan.quiet_rate.then(quiet),
            by_cell: rates,
        })
    }

    /// Lowers that rate until no proxy is close to its limit.
    fn settled(&mut self, running: &[Running], cell: Cell, rate: f64) -> anyhow::Result<f64> {
        let mut busy: Vec<usize> = (0..running.len()).collect();
        self.progress.inc(running.len() as u64);
        fixed_rate::settle(rate, |rate| {
            let mut most: f64 = 0.0;
            let tried = std::mem::take(&mut busy);
            for index in tried {
                self.say(index, "a rate for all");
                let seconds = self.plan.calibration_s;
                // A failure here happens in the rounds, too, which report it.
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

    fn round(&mut self, round: usize, rates: &Rates) -> anyhow::Result<()> {
        let running = self.stage.start_all()?;
        for (index, proxy) in running.iter().enumerate() {
            let memory = proxy.idle_memory();
            self.record_memory(
                Label::new(round, index, Measure::MemoryIdle, Cell::NONE),
                memory,
            );
        }
        let cells = self.plan.cells.iter().copied();
        let by_cell = cells.zip(rates.by_cell.iter().copied());
        // The main cell at both ends of the round, the second time in the opposite order: a steady drift in between
        // affects all systems alike.
        let mut order = self.stage.order(round);
        self.main_cell((round, Pass::First), &order, &running, rates)?;
        let has_others = round < self.plan.cell_rounds;
        for (number, (cell, rate)) in by_cell.enumerate().skip(1).filter(|_| has_others) {
            for index in self.stage.order(round + number) {
                let label = Label::new(round, index, Measure::FixedRate, cell);
                self.at_a_rate(label.at(rate), &running[index]);
            }
        }
        order.reverse();
        self.main_cell((round, Pass::Second), &order, &running, rates)?;
        if round < self.plan.count_rounds {
            for index in self.stage.order(round) {
                self.say(index, "system calls");
                let cell = self.plan.main();
                let label = Label::new(round, index, Measure::SystemCallsBusy, cell);
                self.system_calls(label, &running[index]);
                // strace slows a proxy so much that it would not keep up with a rate
                if self.method == Some(Method::Perf) {
                    let label = Label::new(round, index, Measure::SystemCallsFixedRate, cell);
                    self.system_calls(label.at(rates.by_cell[0]), &running[index]);
                }
            }
        }
        Ok(())
    }

    /// Measures what the main ratios need: CPU per request at the fixed rate, and throughput at half a core.
    fn main_cell(
        &mut self,
        (round, pass): (usize, Pass),
        order: &[usize],
        running: &[Running],
        rates: &Rates,
    ) -> anyhow::Result<()> {
        let cell = self.plan.main();
        let label = |index, measure| Label {
            // The second time proxies still have the memory that large bodies and many connections made them allocate.
            memory: pass == Pass::First,
            ..Label::new(
                2 * round + usize::from(pass == Pass::Second),
                index,
                measure,
                cell,
            )
        };
        for &index in order {
            let label = label(index, Measure::FixedRate).at(rates.by_cell[0]);
            self.at_a_rate(label, &running[index]);
        }
        for &index in order {
            if let Some(rate) = rates.quiet {
                let label = label(index, Measure::QuietRate).at(rate);
                self.at_a_rate(label, &running[index]);
            }
        }
        for &index in order {
            self.half_a_core(label(index, Measure::HalfCore), &running[index])?;
        }
        for &index in order.iter().filter(|_| self.plan.whole_cores) {
            self.whole_core(label(index, Measure::WholeCore), &running[index]);
        }
        Ok(())
    }

    fn at_a_rate(&mut self, label: Label, proxy: &Running) {
        self.say(label.index, "a fixed rate");
        let seconds = self.plan.window(label.cell);
        let rate = label.offered_per_s;
        let outcome = self.stage.load(proxy, label.cell, rate, seconds);
        self.record(label, outcome);
    }

    fn whole_core(&mut self, label: Label, proxy: &Running) {
        self.say(label.index, "a whole core");
        let seconds = self.plan.main_window_s / 2.0;
        let outcome = self.stage.load(proxy, label.cell, None, seconds);
        self.record(label, outcome);
    }

    fn half_a_core(&mut self, label: Label, proxy: &Running) -> anyhow::Result<()> {
        self.say(label.index, "half a core");
        let seconds = self.plan.half_core_window_s;
        match self.held(label.index, proxy, label.cell, seconds)? {
            Some(outcome) => self.record(label, outcome),
            None => self.progress.inc(1),
        }
        Ok(())
    }

    /// Loads one at full speed with half a core. `None`: without a group there is no quota.
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
            run.problem = problem(&outcome, label.offered_per_s).or_else(|| match label.measure {
                Measure::FixedRate => fixed_rate::at_its_limit(&outcome),
                Measure::HalfCore => fixed_rate::not_the_limit(&outcome),
                _ => None,
            });
            run.add_load(&outcome);
            if !label.memory {
                run.drop_memory();
            }
        });
        self.runs.push(run);
        self.progress.inc(1);
    }

    fn record_memory(&mut self, label: Label, memory: anyhow::Result<Memory>) {
        let run = self.run(label, memory, |run, memory| run.add_memory(&memory));
        self.runs.push(run);
    }

    /// A run with its figures, or with the reason why it has none.
    fn run<T>(&self, label: Label, found: anyhow::Result<T>, add: impl FnOnce(&mut Run, T)) -> Run {
        let Label {
            round,
            index,
            measure,
            cell,
            offered_per_s,
            ..
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
            memory: true,
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
