use super::{Manifests, with_weights};

#[test]
fn the_weights_change_and_nothing_else() {
    let manifests = Manifests::write().unwrap();
    let before = std::fs::read_to_string(manifests.route()).unwrap();
    manifests.set_weights(50, 51).unwrap();
    let after = std::fs::read_to_string(manifests.route()).unwrap();
    let changed: Vec<_> = before
        .lines()
        .zip(after.lines())
        .filter(|(old, new)| old != new)
        .collect();
    let changed: Vec<_> = changed
        .iter()
        .map(|(old, new)| (old.trim(), new.trim()))
        .collect();
    assert_eq!(
        changed,
        [("weight: 90", "weight: 50"), ("weight: 10", "weight: 51")]
    );
    assert_eq!(before.lines().count(), after.lines().count());
}

#[test]
fn a_route_without_weights_is_refused() {
    assert!(with_weights("weight: 1\n", [1, 2]).is_err());
}
