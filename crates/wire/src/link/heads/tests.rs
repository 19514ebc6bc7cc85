use super::*;

mod pair;
mod properties;
mod refusals;
mod vectors;

use pair::CoderPair;

const REQUEST: &str = "GET /reviews/7?details=full HTTP/1.1\r\nHost: reviews\r\nAccept: */*\r\n\
    X-Request-Id: 123e4567-e89b-12d3-a456-426614174000\r\n\r\n";

#[test]
fn a_head_that_came_before_is_a_byte() {
    let mut pair = CoderPair::new(HeadLimits::DEFAULT);
    let first = pair.send(1, "where", REQUEST);
    assert!(first > REQUEST.len());
    for _ in 0..3 {
        assert_eq!(pair.send(1, "where", REQUEST), 1);
    }
    assert_eq!(pair.encoder.templates(), 1);
}

#[test]
fn what_differs_becomes_a_slot() {
    let mut pair = CoderPair::new(HeadLimits::DEFAULT);
    let request = |n: u32| {
        REQUEST
            .replace("/7?", &format!("/{n}?"))
            .replace("174000", &format!("17{n}"))
    };
    pair.send(1, "where", request(1000));
    let again = pair.send(1, "where", request(2000));
    assert!(again < 100, "{again}: text is copied, not said again");
    assert_eq!(pair.send(1, "where", request(3000)), 1 + 3 + 1 + 16);
    assert_eq!(pair.send(1, "where", request(3000)), 1 + 3 + 1, "the same");
    assert_eq!(pair.encoder.templates(), 1);
}

#[test]
fn scopes_and_destinations_share_no_template() {
    let mut pair = CoderPair::new(HeadLimits::DEFAULT);
    pair.send(1, "where", REQUEST);
    pair.send(2, "where", REQUEST);
    pair.send(1, "elsewhere", REQUEST);
    assert_eq!(pair.encoder.templates(), 3);
    for (scope, destination) in [(1, "where"), (2, "where"), (1, "elsewhere")] {
        assert_eq!(pair.send(scope, destination, REQUEST), 1);
    }
}

#[test]
fn secrets_are_said_every_time() {
    let mut pair = CoderPair::new(HeadLimits::DEFAULT);
    for name in [
        "Cookie",
        "authorization",
        "Proxy-Authorization",
        "Set-Cookie",
    ] {
        let secret = "not to be guessed, never";
        let head = format!("GET / HTTP/1.1\r\n{name}: {secret}\r\nA: {secret}\r\n\r\n");
        for n in 0..4 {
            let bytes = pair.send(1, "where", &head);
            assert!(bytes > secret.len(), "{name}, {n}: {bytes}");
        }
        assert_eq!(pair.block.len(), 1 + 1 + secret.len(), "once, not twice");
    }
}

#[test]
fn values_that_come_again_are_remembered() {
    let mut pair = CoderPair::new(HeadLimits::DEFAULT);
    let request = |n: usize| format!("GET / HTTP/1.1\r\nUser-Agent: Browser {n}\r\nB: c\r\n\r\n");
    for n in 0..9 {
        pair.send(1, "where", request(n));
    }
    for n in 1..9 {
        assert_eq!(pair.send(1, "where", request(n)), 2);
    }
    // More values than places: the least recently used one is evicted.
    assert!(pair.send(1, "where", request(10)) > 2);
    assert_eq!(pair.send(1, "where", request(2)), 2);
    assert!(pair.send(1, "where", request(1)) > 2);
}

#[test]
fn values_that_never_come_again_are_not_remembered_for_long() {
    let mut pair = CoderPair::new(HeadLimits::DEFAULT);
    let send = |pair: &mut CoderPair, n: u32| {
        pair.send(
            1,
            "where",
            format!("GET / HTTP/1.1\r\nA: by {n:07}\r\n\r\n"),
        )
    };
    for n in 0..200 {
        send(&mut pair, n);
    }
    let longest = (200..215).filter(|&n| send(&mut pair, n) > 12).count();
    assert!(longest <= 1, "one more byte for remembering: {longest}");
}

