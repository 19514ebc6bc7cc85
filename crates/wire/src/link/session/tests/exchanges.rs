use super::*;

fn serial(number: u32) -> Serial {
    Serial::new(number).expect("a serial")
}

/// The second byte of a frame's head; the frame must be the only one.
fn is_one_frame(bytes: &[u8]) -> u8 {
    let length = u16::from_be_bytes([bytes[6], bytes[7]]);
    assert_eq!(bytes.len(), 8 + usize::from(length));
    bytes[1]
}

const REQUEST_ENDS: u8 = 0x40;
const RESPONSE_ENDS: u8 = 0x20;

#[test]
fn a_request_and_its_response_are_one_frame_each() {
    let mut pair = pair();
    let one = pair.client.open(0, DESTINATION, REQUEST, true);
    assert_eq!(one, Ok(serial(1)));
    assert!(!pair.client.end(serial(1)));
    let bytes = pair.client_bytes();
    assert_eq!(is_one_frame(&bytes), REQUEST_ENDS);
    pair.server_takes(&bytes).expect("a request");
    assert_eq!(
        pair.told_server(),
        [
            Told::Opened(1, EXCHANGE, DESTINATION.to_vec()),
            Told::Head(1, 0, REQUEST.to_vec()),
            Told::Ended(1),
        ]
    );
    assert_eq!(pair.server.answer(serial(1), 0, Code::OK, RESPONSE), Ok(()));
    assert_eq!(pair.server.send(serial(1), b"hello"), 5);
    assert!(pair.server.end(serial(1)));
    let bytes = pair.server_bytes();
    assert_eq!(is_one_frame(&bytes), RESPONSE_ENDS);
    pair.client_takes(&bytes).expect("a response");
    assert_eq!(
        pair.told_client(),
        [
            Told::Head(1, 0, RESPONSE.to_vec()),
            Told::Data(1, b"hello".to_vec()),
            Told::Ended(1),
            Told::Over(1),
        ]
    );
    assert_eq!(
        (pair.client.open_streams(), pair.server.open_streams()),
        (0, 0)
    );
    assert!(!pair.client.is_idle() && !pair.server.is_idle());
    pair.tick(500);
    pair.pass();
    assert!(pair.client.is_idle() && pair.server.is_idle());
    pair.tick(1000);
    assert_eq!((pair.client.heap_bytes(), pair.server.heap_bytes()), (0, 0));
    assert_eq!(pair.client.next_deadline(), None);
}

#[test]
fn an_opaque_flow_carries_bytes_in_both_directions() {
    let mut pair = pair();
    let flow = pair.client.open_flow(DESTINATION).expect("a flow");
    assert_eq!(pair.client.send(flow, b"SSH-2.0"), 7);
    pair.pass();
    assert_eq!(pair.server.send(flow, b"\0SSH-2.0"), 8);
    pair.pass();
    assert_eq!(
        pair.told_server(),
        [
            Told::Opened(1, Opened::Flow, DESTINATION.to_vec()),
            Told::Data(1, b"SSH-2.0".to_vec()),
        ]
    );
    assert_eq!(pair.told_client(), [Told::Data(1, b"\0SSH-2.0".to_vec())]);
    assert!(!pair.client.end(flow));
    pair.pass();
    assert_eq!(pair.told_server(), [Told::Ended(1)]);
    assert!(pair.server.end(flow));
    pair.pass();
    assert_eq!(pair.told_client(), [Told::Ended(1), Told::Over(1)]);
}

#[test]
fn a_cut_is_healed() {
    let mut pair = pair();
    let one = pair
        .client
        .open(0, DESTINATION, REQUEST, true)
        .expect("one");
    let bytes = pair.client_bytes();
    pair.server_takes(&bytes[..bytes.len() - 1])
        .expect("half of it");
    assert_eq!(pair.told_server(), []);
    pair.disconnect();
    pair.client.end(one);
    pair.connect();
    pair.pass();
    assert_eq!(
        pair.told_server(),
        [
            Told::Opened(1, EXCHANGE, DESTINATION.to_vec()),
            Told::Head(1, 0, REQUEST.to_vec()),
            Told::Ended(1),
        ]
    );
}
