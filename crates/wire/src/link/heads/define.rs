//! Writes a definition as its difference from a base.

use super::template::Template;
use super::{instruction, number};

/// Number of lines of the base in which a line is searched for, after the last one found.
const WINDOW: usize = 8;
/// Shortest text for which a copy is smaller than the text itself, in bytes.
const MIN_COPY: usize = 5;

/// Appends destination and pieces of a template, as far as they differ from those of `base`.
pub(super) fn define(template: &Template, base: Option<&Template>, out: &mut Vec<u8>) {
    let destination = &*template.destination;
    if base.is_some_and(|base| *base.destination == *destination) {
        out.push(0);
    } else {
        number::put(out, 0, 8, destination.len() as u64);
        out.extend_from_slice(destination);
    }
    let base = base.map_or(&[][..], |base| &base.text);
    let mut pieces = Pieces {
        template,
        slots: 0,
        done: 0,
        source: None,
    };
    let (mut at, mut behind) = (0, 0);
    for line in template.text.split_inclusive(|&byte| byte == b'\n') {
        let found = find_line(base, behind, line);
        let next = pieces.source.map(|start| start + at - pieces.done);
        if found != next {
            pieces.put_until(at, out);
            pieces.source = found;
        }
        at += line.len();
        behind = found.map_or(behind, |found| found + line.len());
    }
    pieces.put_until(at, out);
    instruction::put_piece(out, instruction::END, 0);
}

/// Position of `line` among the next lines of `base`, from `from` on.
fn find_line(base: &[u8], from: usize, line: &[u8]) -> Option<usize> {
    let mut start = from;
    for other in base[from..]
        .split_inclusive(|&byte| byte == b'\n')
        .take(WINDOW)
    {
        if other == line {
            return Some(start);
        }
        start += other.len();
    }
    None
}

struct Pieces<'a> {
    template: &'a Template,
    /// Number of slots written.
    slots: usize,
    /// Number of text bytes written.
    done: usize,
    /// Position of the next text in the base, if it is there.
    source: Option<usize>,
}

impl Pieces<'_> {
    fn put_until(&mut self, end: usize, out: &mut Vec<u8>) {
        while let Some(slot) = self.template.slots.get(self.slots)
            && (slot.at as usize) < end
        {
            self.put_text(slot.at as usize, out);
            instruction::put_piece(out, instruction::SLOT, slot.kind as u64);
            self.slots += 1;
        }
        self.put_text(end, out);
    }

    fn put_text(&mut self, end: usize, out: &mut Vec<u8>) {
        let length = end - self.done;
        if length == 0 {
            return;
        }
        match self.source {
            Some(start) if length >= MIN_COPY => {
                instruction::put_piece(out, instruction::COPY, length as u64);
                number::put(out, 0, 8, start as u64);
            }
            _ => {
                instruction::put_piece(out, instruction::TEXT, length as u64);
                out.extend_from_slice(&self.template.text[self.done..end]);
            }
        }
        self.source = self.source.map(|start| start + length);
        self.done = end;
    }
}
