use std::time::Duration;

use proptest::prelude::*;

use super::{FLOOR, GAP, Loads, Stealing};

const TICK: Duration = Duration::from_millis(100);

/// Workers whose connections each cost a fixed share of one.
struct NodeOfWorkers {
    loads: Loads,
    stealing: Stealing,
    connections: Vec<Vec<f64>>,
    moved: usize,
}

impl NodeOfWorkers {
    fn new(connections: Vec<Vec<f64>>) -> Self {
        NodeOfWorkers {
            loads: Loads::default(),
            stealing: Stealing::default(),
            connections,
            moved: 0,
        }
    }

    fn busy(&self) -> Vec<f64> {
        let sums = self.connections.iter().map(|all| all.iter().sum::<f64>());
        sums.map(|sum: f64| sum.min(1.0)).collect()
    }

    fn tick(&mut self) {
        let count = self.connections.iter().map(Vec::len).sum();
        self.loads.observe(&self.busy(), count);
        let Some(taking) = self.stealing.observe(TICK, &self.loads) else {
            return;
        };
        assert!(taking.share > 0.0 && taking.share <= 0.5, "{taking:?}");
        // Chooses as a Worker does: the largest that fit.
        let giver = &mut self.connections[taking.from];
        giver.sort_by(|a, b| b.total_cmp(a));
        let mut left = giver.iter().sum::<f64>() * taking.share;
        let (given, kept): (Vec<f64>, Vec<f64>) = giver.iter().partition(|&&cost| {
            let fits = cost <= left;
            left -= if fits { cost } else { 0.0 };
            fits
        });
        *giver = kept;
        self.moved += given.len();
        self.connections[taking.to].extend(given);
    }

    fn spread(&self) -> f64 {
        let busy = self.busy();
        let most = busy.iter().copied().fold(0.0, f64::max);
        most - busy.iter().copied().fold(1.0, f64::min)
    }
}

#[test]
fn busy_connections_that_began_on_one_worker_are_shared_within_two_seconds() {
    let mut node = NodeOfWorkers::new(vec![vec![1.4 / 64.0; 64], vec![]]);
    for _ in 0..20 {
        node.tick();
    }
    let busy = node.busy();
    let ratio = busy[0].max(busy[1]) / busy[0].min(busy[1]);
    assert!(ratio <= 1.5, "{busy:?}");
    assert!(node.moved <= 64, "{} moves", node.moved);
}

#[test]
fn one_large_connection_stays_and_the_small_ones_make_room_for_it() {
    let mut connections = vec![0.01; 40];
    connections.push(0.6);
    let mut node = NodeOfWorkers::new(vec![connections, vec![]]);
    for _ in 0..100 {
        node.tick();
    }
    assert!(node.connections[0].contains(&0.6));
    assert!(node.spread() <= 0.3, "{:?}", node.busy());
}

#[test]
fn little_load_is_left_alone() {
    let mut node = NodeOfWorkers::new(vec![vec![(FLOOR - 0.01) / 10.0; 10], vec![]]);
    for _ in 0..100 {
        node.tick();
    }
    assert_eq!(node.moved, 0);
}

#[test]
fn new_connections_go_where_least_is_expected() {
    let mut loads = Loads::default();
    loads.observe(&[0.6, 0.2], 16);
    // Each connection is expected to add a twentieth: after eight of them both loads are equal.
    let placed: Vec<usize> = (0..12).filter_map(|_| loads.place(|_| false)).collect();
    assert_eq!(placed[..7], [1; 7]);
    assert!(placed[7..].contains(&0));
    assert_eq!(loads.place(|index| index == 0), Some(1));
    assert_eq!(loads.place(|_| true), None);
}

proptest! {
    /// Taking stops after a while: no connection goes back and forth for ever.
    #[test]
    fn taking_comes_to_rest(
        connections in proptest::collection::vec(
            proptest::collection::vec(0.0..0.3f64, 0..12), 2..6),
    ) {
        let mut node = NodeOfWorkers::new(connections);
        for _ in 0..400 {
            node.tick();
        }
        let moved = node.moved;
        for _ in 0..100 {
            node.tick();
        }
        prop_assert_eq!(node.moved, moved, "{:?}", node.connections);
        // The remaining difference is noise, or comes from a connection larger than half of it.
        let busy = node.busy();
        let most = busy.iter().copied().fold(0.0, f64::max);
        let from = busy.iter().position(|&one| one == most).unwrap_or(0);
        let smallest = node.connections[from].iter().copied().fold(1.0, f64::min);
        let even = node.spread() < GAP.max(2.0 * smallest) + 0.01;
        prop_assert!(even || !(FLOOR..1.0).contains(&most));
    }
}
