use super::{Manifests, addresses, with_weights};

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

#[test]
fn the_services_addresses_are_found() {
    let found: Vec<String> = addresses().iter().map(ToString::to_string).collect();
    let expected: Vec<String> = (1..=5).map(|n| format!("127.1.0.{n}:9080")).collect();
    assert_eq!(found, expected);
}
