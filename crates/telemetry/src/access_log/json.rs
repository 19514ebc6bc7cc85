//! JSON strings (RFC 8259, section 7) from untrusted bytes of clients.
//!
//! Log lines are parsed by machines and printed on terminals. So, beyond what JSON requires, DEL and
//! the C1 control characters are escaped too, and a byte that is not valid UTF-8 becomes `\u00XX` with
//! the byte's value.

/// Appends the first `max` of `bytes` as the content of a JSON string, without quotes; `…` marks a cut.
pub(super) fn escape(out: &mut Vec<u8>, bytes: &[u8], max: usize) {
    let (shown, cut) = match bytes.split_at_checked(max) {
        Some((shown, rest)) if !rest.is_empty() => (shown, true),
        _ => (bytes, false),
    };
    if shown.iter().all(|b| is_plain(*b)) {
        out.extend_from_slice(shown);
    } else {
        escape_slow(out, shown);
    }
    if cut {
        out.extend_from_slice("…".as_bytes());
    }
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

#[cold]
fn escape_slow(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.extend_from_slice(b"\\\""),
                '\\' => out.extend_from_slice(b"\\\\"),
                // C0, DEL and C1: all below U+0100.
                c if c.is_control() => escape_byte(out, c as u8),
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        for byte in chunk.invalid() {
            escape_byte(out, *byte);
        }
    }
}

fn escape_byte(out: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
    out.extend_from_slice(b"\\u00");
    out.extend_from_slice(&digits);
}

#[cfg(test)]
mod tests {
    use super::escape;
    use proptest::prelude::*;

    fn escaped(bytes: &[u8], max: usize) -> String {
        let mut out = Vec::new();
        escape(&mut out, bytes, max);
        String::from_utf8(out).expect("UTF-8 whatever came in")
    }

    #[test]
    fn hostile_bytes() {
        for (bytes, expected) in [
            (&b"/plain path"[..], "/plain path"),
            (b"a\"b\\c", r#"a\"b\\c"#),
            (b"\r\n\x00\x1b[2J\x7f", r"\u000d\u000a\u0000\u001b[2J\u007f"),
            (b"\xff\xfe\xc3", r"\u00ff\u00fe\u00c3"),
            (b"\xc2\x9b31m", r"\u009b31m"),
            ("grün".as_bytes(), "grün"),
            (b"\xed\xa0\x80", r"\u00ed\u00a0\u0080"),
        ] {
            assert_eq!(escaped(bytes, 100), expected);
        }
    }

    #[test]
    fn what_is_cut_is_marked() {
        assert_eq!(escaped(b"abcdef", 6), "abcdef");
        assert_eq!(escaped(b"abcdefg", 6), "abcdef…");
        assert_eq!(escaped("aü".as_bytes(), 2), r"a\u00c3…");
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_json_string_of_bounded_length(bytes: Vec<u8>, max in 0usize..64) {
            let text = escaped(&bytes, max);
            prop_assert!(text.len() <= 6 * max + "…".len());
            let parsed: Result<String, _> = serde_json::from_str(&format!("\"{text}\""));
            prop_assert!(parsed.is_ok(), "{text}");
            prop_assert!(!parsed.unwrap_or_default().is_empty() || bytes.is_empty());
        }

        #[test]
        fn text_without_control_characters_reads_back_as_it_was(text in "[^\\p{Cc}]{0,40}") {
            let parsed: String = serde_json::from_str(&format!("\"{}\"", escaped(text.as_bytes(), 1_000)))?;
            prop_assert_eq!(parsed, text);
        }
    }
}
