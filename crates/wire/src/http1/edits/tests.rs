use proptest::prelude::*;

use super::Edits;
use crate::http1::Span;

const HEAD: &[u8] = b"GET /a HTTP/1.1\r\nHost: shop\r\nX: y\r\n\r\n";

fn written(edits: &Edits, head: &[u8]) -> String {
    let mut out = Vec::new();
    edits.write_to(head, &mut out);
    String::from_utf8(out).unwrap()
}

fn span(start: u16, end: u16) -> Span {
    Span { start, end }
}

#[test]
fn without_edits_a_head_is_copied() {
    assert!(Edits::new().is_empty());
    assert_eq!(written(&Edits::new(), HEAD).as_bytes(), HEAD);
}

#[test]
fn edits_may_come_in_any_order() {
    let mut edits = Edits::new();
    edits.append(b"Via", b"1.1 heddle");
    edits.cut(span(29, 35));
    edits.replace(span(4, 6), b"/longer");
    edits.replace(span(23, 27), b"b");
    assert_eq!(
        written(&edits, HEAD),
        "GET /longer HTTP/1.1\r\nHost: b\r\nVia: 1.1 heddle\r\n\r\n"
    );
    edits.clear();
    assert!(edits.is_empty());
    assert_eq!(written(&edits, HEAD).as_bytes(), HEAD);
}

#[test]
fn the_last_edit_of_a_span_counts_and_the_larger_swallows_the_smaller() {
    let line = span(29, 35);
    let value = span(32, 33);
    let without = "GET /a HTTP/1.1\r\nHost: shop\r\n\r\n";
    let mut edits = Edits::new();
    edits.replace(value, b"1");
    edits.replace(value, b"2");
    assert_eq!(
        written(&edits, HEAD),
        "GET /a HTTP/1.1\r\nHost: shop\r\nX: 2\r\n\r\n"
    );
    edits.cut(line);
    assert_eq!(written(&edits, HEAD), without);
    edits.replace(value, b"3");
    edits.cut(line);
    assert_eq!(written(&edits, HEAD), without);
}

#[test]
fn an_empty_span_is_an_insertion() {
    let mut edits = Edits::new();
    edits.replace(span(4, 4), b"/prefix");
    edits.cut(span(17, 29));
    edits.replace(span(17, 17), b"A: b\r\n");
    edits.replace(span(29, 29), b"C: d\r\n");
    edits.replace(span(20, 20), b"swallowed");
    assert_eq!(
        written(&edits, HEAD),
        "GET /prefix/a HTTP/1.1\r\nA: b\r\nC: d\r\nX: y\r\n\r\n"
    );
}

#[test]
fn no_value_can_become_a_second_field() {
    let mut edits = Edits::new();
    edits.append_parts(b"X", &[b"a\r\nEvil: ", b"b\0c"]);
    assert!(written(&edits, HEAD).ends_with("X: a  Evil: b c\r\n\r\n"));
}

#[test]
fn a_head_shorter_than_the_edits_is_no_reason_to_panic() {
    let mut edits = Edits::new();
    edits.replace(span(4, 400), b"x");
    edits.append(b"A", b"b");
    for end in 0..HEAD.len() {
        written(&edits, &HEAD[..end]);
    }
}

/// The model: for each byte of the head, the text written before it and whether the byte stays. Later edits overwrite
/// earlier ones, unless a larger one contains them.
fn model(head: &[u8], edits: &[(Span, Vec<u8>)]) -> Vec<u8> {
    let within = |inner: &Span, outer: &Span| {
        inner != outer
            && if inner.is_empty() {
                outer.start < inner.start && inner.start < outer.end
            } else {
                outer.start <= inner.start && inner.end <= outer.end
            }
    };
    let stands = |at: usize| {
        let (span, _) = &edits[at];
        !edits.iter().any(|(other, _)| within(span, other))
            && !edits[at + 1..].iter().any(|(other, _)| other == span)
    };
    let standing: Vec<_> = (0..edits.len())
        .filter(|&at| stands(at))
        .map(|at| &edits[at])
        .collect();
    let mut out = Vec::new();
    for at in 0..=head.len() {
        for empty in [true, false] {
            for (span, text) in &standing {
                if usize::from(span.start) == at && span.is_empty() == empty {
                    out.extend_from_slice(text);
                }
            }
        }
        let covered = |(span, _): &&(Span, Vec<u8>)| {
            (usize::from(span.start)..usize::from(span.end)).contains(&at)
        };
        if let Some(byte) = head
            .get(at)
            .filter(|_| !standing.iter().copied().any(|edit| covered(&edit)))
        {
            out.push(*byte);
        }
    }
    out
}

/// Spans that are nested or disjoint, never crossing: those of a small fixed tree, like fields with their names and
/// values.
fn tree_span() -> impl Strategy<Value = Span> {
    (0..4u16, 0..6u16).prop_map(|(line, part)| {
        let start = line * 7;
        match part {
            0 => span(start, start + 7),
            1 => span(start, start + 2),
            2 => span(start + 3, start + 5),
            3 => span(start + 3, start + 4),
            4 => span(start + 3, start + 3),
            _ => span(start, start),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edits_do_what_the_naive_model_does(
        list in prop::collection::vec((tree_span(), "[a-z]{0,4}"), 0..12),
    ) {
        let head = b"A: bc\r\nD: ef\r\nG: hi\r\nJ: kl\r\n\r\n";
        let list: Vec<_> = list.into_iter().map(|(span, text)| (span, text.into_bytes())).collect();
        let mut edits = Edits::new();
        for (span, text) in &list {
            edits.replace(*span, text);
        }
        prop_assert_eq!(written(&edits, head).into_bytes(), model(head, &list));
    }
}
