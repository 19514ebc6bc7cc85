use super::*;
use crate::concurrency::figures::run;
use crate::concurrency::plan::ROOMS;
use crate::concurrency::setups::best;
use crate::machine::Machine;

/// Two Envoys: the one carries more, the other has the lower maximum.
fn report(room: Room, errors: u64) -> RoomReport {
    let [one, other] = [0, 1].map(|index| EnvoySetup::candidates(&room)[index]);
    let mut runs = BTreeMap::new();
    for &connections in ConcurrencyPlan::quick().connections {
        let four = |qps, max_ms, errors| vec![run(qps, max_ms, errors); 4];
        let mut add = |system: &str, setup, runs_of_it| {
            runs.insert((connections, system.to_owned(), setup), runs_of_it);
        };
        add(HEDDLE, None, four(950.0, 8.0, errors));
        add("envoy", Some(one), four(760.0, 16.0, 0));
        add("envoy", Some(other), four(755.0, 10.0, 0));
        add(CEILING, None, four(1000.0, 5.0, 0));
    }
    let best = best(&[(one, run(760.0, 16.0, 0)), (other, run(755.0, 10.0, 0))]);
    let screened = [one, other].map(|setup| Screened {
        connections: 512,
        setup,
        runs: vec![run(760.0, 16.0, 0); 3],
        failure: None,
    });
    RoomReport {
        room,
        quotas: vec![0.1, 0.2, 0.3],
        third_cores: 0.11,
        window_s: 4.0,
        screening_s: 4.0,
        no_quotas: None,
        screened: screened.into(),
        best: best.into_iter().map(|best| (512, best)).collect(),
        runs,
    }
}

fn told(errors: u64) -> (u64, serde_json::Value) {
    let machine = Machine::describe().expect("a machine");
    let mut findings = Findings::new("concurrency", true, machine);
    let all = ROOMS.map(|room| report(room, errors));
    let wrong = rooms(&ConcurrencyPlan::quick(), &all, &mut findings);
    (wrong, serde_json::to_value(&findings).expect("JSON"))
}

#[test]
fn ratios_have_the_names_of_the_documentation_in_both_rooms() {
    let (wrong, found) = told(0);
    assert_eq!(wrong, 0);
    let ratio = |name: &str| found["ratios"][name].as_f64().expect(name);
    for suffix in ["", "_room"] {
        assert_eq!(ratio(&format!("qps_vs_ceiling{suffix}")), 0.95);
        assert_eq!(ratio(&format!("qps_vs_ceiling_128{suffix}")), 0.95);
        assert_eq!(ratio(&format!("qps_vs_envoy_best_512{suffix}")), 1.25);
        assert_eq!(ratio(&format!("p99_vs_envoy_best_512{suffix}")), 1.0);
        assert_eq!(ratio(&format!("max_vs_envoy_best_256{suffix}")), 0.8);
        assert_eq!(ratio(&format!("envoy_best_qps_vs_ceiling{suffix}")), 0.76);
    }
}

#[test]
fn each_figure_is_beside_the_envoy_that_leaves_heddle_least() {
    let (_, found) = told(0);
    let [one, other] = [0, 1].map(|index| EnvoySetup::candidates(&ROOMS[0])[index].name());
    let rows = found["rows"].as_array().expect("rows");
    let here = |row: &&serde_json::Value| {
        row["room"]["name"] == ROOMS[0].name && row["connections"] == 512
    };
    let here: Vec<_> = rows.iter().filter(here).collect();
    let envoys: Vec<_> = here.iter().filter(|row| row["system"] == "envoy").collect();
    let setups: Vec<_> = envoys.iter().map(|row| &row["setup"]).collect();
    assert_eq!(setups.len(), 2, "a row of its own for each");
    for (setup, best_in) in [(&one, "qps"), (&other, "max")] {
        let row = envoys.iter().find(|row| row["setup"] == setup.as_str());
        let found = row.expect("a row")["best_in"].as_array();
        assert!(found.expect("names").contains(&best_in.into()));
    }
    let heddle = here.iter().find(|row| row["system"] == HEDDLE);
    let beside = &heddle.expect("a row")["vs_envoy_best"];
    assert_eq!(beside["qps"]["setup"], one.as_str());
    assert_eq!(beside["max"]["setup"], other.as_str());
    assert_eq!(beside["max"]["ratio"], 0.8);
    assert_eq!(beside["p99"]["verdict"], "equal");
    assert_eq!(beside["qps"]["verdict"], "better");
}

#[test]
fn quotas_that_do_not_bind_make_it_invalid() {
    let machine = Machine::describe().expect("a machine");
    let mut findings = Findings::new("concurrency", true, machine);
    let loose = RoomReport {
        third_cores: 0.09,
        ..report(ROOMS[1], 0)
    };
    rooms(&ConcurrencyPlan::quick(), &[loose], &mut findings);
    let found = serde_json::to_value(&findings).expect("JSON");
    let value = found["values"]["small_quota_in_its_need_room"].as_f64();
    assert!(value.is_some_and(|value| value > 1.1), "{value:?}");
    assert_eq!(found["invalid"].as_array().map(Vec::len), Some(1));
}

#[test]
fn one_failure_fails_the_experiment() {
    let (wrong, found) = told(1);
    assert_eq!(wrong, 2 * 3 * 4);
    assert_eq!(found["values"]["failed_room"], 12.0);
    assert_eq!(found["values"]["wrong_hashes"], 0.0);
}
