use super::*;

#[test]
fn calls_are_what_the_upstream_takes_and_their_ids_change() {
    let mut calls = Calls::new("echo0.lab", 64, 7).expect("an authority");
    let (first, second) = (calls.next(), calls.next());
    for call in [&first, &second] {
        assert!(is_call(call), "{call:?}");
        assert_eq!(call.uri(), "http://echo0.lab/heddle.lab.v1.Echo/Say");
    }
    assert_ne!(
        first.headers()["x-request-id"],
        second.headers()["x-request-id"]
    );
    assert!(Calls::new("no authority", 64, 7).is_err());
}

#[test]
fn a_call_without_one_of_its_fields_is_none() {
    let mut calls = Calls::new("echo0.lab", 64, 7).expect("an authority");
    for name in ["content-type", "te", "authorization", "x-request-id"] {
        let mut call = calls.next();
        call.headers_mut().remove(name);
        assert!(!is_call(&call), "{name}");
    }
    let mut get = calls.next();
    *get.method_mut() = Method::GET;
    assert!(!is_call(&get));
}

#[test]
fn a_message_says_its_length() {
    assert_eq!(&message(3)[..], b"\0\0\0\0\x03mmm");
    assert_eq!(message(64).len(), 69);
    assert_eq!(message(u64::MAX).len() as u64, 5 + MAX_MESSAGE);
}

#[test]
fn ids_look_like_uuids() {
    assert_eq!(
        request_id(0x0123_4567_89ab_cdef, 0x1122_3344_5566_7788),
        "01234567-89ab-cdef-1122-334455667788"
    );
    assert_eq!(request_id(0, 0).len(), 36);
}

#[test]
fn answers_are_judged_by_status_and_trailers() {
    assert!(is_answer(&answer()));
    let mut wrong = answer();
    *wrong.status_mut() = StatusCode::BAD_GATEWAY;
    assert!(!is_answer(&wrong));
    assert!(is_ok(&trailers("0")) && !is_ok(&trailers("3")) && !is_ok(&HeaderMap::new()));
}
