use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;
use crate::machine::Machine;
use crate::report::{Cell, Run};
use crate::systems::{ProxyKind, System};

const MAIN: Cell = Cell {
    connections: 64,
    body_bytes: 128,
};

fn report(systems: &[(&str, ProxyKind)], runs: &[Run]) -> Report {
    let system = |&(name, kind): &(&str, ProxyKind)| System {
        name: name.to_owned(),
        kind,
        program: PathBuf::new(),
        version: String::new(),
        settings: None,
        http2: false,
    };
    let systems: Vec<System> = systems.iter().map(system).collect();
    Report::new(Machine::default(), &systems, runs, MAIN, true, Vec::new())
}

fn run(round: usize, system: &str, figure: f64) -> Run {
    Run {
        round,
        system: system.to_owned(),
        cell: MAIN,
        figures: BTreeMap::from([("cpu_us_per_request", figure), ("p99_us", 20.0 * figure)]),
        ..Run::default()
    }
}

#[test]
fn a_report_becomes_a_picture_with_every_system_named() {
    let runs = [
        run(0, "heddle", 8.0),
        run(1, "heddle", 9.0),
        run(0, "nginx", 10.0),
    ];
    let report = report(
        &[("heddle", ProxyKind::Heddle), ("nginx", ProxyKind::Nginx)],
        &runs,
    );
    let mut text = String::new();
    drawing(&report, &mut text).expect("draws");
    assert!(text.starts_with("<svg"));
    for word in ["heddle", "nginx", "CPU per request"] {
        assert!(text.contains(word), "{word}");
    }
}

#[test]
fn one_system_or_none_can_be_drawn() {
    let one = report(&[("nginx", ProxyKind::Nginx)], &[run(0, "nginx", 10.0)]);
    let none = report(&[], &[]);
    for (report, bars) in [(one, true), (none, false)] {
        let mut text = String::new();
        drawing(&report, &mut text).expect("draws");
        assert_eq!(text.contains("nginx"), bars);
    }
}

#[test]
fn a_footnote_stands_within_the_picture() {
    let picture = with_footnote("<svg width=\"1\">\n</svg>\n", "a < b");
    assert!(picture.contains("a &lt; b</text>"), "{picture}");
    assert!(picture.ends_with("</svg>\n"), "{picture}");
}
