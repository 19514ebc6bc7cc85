//! How a template changes when a head of its shape differs from it.
//!
//! ```text
//!            equal                     differs                      differs in form
//!   field: constant ──────────────▶ slot of the kind that ───────▶ slot for any text
//!                                    both values have
//!
//!   target: constant ─▶ slots for the parts that differ ─▶ one slot from the first part that
//!                       (parts are what / ? & = separate)   differs to the last one
//! ```
//!
//! Steps are never reversed, so a template is redefined only a few times. Values are compared as a whole, and targets
//! by whole parts: a client that sends a guess of another client's secret learns from the block's length only whether
//! the whole guess was right, never whether its beginning was.

use super::check::is_secret;
use super::lines::{LineSpan, Lines, behind_blanks, is_separator};
use super::slot::{Slot, SlotKind};
use super::template::Template;
use super::value::kind_of;

/// Limit on slots in a target; beyond it the target becomes one slot.
const TARGET_SLOTS: usize = 6;

/// How the encoder finds where the value in a slot ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotEnd {
    /// At the end of its line.
    Line,
    /// At the end of the target's part.
    Part,
    /// This many bytes before the target's end.
    Target(u32),
}

/// A draft of a template for one head.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) text: Vec<u8>,
    /// Offset in the text, kind, and how the end is found.
    pub(super) slots: Vec<(u32, SlotKind, SlotEnd)>,
    /// Positions of the slots' values in the head.
    pub(super) values: Vec<(u32, u32)>,
    /// How much of the head is already in the draft.
    done: usize,
}

/// An existing template to start from.
#[derive(Clone, Copy)]
pub(super) struct Kin<'a> {
    pub(super) template: &'a Template,
    pub(super) ends: &'a [SlotEnd],
    pub(super) lines: &'a Lines,
}

impl Draft {
    /// Drafts a template for a head without a similar template.
    pub(super) fn fresh(&mut self, head: &[u8], lines: &Lines) {
        self.begin();
        for &line in &lines.all[1..] {
            self.fresh_field(head, line);
        }
        self.finish(head);
    }

    /// Drafts a template that fits both `head` and the heads of `kin`. With `new_target` it is only for the target of
    /// `head`.
    ///
    /// `false` when the two are not similar.
    pub(super) fn merge(
        &mut self,
        head: &[u8],
        lines: &Lines,
        kin: Kin<'_>,
        new_target: bool,
    ) -> bool {
        if !has_shape(head, lines, &kin) {
            return false;
        }
        self.begin();
        let mut slots = kin.template.slots.iter().zip(kin.ends).peekable();
        let text = &*kin.template.text;
        let target = kin.lines.all[0];
        let mut of_target: [Option<(u32, SlotEnd)>; TARGET_SLOTS] = [None; TARGET_SLOTS];
        let mut known = of_target.iter_mut();
        while let Some((slot, &end)) = slots.next_if(|(slot, _)| slot.at <= target.end) {
            match known.next() {
                Some(place) => *place = Some((slot.at, end)),
                None => return false,
            }
        }
        if !new_target {
            let old = Target {
                text: &text[target.value as usize..target.end as usize],
                start: target.value,
                slots: of_target,
            };
            if !self.target(head, lines.all[0], &old) {
                return false;
            }
        }
        for (&line, &old) in lines.all.iter().zip(&kin.lines.all).skip(1) {
            let slot = slots.next_if(|(slot, _)| slot.at <= old.end);
            self.field(head, line, text, old, slot.map(|(slot, _)| slot));
        }
        self.finish(head);
        true
    }

    fn begin(&mut self) {
        self.text.clear();
        self.slots.clear();
        self.values.clear();
        self.done = 0;
    }

    fn finish(&mut self, head: &[u8]) {
        self.text.extend_from_slice(&head[self.done..]);
    }

