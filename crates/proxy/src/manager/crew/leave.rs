//! How Workers end: told to retire, ended by a panic, or drained with the process.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use heddle_telemetry::WorkerStats;
use tokio::sync::oneshot;

use super::{Crew, CrewMember};
use crate::intake::Intake;
use crate::worker::Command;

impl Crew {
    /// Makes a Worker hand over its connections and end. Returns its number; `None` if it has to stay.
    pub(in super::super) fn retire(&mut self, index: usize) -> Option<usize> {
        if self.active.len() < 2 || index >= self.active.len() {
            return None;
        }
        let member = self.active.remove(index);
        let id = member.handle.stats.id;
        self.loads.remove(index);
        member
            .handle
            .mailbox
            .send(Command::Retire { to: self.intakes() });
        self.retiring.push(member);
        self.common.stats.workers_retired.inc();
        self.changed();
        Some(id)
    }

    /// Makes every Worker hand over its connections and end. [`Crew::tidy`] tells them who takes over.
    pub(in super::super) fn dissolve(&mut self) {
        if self.active.is_empty() {
            return;
        }
        for index in (0..self.active.len()).rev() {
            self.loads.remove(index);
            self.common.stats.workers_retired.inc();
        }
        self.retiring.append(&mut self.active);
        self.changed();
    }

    /// Removes retired Workers that have ended, and replaces active ones that have. Without active Workers, connections
    /// are handed over to those of `elsewhere`.
    pub(in super::super) fn tidy(&mut self, elsewhere: &[Intake]) {
        if !self.retiring.is_empty() {
            self.see_off(elsewhere);
        }
        for index in 0..self.active.len() {
            if self.active[index].handle.thread.is_finished() {
                self.replace(index);
            }
        }
    }

    /// Forgets retired Workers that have ended. Sends the order to retire again to the others: it reaches connections
    /// that found no room before, or have come since.
    fn see_off(&mut self, elsewhere: &[Intake]) {
        let heirs = match self.active.is_empty() {
            true => elsewhere.to_vec(),
            false => self.intakes(),
        };
        let (gone, left) = std::mem::take(&mut self.retiring)
            .into_iter()
            .partition(|member| member.handle.thread.is_finished());
        self.retiring = left;
        for member in &self.retiring {
            let to = heirs.clone();
            member.handle.mailbox.send(Command::Retire { to });
        }
        let gone: Vec<CrewMember> = gone;
        if !gone.is_empty() {
            for member in gone {
                if self.bury(member).is_err() {
                    self.common.stats.workers_died.inc();
                }
            }
            self.changed();
        }
    }

    /// Starts a new Worker in place of one that has ended: because of a panic, or because it was told to remain after
    /// it had handed over everything.
    fn replace(&mut self, index: usize) {
        match self.start() {
            Ok(fresh) => {
                let ended = std::mem::replace(&mut self.active[index], fresh);
                if self.bury(ended).is_err() {
                    self.common.stats.workers_died.inc();
                }
                self.changed();
            }
            Err(error) => tracing::error!(%error, "a worker that has ended cannot be replaced"),
        }
    }

    /// Joins the thread, which has ended, and keeps the statistics for the next Worker.
    ///
    /// # Errors
    /// When it ended by a panic.
    fn bury(&mut self, member: CrewMember) -> thread::Result<()> {
        let stats = Arc::clone(&member.handle.stats);
        let ended = member.handle.thread.join();
        if ended.is_err() {
            tracing::error!(worker = stats.id, "a worker panicked");
        }
        self.keep(stats);
        ended
    }

    /// Keeps the statistics of a Worker that has ended, or could not start, for the next one.
    pub(super) fn keep(&mut self, stats: Arc<WorkerStats>) {
        stats.end();
        self.spare.push(stats);
        // `pop` returns the lowest number first.
        self.spare.sort_by_key(|stats| std::cmp::Reverse(stats.id));
    }

    /// Makes every Worker drain. Each returned receiver resolves when its Worker has ended, with the number of
    /// connections that it cut.
    pub(in super::super) fn drain(&mut self, until: Instant) -> Vec<oneshot::Receiver<usize>> {
        let members = self.active.iter_mut().chain(&mut self.retiring);
        members
            .map(|member| {
                member.handle.mailbox.send(Command::Drain { until });
                let (_, none) = oneshot::channel();
                std::mem::replace(&mut member.handle.ended, none)
            })
            .collect()
    }

    /// Joins the threads of Workers that have ended.
    pub(in super::super) fn join(&mut self) {
        for member in self.active.drain(..).chain(self.retiring.drain(..)) {
            if member.handle.thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
        self.changed();
    }
}
