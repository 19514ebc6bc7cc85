//! Figures that hardly vary and are read in some rounds only: system calls, memory of a mesh, instructions.

use anyhow::Context;

use super::{Experiment, Label, problem};
use crate::child::words;
use crate::instructions;
use crate::report::{Cell, Measure};
use crate::stage;
use crate::systems::{ProxyKind, Running};

/// The scenario `memory`: a small mesh, and clients that stay connected.
pub(super) const MESH_SERVICES: u32 = 100;
pub(super) const MESH_ENDPOINTS: u32 = 10;
const MESH_CELL: Cell = Cell {
    connections: 500,
    body_bytes: 128,
};
const MESH_RATE: f64 = 5_000.0;

impl Experiment<'_> {
    /// Counts the system calls of a request, at full speed or at the label's rate.
    pub(super) fn system_calls(&mut self, label: Label, proxy: &Running) {
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
    pub(super) fn meshes(&mut self, round: usize) -> anyhow::Result<()> {
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

    /// Instructions are counted only for programs that are built here: they compare versions of a program, not
    /// programs.
    pub(super) fn instructions(&mut self) {
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
}
