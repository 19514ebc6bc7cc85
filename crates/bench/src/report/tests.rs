use super::*;
use crate::systems::ProxyKind;
use crate::systems::never_started as system;

const MAIN: Cell = Cell {
    connections: 64,
    body_bytes: 128,
};

fn run(round: usize, system: &str, cpu: f64) -> Run {
    Run {
        round,
        system: system.to_owned(),
        measure: Measure::FixedRate,
        cell: MAIN,
        offered_per_s: Some(1000.0),
        figures: BTreeMap::from([("cpu_us_per_request", cpu)]),
        problem: None,
    }
}

fn report(runs: &[Run]) -> Report {
    let systems = [
        system("heddle", ProxyKind::Heddle),
        system("nginx", ProxyKind::Nginx),
    ];
    Report::new(Machine::default(), &systems, runs, MAIN, true, Vec::new())
}

#[test]
fn ratios_are_taken_round_by_round() {
    let runs = [
        run(0, "heddle", 8.0),
        run(0, "nginx", 10.0),
        run(1, "nginx", 100.0),
        run(1, "heddle", 90.0),
        run(2, "heddle", 7.0),
        run(2, "nginx", 10.0),
    ];
    let report = report(&runs);
    assert_eq!(report.ratios.get("cpu_vs_nginx"), Some(&0.8));
    assert_eq!(report.ratio_spreads["cpu_vs_nginx"].rounds, [0.8, 0.9, 0.7]);
    assert_eq!(report.values["heddle_cpu_us_per_request"], 8.0);
    assert_eq!(report.values["offered_per_s"], 1000.0);
}

#[test]
fn of_two_pairs_of_envoys_the_better_one_of_each_figure_counts() {
    let systems = [
        system("heddle", ProxyKind::Heddle),
        system("envoy-http1", ProxyKind::Envoy),
        system("envoy-http2", ProxyKind::Envoy),
    ];
    let busy = |system: &str, rps: f64| Run {
        measure: Measure::HalfCore,
        figures: BTreeMap::from([("requests_per_s", rps)]),
        ..run(0, system, 0.0)
    };
    let runs = [
        run(0, "heddle", 8.0),
        run(0, "envoy-http1", 20.0),
        run(0, "envoy-http2", 16.0),
        busy("heddle", 3000.0),
        busy("envoy-http1", 2000.0),
        busy("envoy-http2", 1500.0),
    ];
    let report = Report::new(Machine::default(), &systems, &runs, MAIN, true, Vec::new());
    let report = report.about("mtls", "mtls");
    assert_eq!(report.ratios["cpu_mtls_vs_envoy"], 0.5);
    assert_eq!(report.ratios["cpu_mtls_vs_envoy-http1"], 0.4);
    assert_eq!(report.ratios["cpu_mtls_vs_envoy-http2"], 0.5);
    assert_eq!(report.ratios["rps_mtls_vs_envoy"], 1.5);
}

#[test]
fn a_round_with_errors_counts_nowhere_and_shows_in_its_row() {
    let mut broken = run(1, "heddle", 1.0);
    broken.problem = Some("errors: 3".to_owned());
    let runs = [
        run(0, "heddle", 8.0),
        run(0, "nginx", 10.0),
        broken,
        run(1, "nginx", 10.0),
    ];
    let report = report(&runs);
    assert_eq!(report.ratio_spreads["cpu_vs_nginx"].rounds, [0.8]);
    let row = report
        .rows
        .iter()
        .find(|row| row.system == "heddle")
        .expect("row");
    assert_eq!((row.valid, row.invalid_rounds), (true, 1));
    assert_eq!(row.problem.as_deref(), Some("errors: 3"));
    assert_eq!(row.figures["cpu_us_per_request"].rounds, [8.0]);
}

#[test]
fn a_row_without_a_valid_round_has_no_value() {
    let mut broken = run(0, "heddle", 1.0);
    broken.problem = Some("errors: 3".to_owned());
    let report = report(&[broken, run(0, "nginx", 10.0)]);
    let row = report
        .rows
        .iter()
        .find(|row| row.system == "heddle")
        .expect("row");
    assert!(!row.valid);
    assert!(report.ratios.is_empty());
    assert!(!report.values.contains_key("heddle_cpu_us_per_request"));
}

#[test]
fn figures_of_a_load_are_per_request_and_per_core() {
    let mut run = run(0, "heddle", 0.0);
    let usage = crate::account::Usage {
        cpu_ns: 1_000_000_000,
        user_share: 0.25,
    };
    run.add_load(&Outcome {
        seconds: 2.0,
        requests: 100_000,
        cpu: BTreeMap::from([("proxy".to_owned(), usage)]),
        cores: vec![0.5, 0.75],
        ..Outcome::default()
    });
    let expected = [
        ("requests_per_s", 50_000.0),
        ("cpu_us_per_request", 10.0),
        ("cpu_user_us_per_request", 2.5),
        ("proxy_cores", 0.5),
        ("client_cores", 0.0),
        ("core_1_busy", 0.75),
    ];
    for (name, figure) in expected {
        assert_eq!(run.figures[name], figure, "{name}");
    }
}

#[test]
fn the_json_has_the_promised_shape() {
    let report = report(&[run(0, "heddle", 8.0), run(0, "nginx", 10.0)]);
    let json = serde_json::to_value(&report).expect("json");
    for field in [
        "scenario", "machine", "versions", "rows", "ratios", "values",
    ] {
        assert!(json.get(field).is_some(), "{field}");
    }
    assert_eq!(json["rows"][0]["connections"], 64);
    assert_eq!(json["rows"][0]["measure"], "fixed_rate");
    assert_eq!(json["ratios"]["cpu_vs_nginx"], 0.8);
}

#[test]
fn cells_read_like_what_they_are() {
    let cell = |body_bytes| {
        Cell {
            connections: 64,
            body_bytes,
        }
        .to_string()
    };
    assert_eq!(cell(128), "64 × 128 B");
    assert_eq!(cell(4096), "64 × 4 KiB");
    assert_eq!(cell(1 << 20), "64 × 1 MiB");
}

#[test]
fn a_machine_that_was_not_quiet_is_told() {
    let mut disturbed = run(0, "heddle", 8.0);
    disturbed
        .figures
        .extend([("core_0_busy", 0.9), ("proxy_cores", 0.3)]);
    let note = report(&[disturbed.clone()]).notes.pop().expect("a note");
    assert!(note.contains("60 %"), "{note}");
    disturbed.figures.insert("core_0_busy", 0.35);
    assert!(report(&[disturbed]).notes.is_empty());
}
