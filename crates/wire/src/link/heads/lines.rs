//! A head, or a template's text, taken apart into lines.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use memchr::{memchr, memchr_iter};

/// Where one line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineSpan {
    pub(super) start: u32,
    /// Behind the name and its colon; in the first line the begin of a request's target.
    pub(super) value: u32,
    /// Before the CR LF; in the first line the end of a request's target.
    pub(super) end: u32,
}

/// Lines of a head that a template is made of: more than parsers take.
const MAX_LINES: usize = 256;

/// The lines of a head without the empty one.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) all: Vec<LineSpan>,
    /// Where the first line's CR LF is.
    pub(super) first_end: u32,
    /// Stands for method and version, or the status line, and all names in their order.
    pub(super) shape: u64,
}

impl Lines {
    /// Takes `head` apart. `None` when it is nothing that a template could be made of; what is `Some`
    /// may still be no head.
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

    /// The target of the head that was read; empty in a response.
    pub(super) fn target<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        let line = self.all[0];
        &head[line.value as usize..line.end as usize]
    }
}

/// Where the value of a field begins: behind the blanks that follow its colon.
pub(super) fn behind_blanks(head: &[u8], line: LineSpan) -> usize {
    let value = &head[line.value as usize..line.end as usize];
    let blanks = value
        .iter()
        .take_while(|&&byte| byte == b' ' || byte == b'\t');
    line.value as usize + blanks.count()
}

/// What separates the parts of a target.
#[inline]
pub(super) fn is_separator(byte: u8) -> bool {
    matches!(byte, b'/' | b'?' | b'&' | b'=')
}
