//! An accepted request head means the same to a naive parser, needs all of its bytes, and parses the same when other
//! bytes follow.

use crate::naive::{naive_fields, parsed_fields, split_lines};
use heddle_wire::http1::{FieldKind, Framing, Limits, RequestHead, TargetForm};

const LIMITS: Limits = Limits {
    max_head_bytes: 4096,
    max_fields: 32,
    max_target_bytes: 1024,
    ..Limits::DEFAULT
};

/// Checks one input.
pub fn check(data: &[u8]) {
    let mut head = RequestHead::new();
    let Ok(Some(length)) = head.parse(data, &LIMITS) else {
        return;
    };
    assert!(length <= LIMITS.max_head_bytes && head.fields.len() <= LIMITS.max_fields);
    let start = usize::from(head.start);
    assert!(data[..start].chunks(2).all(|two| two == b"\r\n"));

    let text = &data[start..length];
    assert_eq!(
        naive_fields(text),
        parsed_fields(data, &head.fields, length)
    );
    let line = split_lines(text)[0];
    let parts: Vec<_> = line.split(|&byte| byte == b' ').collect();
    assert_eq!(
        parts,
        [
            head.method_span.of(data),
            head.target.of(data),
            head.version_span.of(data)
        ]
    );
    assert!(head.target.of(data).iter().all(u8::is_ascii_graphic));
    if head.form == TargetForm::Origin {
        let mut target = head.path.of(data).to_vec();
        if let Some(query) = head.query {
            target.push(b'?');
            target.extend_from_slice(query.of(data));
        }
        assert_eq!(target, head.target.of(data));
    }

    let count = |kind| {
        head.fields
            .iter()
            .filter(|field| field.kind == kind)
            .count()
    };
    let lengths = count(FieldKind::ContentLength);
    let codings = count(FieldKind::TransferEncoding);
    assert!(count(FieldKind::Host) <= 1);
    match head.framing {
        Framing::None => assert_eq!((lengths, codings), (0, 0)),
        Framing::Length(_) => assert_eq!((lengths, codings), (1, 0)),
        Framing::Chunked => assert_eq!((lengths, codings), (0, 1)),
        Framing::UntilClose => panic!("a request cannot end with its connection"),
    }

    // Fewer bytes are incomplete, and more bytes make no difference.
    let mut other = RequestHead::new();
    assert_eq!(other.parse(&data[..length], &LIMITS), Ok(Some(length)));
    for end in [length - 1, length - 2, length / 2, start + 1, start] {
        assert_eq!(other.parse(&data[..end.min(length - 1)], &LIMITS), Ok(None));
    }
}