    /// Puts the bytes from `start` to `end` into a slot.
    fn slot(&mut self, head: &[u8], start: usize, end: usize, kind: SlotKind, how: SlotEnd) {
        self.text.extend_from_slice(&head[self.done..start]);
        self.slots.push((self.text.len() as u32, kind, how));
        self.values.push((start as u32, end as u32));
        self.done = end;
    }

    fn fresh_field(&mut self, head: &[u8], line: LineSpan) {
        let name = &head[line.start as usize..line.value as usize - 1];
        let (start, end) = (behind_blanks(head, line), line.end as usize);
        if is_secret(name) {
            self.slot(head, start, end, SlotKind::Secret, SlotEnd::Line);
        } else if name.eq_ignore_ascii_case(b"date") && kind_of(&head[start..end]) == SlotKind::Date
        {
            self.slot(head, start, end, SlotKind::Date, SlotEnd::Line);
        }
    }

    fn field(
        &mut self,
        head: &[u8],
        line: LineSpan,
        text: &[u8],
        old: LineSpan,
        slot: Option<&Slot>,
    ) {
        let constant = &text[old.start as usize..old.end as usize];
        let whole = &head[line.start as usize..line.end as usize];
        let Some(slot) = slot else {
            if constant != whole {
                let (before, now) = (behind_blanks(text, old), behind_blanks(head, line));
                let end = line.end as usize;
                if text[old.start as usize..before] == head[line.start as usize..now] {
                    let kind = kind_of(&head[now..end]);
                    let same = kind_of(&text[before..old.end as usize]) == kind;
                    let kind = if same { kind } else { SlotKind::Text };
                    self.slot(head, now, end, kind, SlotEnd::Line);
                } else {
                    // The blanks differ too, so the slot includes them.
                    self.slot(
                        head,
                        line.value as usize,
                        end,
                        SlotKind::Text,
                        SlotEnd::Line,
                    );
                }
            }
            return;
        };
        let end = line.end as usize;
        if whole.starts_with(constant) {
            let start = line.start as usize + constant.len();
            let kind = match slot.kind {
                SlotKind::Text | SlotKind::Secret => slot.kind,
                typed if kind_of(&head[start..end]) == typed => typed,
                _ => SlotKind::Text,
            };
            self.slot(head, start, end, kind, SlotEnd::Line);
        } else {
            let kind = match slot.kind {
                SlotKind::Secret => SlotKind::Secret,
                _ => SlotKind::Text,
            };
            self.slot(head, line.value as usize, end, kind, SlotEnd::Line);
        }
    }

    /// Drafts the target from that of `old`. `false` when they have not even the first part boundary in common.
    fn target(&mut self, head: &[u8], line: LineSpan, old: &Target<'_>) -> bool {
        let start = line.value as usize;
        let new = &head[start..line.end as usize];
        if old.slots[0].is_none() && old.text == new {
            return true;
        }
        if self.target_in_parts(head, start, new, old) {
            return true;
        }
        self.text.clear();
        self.slots.clear();
        self.values.clear();
        self.done = 0;

        let before = match old.slots[0] {
            Some((at, _)) => &old.text[..(at - old.start) as usize],
            None => old.text,
        };
        let equal = before.iter().zip(new).take_while(|(a, b)| a == b).count();
        let first = new[..equal].iter().rposition(|&byte| is_separator(byte));
        let Some(first) = first.map(|at| at + 1) else {
            return false;
        };
        let after = match old.slots[0] {
            Some((_, SlotEnd::Target(tail))) => &old.text[old.text.len() - tail as usize..],
            Some(_) => &[],
            None => &old.text[first..],
        };
        let pairs = after.iter().rev().zip(new[first..].iter().rev());
        let equal = pairs.take_while(|(a, b)| a == b).count();
        let tail = &new[new.len() - equal..];
        let tail = tail.iter().position(|&byte| is_separator(byte));
        let tail = tail.map_or(0, |at| equal - at);
        let (from, to) = (start + first, start + new.len() - tail);
        self.slot(head, from, to, SlotKind::Text, SlotEnd::Target(tail as u32));
        true
    }

