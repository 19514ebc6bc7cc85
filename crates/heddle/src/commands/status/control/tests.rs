use super::*;

#[test]
fn every_place_of_a_node_is_shown() {
    let at = |text: &str| text.parse().expect("an address");
    let mut node = NodeStatus::default();
    assert_eq!(place(&node), "has not joined");
    node.address = Some(at("192.0.2.1:15008"));
    assert_eq!(place(&node), "192.0.2.1:15008");
    node.also_at = vec![at("192.0.2.2:15008")];
    assert_eq!(place(&node), "192.0.2.1:15008 and 192.0.2.2:15008");
}
