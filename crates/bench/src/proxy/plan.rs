//! How long the experiment runs, and over which cells.

use crate::report::Cell;
use crate::systems::Traffic;

/// What is measured, and for how long. Times are in seconds.
pub(super) struct ProxyPlan {
    pub(super) rounds: usize,
    pub(super) cells: Vec<Cell>,
    pub(super) warm_up_s: f64,
    pub(super) calibration_s: f64,
    /// Window of the main cell, which the bars use and which each round measures twice.
    pub(super) main_window_s: f64,
    /// Window of the other cells.
    pub(super) window_s: f64,
    /// Rounds in which memory and system calls are read; they hardly vary.
    pub(super) count_rounds: usize,
    /// The part of the slowest system's best that all are offered at most.
    pub(super) offered_share: f64,
    /// Whether each round sees what a whole core carries, beside what half a one does.
    pub(super) whole_cores: bool,
    /// What is carried. Memory of a mesh is measured for HTTP alone, instructions not for pairs.
    pub(super) traffic: Traffic,
}

const SMALL: u64 = 128;
const MEDIUM: u64 = 4 << 10;
const LARGE: u64 = 1 << 20;

/// The one cell of gRPC: its connections carry many calls at once, each of a small message.
const CALLS: Cell = Cell {
    connections: 8,
    body_bytes: 64,
};

impl ProxyPlan {
    /// About a quarter of an hour.
    pub(super) fn full() -> ProxyPlan {
        let cells = [SMALL, MEDIUM, LARGE].into_iter().flat_map(|body_bytes| {
            [64, 1, 256].map(|connections| Cell {
                connections,
                body_bytes,
            })
        });
        ProxyPlan {
            rounds: 5,
            cells: cells.collect(),
            warm_up_s: 0.4,
            calibration_s: 1.0,
            main_window_s: 3.0,
            window_s: 2.0,
            count_rounds: 3,
            offered_share: 0.7,
            whole_cores: false,
            traffic: Traffic::Http,
        }
    }

    /// A few minutes: the main cell in earnest, a look at the corners.
    pub(super) fn quick() -> ProxyPlan {
        let cells = [
            (64, SMALL),
            (1, SMALL),
            (256, SMALL),
            (64, MEDIUM),
            (64, LARGE),
        ];
        ProxyPlan {
            rounds: 3,
            cells: cells
                .map(|(connections, body_bytes)| Cell {
                    connections,
                    body_bytes,
                })
                .into(),
            warm_up_s: 0.3,
            calibration_s: 0.7,
            main_window_s: 2.0,
            window_s: 1.2,
            count_rounds: 1,
            offered_share: 0.7,
            whole_cores: false,
            traffic: Traffic::Http,
        }
    }

    /// The same for other traffic. For opaque connections the main cell alone, since what a proxy does
    /// not read does not matter to it; for pairs each of the main cell's two sizes by itself.
    /// What is of gRPC has a cell of its own.
    pub(super) fn carrying(self, traffic: Traffic) -> ProxyPlan {
        if traffic == Traffic::Grpc {
            return ProxyPlan {
                cells: vec![CALLS],
                offered_share: 0.5,
                whole_cores: true,
                traffic,
                ..self
            };
        }
        let main = self.main();
        let worth_it = |cell: &Cell| match traffic {
            Traffic::Http | Traffic::Grpc => true,
            Traffic::Opaque => *cell == main,
            Traffic::MutualTls => {
                cell.connections == main.connections || cell.body_bytes == main.body_bytes
            }
        };
        ProxyPlan {
            cells: self.cells.iter().copied().filter(worth_it).collect(),
            traffic,
            ..self
        }
    }

    /// The cell that the bars use.
    pub(super) fn main(&self) -> Cell {
        self.cells[0]
    }

    /// The window of a cell.
    pub(super) fn window(&self, cell: Cell) -> f64 {
        if cell == self.main() {
            self.main_window_s
        } else {
            self.window_s
        }
    }

    /// How many steps the progress bar has for so many systems.
    pub(super) fn steps(&self, systems: usize) -> usize {
        // the other cells, and the main one twice in each of its measures
        let measures = if self.whole_cores { 3 } else { 2 };
        let per_round = self.cells.len() - 1 + 2 * measures;
        // system calls twice, memory once
        let counted = 3 * self.count_rounds.min(self.rounds);
        // of each cell what a whole core carries, what half a one does, and the rate for all
        systems * (3 * self.cells.len() + self.rounds * per_round + counted)
    }
}