    /// The same with a slot for each part that differs, if both targets have the same separators.
    fn target_in_parts(&mut self, head: &[u8], start: usize, new: &[u8], old: &Target<'_>) -> bool {
        if !new.first().is_some_and(|&byte| is_separator(byte)) {
            return false;
        }
        let mut parts = Parts(new, 0);
        let mut old_parts = Parts(old.text, 0);
        let mut known = old.slots.iter().flatten().peekable();
        let mut used = 0;
        loop {
            let (Some(part), Some(old_part)) = (parts.next(), old_parts.next()) else {
                return parts.is_over() && old_parts.is_over();
            };
            if part.separator != old_part.separator {
                return false;
            }
            let at = old.start + old_part.start as u32;
            let slot = known.next_if(|(slot, _)| *slot == at);
            if slot.is_some_and(|(_, end)| *end != SlotEnd::Part) {
                return false;
            }
            if slot.is_some() || part.text != old_part.text {
                used += 1;
                if used > TARGET_SLOTS {
                    return false;
                }
                let from = start + part.start;
                let to = from + part.text.len();
                self.slot(head, from, to, SlotKind::Text, SlotEnd::Part);
            }
        }
    }
}

/// The target of a template.
struct Target<'a> {
    text: &'a [u8],
    /// Where it begins in the template's text.
    start: u32,
    slots: [Option<(u32, SlotEnd)>; TARGET_SLOTS],
}

/// Iterates over the parts of a target, each with the separator before it.
struct Parts<'a>(&'a [u8], usize);

struct Part<'a> {
    separator: u8,
    start: usize,
    text: &'a [u8],
}

impl<'a> Parts<'a> {
    fn is_over(&self) -> bool {
        self.1 == self.0.len()
    }

    fn next(&mut self) -> Option<Part<'a>> {
        let (&separator, rest) = self.0[self.1..].split_first()?;
        let length = rest.iter().position(|&byte| is_separator(byte));
        let text = &rest[..length.unwrap_or(rest.len())];
        let start = self.1 + 1;
        self.1 = start + text.len();
        Some(Part {
            separator,
            start,
            text,
        })
    }
}

/// Whether a head's target has the same separators as a template's, so that slots for the parts suffice, or whether the
/// template accepts any target.
pub(super) fn has_parts(head: &[u8], lines: &Lines, kin: &Kin<'_>) -> bool {
    let old = kin.lines.all[0];
    let mut slots = kin.template.slots.iter().zip(kin.ends);
    let first = slots.next().filter(|(slot, _)| slot.at <= old.end);
    if first.is_some_and(|(_, end)| matches!(end, SlotEnd::Target(_))) {
        return true;
    }
    let separators = |text: &[u8]| {
        let all = text.iter().copied().filter(|&byte| is_separator(byte));
        all.fold((0u32, 0u64), |(n, hash), byte| {
            (n + 1, hash.wrapping_mul(31).wrapping_add(u64::from(byte)))
        })
    };
    separators(lines.target(head)) == separators(kin.lines.target(&kin.template.text))
}

/// Whether the head has the same method, version and field names as a template.
fn has_shape(head: &[u8], lines: &Lines, kin: &Kin<'_>) -> bool {
    let text = &*kin.template.text;
    let name = |line: &LineSpan| line.start as usize..line.value as usize;
    lines.all.len() == kin.lines.all.len()
        && around_target(head, lines) == around_target(text, kin.lines)
        && (lines.all.iter().zip(&kin.lines.all).skip(1))
            .all(|(line, old)| head[name(line)] == text[name(old)])
}

/// The constant parts of the first line: before and after the target.
fn around_target<'a>(head: &'a [u8], lines: &Lines) -> (&'a [u8], &'a [u8]) {
    let target = lines.all[0];
    let end = lines.first_end as usize;
    (
        &head[..target.value as usize],
        &head[target.end as usize..end],
    )
}
