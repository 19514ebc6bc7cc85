use super::*;

fn destination() -> HeaderValue {
    HeaderValue::from_static("01")
}

/// Translates a request's head to HTTP/2 and back to the text that the other end sees.
fn through(head: &str, ended: bool) -> Option<String> {
    let translated = request(head.as_bytes(), &destination())?;
    let (parts, ()) = translated.head.into_parts();
    let mut text = Vec::new();
    write_request(&parts, ended, &mut text);
    String::from_utf8(text).ok()
}

fn back(head: &str, method: Method, ended: bool) -> Option<String> {
    let translated = response(head.as_bytes(), method)?;
    let (parts, ()) = translated.head.into_parts();
    let mut text = Vec::new();
    write_response(&parts, method, ended, &mut text);
    String::from_utf8(text).ok()
}

fn said(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn a_request_is_the_same_at_the_other_end() {
    assert_eq!(
        through(
            "GET /a%2Fb?c HTTP/1.1\r\nHost: shop.test:81\r\nX-A: 1\r\nx-b: \r\nX-A: 2\r\n\r\n",
            true
        ),
        said("GET /a%2Fb?c HTTP/1.1\r\nhost: shop.test:81\r\nx-a: 1\r\nx-a: 2\r\nx-b: \r\n\r\n"),
    );
    assert_eq!(
        through("OPTIONS * HTTP/1.1\r\nHost: [::1]\r\n\r\n", true),
        said("OPTIONS * HTTP/1.1\r\nhost: [::1]\r\n\r\n"),
    );
}

#[test]
fn what_is_about_one_connection_stays() {
    assert_eq!(
        through(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nKeep-Alive: 5\r\n\
             heddle-destination: 02\r\nTE: gzip\r\n\r\n",
            true
        ),
        said("GET / HTTP/1.1\r\nhost: a\r\n\r\n"),
    );
    assert_eq!(
        through(
            "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTrailer: X\r\n\r\n",
            true
        ),
        said("GET / HTTP/1.1\r\nhost: a\r\nte: trailers\r\ntrailer: X\r\n\r\n"),
    );
}

#[test]
fn trailers_are_welcome_in_one_spelling_and_once() {
    assert_eq!(
        through(
            "GET / HTTP/1.1\r\nHost: a\r\nTE: Trailers\r\nA: b\r\nTE: trailers\r\n\r\n",
            true
        ),
        said("GET / HTTP/1.1\r\nhost: a\r\nte: trailers\r\na: b\r\n\r\n"),
    );
}

#[test]
fn cookies_are_one_line_again() {
    assert_eq!(
        through(
            "GET / HTTP/1.1\r\nCookie: a=1\r\nHost: a\r\nCookie: b=2\r\n\r\n",
            true
        ),
        said("GET / HTTP/1.1\r\nhost: a\r\ncookie: a=1; b=2\r\n\r\n"),
    );
}

#[test]
fn a_body_without_a_length_comes_in_said() {
    assert_eq!(
        through(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            false
        ),
        said("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"),
    );
    assert_eq!(
        through(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
            false
        ),
        said("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n"),
    );
}

#[test]
fn an_answer_ends_where_its_client_expects_it() {
    let bare = "HTTP/1.1 200 Fine\r\nA: b\r\n\r\n";
    assert_eq!(
        back(bare, Method::Get, true),
        said("HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 0\r\n\r\n"),
    );
    assert_eq!(
        back(bare, Method::Get, false),
        said("HTTP/1.1 200 OK\r\na: b\r\ntransfer-encoding: chunked\r\n\r\n"),
    );
    // A response that never has a body gets no length.
    let unchanged = said("HTTP/1.1 200 OK\r\na: b\r\n\r\n");
    assert_eq!(back(bare, Method::Head, true), unchanged);
    for status in ["204 No Content", "304 Not Modified", "103 Early Hints"] {
        let head = format!("HTTP/1.1 {status}\r\n\r\n");
        assert_eq!(back(&head, Method::Get, true), said(&head));
    }
    let length = "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n";
    for method in [Method::Get, Method::Head] {
        assert_eq!(back(length, method, false), said(length));
    }
}

#[test]
fn what_http2_cannot_say_is_not_said() {
    for target in ["/<", "/`", "http://a/"] {
        let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(through(&head, true), None, "{target}");
    }
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    assert_eq!(back(switch, Method::Get, true), None);
}

#[test]
fn a_long_head_is_the_same_too() {
    let value = "v".repeat(3000);
    let head = format!("GET / HTTP/1.1\r\nhost: a\r\na: {value}\r\nb: {value}\r\n\r\n");
    assert!(head.len() > SHARED_BYTES);
    assert_eq!(through(&head, true), said(&head));
}
