use super::*;

#[test]
fn failures_and_gaps_are_taken_down() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut tally = Tally::default();
    tally.record("v1".to_owned(), at(0));
    let before = tally.clone();
    for (ms, said) in [
        (10, "refused"),
        (20, "v2"),
        (30, "broken"),
        (60, "v1"),
        (70, "v1"),
    ] {
        tally.record(said.to_owned(), at(ms));
    }
    let since = tally.since(&before);
    assert_eq!((since.versions, since.failures), ([2, 1], 2));
    assert_eq!(since.told, ["refused", "broken"]);
    assert_eq!(since.failed_last, Some(at(30)));
    assert_eq!(since.longest_gap, Duration::from_millis(40));
    // Earlier failures are not part of the difference.
    let later = tally.since(&tally.clone());
    assert_eq!((later.failures, later.failed_last), (0, None));
}
