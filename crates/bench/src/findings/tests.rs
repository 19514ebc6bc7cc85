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
