use std::io::Error;

use super::*;

#[test]
fn each_cause_is_named_once_in_a_while() {
    let mut seldom = Seldom::new();
    let began = Instant::now();
    let (first, second) = (Error::from_raw_os_error(24), Error::from_raw_os_error(23));
    // Ten times a second for a minute.
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
    assert_eq!(seldom.named.len(), CAUSES);
    assert!(!seldom.is_due(&Error::from_raw_os_error(99), now));
}
