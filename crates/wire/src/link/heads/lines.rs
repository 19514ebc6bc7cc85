//! Splits a head, or a template's text, into lines.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use memchr::{memchr, memchr_iter};

/// The position of one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineSpan {
    pub(super) start: u32,
    /// After the name and its colon; in the first line, the start of a request's target.
    pub(super) value: u32,
    /// Before the CR LF; in the first line, the end of a request's target.
    pub(super) end: u32,
}

/// Limit on the lines of a head for a template: more than HTTP parsers accept.
const MAX_LINES: usize = 256;

/// The lines of a head, without the empty one.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) all: Vec<LineSpan>,
    /// Position of the first line's CR LF.
    pub(super) first_end: u32,
    /// Hash of method and version, or of the status line, and of all field names in order.
    pub(super) shape: u64,
}

impl Lines {
    /// Splits `head` into lines. `None` when no template can be made of it. `Some` does not mean that the head is
    /// valid.
    pub(super) fn read(&mut self, head: &[u8]) -> Option<()> {
        self.all.clear();
        let mut hasher = FixedState::with_seed(0).build_hasher();
        let mut start = 0;
        for at in memchr_iter(b'\n', head) {
            let end = at.checked_sub(1)?;
            if end <= start {
                break;
            }
            if self.all.len() == MAX_LINES {
                return None;
            }
            let line = &head[start..end];
            if start > 0 {
                let colon = memchr(b':', line)?;
                hasher.write(&line[..=colon]);
                self.all.push(LineSpan {
                    start: start as u32,
                    value: (start + colon + 1) as u32,
                    end: end as u32,
                });
            } else {
                self.first_end = end as u32;
                let (value, target_end) = if line.starts_with(b"HTTP/") {
                    (end, end)
                } else {
                    let target = memchr(b' ', line)? + 1;
                    (target, target + memchr(b' ', &line[target..])?)
                };
                hasher.write(&line[..value]);
                hasher.write(&line[target_end..]);
                self.all.push(LineSpan {
                    start: 0,
                    value: value as u32,
                    end: target_end as u32,
                });
            }
            start = at + 1;
        }
        self.shape = hasher.finish();
        (!self.all.is_empty()).then_some(())
    }

    /// The target of the split head; empty in a response.
    pub(super) fn target<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        let line = self.all[0];
        &head[line.value as usize..line.end as usize]
    }
}

/// Start of a field's value, after the blanks that follow its colon.
pub(super) fn behind_blanks(head: &[u8], line: LineSpan) -> usize {
    let value = &head[line.value as usize..line.end as usize];
    let blanks = value
        .iter()
        .take_while(|&&byte| byte == b' ' || byte == b'\t');
    line.value as usize + blanks.count()
}

/// Whether the byte separates parts of a target.
#[inline]
pub(super) fn is_separator(byte: u8) -> bool {
    matches!(byte, b'/' | b'?' | b'&' | b'=')
}
