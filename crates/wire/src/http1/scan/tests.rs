use super::{
    BLOCK_BYTES, any, before, has_control, is_control, is_usual_in_names, is_visible_ascii, target,
    text_end, token_before, token_end,
};
use crate::http1::framing::is_token_byte;

fn is_text(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}

#[test]
fn kinds_of_bytes_are_what_they_are_called() {
    for byte in 0..=255u8 {
        let in_names = byte.is_ascii_alphanumeric() || byte == b'-';
        assert_eq!(is_usual_in_names(byte), in_names, "{byte}");
        assert_eq!(is_control(byte), byte.is_ascii_control(), "{byte}");
        assert_eq!(is_visible_ascii(byte), byte.is_ascii_graphic(), "{byte}");
    }
}

#[test]
fn the_first_byte_of_a_kind_is_found_in_a_block() {
    for at in 0..BLOCK_BYTES {
        for byte in 0..=255 {
            for after in 0..=255 {
                let mut bytes = [b'a'; BLOCK_BYTES];
                bytes[at..].fill(after);
                bytes[at] = byte;
                let expected = bytes.iter().position(|&byte| is_control(byte));
                assert_eq!(before(&bytes, is_control), expected.unwrap_or(BLOCK_BYTES));
                assert_eq!(any(&bytes, is_control), expected.is_some());
            }
        }
    }
}

/// Runs of all lengths up to a few blocks, ended by each byte and by the end of the input.
#[test]
fn runs_end_where_a_loop_over_bytes_ends_them() {
    for length in 0..40 {
        for byte in 0..=255u8 {
            for (fill, after) in [(b'a', ""), (b'_', "a"), (b'\t', "?aaaaaaaaaaaaaaaaaa#\r\n")] {
                let mut bytes = vec![fill; length];
                bytes.push(byte);
                bytes.extend_from_slice(after.as_bytes());
                for from in [0, length / 2, bytes.len()] {
                    let end = |is: &dyn Fn(u8) -> bool| {
                        let rest = bytes[from..].iter().position(|&byte| !is(byte));
                        rest.map_or(bytes.len(), |at| from + at)
                    };
                    let has = bytes[from..].iter().any(|&byte| is_control(byte));
                    assert_eq!(has_control(&bytes[from..]), has, "{bytes:?}");
                    let token = end(&is_token_byte);
                    assert_eq!(token_end(&bytes, from), token, "{bytes:?}");
                    for after in [b':', b' '] {
                        let expected = token > from && bytes.get(token) == Some(&after);
                        let found = token_before(&bytes, from, after);
                        assert_eq!(found, expected.then_some(token), "{bytes:?}");
                    }
                    assert_eq!(text_end(&bytes, from), end(&is_text), "{bytes:?}");
                    let found = target(&bytes, from);
                    let target_end = end(&|byte| byte.is_ascii_graphic());
                    assert_eq!(found.end, target_end, "{bytes:?}");
                    let text = &bytes[from..target_end];
                    let mark = text.iter().position(|&byte| byte == b'?');
                    assert_eq!(found.query_mark, mark.map(|at| from + at), "{bytes:?}");
                    assert_eq!(found.has_fragment, text.contains(&b'#'), "{bytes:?}");
                }
            }
        }
    }
}
