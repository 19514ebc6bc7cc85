use super::*;

fn entry() -> PodEntry {
    PodEntry {
        scope: 7,
        epoch: 3,
        fate: Fate::Pass,
        outbound_port: 15001,
        is_guarded: true,
        has_networks: false,
        inbound: vec![PortRange::one(22).unwrap()],
        outbound: vec![
            PortRange::new(8000, 8010).unwrap(),
            PortRange::one(9).unwrap(),
        ],
    }
}

#[test]
fn a_pod_has_the_form_that_the_programs_read() {
    let bytes = entry().encode();
    assert_eq!(bytes[0..4], 7u32.to_ne_bytes());
    assert_eq!(bytes[4..8], 3u32.to_ne_bytes());
    assert_eq!(bytes[8..12], 1u32.to_ne_bytes());
    assert_eq!(bytes[12..14], [0x3a, 0x99]);
    assert_eq!(bytes[14..17], [GUARDED, 1, 2]);
    assert_eq!(bytes[24..26], 22u16.to_ne_bytes());
    assert_eq!(bytes[88..90], 8000u16.to_ne_bytes());
    assert_eq!(bytes[90..92], 8010u16.to_ne_bytes());
    assert_eq!(bytes[92..94], 9u16.to_ne_bytes());
}

#[test]
fn only_guarded_pods_are_taken_over_and_no_proxy_serves_them() {
    let orphaned = orphan(entry().encode()).unwrap();
    assert_eq!(orphaned[0..12], [0; 12]);
    assert_eq!(orphaned[14..17], [GUARDED, 1, 2], "excluded ports stay");
    let open = PodEntry {
        is_guarded: false,
        ..entry()
    };
    assert_eq!(orphan(open.encode()), None);
}

#[test]
fn prefixes_count_from_the_scope_on() {
    for (text, bits) in [
        ("10.0.0.0/8", 136),
        ("0.0.0.0/0", 128),
        ("fd00::/8", 40),
        ("::/0", 32),
    ] {
        assert_eq!(
            network(0, text.parse().unwrap()).prefix_len(),
            bits,
            "{text}"
        );
    }
    let key = network(5, "10.0.0.0/8".parse().unwrap()).data();
    assert_eq!(key[0..4], 5u32.to_ne_bytes());
    assert_eq!(key[14..18], [0xff, 0xff, 10, 0]);
}
