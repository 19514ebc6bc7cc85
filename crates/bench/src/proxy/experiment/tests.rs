use super::*;

fn outcome(requests: u64) -> Outcome {
    Outcome {
        seconds: 2.0,
        requests,
        ..Outcome::default()
    }
}

#[test]
fn a_run_counts_when_it_kept_the_rate_without_an_error() {
    assert_eq!(problem(&outcome(2000), Some(1000.0)), None);
    // 93.1 % of it.
    assert_eq!(problem(&outcome(1862), Some(1000.0)), None);
    assert_eq!(problem(&outcome(5), None), None);
}

#[test]
fn a_run_that_fell_behind_or_saw_an_error_does_not() {
    let behind = problem(&outcome(1000), Some(1000.0)).expect("behind");
    assert_eq!(behind, "carried 500 of 1000 requests per second");
    // 92.9 % of it.
    assert!(problem(&outcome(1858), Some(1000.0)).is_some());
    let mut broken = outcome(2000);
    broken.errors.insert("status not 200".to_owned(), 1);
    assert!(problem(&broken, None).is_some());
    assert!(problem(&outcome(0), None).is_some());
}
