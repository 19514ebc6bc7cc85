//! What parsing a request head and a response head have in common.
//!
//! httparse does the heavy lifting, vectorised and into a table on the stack. It is more lenient
//! than RFC 9112 in two ways that matter: it takes a bare LF for a line's end, and it skips any
//! number of empty lines before a message. Both are closed here: the first by looking at the two
//! bytes where each line must end, which costs less than searching for LFs, the second by counting.

use super::{Field, FieldKind, Limits, MAX_FIELDS, Reject, Span};

/// Empty lines accepted before a message. RFC 9112 section 2.2 asks for at least one.
const MAX_EMPTY_LINES: usize = 2;

/// The part of `buf` that may hold a head, or `None` when more bytes are needed to say anything.
pub(super) struct Window<'a> {
    pub(super) bytes: &'a [u8],
    /// Where the message begins, after any empty lines.
    pub(super) start: usize,
    /// Whether the window is as long as a head may be, so that more bytes would not help.
    pub(super) full: bool,
}

impl<'a> Window<'a> {
    #[inline]
    pub(super) fn of(buf: &'a [u8], limits: &Limits) -> Result<Option<Self>, Reject> {
        let max = limits.max_head_bytes.min(usize::from(u16::MAX));
        let full = buf.len() >= max;
        let bytes = &buf[..buf.len().min(max)];
        let start = match bytes.first() {
            None => return Ok(None),
            Some(b'\r' | b'\n') => match skip_empty_lines(bytes)? {
                None => return Ok(None),
                Some(start) => start,
            },
            Some(_) => 0,
        };
        Ok(Some(Self { bytes, start, full }))
    }

    pub(super) fn message(&self) -> &'a [u8] {
        &self.bytes[self.start..]
    }

    /// Where a part of the window begins.
    #[inline]
    pub(super) fn offset_of(&self, part: &[u8]) -> usize {
        (part.as_ptr() as usize).wrapping_sub(self.bytes.as_ptr() as usize)
    }

    /// Whether the line that ends before `end` ends with CR LF.
    #[inline]
    pub(super) fn ends_line(&self, end: usize) -> bool {
        end.checked_sub(2).and_then(|at| self.bytes.get(at..end)) == Some(b"\r\n")
    }

    /// Turns httparse's table into ours, given where the field lines begin and the head ends, and
    /// checks that each line, the blank one included, ends with CR LF.
    ///
    /// Returns false when one does not.
    #[inline]
    pub(super) fn fields(
        &self,
        parsed: &[httparse::Header<'_>],
        first_line: usize,
        head_end: usize,
        out: &mut Vec<Field>,
    ) -> bool {
        let blank_line = head_end.wrapping_sub(2);
        let mut sound = self.ends_line(first_line) && self.ends_line(head_end);
        let mut line_start = first_line;
        // The line of a field ends where the next name begins, so each is written when the next
        // one is known.
        let ends = parsed[parsed.len().min(1)..]
            .iter()
            .map(|next| self.offset_of(next.name.as_bytes()));
        out.extend(
            parsed
                .iter()
                .zip(ends.chain([blank_line]))
                .map(|(header, line_end)| {
                    let (name, value) = (header.name.as_bytes(), header.value);
                    let (name_start, value_start) = (self.offset_of(name), self.offset_of(value));
                    sound &= self.ends_line(line_end) && name_start == line_start;
                    line_start = line_end;
                    Field {
                        line: Span::new(name_start, line_end),
                        name: Span::new(name_start, name_start + name.len()),
                        value: Span::new(value_start, value_start + value.len()),
                        kind: FieldKind::of(name),
                    }
                }),
        );
        sound && line_start == blank_line
    }
}

/// How many fields httparse may find.
pub(super) fn max_fields(limits: &Limits) -> usize {
    limits.max_fields.min(MAX_FIELDS)
}

#[cold]
fn skip_empty_lines(bytes: &[u8]) -> Result<Option<usize>, Reject> {
    let mut at = 0;
    loop {
        match bytes.get(at..) {
            Some([b'\n', ..]) => return Err(Reject::BARE_LF),
            Some([b'\r', b'\n', ..]) if at == 2 * MAX_EMPTY_LINES => {
                return Err(Reject::LEADING_EMPTY_LINES);
            }
            Some([b'\r', b'\n', ..]) => at += 2,
            Some([b'\r'] | []) | None => return Ok(None),
            Some([b'\r', ..]) => return Err(Reject::BARE_CR),
            Some(_) => return Ok(Some(at)),
        }
    }
}
