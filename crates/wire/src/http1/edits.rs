//! The list of changes that turns a received head into the head to send.

use super::Span;
use super::scan::has_control;

/// One change: the span is replaced by a range of `texts`, which is empty for a cut.
#[derive(Debug, Clone, Copy)]
struct Edit {
    span: Span,
    text: (u32, u32),
}

/// Cuts, replacements and appended fields for one head. It is reused from head to head, so that a steady stream of
/// requests allocates nothing.
///
/// Edits may be added in any order. An edit inside the span of another is absorbed by it, so one rule can rewrite a
/// field and the next remove it. Of two edits with the same span the later one counts. Spans must not partly overlap.
#[derive(Debug, Default)]
pub struct Edits {
    /// In order of their spans, none inside another.
    edits: Vec<Edit>,
    /// Replacement texts, concatenated.
    texts: Vec<u8>,
    /// Complete field lines to add at the end of the head.
    appended: Vec<u8>,
}

impl Edits {
    /// No edits.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            edits: Vec::new(),
            texts: Vec::new(),
            appended: Vec::new(),
        }
    }

    /// Removes all edits but keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.edits.clear();
        self.texts.clear();
        self.appended.clear();
    }

    /// Whether the head is sent unchanged.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty() && self.appended.is_empty()
    }

    /// Removes a part of the head.
    #[inline]
    pub fn cut(&mut self, span: Span) {
        self.insert(Edit { span, text: (0, 0) });
    }

    /// Replaces a part of the head by `text`. An empty span inserts.
    ///
    /// `text` is written unchanged: the caller must make sure that it breaks no line. Use [`append`](Self::append) for
    /// values from outside.
    #[inline]
    pub fn replace(&mut self, span: Span, text: &[u8]) {
        let start = self.texts.len() as u32;
        self.texts.extend_from_slice(text);
        self.insert(Edit {
            span,
            text: (start, self.texts.len() as u32),
        });
    }

    /// Adds a field at the end of the head.
    ///
    /// CR, LF and NUL in the value become spaces, so that no value can become a second field.
    #[inline]
    pub fn append(&mut self, name: &[u8], value: &[u8]) {
        self.append_parts(name, &[value]);
    }

    /// Like [`append`](Self::append), for a value in several parts.
    #[inline]
    pub fn append_parts(&mut self, name: &[u8], value: &[&[u8]]) {
        let line = self.appended.len();
        let value_bytes: usize = value.iter().map(|part| part.len()).sum();
        self.appended.reserve(name.len() + value_bytes + 4);
        self.appended.extend_from_slice(name);
        self.appended.extend_from_slice(b": ");
        let start = self.appended.len();
        for part in value {
            self.appended.extend_from_slice(part);
        }
        if has_control(&self.appended[line..]) {
            for byte in &mut self.appended[start..] {
                if matches!(byte, b'\r' | b'\n' | 0) {
                    *byte = b' ';
                }
            }
        }
        self.appended.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn insert(&mut self, edit: Edit) {
        let span = edit.span;
        // Heads are processed from front to back, so the new edit nearly always goes to the end.
        if self
            .edits
            .last()
            .is_none_or(|last| last.span < span && last.span.end <= span.start)
        {
            self.edits.push(edit);
        } else {
            self.insert_between(edit);
        }
    }

    #[cold]
    fn insert_between(&mut self, edit: Edit) {
        let span = edit.span;
        let mut at = self.edits.len();
        let comes_after = |other: Span| {
            other >= span || (other.start == span.start && !other.is_empty() && !span.is_empty())
        };
        while at > 0 && comes_after(self.edits[at - 1].span) {
            at -= 1;
        }
        let before = at.checked_sub(1).map(|before| self.edits[before]);
        let after = self.edits.get(at).copied();
        let within_before = before
            .is_some_and(|before| span.start < before.span.end && span.end <= before.span.end);
        let within_after = after.is_some_and(|after| {
            !span.is_empty() && after.span.start == span.start && span.end < after.span.end
        });
        if within_before || within_after {
            return;
        }
        let swallowed = self.edits[at..]
            .iter()
            .take_while(|later| {
                later.span == span || (later.span.start < span.end && later.span.end <= span.end)
            })
            .count();
        debug_assert!(
            before.is_none_or(|before| before.span.end <= span.start)
                && self
                    .edits
                    .get(at + swallowed)
                    .is_none_or(|after| span.end <= after.span.start),
            "edits cross at {span:?}"
        );
        self.edits.splice(at..at + swallowed, [edit]);
    }

    /// Appends the edited head to `out`: the bytes outside of edits are copied verbatim.
    ///
    /// `head` is the head that was parsed, with its blank line.
    pub fn write_to(&self, head: &[u8], out: &mut Vec<u8>) {
        let body = head.len().saturating_sub(2);
        out.reserve(head.len() + self.texts.len() + self.appended.len());
        let mut at = 0;
        for edit in &self.edits {
            let start = usize::from(edit.span.start).clamp(at, body.max(at));
            out.extend_from_slice(&head[at..start]);
            let (from, to) = edit.text;
            out.extend_from_slice(&self.texts[from as usize..to as usize]);
            at = usize::from(edit.span.end).clamp(start, body.max(start));
        }
        out.extend_from_slice(&head[at..body]);
        out.extend_from_slice(&self.appended);
        out.extend_from_slice(&head[body..]);
    }
}

#[cfg(test)]
mod tests;
