use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;
use crate::bench::machine::Machine;
use crate::bench::report::{Cell, Run};
use crate::bench::systems::{Kind, System};

#[test]
fn a_report_becomes_a_picture_with_every_system_named() {
    let main = Cell {
        connections: 64,
        body_bytes: 128,
    };
    let names = [("heddle", Kind::Heddle), ("nginx", Kind::Nginx)];
    let systems = names.map(|(name, kind)| System {
        name: name.to_owned(),
        kind,
        program: PathBuf::new(),
        version: String::new(),
    });
    let run = |round: usize, system: &str, figure: f64| Run {
        round,
        system: system.to_owned(),
        cell: main,
        figures: BTreeMap::from([("cpu_us_per_request", figure), ("p99_us", 20.0 * figure)]),
        ..Run::default()
    };
    let runs = [
        run(0, "heddle", 8.0),
        run(1, "heddle", 9.0),
        run(0, "nginx", 10.0),
    ];
    let report = Report::new(Machine::default(), &systems, &runs, main, true, Vec::new());
    let mut text = String::new();
    drawing(&report, &mut text).expect("draws");
    assert!(text.starts_with("<svg"));
    for word in ["heddle", "nginx", "CPU per request"] {
        assert!(text.contains(word), "{word}");
    }
}
