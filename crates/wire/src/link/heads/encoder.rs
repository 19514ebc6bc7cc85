//! Turns heads into blocks.

use super::define::define;
use super::learn::{Draft, Kin, SlotEnd, has_parts};
use super::lines::{Lines, is_separator};
use super::slot::Slot;
use super::table::{Entry, TemplateTable};
use super::template::Template;
use super::{HeadLimits, check, instruction, number};

use memchr::memchr;

/// The scope for requests of no particular workload: their heads are sent as literals.
pub const NO_SCOPE: u32 = u32::MAX;

/// Limit on templates with one shape for one destination: beyond it, a template's target is generalised.
const TARGETS_OF_A_SHAPE: usize = 4;

/// Buffer capacity that is kept after a long head, in bytes.
const KEPT_BYTES: usize = 4096;

/// Turns heads into blocks.
///
/// ```text
///              a template fits          one of the same shape           nothing is like it
///   head ─┬──▶ USE, values         ┬──▶ DEFINE: as it was, but ────┬──▶ DEFINE: the head with
///         │                        │    with slots where they differ    slots for secrets and Date
///         │                        │
///         └─ too large, no head ───┴──▶ LITERAL
/// ```
#[derive(Debug)]
pub struct Encoder {
    limits: HeadLimits,
    /// Created with the first head that can use a template.
    state: Option<Box<EncoderState>>,
}

#[derive(Debug)]
struct EncoderState {
    table: TemplateTable,
    draft: Draft,
    /// The lines of the head to encode.
    lines: Lines,
    /// The lines of a template to compare it with.
    kin_lines: Lines,
    /// Positions in the head of the values for a template's slots.
    values: Vec<(u32, u32)>,
}

/// The arguments of one call to encode.
#[derive(Clone, Copy)]
struct Call<'a> {
    scope: u32,
    destination: &'a [u8],
    /// Hash of scope and destination.
    group: u64,
    head: &'a [u8],
}

impl Encoder {
    /// An encoder for a decoder with these limits.
    #[must_use]
    pub fn new(limits: &HeadLimits) -> Self {
        Self {
            limits: *limits,
            state: None,
        }
    }

    /// Raises the limits, because the decoder accepts more from now on. Lower values in `limits` are ignored.
    pub fn raise(&mut self, limits: &HeadLimits) {
        let now = &mut self.limits;
        now.templates = now.templates.max(limits.templates);
        now.template_bytes = now.template_bytes.max(limits.template_bytes);
        now.all_bytes = now.all_bytes.max(limits.all_bytes);
        now.max_head_bytes = now.max_head_bytes.max(limits.max_head_bytes);
    }

    /// Cost of the decoder's templates after all blocks so far, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.state.as_ref().map_or(0, |state| state.table.bytes())
    }

    /// Number of the decoder's templates after all blocks so far.
    #[must_use]
    pub fn templates(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.table.len())
    }

    /// The next block drops all templates that no block has used since the previous call. Call it at intervals: a
    /// template is kept for at least one interval after its last use.
    pub fn age(&mut self) {
        if let Some(state) = &mut self.state {
            state.table.age();
        }
    }

    /// Appends the header block for `head` to `out`. `head` is a complete HTTP/1.1 head with its empty line, to
    /// `destination` (empty for responses), on behalf of the workload `scope`. A template is never used for two scopes
    /// or destinations; [`NO_SCOPE`] uses none. The blocks must be sent, and in this order.
    ///
    /// The decoder refuses a head that an HTTP parser does not accept, or that exceeds the limit.
    pub fn encode(&mut self, scope: u32, destination: &[u8], head: &[u8], out: &mut Vec<u8>) {
        if self.limits.templates == 0 || scope == NO_SCOPE {
            return literal(destination, head, out);
        }
        let Self { limits, state } = self;
        let state = state.get_or_insert_with(|| {
            Box::new(EncoderState {
                table: TemplateTable::new(limits),
                draft: Draft::default(),
                lines: Lines::default(),
                kin_lines: Lines::default(),
                values: Vec::new(),
            })
        });
        let call = Call {
            scope,
            destination,
            group: TemplateTable::group(scope, destination),
            head,
        };
        state.table.begin(out);
        let fitting = state.find(&call);
        if let Some(id) = fitting {
            let start = out.len();
            number::put(out, instruction::USE, instruction::USE_BITS, u64::from(id));
            if state.table.put_values(id, limits, head, &state.values, out) {
                return;
            }
            out.truncate(start);
        }
        if !state.learn(&call, limits, fitting, out) {
            if let Some(id) = fitting {
                // Its memory may have changed in the failed attempt.
                state.table.drop_template(id, out);
            }
            literal(destination, head, out);
        }
    }
}

/// Appends a block with a literal head.
fn literal(destination: &[u8], head: &[u8], out: &mut Vec<u8>) {
    out.push(instruction::LITERAL);
    number::put(out, 0, 8, destination.len() as u64);
    out.extend_from_slice(destination);
    out.extend_from_slice(head);
}

/// How to make a template for a head that no template fits.
struct Plan {
    /// The template to replace; `None` to use another id.
    replaced: Option<u16>,
    /// The template to start from.
    kin: Option<u16>,
    /// The new template is only for this target.
    new_target: bool,
}

impl EncoderState {
    /// The template that fits, with the positions of its slots' values in `values`.
    fn find(&mut self, call: &Call<'_>) -> Option<u16> {
        let Self { table, values, .. } = self;
        table.find(call.group, |entry| {
            entry.is_for(call.scope, call.destination) && fits(entry, call.head, values)
        })
    }

