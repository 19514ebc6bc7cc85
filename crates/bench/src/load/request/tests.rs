use super::*;

fn shape(head: Head, body_bytes: u64, changing: bool) -> Shape {
    Shape {
        head,
        body_bytes,
        answer_bytes: body_bytes,
        changing,
        random_body: false,
        tail: None,
    }
}

fn request(head: Head, body_bytes: u64, changing: bool) -> Request {
    Request::new(&shape(head, body_bytes, changing), "echo.lab", 3)
}

fn lines(request: &mut Request) -> Vec<String> {
    let text = String::from_utf8(request.next().to_vec()).expect("text");
    let (head, _) = text.split_once("\r\n\r\n").expect("a head");
    head.split("\r\n").map(str::to_owned).collect()
}

#[test]
fn heads_have_as_many_fields_as_they_say() {
    for (head, fields) in [(Head::Plain, 11), (Head::Browser, 12), (Head::Grpc, 8)] {
        let lines = lines(&mut request(head, 0, false));
        assert_eq!(lines.len() - 1, fields, "{head:?}");
        assert!(lines[0].ends_with(" HTTP/1.1"), "{}", lines[0]);
        assert!(lines[0].contains("/0"), "{}", lines[0]);
        assert!(!lines.concat().contains('#'), "{lines:?}");
    }
    let plain = request(Head::Plain, 128, false);
    assert!((350..550).contains(&plain.bytes.len()));
}

#[test]
fn bodies_have_the_length_they_declare() {
    for head in [Head::Browser, Head::Grpc] {
        for length in [0, 128, 4096] {
            let mut request = request(head, length, true);
            let bytes = request.next();
            let end = memchr::memmem::find(bytes, b"\r\n\r\n").expect("a head") + 4;
            assert_eq!((bytes.len() - end) as u64, length);
            let declared = format!("Content-Length: {length}\r\n");
            assert!(memchr::memmem::find(bytes, declared.as_bytes()).is_some());
        }
    }
    assert!(request(Head::Plain, 128, true).bytes.ends_with(b"\r\n\r\n"));
}

#[test]
fn just_the_slots_change_and_always_in_the_same_way() {
    for (head, changed) in [
        (
            Head::Browser,
            &["POST ", "X-Request-Id: ", "Traceparent: "][..],
        ),
        (Head::Grpc, &["X-Request-Id: ", "Traceparent: "]),
    ] {
        let mut changing = request(head, 128, true);
        let (first, second) = (lines(&mut changing), lines(&mut changing));
        let differ = first
            .iter()
            .zip(&second)
            .filter(|(one, other)| one != other);
        for ((line, other), expected) in differ.zip(changed) {
            assert!(line.starts_with(expected), "{line}");
            assert_eq!(line.len(), other.len());
        }
        let differ = first
            .iter()
            .zip(&second)
            .filter(|(one, other)| one != other);
        assert_eq!(differ.count(), changed.len());
        // The same connection of another run, and another connection.
        let mut again = request(head, 128, true);
        assert_eq!(lines(&mut again), first);
        let mut other = Request::new(&shape(head, 128, true), "echo.lab", 4);
        assert_ne!(lines(&mut other), first);
    }
}

#[test]
fn what_is_constant_is_the_same_on_every_connection() {
    let mut request = request(Head::Browser, 128, false);
    let first = lines(&mut request);
    assert_eq!(lines(&mut request), first);
    let mut other = Request::new(&shape(Head::Browser, 128, false), "echo.lab", 4);
    assert_eq!(lines(&mut other), first);
}

#[test]
fn a_path_may_end_otherwise() {
    let shape = Shape {
        tail: Some("wait/50".to_owned()),
        ..shape(Head::Browser, 64, true)
    };
    let lines = lines(&mut Request::new(&shape, "echo.lab", 0));
    assert!(lines[0].ends_with("/wait/50 HTTP/1.1"), "{}", lines[0]);
}

#[test]
fn a_random_body_is_another_with_every_request_and_as_long() {
    let shape = Shape {
        random_body: true,
        ..shape(Head::Browser, 128, true)
    };
    let mut request = Request::new(&shape, "echo.lab", 3);
    let mut body = || {
        let bytes = request.next();
        bytes[bytes.len() - 128..].to_vec()
    };
    let (first, second) = (body(), body());
    assert_ne!(first, second);
    assert!(first.iter().chain(&second).all(u8::is_ascii_hexdigit));
}
