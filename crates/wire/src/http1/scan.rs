//! Where a run of bytes of one kind ends, found many bytes at a time.
//!
//! The loops over sixteen bytes have no branches, so that the compiler makes vector instructions of them:
//! safe code, fast on every processor. `crates/wire/instructions.txt` tells when one has become something
//! else. What lies within sixteen bytes of the end, or has rare characters, is looked at byte by byte.

use super::framing::is_token_byte;

const BLOCK_BYTES: usize = 16;

/// The `N` bytes that begin at `at`, if there are so many.
#[inline(always)]
pub(super) fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..at.wrapping_add(N))?.first_chunk()
}

/// Whether one of the bytes is as said.
#[inline(always)]
fn any(block: &[u8; BLOCK_BYTES], is: impl Fn(u8) -> bool) -> bool {
    block.iter().fold(false, |any, &byte| any | is(byte))
}

/// How many bytes come before the first that is as said.
#[inline(always)]
fn before(block: &[u8; BLOCK_BYTES], is: impl Fn(u8) -> bool) -> usize {
    let mut marks = [0; BLOCK_BYTES];
    for (mark, &byte) in marks.iter_mut().zip(block) {
        *mark = if is(byte) { 0xff } else { 0 };
    }
    (u128::from_le_bytes(marks).trailing_zeros() / 8) as usize
}

/// A byte of a token, and one of nearly all of them.
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

/// Where the token that begins at `at` ends: at the first byte that belongs to none.
#[inline(always)]
pub(super) fn token_end(bytes: &[u8], at: usize) -> usize {
    if let Some(block) = chunk(bytes, at) {
        let length = before(block, |byte| !is_usual_in_names(byte));
        if let Some(b':' | b' ') = block.get(length) {
            return at + length;
        }
    }
    long_token_end(bytes, at)
}

#[inline(never)]
fn long_token_end(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|&byte| is_token_byte(byte)) {
        at += 1;
    }
    at
}

/// Where the text that begins at `at` ends: at the first control character that is no tab.
#[inline(always)]
pub(super) fn text_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(block) = chunk(bytes, at) {
        if any(block, is_control) {
            let end = at + before(block, is_control);
            if bytes.get(end) == Some(&b'\t') {
                break;
            }
            return end;
        }
        at += BLOCK_BYTES;
    }
    short_text_end(bytes, at)
}

#[inline(never)]
fn short_text_end(bytes: &[u8], mut at: usize) -> usize {
    while bytes
        .get(at)
        .is_some_and(|&byte| byte == b'\t' || !is_control(byte))
    {
        at += 1;
    }
    at
}

/// What a request target is found to be while its end is looked for.
#[derive(Debug)]
pub(super) struct Target {
    /// At the first byte that is no visible character of ASCII.
    pub(super) end: usize,
    /// Its first question mark.
    pub(super) query_mark: Option<usize>,
    pub(super) has_fragment: bool,
}

/// Reads the request target that begins at `start`.
#[inline(always)]
pub(super) fn target(bytes: &[u8], start: usize) -> Target {
    let is_beyond = |byte: u8| !is_visible_ascii(byte);
    let mut end = start;
    let mut rest = chunk(bytes, end);
    while let Some(block) = rest.filter(|block| !any(block, is_beyond)) {
        end += block.len();
        rest = chunk(bytes, end);
    }
    match rest {
        Some(block) => end += before(block, is_beyond),
        None => {
            while bytes.get(end).is_some_and(|&byte| is_visible_ascii(byte)) {
                end += 1;
            }
        }
    }
    let text = bytes.get(start..end).unwrap_or_default();
    Target {
        end,
        query_mark: memchr::memchr(b'?', text).map(|mark| start + mark),
        has_fragment: text.iter().fold(false, |any, &byte| any | (byte == b'#')),
    }
}

#[cfg(test)]
mod tests;
