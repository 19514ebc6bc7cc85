//! A follower that panics is reported.

use super::*;

#[test]
fn a_panic_is_said_and_what_is_known_is_left_as_it_is() {
    let (seen, see) = watch::channel(Seen {
        endpoint: "http://127.0.0.1:2379".to_owned(),
        connected: true,
        since: Instant::now(),
        problem: None,
        revision: 7,
        providers: 3,
    });
    unless_it_fails(&seen, || {});
    assert!(see.borrow().connected && see.borrow().problem.is_none());
    unless_it_fails(&seen, || panic!("a test's"));
    let seen = see.borrow();
    assert!(!seen.connected);
    assert_eq!((seen.revision, seen.providers), (7, 3));
    let problem = seen.problem.as_deref().expect("one");
    assert!(problem.contains("restart heddle"), "{problem}");
}
