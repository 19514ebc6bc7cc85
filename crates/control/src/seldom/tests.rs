use super::*;

#[test]
fn a_cause_is_named_once_a_minute_and_counted_meanwhile() {
    let mut seldom = Seldom::default();
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
    let named = said.map(|(cause, seconds)| seldom.may_name(cause, at(seconds)));
    assert_eq!(named, [Some(0), None, Some(0), None, Some(2), None]);
}

#[test]
fn causes_are_bounded() {
    let mut seldom = Seldom::default();
    let begun = Instant::now();
    let named = (0..2 * CAUSES).filter(|cause| seldom.may_name(*cause, begun).is_some());
    assert_eq!(named.count(), CAUSES);
    assert!(seldom.may_name(2 * CAUSES, begun + EVERY).is_some());
    assert_eq!(seldom.named.len(), 1);
}
