//! Every head survives the round trip, any input is survived, and both ends hold the same templates.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::pair::CoderPair;
use super::*;

/// Values of every kind of slot, near misses, and others.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        select(vec!["", "a", "a,b", " x ", "\t", "Keep-Alive", "*/*;q=0.8"]).prop_map(String::from),
        "[0-9]{1,21}",
        "[0-9a-f]{1,64}",
        "[0-9A-Za-z_-]{1,40}",
        "[a-z0-9/.=?&%-]{1,40}",
        "[0-9a-fA]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "0[01]-[0-9a-f]{32}-[0-9a-f]{16}-0[01g]",
        (0..super::date::END + 100).prop_map(|seconds| {
            String::from_utf8(super::date::write(seconds.min(super::date::END - 1)).to_vec())
                .unwrap()
        }),
        (1_700_000_000u64..1_700_000_100).prop_map(|seconds| {
            String::from_utf8(super::date::write(seconds).to_vec()).unwrap()
        }),
        "[ -~\u{e9}]{0,300}",
    ]
}

fn target() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => vec(("[/?&=]", select(vec!["a", "api", "", "items", "7", "1234567", "x.y", "q"])), 0..6)
            .prop_map(|parts| {
                let rest: String = parts.into_iter().map(|(a, b)| a + b).collect();
                format!("/{rest}")
            }),
        1 => select(vec!["*", "shop:80", "http://shop/a", "http://shop/b", "/\u{e9}"])
            .prop_map(String::from),
        1 => "[!-~]{1,40}",
    ]
}

/// Heads of a few shapes, so that shapes repeat.
pub(super) fn head() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        4 => (select(vec!["GET", "POST", "PRI"]), target(), select(vec!["1.0", "1.1"]))
            .prop_map(|(method, target, version)| format!("{method} {target} HTTP/{version}")),
        2 => select(vec!["HTTP/1.1 200 OK", "HTTP/1.1 404 Not Found", "HTTP/1.1 200", "HTTP/1.0 200 "])
            .prop_map(String::from),
        1 => "[A-Z]{1,3}[ -~]{0,20}",
    ];
    let names = vec![
        "Host",
        "date",
        "Content-Length",
        "Cookie",
        "authorization",
        "X-A",
    ];
    let field = (select(names), select(vec![":", ": ", ":\t "]), value());
    let fields = prop_oneof![
        3 => (value(), value(), option::of(value())).prop_map(|(a, b, c)| {
            let last = c.map(|c| format!("Date: {c}\r\n")).unwrap_or_default();
            format!("X-A: {a}\r\nCookie: {b}\r\n{last}")
        }),
        2 => vec(field, 0..5).prop_map(|fields| {
            let line = |(name, colon, value)| format!("{name}{colon}{value}\r\n");
            fields.into_iter().map(line).collect()
        }),
        1 => "([ -~]{1,9}\r\n){0,3}",
    ];
    (line, fields).prop_map(|(line, fields)| format!("{line}\r\n{fields}\r\n"))
}

pub(super) fn limits() -> impl Strategy<Value = HeadLimits> {
    let limits = (0u16..6, 200u32..2000, 200u32..3000);
    let small = limits.prop_map(|(templates, template_bytes, all_bytes)| HeadLimits {
        templates,
        template_bytes,
        all_bytes,
        max_head_bytes: 64 * 1024,
    });
    prop_oneof![Just(HeadLimits::DEFAULT), small]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn heads_come_out_as_they_went_in(
        limits in limits(),
        heads in vec((0u32..2, select(vec!["", "a", "b"]), head(), 0u8..20), 0..30),
    ) {
        let mut pair = CoderPair::new(limits);
        for (scope, destination, head, age) in heads {
            if check::head(head.as_bytes()).is_err() {
                continue;
            }
            pair.send(scope, destination, &head);
            if age == 0 {
                pair.encoder.age();
            }
        }
    }

    #[test]
    fn the_same_head_is_short_the_second_time(head in head()) {
        let mut pair = CoderPair::new(HeadLimits::DEFAULT);
        if check::head(head.as_bytes()).is_err() {
            return Ok(());
        }
        pair.send(1, "a", &head);
        let again = pair.send(1, "a", &head);
        if pair.encoder.templates() == 1 && !head.to_lowercase().contains("\r\ncookie") && !head.to_lowercase().contains("\r\nauthorization") {
            prop_assert!(again <= 2 + head.matches("ate:").count(), "{}", again);
        }
    }

    #[test]
    fn any_bytes_are_survived(
        limits in limits(),
        first in head(),
        blocks in vec(vec(any::<u8>(), 0..60), 0..20),
    ) {
        let mut pair = CoderPair::new(limits);
        if check::head(first.as_bytes()).is_ok() {
            pair.send(1, "a", &first);
        }
        let mut head = Vec::new();
        for block in blocks {
            head.clear();
            let decoded = pair.decoder.decode(&block, &mut head).is_ok();
            prop_assert!(pair.decoder.bytes() <= limits.all_bytes);
            prop_assert!(pair.decoder.templates() <= usize::from(limits.templates));
            prop_assert_eq!(decoded, check::head(&head).is_ok());
        }
    }

    #[test]
    fn blocks_that_are_spoilt_are_survived(
        heads in vec(head(), 1..10),
        spoilt in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut encoder = Encoder::new(&HeadLimits::DEFAULT);
        let mut decoder = Decoder::new(&HeadLimits::DEFAULT);
        for (number, head) in heads.iter().enumerate() {
            let mut block = Vec::new();
            encoder.encode(1, b"a", head.as_bytes(), &mut block);
            if number + 1 == heads.len() {
                for (at, byte) in &spoilt {
                    let at = at.index(block.len());
                    block[at] = *byte;
                }
            }
            let mut out = Vec::new();
            if decoder.decode(&block, &mut out).is_ok() {
                prop_assert_eq!(check::head(&out), Ok(()));
            }
        }
    }
}
