use super::*;

#[test]
fn failures_are_told_by_kind() {
    let errors = |all: &[(&str, u64)]| -> BTreeMap<String, u64> {
        all.iter()
            .map(|(kind, n)| ((*kind).to_owned(), *n))
            .collect()
    };
    assert_eq!(failures(&errors(&[])), "0 failed");
    let two = [
        errors(&[("reset", 2)]),
        errors(&[("reset", 1), ("status", 4)]),
    ];
    assert_eq!(
        failures(two.iter().flatten()),
        "7 failed (3 reset, 4 status)"
    );
}

#[test]
fn what_was_not_measured_is_said_and_left_out() {
    assert_eq!(shown(Some(1.257), 2), "1.26");
    assert_eq!(shown(None, 2), "none");
}

#[test]
fn a_figure_keeps_the_spread_of_its_rounds_where_there_are_several() {
    let mut findings = Findings::new("test", false, Machine::default());
    findings.value("several", Spread::of(&[1.0, 3.0, 2.0]));
    findings.value("one", Spread::of(&[4.0]));
    findings.ratio("missing", None::<Spread>);
    let found = serde_json::to_value(&findings).unwrap();
    assert_eq!(found["values"]["several"], 2.0);
    assert_eq!(found["value_spreads"]["several"]["max"], 3.0);
    assert_eq!(found["values"]["one"], 4.0);
    assert!(found["value_spreads"].get("one").is_none());
    assert!(found["ratios"].get("missing").is_none());
}
