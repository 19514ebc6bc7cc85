//! Checks that every head must pass, independent of later parsers.

use memchr::{memchr, memchr_iter};

use super::HeadError;
use super::slot::{Slot, SlotKind};
use crate::http1::FieldKind;

/// Whether the byte may be in a token (RFC 9110 section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether the byte may be in a line (RFC 9110 section 5.5).
#[inline]
fn is_text(byte: u8) -> bool {
    (byte >= b' ' && byte != 0x7f) || byte == b'\t'
}

/// Whether a value may be in a line, or in a request's target.
#[inline]
pub(super) fn is_value(value: &[u8], in_target: bool) -> bool {
    // No early exit, so that the compiler vectorises it.
    if in_target {
        value
            .iter()
            .fold(true, |all, byte| all & byte.is_ascii_graphic())
    } else {
        value.iter().fold(true, |all, &byte| all & is_text(byte))
    }
}

/// Whether a field's value must never be held in a template. Otherwise a client that shares the template and sees the
/// size of requests could test guesses of the value.
pub(super) fn is_secret(name: &[u8]) -> bool {
    matches!(
        FieldKind::of(name),
        FieldKind::Authorization
            | FieldKind::Cookie
            | FieldKind::ProxyAuthorization
            | FieldKind::SetCookie
    )
}

/// Calls `each` with the start and end of every line, without its CR LF and without the empty line.
fn lines(
    head: &[u8],
    mut each: impl FnMut(usize, usize) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    let mut start = 0;
    for at in memchr_iter(b'\n', head) {
        let line = &head[start..at];
        let Some(line) = line.strip_suffix(b"\r") else {
            return Err("a bare LF");
        };
        if line.is_empty() {
            return match at + 1 == head.len() {
                true if start > 0 => Ok(()),
                true => Err("there is only an empty line"),
                false => Err("something follows the empty line"),
            };
        }
        if !is_value(line, false) {
            return Err("a control character");
        }
        each(start, at - 1)?;
        start = at + 1;
    }
    Err("it does not end with an empty line")
}

/// Checks a literal head: it begins with a token, and consists of text lines with CR LF, of which only the last one is
/// empty.
pub(super) fn head(head: &[u8]) -> Result<(), HeadError> {
    if !head.first().is_some_and(|&byte| is_token(byte)) {
        return Err(HeadError::Head("it does not begin with a token"));
    }
    lines(head, |_, _| Ok(())).map_err(HeadError::Head)
}

/// Checks a template: its text must be a head in which the meaning of each line does not depend on the slots' values.
/// Marks the slots in the target.
pub(super) fn template(text: &[u8], slots: &mut [Slot]) -> Result<(), HeadError> {
    let mut slots = slots.iter_mut().peekable();
    let mut before = None;
    let mut lengths = 0;
    lines(text, |start, end| {
        let line = &text[start..end];
        // The first and last offset at which slots may be, and whether the value is secret and may be only in a slot
        // for secrets.
        let (first, last, secret) = if start == 0 {
            let (first, last) = target(line)?;
            (first, last, false)
        } else {
            let colon = memchr(b':', line).ok_or("a field without a colon")?;
            let name = &line[..colon];
            if name.is_empty() || !name.iter().all(|&byte| is_token(byte)) {
                return Err("a field's name is not a token");
            }
            match FieldKind::of(name) {
                FieldKind::ContentLength => lengths += 1,
                FieldKind::FramingAlias => return Err("a framing field with underscores"),
                _ => {}
            }
            let secret = is_secret(name);
            let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
            if secret && !line[colon + 1..].iter().all(blank) {
                return Err("a secret is held");
            }
            (start + colon + 1, end, secret)
        };
        if lengths > 1 {
            return Err("more than one Content-Length");
        }
        while let Some(slot) = slots.next_if(|slot| slot.at as usize <= end) {
            let at = slot.at as usize;
            if before.is_some_and(|before| before >= at) {
                return Err("slots are not in order");
            }
            before = Some(at);
            if at < first || at > last {
                return Err("a slot outside a target or value");
            }
            slot.in_target = start == 0;
            if secret && slot.kind != SlotKind::Secret {
                return Err("a secret would be remembered");
            }
            if slot.in_target && slot.kind == SlotKind::Date {
                return Err("a date in a target");
            }
        }
        Ok(())
    })
    .map_err(HeadError::Template)?;
    if slots.next().is_some() {
        return Err(HeadError::Template("a slot outside a target or value"));
    }
    Ok(())
}

/// The first and last offset for slots in the first line: after the first byte of a request's target, up to its end. A
/// status line has none.
fn target(line: &[u8]) -> Result<(usize, usize), &'static str> {
    if let Some(rest) = line.strip_prefix(b"HTTP/1.") {
        let status = rest
            .get(1..5)
            .is_some_and(|rest| rest[0] == b' ' && rest[1..].iter().all(u8::is_ascii_digit));
        let sound = status
            && matches!(rest[0], b'0' | b'1')
            && rest.get(5).is_none_or(|&byte| byte == b' ');
        return if sound {
            Ok((usize::MAX, 0))
        } else {
            Err("no status line")
        };
    }
    let method = memchr(b' ', line).ok_or("no request line")?;
    let target = &line[method + 1..];
    let length = memchr(b' ', target).ok_or("no request line")?;
    let version = &target[length + 1..];
    let sound = method > 0
        && length > 0
        && line[..method].iter().all(|&byte| is_token(byte))
        && is_value(&target[..length], true)
        && matches!(version, b"HTTP/1.1" | b"HTTP/1.0");
    if sound {
        Ok((method + 2, method + 1 + length))
    } else {
        Err("no request line")
    }
}
