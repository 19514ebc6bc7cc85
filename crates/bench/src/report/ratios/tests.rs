use super::*;
use crate::systems::never_started as system;

const MAIN: Cell = Cell {
    connections: 64,
    body_bytes: 128,
};

fn run(round: usize, system: &str, measure: Measure, figures: &[(&'static str, f64)]) -> Run {
    Run {
        round,
        system: system.to_owned(),
        measure,
        cell: MAIN,
        figures: figures.iter().copied().collect(),
        ..Run::default()
    }
}

fn beside_nginx(runs: &[Run]) -> (BTreeMap<String, Spread>, Vec<String>) {
    let systems = [
        system("heddle", ProxyKind::Heddle),
        system("nginx", ProxyKind::Nginx),
    ];
    of(&systems, runs, MAIN)
}

#[test]
fn a_ratio_of_p99_whose_rounds_differ_by_more_than_a_factor_of_three_is_left_out_and_told() {
    let rounds = |measure, ours: [f64; 3]| {
        (0..3).zip(ours).flat_map(move |(round, ours)| {
            [
                run(round, "heddle", measure, &[("p99_us", ours)]),
                run(round, "nginx", measure, &[("p99_us", 100.0)]),
            ]
        })
    };
    let runs: Vec<Run> = rounds(Measure::FixedRate, [50.0, 100.0, 151.0])
        .chain(rounds(Measure::QuietRate, [50.0, 100.0, 150.0]))
        .collect();
    let (found, left_out) = beside_nginx(&runs);
    assert!(!found.contains_key("p99_vs_nginx"), "{found:?}");
    assert_eq!(found["p99_quiet_vs_nginx"].median, 1.0);
    let [note] = &left_out[..] else {
        panic!("{left_out:?}");
    };
    assert!(
        note.contains("p99 at the fixed rate to nginx's") && note.contains("0.50 and 1.51"),
        "{note}"
    );
}

#[test]
fn other_ratios_are_told_however_wide() {
    let runs = [
        run(0, "heddle", Measure::QuietRate, &[("p50_us", 10.0)]),
        run(0, "nginx", Measure::QuietRate, &[("p50_us", 100.0)]),
        run(1, "heddle", Measure::QuietRate, &[("p50_us", 100.0)]),
        run(1, "nginx", Measure::QuietRate, &[("p50_us", 100.0)]),
    ];
    let (found, left_out) = beside_nginx(&runs);
    assert_eq!(found["p50_quiet_vs_nginx"].rounds, [0.1, 1.0]);
    assert!(left_out.is_empty(), "{left_out:?}");
}

#[test]
fn memory_is_compared_by_pss_in_the_rounds_that_have_it() {
    let memory = |round, system, pss| {
        let figures = [("rss_mib", 2.0 * pss), ("pss_mib", pss)];
        run(round, system, Measure::FixedRate, &figures)
    };
    let mut runs = vec![
        memory(0, "heddle", 6.0),
        memory(0, "nginx", 3.0),
        memory(1, "heddle", 60.0),
        memory(1, "nginx", 3.0),
    ];
    for run in &mut runs[2..] {
        run.drop_memory();
    }
    let (found, _) = beside_nginx(&runs);
    assert_eq!(found["pss_vs_nginx"].rounds, [2.0]);
    assert!(!found.keys().any(|name| name.starts_with("rss")));
}

#[test]
fn a_pair_that_is_harder_but_too_wide_takes_its_ratio_along() {
    let systems = [
        system("heddle", ProxyKind::Heddle),
        system("envoy-http1", ProxyKind::Envoy),
        system("envoy-http2", ProxyKind::Envoy),
    ];
    let p99 = |round, system, p99| run(round, system, Measure::FixedRate, &[("p99_us", p99)]);
    let runs = [
        p99(0, "heddle", 100.0),
        p99(0, "envoy-http1", 200.0),
        p99(0, "envoy-http2", 20.0),
        p99(1, "heddle", 100.0),
        p99(1, "envoy-http1", 200.0),
        p99(1, "envoy-http2", 200.0),
    ];
    let (found, left_out) = of(&systems, &runs, MAIN);
    let names: Vec<&String> = found.keys().collect();
    assert_eq!(names, ["p99_vs_envoy-http1"]);
    assert_eq!(left_out.len(), 2);
}
