//! How long the experiment runs, and over which cells.

use crate::report::Cell;
use crate::systems::Traffic;

/// The measurements, and how long they take. Times are in seconds.
pub(super) struct ProxyPlan {
    pub(super) rounds: usize,
    pub(super) cells: Vec<Cell>,
    pub(super) warm_up_s: f64,
    pub(super) calibration_s: f64,
    /// Window of the main cell, which the ratios use and which each round measures twice.
    pub(super) main_window_s: f64,
    /// Window of the main cell with the proxy held to half a core: many periods of its quota.
    pub(super) half_core_window_s: f64,
    /// Window of the other cells.
    pub(super) window_s: f64,
    /// Rounds in which the other cells are measured; no ratio is taken of them.
    pub(super) cell_rounds: usize,
    /// Rounds in which memory and system calls are read; they hardly vary.
    pub(super) count_rounds: usize,
    /// The highest offered rate, as a fraction of what the slowest system carries.
    pub(super) offered_share: f64,
    /// Whether latency is measured at a second, lower rate.
    pub(super) quiet_rate: bool,
    /// Whether each round also measures throughput with a whole core.
    pub(super) whole_cores: bool,
    /// The traffic that is carried. Memory of a mesh is measured for HTTP alone, instructions not for pairs.
    pub(super) traffic: Traffic,
}

const SMALL: u64 = 128;
const MEDIUM: u64 = 4 << 10;
const LARGE: u64 = 1 << 20;

/// The only cell of gRPC: its connections carry many calls at once, each of a small message.
const CALLS: Cell = Cell {
    connections: 8,
    body_bytes: 64,
};

impl ProxyPlan {
    /// About seventeen minutes of HTTP.
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
            half_core_window_s: 4.0,
            window_s: 2.0,
            cell_rounds: 2,
            count_rounds: 2,
            offered_share: 0.7,
            quiet_rate: true,
            whole_cores: false,
            traffic: Traffic::Http,
        }
    }

    /// A few minutes: the main cell in three rounds, and a few of the others.
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
            half_core_window_s: 2.0,
            window_s: 1.2,
            cell_rounds: 1,
            count_rounds: 1,
            offered_share: 0.7,
            quiet_rate: true,
            whole_cores: false,
            traffic: Traffic::Http,
        }
    }

    /// The same for other traffic. For opaque connections the main cell alone, since a proxy does not read what they
    /// carry; for pairs, cells that have the connections or the body size of the main cell; for gRPC a cell of its own.
    pub(super) fn carrying(self, traffic: Traffic) -> ProxyPlan {
        if traffic == Traffic::Grpc {
            return ProxyPlan {
                cells: vec![CALLS],
                offered_share: 0.5,
                quiet_rate: false,
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

    /// The cell that the ratios use.
    pub(super) fn main(&self) -> Cell {
        self.cells[0]
    }

    pub(super) fn window(&self, cell: Cell) -> f64 {
        if cell == self.main() {
            self.main_window_s
        } else {
            self.window_s
        }
    }

    /// The number of steps of the progress bar for `systems` systems.
    pub(super) fn steps(&self, systems: usize) -> usize {
        // the main cell twice for each of its measures
        let measures = 2 + usize::from(self.quiet_rate) + usize::from(self.whole_cores);
        let main = self.rounds * 2 * measures;
        let others = self.cell_rounds.min(self.rounds) * (self.cells.len() - 1);
        // system calls twice, memory once
        let counted = 3 * self.count_rounds.min(self.rounds);
        // for each cell: a whole core, half a core, and the rate for all
        systems * (3 * self.cells.len() + main + others + counted)
    }
}
