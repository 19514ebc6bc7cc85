use super::{Phase, Verdict};
use crate::demo::shopper::Tally;

fn phase(v1: u64, v2: u64, expected: f64) -> Phase {
    Phase {
        seen: Tally {
            versions: [v1, v2],
            ..Tally::default()
        },
        expected,
    }
}

fn judge(before: Phase, after: Phase) -> Result<(), String> {
    let verdict = Verdict::new(Tally::default(), 0, [before, after]);
    verdict.into_result().map_err(|error| error.to_string())
}

#[test]
fn traffic_that_follows_is_good() {
    assert_eq!(judge(phase(452, 48, 0.1), phase(251, 249, 0.5)), Ok(()));
}

#[test]
fn traffic_that_stays_where_it_was_is_bad() {
    let error = judge(phase(452, 48, 0.1), phase(452, 48, 0.5)).unwrap_err();
    assert_eq!(
        error,
        "of 500 pages 9.6 % had reviews v2 where the route says 50 %"
    );
}

#[test]
fn no_traffic_is_bad() {
    assert!(judge(phase(0, 0, 0.1), phase(1, 1, 0.5)).is_err());
}

#[test]
fn one_failed_page_is_bad() {
    let all = Tally {
        failures: 1,
        told: vec!["broken".to_owned()],
        ..Tally::default()
    };
    let verdict = Verdict::new(all, 0, [phase(90, 10, 0.1), phase(50, 50, 0.5)]);
    assert_eq!(
        verdict.into_result().unwrap_err().to_string(),
        "1 pages failed, first: broken"
    );
}

#[test]
fn a_failure_that_no_page_shows_is_bad() {
    let verdict = Verdict::new(
        Tally::default(),
        2,
        [phase(90, 10, 0.1), phase(50, 50, 0.5)],
    );
    assert!(verdict.into_result().is_err());
}
