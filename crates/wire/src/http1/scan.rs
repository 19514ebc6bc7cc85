//! Searches for the end of a run of bytes of one class, many bytes at a time.
//!
//! The loops over sixteen bytes have no branches, so that the compiler vectorises them: safe code that is fast on every
//! processor. `crates/wire/instructions.txt` shows when a loop is no longer vectorised. The last bytes (fewer than
//! sixteen) and runs with rare characters are processed byte by byte.

use super::framing::is_token_byte;

const BLOCK_BYTES: usize = 16;

/// The `N` bytes from `at` on; `None` if there are fewer.
#[inline(always)]
pub(super) fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..at.wrapping_add(N))?.first_chunk()
}

/// Whether any byte satisfies `is`.
#[inline(always)]
fn any(block: &[u8; BLOCK_BYTES], is: impl Fn(u8) -> bool) -> bool {
    block.iter().fold(false, |any, &byte| any | is(byte))
}

/// Number of bytes before the first one that satisfies `is`; 16 if none does.
#[inline(always)]
fn before(block: &[u8; BLOCK_BYTES], is: impl Fn(u8) -> bool) -> usize {
    let mut marks = [0; BLOCK_BYTES];
    for (mark, &byte) in marks.iter_mut().zip(block) {
        *mark = if is(byte) { 0xff } else { 0 };
    }
    (u128::from_le_bytes(marks).trailing_zeros() / 8) as usize
}

/// Whether the byte is a letter, a digit or a hyphen: nearly all bytes of field names are.
#[inline(always)]
fn is_usual_in_names(byte: u8) -> bool {
    let letter = (byte | 0x20).wrapping_sub(b'a') < 26;
    let digit = byte.wrapping_sub(b'0') < 10;
    letter | digit | (byte == b'-')
}

#[inline(always)]
fn is_control(byte: u8) -> bool {
    (byte < b' ') | (byte == 0x7f)
}

#[inline(always)]
fn is_visible_ascii(byte: u8) -> bool {
    (byte > b' ') & (byte < 0x7f)
}

/// End of the token at `at`, if it is not empty and `after` follows it.
#[inline(always)]
pub(super) fn token_before(bytes: &[u8], at: usize, after: u8) -> Option<usize> {
    let mut end = at;
    while let Some(block) = chunk(bytes, end) {
        let length = before(block, |byte| !is_usual_in_names(byte));
        end += length;
        if length < BLOCK_BYTES {
            if end > at && block.get(length) == Some(&after) {
                return Some(end);
            }
            break;
        }
    }
    end = token_end(bytes, end);
    (end > at && bytes.get(end) == Some(&after)).then_some(end)
}

/// End of the token at `at`: the first byte that is not a token character.
#[inline(never)]
pub(super) fn token_end(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|&byte| is_token_byte(byte)) {
        at += 1;
    }
    at
}

/// End of the text at `at`: the first control character other than a tab.
#[inline(always)]
pub(super) fn text_end(bytes: &[u8], at: usize) -> usize {
    let end = run_end(bytes, at, is_control);
    match bytes.get(end) {
        Some(b'\t') => text_end_after_tab(bytes, end),
        _ => end,
    }
}

#[inline(never)]
fn text_end_after_tab(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b'\t') = bytes.get(at) {
        at = run_end(bytes, at + 1, is_control);
    }
    at
}

/// Position of the first byte from `at` on that satisfies `is`.
#[inline(always)]
fn run_end(bytes: &[u8], mut at: usize, is: impl Fn(u8) -> bool) -> usize {
    while let Some(block) = chunk(bytes, at) {
        if any(block, &is) {
            return at + before(block, &is);
        }
        at += BLOCK_BYTES;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|&&byte| !is(byte)).count()
}

/// Whether there is any control character.
#[inline]
pub(super) fn has_control(bytes: &[u8]) -> bool {
    let (blocks, rest) = bytes.as_chunks();
    match bytes.last_chunk() {
        // The last block overlaps the one before it.
        Some(last) => any(last, is_control) || blocks.iter().any(|block| any(block, is_control)),
        None => rest.iter().any(|&byte| is_control(byte)),
    }
}

/// Facts about a request target, collected while its end is searched for.
#[derive(Debug)]
pub(super) struct ScannedTarget {
    /// Position of the first byte that is not a visible ASCII character.
    pub(super) end: usize,
    /// Position of the first question mark.
    pub(super) query_mark: Option<usize>,
    pub(super) has_fragment: bool,
}

/// Scans the request target at `start`.
#[inline(always)]
pub(super) fn target(bytes: &[u8], start: usize) -> ScannedTarget {
    let ends = |byte: u8| !is_visible_ascii(byte) | (byte == b'#');
    let mut end = run_end(bytes, start, ends);
    let has_fragment = bytes.get(end) == Some(&b'#');
    if has_fragment {
        end = run_end(bytes, end, |byte| !is_visible_ascii(byte));
    }
    let text = bytes.get(start..end).unwrap_or_default();
    ScannedTarget {
        end,
        query_mark: memchr::memchr(b'?', text).map(|mark| start + mark),
        has_fragment,
    }
}

#[cfg(test)]
mod tests;
