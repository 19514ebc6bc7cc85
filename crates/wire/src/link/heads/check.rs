//! What every head must be, whoever looks at it later.

use memchr::memchr_iter;

use super::HeadError;

/// RFC 9110 section 5.6.2.
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// RFC 9110 section 5.5: what may stand in a line.
#[inline]
pub(super) fn is_text(byte: u8) -> bool {
    (byte >= b' ' && byte != 0x7f) || byte == b'\t'
}

/// Looks at a head that came as it is: lines of text, each with its CR LF, an empty one at the end
/// and nowhere else, a token at the beginning.
pub(super) fn head(head: &[u8]) -> Result<(), HeadError> {
    if !head.first().is_some_and(|&byte| is_token(byte)) {
        return Err(HeadError::Head("it does not begin with a token"));
    }
    let mut start = 0;
    for end in memchr_iter(b'\n', head) {
        let line = &head[start..end];
        let Some(line) = line.strip_suffix(b"\r") else {
            return Err(HeadError::Head("a bare LF"));
        };
        if !line.iter().fold(true, |all, &byte| all & is_text(byte)) {
            return Err(HeadError::Head("a control character"));
        }
        start = end + 1;
        if line.is_empty() {
            return if start == head.len() {
                Ok(())
            } else {
                Err(HeadError::Head("something follows the empty line"))
            };
        }
    }
    Err(HeadError::Head("it does not end with an empty line"))
}
