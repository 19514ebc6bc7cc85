use super::*;

mod pair;
mod properties;
mod refusals;
mod vectors;

use pair::Pair;

const REQUEST: &str = "GET /reviews/7?details=full HTTP/1.1\r\nHost: reviews\r\nAccept: */*\r\n\
    X-Request-Id: 123e4567-e89b-12d3-a456-426614174000\r\n\r\n";

#[test]
fn a_head_that_came_before_is_a_byte() {
    let mut pair = Pair::new(HeadLimits::DEFAULT);
    let first = pair.send(1, "where", REQUEST);
    assert!(first > REQUEST.len());
    for _ in 0..3 {
        assert_eq!(pair.send(1, "where", REQUEST), 1);
    }
    assert_eq!(pair.encoder.templates(), 1);
}

#[test]
fn what_differs_becomes_a_slot() {
    let mut pair = Pair::new(HeadLimits::DEFAULT);
    let request = |n: u32| {
        REQUEST
            .replace("/7?", &format!("/{n}?"))
            .replace("174000", &format!("17{n}"))
    };
    pair.send(1, "where", request(1000));
    let again = pair.send(1, "where", request(2000));
    assert!(again < 100, "{again}: text is copied, not said again");
    assert_eq!(pair.send(1, "where", request(3000)), 1 + 3 + 16);
    assert_eq!(pair.encoder.templates(), 1);
}

#[test]
fn scopes_and_destinations_share_no_template() {
    let mut pair = Pair::new(HeadLimits::DEFAULT);
    pair.send(1, "where", REQUEST);
    pair.send(2, "where", REQUEST);
    pair.send(1, "elsewhere", REQUEST);
    assert_eq!(pair.encoder.templates(), 3);
    for (scope, destination) in [(1, "where"), (2, "where"), (1, "elsewhere")] {
        assert_eq!(pair.send(scope, destination, REQUEST), 1);
    }
}
