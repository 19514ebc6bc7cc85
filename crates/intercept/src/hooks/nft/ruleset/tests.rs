use proptest::prelude::*;

use super::*;

fn range(text: &str) -> Range {
    let (text, inside) = match text.strip_prefix('!') {
        Some(text) => (text, false),
        None => (text, true),
    };
    Range {
        network: text.parse().unwrap(),
        inside,
    }
}

fn v4(ranges: &[&str]) -> Vec<String> {
    let ranges: Vec<_> = ranges.iter().map(|text| range(text)).collect();
    let mesh = Mesh::new(&ranges);
    let address = |bits: u128| Ipv4Addr::from(u32::try_from(bits).unwrap());
    mesh.v4
        .iter()
        .map(|(first, last)| interval(address(*first), address(*last)))
        .collect()
}

#[test]
fn the_longest_prefix_decides() {
    let cases: [(&[&str], &[&str]); 7] = [
        (&[], &[]),
        (&["!10.0.0.0/8"], &[]),
        (&["10.0.0.0/8"], &["10.0.0.0-10.255.255.255"]),
        (
            &["10.0.0.0/8", "!10.1.0.0/16"],
            &["10.0.0.0-10.0.255.255", "10.2.0.0-10.255.255.255"],
        ),
        (
            &["!10.1.0.0/16", "10.1.2.3/32", "10.0.0.0/15"],
            &["10.0.0.0-10.0.255.255", "10.1.2.3"],
        ),
        (
            &["10.0.0.0/9", "10.128.0.0/9"],
            &["10.0.0.0-10.255.255.255"],
        ),
        (
            &["0.0.0.0/0", "!255.255.255.255/32"],
            &["0.0.0.0-255.255.255.254"],
        ),
    ];
    for (ranges, intervals) in cases {
        assert_eq!(v4(ranges), intervals, "{ranges:?}");
    }
    let all = Mesh::new(&[range("::/0")]);
    assert_eq!((all.v4.len(), all.v6), (0, vec![(0, u128::MAX)]));
}

proptest! {
    #[test]
    fn intervals_say_what_the_longest_prefix_says(
        networks in prop::collection::btree_map((0u8..=255, 0u8..=8), any::<bool>(), 0..12),
        probe in 0u8..=255,
    ) {
        // All networks are within 10.0.0.0/24, so that they often nest or touch.
        let ranges: Vec<_> = networks.into_iter().map(|((last, bits), inside)| {
            let last = last & u8::MAX.checked_shl(bits.into()).unwrap_or(0);
            let network = Cidr::new(IpAddr::from([10, 0, 0, last]), 32 - bits).unwrap();
            Range { network, inside }
        }).collect();
        let mut seen = std::collections::BTreeMap::new();
        let ranges: Vec<_> = ranges.into_iter()
            .filter(|range| seen.insert(range.network, ()).is_none()).collect();
        let address = u128::from(u32::from_be_bytes([10, 0, 0, probe]));
        let expected = ranges.iter()
            .filter(|range| { let (first, last) = ends(range.network); (first..=last).contains(&address) })
            .max_by_key(|range| range.network.prefix())
            .is_some_and(|range| range.inside);
        let mesh = Mesh::new(&ranges);
        let found = mesh.v4.iter().any(|(first, last)| (*first..=*last).contains(&address));
        prop_assert_eq!(found, expected, "{:?} {:?}", ranges, mesh);
        let apart = mesh.v4.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0);
        prop_assert!(apart, "{:?}", mesh);
    }
}

#[test]
fn rules_are_those_that_were_read_once() {
    let mesh = Mesh::new(&[range("10.96.0.0/12"), range("fd96::/16")]);
    let rules = Rules {
        outbound_port: 15001,
        inbound_port: 15006,
        exclude: Exclude {
            inbound_ports: vec!["22".parse().unwrap()],
            outbound_ports: vec!["8000-8010".parse().unwrap()],
            outbound_networks: vec!["10.97.0.0/16".parse().unwrap()],
        },
    };
    let steered = "\
table inet heddle
delete table inet heddle
table inet heddle {
chain dial {
type nat hook output priority -100
meta l4proto != tcp return
oifname lo return
meta mark { 1212435525, 1212435526 } return
th dport 8000-8010 return
ip daddr 10.97.0.0/16 return
ip daddr { 10.96.0.0-10.111.255.255 } meta l4proto tcp redirect to :15001
ip6 daddr { fd96::-fd96:ffff:ffff:ffff:ffff:ffff:ffff:ffff } meta l4proto tcp redirect to :15001
}
chain arrive {
type filter hook prerouting priority -150
iifname lo return
meta l4proto != tcp return
tcp dport 22 return
fib daddr type != local return
ip daddr 169.254.0.0/16 return
ip6 daddr fe80::/10 return
tcp flags & (fin | syn | rst | ack) == syn ct mark set 1212435525
ct mark 1212435525 meta l4proto tcp tproxy ip to :15006 accept
ct mark 1212435525 meta l4proto tcp tproxy ip6 to :15006 accept
tcp flags & (fin | syn | rst | ack) == syn reject with tcp reset
}
}
";
    assert_eq!(rules.write(&mesh, State::Steered), steered);
    let refused = rules.write(&mesh, State::Refused);
    assert!(refused.contains("udp dport 53 return"), "{refused}");
    assert!(
        !refused.contains("tproxy") && !refused.contains("redirect to"),
        "{refused}"
    );
}