#[test]
fn targets_with_other_parts_have_templates_of_their_own_but_not_many() {
    let mut pair = CoderPair::new(HeadLimits::DEFAULT);
    let mut send = |target: &str| {
        let bytes = pair.send(
            1,
            "where",
            format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"),
        );
        (bytes, pair.encoder.templates())
    };
    let targets = ["/api", "/api/7", "/api/7/8", "/api?q=7"];
    for (number, target) in targets.iter().enumerate() {
        assert_eq!(send(target).1, number + 1);
    }
    for target in targets {
        assert_eq!(send(target), (1, 4));
    }
    for target in ["/api/8", "/api/9/10"] {
        send(target);
    }
    assert_eq!(send("/api/11"), (2, 4), "a part that changes");
    assert_eq!(send("/api/12/13"), (3, 4), "two of them");
    // A fifth order of separators: one of the templates now accepts any target.
    send("/api/1/2/3/4");
    let path = "/some/longer/way?with=an&argument";
    send(path);
    let (bytes, templates) = send("/some/other/ways/to/go");
    assert_eq!(
        (bytes, templates),
        (2 + 21 * 6 / 8 + 2, 4),
        "a slot for nearly all of it"
    );
    assert_eq!(send(path), (2, 4));
}

#[test]
fn another_destination_begins_with_what_was_learnt() {
    let mut pair = CoderPair::new(HeadLimits::DEFAULT);
    for n in 0..4 {
        pair.send(1, "where", REQUEST.replace("/7?", &format!("/{n}?")));
    }
    let bytes = pair.send(1, "elsewhere", REQUEST);
    assert!(bytes < 40, "{bytes}");
    assert_eq!(pair.send(1, "elsewhere", REQUEST.replace("/7?", "/9?")), 2);
}

#[test]
fn the_template_used_least_gives_way() {
    let mut pair = CoderPair::new(HeadLimits {
        templates: 3,
        ..HeadLimits::DEFAULT
    });
    let request = |name: &str| format!("GET / HTTP/1.1\r\n{name}: a\r\n\r\n");
    for name in ["A", "B", "C", "A", "D"] {
        pair.send(1, "where", request(name));
    }
    for name in ["A", "C", "D"] {
        assert_eq!(pair.send(1, "where", request(name)), 1, "{name}");
    }
    assert!(pair.send(1, "where", request("B")) > 1);
}

#[test]
fn templates_of_old_are_dropped() {
    let mut pair = CoderPair::new(HeadLimits::DEFAULT);
    let request = |name: &str| format!("GET / HTTP/1.1\r\n{name}: a\r\n\r\n");
    for name in ["A", "B", "C"] {
        pair.send(1, "where", request(name));
    }
    pair.encoder.age();
    pair.send(1, "where", request("B"));
    assert_eq!(pair.decoder.templates(), 3);
    pair.encoder.age();
    pair.send(1, "where", request("B"));
    assert_eq!(pair.decoder.templates(), 1);
    assert_eq!(pair.send(1, "where", request("B")), 1);
}

#[test]
fn numbers_of_destinations_stay() {
    let limits = HeadLimits::DEFAULT;
    let (mut encoder, mut decoder) = (Encoder::new(&limits), Decoder::new(&limits));
    let mut number = |destination: &[u8], head: &str| {
        let (mut block, mut out) = (Vec::new(), Vec::new());
        encoder.encode(1, destination, head.as_bytes(), &mut block);
        decoder.decode(&block, &mut out).unwrap().destination_id
    };
    let post = REQUEST.replace("GET", "POST");
    let ids = [
        number(b"a", REQUEST),
        number(b"b", REQUEST),
        number(b"a", &post),
        number(b"b", REQUEST),
        number(b"a", REQUEST),
    ];
    assert_eq!(ids, [Some(0), Some(1), Some(0), Some(1), Some(0)]);
}

#[test]
fn limits_may_grow() {
    let small = HeadLimits {
        templates: 0,
        ..HeadLimits::DEFAULT
    };
    let mut encoder = Encoder::new(&small);
    let mut decoder = Decoder::new(&HeadLimits::DEFAULT);
    let mut block = Vec::new();
    for round in 0..3 {
        block.clear();
        encoder.encode(1, b"a", REQUEST.as_bytes(), &mut block);
        decoder.decode(&block, &mut Vec::new()).unwrap();
        if round == 0 {
            assert_eq!(block[0], instruction::LITERAL);
            encoder.raise(&HeadLimits::DEFAULT);
        }
    }
    assert_eq!(block.len(), 1);
}
