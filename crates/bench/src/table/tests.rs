use std::collections::BTreeMap;

use super::*;
use crate::report::Cell;

fn row(system: &str, cpu: &[f64], problem: Option<&str>) -> Row {
    let spread = Spread::of(cpu).expect("figures");
    Row {
        system: system.to_owned(),
        measure: Measure::FixedRate,
        cell: Cell {
            connections: 64,
            body_bytes: 128,
        },
        offered_per_s: Some(20_000.0),
        valid: problem.is_none(),
        invalid_rounds: usize::from(problem.is_some()),
        problem: problem.map(str::to_owned),
        figures: BTreeMap::from([("cpu_us_per_request", spread)]),
    }
}

#[test]
fn columns_line_up_and_problems_are_said() {
    let rows = [
        row("a", &[1.0, 2.0, 3.0], None),
        row("longer", &[10.0], Some("errors: 2")),
    ];
    let columns: [Cells; 1] = [("CPU", |row| figure(row, "cpu_us_per_request", 1))];
    let text = layout(&rows.iter().collect::<Vec<_>>(), &columns);
    let expected = "  system  connections × body            CPU\n\
                    \u{20} a       64 × 128 B          2.0 [1.0–3.0]\n\
                    \u{20} longer  64 × 128 B                   10.0  INVALID: errors: 2\n";
    assert_eq!(text, expected);
}

#[test]
fn every_measure_has_a_section() {
    let measures: Vec<Measure> = sections().iter().map(|(_, measure, _)| *measure).collect();
    assert_eq!(measures.len(), 10);
}
