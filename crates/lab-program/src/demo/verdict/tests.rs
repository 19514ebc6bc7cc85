use std::time::Duration;

use super::{Phase, REFUSED, Verdict};
use crate::demo::acts::{Guarded, Killed, Rotated, Turned};
use crate::demo::shopper::Tally;
use crate::demo::stranger::Stranger;

fn phase(v1: u64, v2: u64, expected: f64) -> Phase {
    Phase {
        seen: Tally {
            versions: [v1, v2],
            ..Tally::default()
        },
        expected,
    }
}

fn turned(stranger: Stranger) -> Turned {
    Turned {
        stranger,
        answer: 0,
        counted: 1,
    }
}

/// A demo without faults.
fn good() -> Verdict {
    let guarded = Guarded {
        before: "200".to_owned(),
        after: [(REFUSED.to_owned(), 40)].into(),
        counted: 40,
        explained:
            "refused at …: no rule allows it\nrules[0] of AuthorizationPolicy bookstore/details"
                .to_owned(),
        strangers: Stranger::ALL.map(turned).into(),
    };
    let rotated = Rotated {
        roots: ["old".to_owned(), "new".to_owned()],
        stage: "switched".to_owned(),
        trusted: vec![2, 2],
        newcomers: Some("new".to_owned()),
        answers: [("200".to_owned(), 30)].into(),
    };
    let phases = [phase(452, 48, 0.1), phase(251, 249, 0.5)];
    let killed = Killed {
        seen: Tally {
            versions: [20, 20],
            failures: 7,
            ..Tally::default()
        },
        gap: Duration::from_millis(150),
    };
    Verdict::new(Tally::default(), 0, phases, guarded, rotated, Some(killed))
}

fn judge(verdict: &Verdict) -> Result<(), String> {
    verdict.result().map_err(|error| error.to_string())
}

#[test]
fn what_is_as_promised_is_good() {
    assert_eq!(judge(&good()), Ok(()));
}

#[test]
fn traffic_that_stays_where_it_was_is_bad() {
    let phases = [phase(452, 48, 0.1), phase(452, 48, 0.5)];
    let error = judge(&Verdict { phases, ..good() }).unwrap_err();
    assert_eq!(
        error,
        "of 500 pages 9.6 % had reviews v2 where the route says 50 %"
    );
}

#[test]
fn no_traffic_is_bad() {
    let phases = [phase(0, 0, 0.1), phase(1, 1, 0.5)];
    assert!(judge(&Verdict { phases, ..good() }).is_err());
}

#[test]
fn one_failed_page_is_bad() {
    let all = Tally {
        failures: 1,
        told: vec!["broken".to_owned()],
        ..Tally::default()
    };
    let error = judge(&Verdict { all, ..good() }).unwrap_err();
    assert_eq!(error, "1 pages failed, first: broken");
}

#[test]
fn a_failure_that_no_page_shows_is_bad() {
    let failed_inside = 2;
    let verdict = Verdict {
        failed_inside,
        ..good()
    };
    assert!(judge(&verdict).is_err());
}

#[test]
fn a_policy_that_does_not_hold_is_bad() {
    type Change = fn(&mut Guarded);
    let cases: [(Change, &str); 8] = [
        (|guarded| guarded.before = "503".to_owned(), "got 503"),
        (|guarded| guarded.after.clear(), "should have got only"),
        (
            |guarded| _ = guarded.after.insert("200".to_owned(), 1),
            "\"200\": 1",
        ),
        (|guarded| guarded.counted = 39, "39 were counted"),
        (|guarded| guarded.counted = 41, "41 were counted"),
        (
            |guarded| guarded.explained = "allowed at …".to_owned(),
            "heddle explain",
        ),
        (
            |guarded| guarded.strangers[0].answer = 100,
            "HTTP without TLS to a node was answered",
        ),
        (
            |guarded| guarded.strangers[1].counted = 0,
            "counted 0 times as anonymous",
        ),
    ];
    for (change, expected) in cases {
        let mut verdict = good();
        change(&mut verdict.guarded);
        let error = judge(&verdict).unwrap_err();
        assert!(error.contains(expected), "{expected:?} is not in {error}");
    }
}

#[test]
fn a_root_that_was_not_replaced_is_bad() {
    type Change = fn(&mut Rotated);
    let cases: [(Change, &str); 5] = [
        (|rotated| rotated.stage = "begun".to_owned(), "is begun"),
        (|rotated| rotated.trusted = vec![2, 1], "[2, 1] roots"),
        (
            |rotated| rotated.newcomers = Some("old".to_owned()),
            "not signed by the new root",
        ),
        (|rotated| rotated.newcomers = None, "not signed by"),
        (
            |rotated| _ = rotated.answers.insert("503 overloaded".to_owned(), 1),
            "503 overloaded",
        ),
    ];
    for (change, expected) in cases {
        let mut verdict = good();
        change(&mut verdict.rotated);
        let error = judge(&verdict).unwrap_err();
        assert!(error.contains(expected), "{expected:?} is not in {error}");
    }
}

#[test]
fn pages_that_stay_away_are_bad() {
    let judged = |change: fn(&mut Killed)| {
        let mut killed = good().killed.unwrap();
        change(&mut killed);
        let killed = Some(killed);
        judge(&Verdict { killed, ..good() })
    };
    let late = judged(|killed| killed.gap = Duration::from_secs(11));
    assert!(late.unwrap_err().contains("for 11s"));
    assert!(judged(|killed| killed.seen.versions = [0, 0]).is_err());
    assert_eq!(judged(|killed| killed.seen.failures = 0), Ok(()));
    // On loopback no proxy is killed.
    let killed = None;
    assert_eq!(judge(&Verdict { killed, ..good() }), Ok(()));
}
