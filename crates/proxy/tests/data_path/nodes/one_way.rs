//! One-way messages, which links can carry and HTTP cannot express: the called node refuses them.

use heddle_model::AppProtocol;
use heddle_wire::link::{Code, Serial};

use super::by_hand::{Caller, Told};
use super::pair::Pair;
use super::refused::preface;
use crate::support::GET;

/// Opens a one-way message and leaves it open.
fn open(caller: &mut Caller, destination: &[u8]) -> Serial {
    let opened = caller.session.open(0, destination, GET.as_bytes(), false);
    opened.unwrap()
}

/// Exchanges bytes on the link until the condition holds.
fn hear_until(caller: &mut Caller, is_so: impl Fn(&Told) -> bool) {
    while !is_so(&caller.told) {
        caller.send();
        caller.hear();
        assert!(!caller.intruder.closed, "the link goes on");
    }
}

#[test]
fn a_one_way_message_is_reset_with_its_code_and_reaches_no_endpoint() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Http);
    let here = preface(1, upstream.address, "echo");
    let mut caller = Caller::of(&pair).unwrap();
    let alone = open(&mut caller, &here);
    let with_body = open(&mut caller, &here);
    assert_eq!(caller.session.send(with_body, b"news"), 4);
    hear_until(&mut caller, |told| told.resets.len() == 2);
    let refused = [alone, with_body].map(|serial| (serial, Code::MALFORMED));
    assert_eq!(caller.told.resets, refused);
    assert_eq!(Code::MALFORMED.0, 5, "what docs/link-protocol.md says");
    // A message that ends before it is refused has no open stream to reset.
    let whole = open(&mut caller, &here);
    assert!(caller.session.end(whole));

    // The link still carries a request, and that is the first thing that reaches the endpoint.
    caller.session.open(0, &here, GET.as_bytes(), true).unwrap();
    caller.send();
    let mut server = upstream.accept();
    assert!(server.head().starts_with("GET / HTTP/1.1\r\n"));
    server.answer("ok");
    hear_until(&mut caller, |told| told.heads == 1);
    assert_eq!(caller.told.resets, refused);
    assert!(upstream.is_quiet());
    pair.called.expect("heddle_http_requests_total", &[], 1.0);
}

#[test]
fn many_one_way_messages_take_no_place_of_requests() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Http);
    let here = preface(1, upstream.address, "echo");
    let mut caller = Caller::of(&pair).unwrap();
    // More than the limit of streams that were refused but are not over (docs/link-protocol.md).
    for sent in 1..=1_200 {
        open(&mut caller, &here);
        hear_until(&mut caller, |told| told.resets.len() == sent);
    }
    let is_refused = |(_, code): &(Serial, Code)| *code == Code::MALFORMED;
    assert!(caller.told.resets.iter().all(is_refused));
    assert!(upstream.is_quiet());
    caller.session.open(0, &here, GET.as_bytes(), true).unwrap();
    caller.send();
    let _server = upstream.answering("ok");
    hear_until(&mut caller, |told| told.heads == 1);
}
