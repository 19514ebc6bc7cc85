use super::Cidr;

#[test]
fn ranges_are_written_as_everywhere() {
    for right in [
        "10.0.0.0/8",
        "0.0.0.0/0",
        "192.0.2.1/32",
        "fd00::/8",
        "::/0",
        "fd00::1/128",
    ] {
        assert_eq!(right.parse::<Cidr>().unwrap().to_string(), right);
    }
    for (network, inside, outside) in [
        ("10.96.0.0/16", "10.96.255.1", "10.97.0.0"),
        ("10.96.0.0/16", "::ffff:10.96.0.1", "fd00::1"),
        ("fd00::/8", "fd68::1", "fe80::1"),
        ("0.0.0.0/0", "192.0.2.1", "::1"),
    ] {
        let network: Cidr = network.parse().unwrap();
        assert!(
            network.contains(inside.parse().unwrap()),
            "{network} {inside}"
        );
        assert!(
            !network.contains(outside.parse().unwrap()),
            "{network} {outside}"
        );
    }
    for wrong in [
        "",
        "10.0.0.0",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "fd00::1/64",
        "::/129",
        "10.0.0.0/-1",
        "::ffff:10.0.0.0/104",
    ] {
        assert!(wrong.parse::<Cidr>().is_err(), "{wrong}");
    }
}
