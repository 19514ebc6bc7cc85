use super::*;

#[test]
fn pods_of_a_service_are_on_different_nodes() {
    for pods in [300, 1_000, 10_000] {
        let shape = Shape::new(pods);
        assert_eq!(shape.pods, pods);
        for service in 0..shape.services {
            let first = service * PODS_OF_SERVICE;
            let nodes = (first..first + PODS_OF_SERVICE).map(|pod| shape.node_of(pod));
            let nodes: BTreeSet<usize> = nodes.collect();
            assert_eq!(nodes.len(), PODS_OF_SERVICE, "{service} of {pods} pods");
        }
    }
}

#[test]
fn nodes_have_thirty_pods_at_most_and_name_ten_other_services() {
    let shape = Shape::new(10_000);
    assert_eq!((shape.nodes, shape.services), (334, 1_000));
    let mut pods = vec![0; shape.nodes];
    for pod in 0..shape.pods {
        pods[shape.node_of(pod)] += 1;
    }
    assert_eq!(
        (pods.iter().min(), pods.iter().max()),
        (Some(&29), Some(&30))
    );
    for node in 0..shape.nodes {
        assert_eq!(shape.named(node).len(), 10);
        assert!(
            shape
                .named(node)
                .iter()
                .all(|named| !shape.own[node].contains(named))
        );
        assert_eq!(shape.used(node).len(), shape.own[node].len() + 10);
    }
}

#[test]
fn services_are_used_by_about_as_many_nodes_each() {
    let shape = Shape::new(10_000);
    let users: Vec<usize> = (0..shape.services)
        .map(|one| shape.users(one).len())
        .collect();
    let (least, most) = (users.iter().min(), users.iter().max());
    assert!(
        least >= Some(&12) && most <= Some(&15),
        "{least:?} to {most:?}"
    );
    // Ten have its pods, and the others name it.
    assert_eq!(users.iter().sum::<usize>(), 10 * 1_000 + 10 * 334);
}

#[test]
fn in_a_small_mesh_every_node_uses_everything() {
    let shape = Shape::new(100);
    assert_eq!((shape.nodes, shape.services), (4, 10));
    assert!((0..4).all(|node| shape.used(node).len() == 10 && shape.named(node).is_empty()));
}

#[test]
fn users_are_those_that_have_or_name_a_service() {
    let shape = Shape::new(1_000);
    for service in 0..shape.services {
        let users = (0..shape.nodes).filter(|node| shape.used(*node).contains(&service));
        assert_eq!(shape.users(service), users.collect::<Vec<_>>());
    }
}

#[test]
fn names_and_addresses_tell_what_they_are_of() {
    assert_eq!(service_name(190), ("ns-1".to_owned(), "s190".to_owned()));
    for name in ["ns-1/s190", "ns-1/s190/80/10.0.0.1:8080", "ns-1/s190.p1901"] {
        assert_eq!(service_in(name), Some(190), "{name}");
    }
    assert_eq!(service_in("node-7"), None);
    assert_eq!(change_of(changed_address(70_000)), Some(70_000));
    assert_eq!(change_of(first_address(MAX_PODS)), None);
    assert_eq!(node_address(255), "192.168.1.0:15008");
}

#[test]
fn a_namespace_has_fewer_pods_than_the_registry_takes() {
    let shape = Shape::new(10_000);
    assert_eq!(shape.namespaces().count(), 6);
    let first = (0..shape.pods).filter(|pod| service_name(service_of(*pod)).0 == "ns-0");
    assert_eq!(first.count(), 1_900, "the registry takes 2,000");
    let (last, _) = service_name(shape.services - 1);
    assert_eq!(shape.namespaces().last(), Some(last));
}
