use super::*;

/// Figures of two systems in three rounds, of which one has a hole.
fn found() -> Figures {
    let mut figures = Figures::default();
    for (round, (node, pod)) in [(1.0, 2.0), (3.0, 3.0), (2.0, 8.0)].into_iter().enumerate() {
        figures.add("cpu", Kind::Node, 1000, round, node);
        if round != 1 {
            figures.add("cpu", Kind::Pod, 1000, round, pod);
        }
    }
    figures
}

#[test]
fn ratios_are_taken_within_rounds_where_both_were_measured() {
    let figures = found();
    let ratio = figures.ratio("cpu", (Kind::Node, Kind::Pod), &[1000, 2000]);
    assert_eq!(ratio.expect("a ratio").rounds, [0.5, 0.25]);
    let none = figures.ratio("cpu", (Kind::Node, Kind::Envoy), &[1000]);
    assert_eq!(none, None);
}

#[test]
fn a_round_has_one_ratio_however_many_places_it_has() {
    let mut figures = Figures::default();
    for (at, node) in [(1, 0.2), (4, 0.4), (16, 0.9)] {
        for round in 0..2 {
            let value = node + round as f64;
            figures.add("p50", Kind::Node, at, round, value);
            figures.add("p50", Kind::Pod, at, round, 2.0);
        }
    }
    let ratio = figures.ratio("p50", (Kind::Node, Kind::Pod), &[1, 4, 16]);
    assert_eq!(ratio.expect("a ratio").rounds, [0.2, 0.7]);
}

#[test]
fn a_table_has_a_row_for_what_was_measured_only() {
    let table = found().table("requests/s", &[1000, 2000], &[("CPU", "cpu", 1)]);
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 3, "{table}");
    assert!(
        rows[1].contains("node") && rows[1].contains("2.0 [1.0–3.0]"),
        "{table}"
    );
    assert!(rows[2].contains("pod"), "{table}");
}

#[test]
fn lines_go_through_the_medians() {
    let panel = found().panel("CPU", "requests/s", "cpu", &[1000, 2000]);
    let points: Vec<_> = panel.lines.iter().map(|line| line.points.clone()).collect();
    assert_eq!(points, [vec![(1000.0, 2.0)], vec![(1000.0, 5.0)]]);
}
