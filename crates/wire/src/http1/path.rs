//! The path in one canonical form (RFC 3986 section 6.2.2).
//!
//! A rule for `/admin` must also match `/%61dmin`, and the server must receive the path that the rule was matched on.
//! The path is therefore converted into one form, which is both matched and forwarded:
//!
//! * percent-encoded unreserved characters are decoded, so that each has one spelling;
//! * other percent-encodings stay, in upper case;
//! * printable characters that RFC 3986 does not allow in a path are percent-encoded;
//! * malformed percent-encodings, encoded control characters and backslashes are refused.
//!
//! Servers disagree about encoded or doubled slashes, and about dot segments. On a port with a path rule (`strict`),
//! encoded slashes and dot segments are refused, including dot segments that only some servers see (`/..;x/`,
//! `/..%3Bx/`). Doubled slashes become one; those that only some servers see (`/;x/`) are refused. On a port without a
//! path rule nothing depends on them, and they pass. Percent-encodings are decoded only once: `%252e` means `%2e`.
//!
//! Other parameters (`/admin;x`) pass with and without a rule, as a part of their segment: refusing them would break
//! all clients that use them, and a parameter at the end of a path does not evade a prefix rule.

use super::Reject;
use super::scan::chunk;

/// Whether the canonical path differs from the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canonical {
    /// The path is already canonical; the output buffer was not touched.
    Verbatim,
    /// The canonical path is in the output buffer.
    Rewritten,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Canonical everywhere.
    Plain,
    /// `/`, `.` and `;`: canonical, but checked in strict mode.
    Structure,
    /// Needs handling: `%`, `\`, and characters that are not allowed in a path.
    Special,
}

static CLASSES: [Class; 256] = {
    let mut table = [Class::Special; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b'/' | b'.' | b';' => Class::Structure,
            // unreserved, sub-delims, ":" and "@"
            b'0'..=b'9'
            | b'A'..=b'Z'
            | b'a'..=b'z'
            | b'-'
            | b'_'
            | b'~'
            | b'!'
            | b'$'
            | b'&'
            | b'\''
            | b'('
            | b')'
            | b'*'
            | b'+'
            | b','
            | b'='
            | b':'
            | b'@' => Class::Plain,
            _ => Class::Special,
        };
        byte += 1;
    }
    table
};

/// Converts the path of an origin-form or absolute-form target into canonical form. An empty path (absolute form only)
/// becomes `/`.
///
/// `strict` means that this port has a path rule. `out` is overwritten when the path changes.
///
/// # Errors
/// [`Reject`] for a path that does not begin with a slash, a malformed percent-encoding, a control character (encoded
/// or not), or a backslash; in strict mode also for `%2F`, `%5C`, dot segments, and segments that consist of parameters
/// only.
pub fn canonicalise(raw: &[u8], out: &mut Vec<u8>, strict: bool) -> Result<Canonical, Reject> {
    if is_usual(raw) {
        return Ok(Canonical::Verbatim);
    }
    let Some(clean) = clean_prefix(raw, strict) else {
        return Ok(Canonical::Verbatim);
    };
    out.clear();
    if raw.is_empty() {
        out.push(b'/');
        return Ok(Canonical::Rewritten);
    }
    if raw[0] != b'/' {
        return Err(Reject::PATH_NOT_ABSOLUTE);
    }
    rewrite(raw, clean, out, strict)?;
    if strict {
        refuse_dot_segments(out)?;
    }
    Ok(if out.as_slice() == raw {
        Canonical::Verbatim
    } else {
        Canonical::Rewritten
    })
}

/// Length of the canonical prefix, after which the slow path must continue; `None` for the whole path.
fn clean_prefix(raw: &[u8], strict: bool) -> Option<usize> {
    if raw.first() != Some(&b'/') {
        return Some(0);
    }
    let mut after_slash = false;
    for (at, &byte) in raw.iter().enumerate() {
        match CLASSES[usize::from(byte)] {
            Class::Plain => after_slash = false,
            Class::Structure => {
                if strict && after_slash {
                    // A doubled slash, or a segment that begins with a dot or a parameter.
                    return Some(at);
                }
                after_slash = byte == b'/';
            }
            Class::Special => return Some(at),
        }
    }
    None
}

