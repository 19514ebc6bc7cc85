use super::PortRange;

#[test]
fn ports_are_written_as_everywhere() {
    for right in ["22", "8000-8010", "1-65535"] {
        assert_eq!(right.parse::<PortRange>().unwrap().to_string(), right);
    }
    for wrong in ["", "0", "0-5", "9-8", "65536", "1-", "-1", "a"] {
        assert!(wrong.parse::<PortRange>().is_err(), "{wrong}");
    }
}
