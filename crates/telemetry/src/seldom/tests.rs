use std::io::Error;

use super::*;

#[test]
fn each_cause_is_named_once_in_a_while() {
    let mut seldom = Seldom::new();
    let began = Instant::now();
    let (first, second) = (Error::from_raw_os_error(24), Error::from_raw_os_error(23));
    // Each fails ten times a second for a minute.
    let mut named = (0, 0);
    for tick in 0..600 {
        let now = began + tick * Duration::from_millis(100);
        named.0 += u32::from(seldom.is_due(&first, now));
        named.1 += u32::from(seldom.is_due(&second, now));
    }
    assert_eq!(named, (6, 6));
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut seldom = Seldom::new();
    let now = Instant::now();
    for number in 1..100 {
        assert!(seldom.is_due(&Error::from_raw_os_error(number), now));
    }
    assert_eq!(seldom.named.len(), FEW.causes);
    assert!(!seldom.is_due(&Error::from_raw_os_error(99), now));
}

#[test]
fn a_cause_is_named_once_a_minute_and_counted_meanwhile() {
    let mut seldom = Seldom::of_others();
    let begun = Instant::now();
    let at = |seconds| begun + Duration::from_secs(seconds);
    let said = [
        ("a", 0),
        ("a", 1),
        ("b", 1),
        ("a", 59),
        ("a", 60),
        ("a", 61),
    ];
    let named = said.map(|(cause, seconds)| seldom.name(cause, at(seconds)));
    assert_eq!(named, [Some(0), None, Some(0), None, Some(2), None]);
}

#[test]
fn causes_are_bounded() {
    let mut seldom = Seldom::of_others();
    let begun = Instant::now();
    let named = (0..2 * MANY.causes).filter(|cause| seldom.name(*cause, begun).is_some());
    assert_eq!(named.count(), MANY.causes);
    assert!(seldom.name(2 * MANY.causes, begun + MANY.every).is_some());
    assert_eq!(seldom.named.len(), 1);
}