    /// Makes a template for a head that no template fits any more, and appends its definition and first use. `false`
    /// when that is not possible: then only drops were appended.
    fn learn(
        &mut self,
        call: &Call<'_>,
        limits: &HeadLimits,
        stale: Option<u16>,
        out: &mut Vec<u8>,
    ) -> bool {
        if call.head.len() > limits.max_head_bytes as usize
            || self.lines.read(call.head).is_none()
            || !check::is_value(self.lines.target(call.head), true)
        {
            return false;
        }
        let plan = self.plan(call, stale);
        let plan = self.draft(call, plan);
        let Self {
            table,
            draft,
            lines,
            ..
        } = self;
        let cost = Template::cost(call.destination.len(), draft.text.len(), draft.slots.len());
        if cost > limits.template_bytes.min(limits.all_bytes) as usize {
            return false;
        }
        let slots = draft.slots.iter().map(|&(at, kind, _)| Slot::new(at, kind));
        let template = Template::new(
            call.destination.into(),
            draft.text.as_slice().into(),
            slots.collect(),
        );
        let Ok(template) = template else {
            return false;
        };
        let ends = draft.slots.iter().map(|&(_, _, end)| end).collect();

        // Prefer to evict a template other than the one that the definition is based on.
        let base = plan
            .kin
            .or_else(|| table.of_group(call.group).next().map(|(id, _)| id));
        let id = table.make_room(limits, plan.replaced, base, cost, out);
        // An empty destination in a definition means that of its base.
        let base = base.filter(|&base| {
            let base = table.get(base).map(|base| &*base.template.destination);
            base.is_some_and(|base| !call.destination.is_empty() || base.is_empty())
        });
        number::put(
            out,
            instruction::DEFINE,
            instruction::DEFINE_BITS,
            u64::from(id),
        );
        let entry = base.and_then(|base| table.get(base));
        let base = entry.and(base).map_or(0, |base| u64::from(base) + 1);
        number::put(out, 0, 8, base);
        define(&template, entry.map(|entry| &entry.template), out);
        let entry = Entry::new(template, ends, call.scope, call.group, lines.shape);
        table.put(id, entry);
        let whole = table.put_values(id, limits, call.head, &draft.values, out);
        debug_assert!(whole, "slots are of the kinds that their first values have");
        draft.text.shrink_to(KEPT_BYTES);
        true
    }

    /// Searches for a similar template.
    fn plan(&mut self, call: &Call<'_>, stale: Option<u16>) -> Plan {
        let Self {
            table,
            lines,
            kin_lines,
            ..
        } = self;
        let replace = |id| Plan {
            replaced: Some(id),
            kin: Some(id),
            new_target: false,
        };
        if let Some(id) = stale {
            return replace(id);
        }
        let (mut same, mut last) = (0, None);
        for (id, entry) in table.of_group(call.group) {
            if entry.shape != lines.shape || !entry.is_for(call.scope, call.destination) {
                continue;
            }
            same += 1;
            last = last.or(Some(id));
            let has_parts = (kin_lines.read(&entry.template.text))
                .is_some_and(|()| has_parts(call.head, lines, &entry.kin(kin_lines)));
            if has_parts {
                return replace(id);
            }
        }
        match last {
            Some(id) if same >= TARGETS_OF_A_SHAPE => replace(id),
            Some(id) => Plan {
                replaced: None,
                kin: Some(id),
                new_target: true,
            },
            // A template for another destination shows where slots are needed.
            None => Plan {
                replaced: None,
                kin: table.alike(call.scope, lines.shape),
                new_target: false,
            },
        }
    }

    /// Drafts the planned template, or the best possible one instead.
    fn draft(&mut self, call: &Call<'_>, plan: Plan) -> Plan {
        let Self {
            table,
            draft,
            lines,
            kin_lines,
            ..
        } = self;
        let entry = plan.kin.and_then(|kin| table.get(kin));
        if let Some(entry) = entry
            && kin_lines.read(&entry.template.text).is_some()
        {
            let kin = entry.kin(kin_lines);
            for new_target in [plan.new_target, true] {
                if draft.merge(call.head, lines, kin, new_target) {
                    return plan;
                }
            }
        }
        draft.fresh(call.head, lines);
        Plan { kin: None, ..plan }
    }
}

impl Entry {
    fn kin<'a>(&'a self, lines: &'a Lines) -> Kin<'a> {
        Kin {
            template: &self.template,
            ends: &self.ends,
            lines,
        }
    }
}

/// Whether `head` is the template with some values; `values` gets their positions.
#[inline]
fn fits(entry: &Entry, head: &[u8], values: &mut Vec<(u32, u32)>) -> bool {
    let text = &*entry.template.text;
    values.clear();
    let (mut at, mut done) = (0, 0);
    for (slot, &end) in entry.template.slots.iter().zip(&entry.ends) {
        let constant = &text[done..slot.at as usize];
        let Some(rest) = head[at..].strip_prefix(constant) else {
            return false;
        };
        let length = match end {
            SlotEnd::Line => memchr(b'\r', rest),
            SlotEnd::Part => rest
                .iter()
                .position(|&byte| byte == b' ' || is_separator(byte)),
            SlotEnd::Target(tail) => {
                memchr(b' ', rest).and_then(|end| end.checked_sub(tail as usize))
            }
        };
        let Some(length) = length else {
            return false;
        };
        if slot.in_target && !check::is_value(&rest[..length], true) {
            return false;
        }
        at += constant.len();
        values.push((at as u32, (at + length) as u32));
        at += length;
        done = slot.at as usize;
    }
    head[at..] == text[done..]
}
