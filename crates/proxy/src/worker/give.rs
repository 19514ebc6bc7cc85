//! How a Worker hands over some of its work, or all of it.

use super::Worker;
use crate::env::portion::{Fate, Item, Kind, MAX_ASKED, Standing, choose};
use crate::env::{Band, Spent, TaskId};
use crate::intake::Intake;

/// A unit of work that can be handed over.
#[derive(Debug, Clone, Copy)]
enum WorkUnit {
    Task(TaskId),
    /// A link, with all of its streams.
    Band(Band),
}

impl Worker {
    /// Orders the busiest connections and links that together do about `share` of the work to leave; with a share of 1,
    /// all of them.
    pub(super) fn give(&self, to: &Intake, share: f64) {
        if self.moves.is_retiring() {
            return;
        }
        if share >= 1.0 {
            let all = self.gate.callers();
            self.moves.order(&self.gate, to, &all);
            return self.links.ask_callers(None);
        }
        let links = self.links.by_band();
        let now = self.clock.now_ms();
        let standing = |band| match links.get(&band) {
            Some(link) => link.standing(now),
            None => Standing::Resting,
        };
        let item = |spent| match spent {
            Spent::Task(task, ns) => Item {
                who: WorkUnit::Task(task),
                all_ns: ns,
                goes_ns: ns,
                kind: Kind::Connection,
            },
            Spent::Band(band, all_ns, goes_ns) => Item {
                who: WorkUnit::Band(band),
                all_ns,
                goes_ns,
                kind: Kind::Link(standing(band)),
            },
        };
        let items: Vec<Item<WorkUnit>> = self.gate.spent().into_iter().map(item).collect();
        let chosen = choose(&items, share);
        let tasks: Vec<TaskId> = chosen
            .iter()
            .filter_map(|(who, _)| match who {
                WorkUnit::Task(task) => Some(*task),
                WorkUnit::Band(_) => None,
            })
            .collect();
        self.moves.order(&self.gate, to, &tasks);
        for (who, fate) in chosen {
            if let (WorkUnit::Band(band), Fate::Asked(what)) = (who, fate)
                && let Some(link) = links.get(&band)
            {
                link.ask_for(&self.env, what);
            }
        }
    }

    /// Hands over every connection, in turn to each of `to`, and asks callers to open other links, a limited number of
    /// them at a time. The order is repeated until nothing is left.
    pub(super) fn retire(&self, to: Vec<Intake>) {
        self.moves.retire(&self.gate, to);
        self.links.ask_callers(Some(MAX_ASKED));
    }

    /// Orders the connections of callers of the other class to leave, to each of `to` in turn.
    pub(super) fn sort(&self, to: &[Intake]) {
        if !to.is_empty() && !self.moves.is_retiring() {
            let misplaced = self.gate.callers_of(self.stats.class().other());
            self.moves.add(&self.gate, to, &misplaced);
        }
    }
}
