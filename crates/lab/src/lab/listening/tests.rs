use super::*;

#[test]
fn lines_of_listening_sockets_are_told_from_others() {
    for (line, port) in [
        (
            "  sl  local_address rem_address   st tx_queue rx_queue",
            None,
        ),
        (
            "   0: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000",
            Some(80),
        ),
        (
            "   1: 0100007F:3A99 0100007F:C350 01 00000000:00000000 00:00000000",
            None,
        ),
        (
            "   0: 00000000000000000000000000000000:2378 00000000000000000000000000000000:0000 0A 0",
            Some(9080),
        ),
        ("   0: 00000000 00000000:0000 0A", None),
        ("   0: 00000000:FFFFF 00000000:0000 0A", None),
        ("", None),
    ] {
        assert_eq!(listens_on(line), port, "{line}");
    }
}
