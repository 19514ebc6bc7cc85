use super::*;

#[test]
fn addresses_are_where_the_picture_says() {
    for (address, said) in [
        (pod(1, 1, Family::V4), "10.1.1.1"),
        (pod(1, 250, Family::V4), "10.1.1.250"),
        (pod(1, 251, Family::V4), "10.1.2.1"),
        (pod(60, 1000, Family::V4), "10.60.4.250"),
        (pod(2, 1000, Family::V6), "fd68:6c:0:2::3e8"),
        (gateway(3, Family::V4), "10.250.3.1"),
        (gateway(3, Family::V6), "fd68:6c:fa:3::1"),
        (underlay(60, Family::V4), "10.251.0.60"),
        (underlay(60, Family::V6), "fd68:6c:fb::3c"),
        (hub(Family::V4), "10.251.255.254"),
        (hub(Family::V6), "fd68:6c:fb::ffff"),
        (service(1, Family::V4), "10.96.0.1"),
        (service(10_000, Family::V4), "10.96.39.250"),
        (service(10_000, Family::V6), "fd68:6c:60::2710"),
    ] {
        assert_eq!(address.to_string(), said);
    }
}

#[test]
fn a_mesh_is_its_services_and_the_pods_of_its_nodes() {
    let ranges: Vec<String> = mesh(2).iter().map(Range::to_string).collect();
    assert_eq!(
        ranges,
        [
            "10.96.0.0/16",
            "fd68:6c:60::/64",
            "10.1.0.0/16",
            "fd68:6c:0:1::/64",
            "10.2.0.0/16",
            "fd68:6c:0:2::/64"
        ]
    );
}

#[test]
fn no_mesh_takes_over_dns_or_what_is_between_nodes() {
    let holds = |range: &Range, address: IpAddr| match (range.first, address) {
        (IpAddr::V4(first), IpAddr::V4(address)) => {
            (u32::from(first) ^ u32::from(address)) >> (32 - u32::from(range.bits)) == 0
        }
        (IpAddr::V6(first), IpAddr::V6(address)) => {
            (u128::from(first) ^ u128::from(address)) >> (128 - u32::from(range.bits)) == 0
        }
        _ => false,
    };
    let last = u16::try_from(MAX_NODES).unwrap();
    let ranges = mesh(last);
    for family in FAMILIES {
        assert!(
            ranges
                .iter()
                .any(|range| holds(range, pod(last, 1000, family)))
        );
        for node in 1..=last {
            for address in [gateway(node, family), underlay(node, family), hub(family)] {
                assert!(
                    !ranges.iter().any(|range| holds(range, address)),
                    "{address}"
                );
            }
        }
    }
}
