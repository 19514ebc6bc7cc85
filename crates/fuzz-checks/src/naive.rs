//! Naive parsers of the same grammar, with which the fuzz targets compare the real ones.

use heddle_wire::http1::Field;
use heddle_wire::link::heads::HeadLimits;

/// The name and value of each field line of `head`, parsed by splitting: lines at CR LF, fields at their first colon,
/// values without surrounding spaces and tabs.
pub(crate) fn naive_fields(head: &[u8]) -> Vec<(&[u8], &[u8])> {
    let text = head
        .strip_suffix(b"\r\n\r\n")
        .expect("a head ends with an empty line");
    assert!(!text.contains(&0));
    let lines = split_lines(text);
    lines[1..]
        .iter()
        .map(|line| {
            let colon = line.iter().position(|&byte| byte == b':').expect("a colon");
            let (name, value) = (&line[..colon], &line[colon + 1..]);
            assert!(!name.is_empty() && name.iter().all(|byte| byte.is_ascii_graphic()));
            assert!(
                value
                    .iter()
                    .all(|&byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
            );
            (name, trim(value))
        })
        .collect()
}

/// Lines ended by CR LF; no CR and no LF occurs otherwise.
pub(crate) fn split_lines(text: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        lines.push(&rest[..end]);
        rest = &rest[end + 2..];
    }
    lines.push(rest);
    for line in &lines {
        assert!(
            !line.contains(&b'\r') && !line.contains(&b'\n'),
            "a bare CR or LF"
        );
    }
    lines
}

fn trim(value: &[u8]) -> &[u8] {
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let start = value
        .iter()
        .position(|byte| !blank(byte))
        .unwrap_or(value.len());
    let end = value
        .iter()
        .rposition(|byte| !blank(byte))
        .map_or(start, |last| last + 1);
    &value[start..end]
}

/// The fields of a parsed head, after checking that their lines cover the head without a gap.
pub(crate) fn parsed_fields<'a>(
    buf: &'a [u8],
    fields: &[Field],
    length: usize,
) -> Vec<(&'a [u8], &'a [u8])> {
    let mut next = fields
        .first()
        .map_or(length - 2, |field| usize::from(field.line.start));
    let mut out = Vec::new();
    for field in fields {
        assert_eq!(
            usize::from(field.line.start),
            next,
            "field lines follow each other"
        );
        assert!(field.line.of(buf).ends_with(b"\r\n"));
        next = usize::from(field.line.end);
        out.push((field.name.of(buf), field.value.of(buf)));
    }
    assert_eq!(next, length - 2, "the empty line follows the last field");
    out
}

/// Limits for header blocks: the defaults, or ones so small that they are reached at once.
pub(crate) fn head_limits(choice: u8) -> HeadLimits {
    match choice % 4 {
        0 => HeadLimits::DEFAULT,
        1 => HeadLimits {
            templates: 3,
            template_bytes: 400,
            all_bytes: 900,
            max_head_bytes: 300,
        },
        2 => HeadLimits {
            all_bytes: 1500,
            ..HeadLimits::DEFAULT
        },
        _ => HeadLimits {
            templates: 2,
            ..HeadLimits::DEFAULT
        },
    }
}

/// Checks a decoded head: lines of text ended by CR LF, of which only the last is empty.
pub(crate) fn assert_head(head: &[u8]) {
    let text = head.strip_suffix(b"\r\n\r\n").expect("an empty line");
    assert!(text[0].is_ascii_graphic());
    for line in split_lines(text) {
        assert!(!line.is_empty(), "one empty line, at the end");
        assert!(
            line.iter()
                .all(|&byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
        );
    }
}
