//! An accepted response head means the same to a naive parser, and needs all of its bytes. The first byte chooses the
//! method of the request.

use crate::naive::{naive_fields, parsed_fields, split_lines};
use heddle_wire::http1::{Edits, Framing, Limits, Method, ResponseHead};

/// Checks one input.
pub fn check(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    let method = if choice & 1 == 1 {
        Method::Head
    } else {
        Method::Get
    };
    let mut head = ResponseHead::new();
    let Ok(Some(length)) = head.parse(data, &Limits::DEFAULT, method) else {
        return;
    };
    let start = usize::from(head.start);
    let text = &data[start..length];
    assert_eq!(
        naive_fields(text),
        parsed_fields(data, &head.fields, length)
    );
    assert!((100..600).contains(&head.status));
    let line = split_lines(text)[0];
    let version = head.version_span.of(data);
    assert!(line.starts_with(&[version, b" ", head.status.to_string().as_bytes()].concat()));
    let bodiless = method == Method::Head || matches!(head.status, 100..=199 | 204 | 304);
    assert_eq!(bodiless, head.framing == Framing::None);
    assert!(!head.keep_alive || head.framing != Framing::UntilClose);

    let mut other = ResponseHead::new();
    for end in [length - 1, length - 2, length / 2, start] {
        assert_eq!(
            other.parse(&data[..end.min(length - 1)], &Limits::DEFAULT, method),
            Ok(None)
        );
    }

    // The forwarded head parses to the same, unless the added field exceeds a limit.
    if head.fields.len() == Limits::DEFAULT.max_fields {
        return;
    }
    let mut edits = Edits::new();
    head.strip_hop_by_hop(data, &mut edits);
    edits.append(b"X-Test", b"\r\nEvil: yes");
    let mut sent = Vec::new();
    edits.write_to(&data[..length], &mut sent);
    assert_eq!(
        other.parse(&sent, &Limits::DEFAULT, method),
        Ok(Some(sent.len()))
    );
    assert_eq!((other.status, other.version), (head.status, head.version));
    assert!(other.fields.iter().all(|field| !field.kind.is_hop_by_hop()));
    if !matches!(head.status, 100..=199 | 204) {
        assert_eq!(other.framing, head.framing);
    }
    assert!(
        other
            .fields
            .last()
            .is_some_and(|field| field.name.of(&sent) == b"X-Test")
    );
}
