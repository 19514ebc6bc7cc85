use super::*;

/// A packet of 20 bytes of IP, 20 of TCP, and the payload.
fn packet(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 40];
    packet[0] = 0x45;
    let total = u16::try_from(40 + payload.len()).expect("short");
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[9] = TCP;
    packet[20..22].copy_from_slice(&from.to_be_bytes());
    packet[22..24].copy_from_slice(&to.to_be_bytes());
    packet[24..28].copy_from_slice(&7_u32.to_be_bytes());
    packet[32] = 0x50;
    packet.extend_from_slice(payload);
    packet
}

#[test]
fn segments_are_told_by_their_ports_and_counted_once() {
    let mut passed = Passed::default();
    for packet in [
        packet(1000, 80, b"GET /secret"),
        packet(1000, 80, b"GET /secret"),
        packet(80, 1000, b"200"),
        packet(1000, 80, b""),
    ] {
        passed.add(&packet);
    }
    assert_eq!(passed.to(80).count(), 1);
    assert!(readable(passed.to(80), "secret"));
    assert!(!readable(passed.from(80), "secret"));
    assert_eq!(passed.from(80).count(), 1);
}

#[test]
fn what_is_no_tcp_or_cut_short_is_passed_over() {
    let whole = packet(1, 2, b"payload");
    for end in 0..whole.len() {
        assert_eq!(segment(&whole[..end]), None, "{end}");
    }
    let mut datagram = whole.clone();
    datagram[9] = 17;
    assert_eq!(segment(&datagram), None);
    let mut trailer = whole;
    trailer.extend_from_slice(b"padding");
    assert_eq!(segment(&trailer).expect("a segment").1, b"payload");
}

#[test]
fn the_suite_is_read_out_of_a_server_hello() {
    let mut hello = vec![22, 3, 3, 0, 122, 2, 0, 0, 118, 3, 3];
    hello.extend([9; 32]);
    hello.push(32);
    hello.extend([8; 32]);
    hello.extend([0x13, 0x01, 0]);
    assert_eq!(chosen_suite(&hello), Some(0x1301));
    for end in 0..hello.len() - 1 {
        assert_eq!(chosen_suite(&hello[..end]), None, "{end}");
    }
    assert_eq!(chosen_suite(b"HTTP/1.1 200 OK\r\n\r\n"), None);
}
