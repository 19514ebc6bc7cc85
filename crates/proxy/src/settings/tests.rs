use super::*;

fn network(text: &str) -> Network {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn a_network_holds_what_shares_its_prefix() {
    let cases = [
        ("10.0.0.0/8", "10.1.2.3", true),
        ("10.0.0.0/8", "11.0.0.0", false),
        ("10.0.0.1", "10.0.0.1", true),
        ("10.0.0.1", "10.0.0.2", false),
        ("0.0.0.0/0", "255.255.255.255", true),
        ("0.0.0.0/0", "::1", false),
        ("10.0.0.0/8", "::ffff:10.1.2.3", true),
        ("fd00::/8", "fd12::1", true),
        ("fd00::/8", "fe80::1", false),
        ("::/0", "fe80::1", true),
        ("::1", "::1", true),
    ];
    for (net, address, expected) in cases {
        let address: IpAddr = address.parse().expect("an address");
        assert_eq!(
            network(net).contains(address),
            expected,
            "{address} in {net}"
        );
    }
}

#[test]
fn what_is_no_network_is_refused() {
    for text in [
        "",
        "10.0.0.0/33",
        "::/129",
        "10.0.0.0/",
        "10.0.0.0/a",
        "ten",
        "10.0.0.0/8/8",
    ] {
        assert!(text.parse::<Network>().is_err(), "{text}");
    }
}
