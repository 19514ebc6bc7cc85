use super::*;

#[test]
fn the_last_segment_says_how_long_the_body_is() {
    let cases: [(&str, u64); 5] = [
        ("/api/v1/items/128", 128),
        ("/api/v1/items/4096?trace=1/7", 4096),
        ("/", 0),
        ("/api/items", 0),
        ("/99999999999999999999999", 0),
    ];
    for (target, expected) in cases {
        assert_eq!(body_length(target.as_bytes()), expected, "{target}");
    }
}

#[test]
fn an_answer_has_the_length_it_declares() {
    for length in [0, 128, 4096] {
        let bytes = answer(length);
        let head = http::response(&bytes).expect("well formed").expect("whole");
        assert_eq!((head.status, head.content_length), (200, length));
        assert_eq!((bytes.len() - head.head_len) as u64, length);
    }
}

#[test]
fn answers_are_made_once_and_bounded() {
    let mut answers = ResponseCache::default();
    let first = answers.find(b"/items/7");
    assert_eq!(answers.find(b"/other/7"), first);
    for length in 0..1000 {
        answers.find(format!("/items/{length}").as_bytes());
    }
    assert_eq!(answers.made.len(), 64);
}

#[test]
fn addresses_follow_each_other_within_127_1() {
    assert_eq!(address(0), Ipv4Addr::new(127, 1, 0, 1));
    assert_eq!(address(255), Ipv4Addr::new(127, 1, 1, 0));
    assert_eq!(address(999), Ipv4Addr::new(127, 1, 3, 232));
}

#[test]
fn it_answers_a_request_that_arrives_in_two_halves_and_the_next_one() {
    let target = SocketAddr::V4(SocketAddrV4::new(address(0), in_background()));
    let mut client = TcpStream::connect(target).expect("connect");
    client.set_nodelay(true).expect("nodelay");
    for halves in [
        &["GET /x/1000000 HTTP/1.1\r\nHo", "st: a\r\n\r\n"][..],
        &["GET /x/5 HTTP/1.1\r\nHost: a\r\n\r\n"],
        &[
            "POST /x/5 HTTP/1.1\r\nContent-Length: 6\r\n\r\n",
            "abc",
            "def",
        ],
    ] {
        for half in halves {
            client.write_all(half.as_bytes()).expect("write");
        }
        let mut bytes = vec![0; 1 << 21];
        let mut len = 0;
        let head = loop {
            len += client.read(&mut bytes[len..]).expect("read");
            if let Some(head) = http::response(&bytes[..len]).expect("well formed") {
                let whole = head.head_len + usize::try_from(head.content_length).expect("small");
                if len >= whole {
                    assert_eq!(len, whole);
                    break head;
                }
            }
        };
        assert_eq!(head.status, 200);
    }
}

#[test]
fn an_answer_bears_the_date_of_its_second() {
    let mut bytes = answer(5);
    let length = bytes.len();
    put_date(&mut bytes, 784_111_777);
    let text = String::from_utf8(bytes).expect("text");
    // The example of RFC 9110 section 5.6.7.
    assert!(
        text.contains("\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"),
        "{text}"
    );
    assert_eq!(text.len(), length);
    let mut answers = ResponseCache::default();
    let which = answers.find(b"/items/5");
    assert!(
        !answers
            .bytes(which)
            .windows(4)
            .any(|bytes| bytes == b"1970")
    );
}