/// Fast check: `true` if the path begins with a slash, has only letters, digits, hyphens, underscores, slashes and
/// dots, and no slash is followed by a slash or a dot. Such a path is canonical. `false` means nothing: any other path,
/// and any short one, needs the full check.
fn is_usual(raw: &[u8]) -> bool {
    const STEP: usize = 16;
    let (&[b'/', ..], Some(last), Some(&end)) = (raw, raw.last_chunk(), raw.last()) else {
        return false;
    };
    // Compares each byte and the next one without branches, so that the compiler vectorises it.
    let strange = |bytes: &[u8; STEP + 1]| {
        let pairs = bytes.iter().zip(&bytes[1..]);
        pairs.fold(false, |strange, (&byte, &next)| {
            let follows = (byte == b'/') & ((next == b'/') | (next == b'.'));
            strange | !is_usual_byte(byte) | follows
        })
    };
    let mut steps = (0..raw.len() - STEP).step_by(STEP);
    is_usual_byte(end)
        && !strange(last)
        && steps.all(|at| chunk(raw, at).is_none_or(|bytes| !strange(bytes)))
}

#[inline(always)]
fn is_usual_byte(byte: u8) -> bool {
    let letter = (byte | 0x20).wrapping_sub(b'a') < 26;
    // Hyphen, dot, slash and the digits are consecutive in ASCII.
    let other = byte.wrapping_sub(b'-') < 13;
    letter | other | (byte == b'_')
}

fn rewrite(raw: &[u8], clean: usize, out: &mut Vec<u8>, strict: bool) -> Result<(), Reject> {
    out.extend_from_slice(&raw[..clean]);
    let mut rest = &raw[clean..];
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match byte {
            b'%' => {
                let [high, low, tail @ ..] = rest else {
                    return Err(Reject::MALFORMED_PERCENT);
                };
                rest = tail;
                decoded(hex(*high)? << 4 | hex(*low)?, out, strict)?;
            }
            b'\\' => return Err(Reject::BACKSLASH),
            0x00..=0x1f | 0x7f => return Err(Reject::CONTROL_CHARACTER),
            b'/' if strict && out.last() == Some(&b'/') => {}
            _ if CLASSES[usize::from(*byte)] == Class::Special => encode(*byte, out),
            _ => out.push(*byte),
        }
    }
    Ok(())
}

/// Writes one percent-encoded byte in its canonical spelling.
fn decoded(byte: u8, out: &mut Vec<u8>, strict: bool) -> Result<(), Reject> {
    match byte {
        0x00..=0x1f | 0x7f => return Err(Reject::ENCODED_CONTROL),
        b'/' | b'\\' if strict => return Err(Reject::ENCODED_SEPARATOR),
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' => out.push(byte),
        _ => encode(byte, out),
    }
    Ok(())
}

fn encode(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |nibble: u8| DIGITS[usize::from(nibble & 15)];
    out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]);
}

fn hex(digit: u8) -> Result<u8, Reject> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(Reject::MALFORMED_PERCENT),
    }
}

/// Refuses `.` and `..`, also with a parameter (`..;x`), because some servers cut parameters off before they resolve
/// segments. For the same reason refuses a segment of parameters only, unless it is the last one.
fn refuse_dot_segments(path: &[u8]) -> Result<(), Reject> {
    let mut rest = path.strip_prefix(b"/").unwrap_or(path);
    loop {
        let end = memchr::memchr(b'/', rest);
        let segment = &rest[..end.unwrap_or(rest.len())];
        let name = name_of(segment);
        let vanishes = name.is_empty() && !segment.is_empty() && end.is_some();
        if vanishes || name == b"." || name == b".." {
            return Err(Reject::DOT_SEGMENT);
        }
        match end {
            Some(end) => rest = &rest[end + 1..],
            None => return Ok(()),
        }
    }
}

/// A segment without its parameters; their `;` may be percent-encoded.
fn name_of(segment: &[u8]) -> &[u8] {
    let encoded = segment.windows(3).position(|three| three == b"%3B");
    let plain = memchr::memchr(b';', segment);
    let end = plain.into_iter().chain(encoded).min();
    &segment[..end.unwrap_or(segment.len())]
}

#[cfg(test)]
mod tests;
