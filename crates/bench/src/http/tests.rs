use super::*;

#[test]
fn a_response_is_read_whatever_the_case_of_its_fields() {
    let bytes = b"HTTP/1.1 200 OK\r\nServer: x\r\nCONTENT-length:  128 \r\n\r\nbody";
    let expected = Response {
        head_len: bytes.len() - 4,
        status: 200,
        content_length: 128,
    };
    assert_eq!(response(bytes), Ok(Some(expected)));
}

#[test]
fn half_a_head_is_not_yet_a_response() {
    assert_eq!(
        response(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n"),
        Ok(None)
    );
}

#[test]
fn what_is_not_an_answer_is_refused() {
    assert_eq!(response(b"SSH-2.0 200\r\n\r\n"), Err(Malformed::StatusLine));
    assert_eq!(
        response(b"HTTP/1.1 200 OK\r\nX: 1\r\n\r\n"),
        Err(Malformed::Length)
    );
    let wrong = b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n";
    assert_eq!(response(wrong), Err(Malformed::Length));
}

#[test]
fn a_request_yields_its_target() {
    let bytes = b"GET /api/items/128 HTTP/1.1\r\nHost: a\r\n\r\nGET /next";
    assert_eq!(
        request(bytes),
        Some((bytes.len() - 9, &b"/api/items/128"[..]))
    );
    let with_body = b"POST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\n";
    assert_eq!(
        request(with_body),
        Some((with_body.len() + 3, &b"/x"[..])),
        "the body is still on its way"
    );
    assert_eq!(request(b"GET / HTTP/1.1\r\nHost: a\r\n"), None);
    assert_eq!(request(b"\r\n\r\n"), Some((4, &b""[..])));
}
