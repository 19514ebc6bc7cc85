//! Turns blocks into heads.

use super::number::Reader;
use super::slot::{Slot, SlotKind};
use super::template::Template;
use super::{HeadError, HeadLimits, check, instruction};

/// Turns blocks into heads.
///
/// It follows the instructions in the blocks and makes no decisions: the encoder chooses which templates to keep or
/// evict, and which values a slot remembers, so both ends always agree.
#[derive(Debug)]
pub struct Decoder {
    limits: HeadLimits,
    /// Created with the first template.
    tables: Option<Box<Tables>>,
}

/// The content of a block besides the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// The destination of the request; empty for responses.
    pub destination: &'a [u8],
    /// Identifies this destination, and no other, for the lifetime of the decoder. `None` when the destination is not
    /// remembered. A destination that was forgotten gets another number when it returns.
    pub destination_id: Option<u32>,
}

#[derive(Debug, Default)]
struct Tables {
    /// Indexed by template id.
    templates: Vec<Option<Box<Held>>>,
    /// Cost of all templates, in bytes.
    bytes: u32,
    /// The number for the next new destination.
    next_destination: Option<u32>,
}

#[derive(Debug)]
struct Held {
    template: Template,
    destination_id: Option<u32>,
}

impl Decoder {
    /// A decoder that takes what is within `limits`.
    #[must_use]
    pub fn new(limits: &HeadLimits) -> Self {
        Self {
            limits: *limits,
            tables: None,
        }
    }

    /// Cost of its templates, in bytes: never more than `all_bytes` of its limits.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.tables.as_ref().map_or(0, |tables| tables.bytes)
    }

    /// The number of templates that it holds.
    #[must_use]
    pub fn templates(&self) -> usize {
        let tables = self.tables.as_ref();
        tables.map_or(0, |tables| tables.templates.iter().flatten().count())
    }

    /// Decodes `block` and appends the head to `head`.
    ///
    /// # Errors
    /// [`HeadError`] when the block is malformed or exceeds the limits. `head` is then unchanged, and the session must
    /// end, because this decoder may be out of step.
    pub fn decode<'a>(
        &'a mut self,
        block: &'a [u8],
        head: &mut Vec<u8>,
    ) -> Result<Decoded<'a>, HeadError> {
        let start = head.len();
        let Self { limits, tables } = self;
        let decoded = decode(limits, tables, block, head);
        if decoded.is_err() {
            head.truncate(start);
        }
        decoded
    }
}

fn decode<'a>(
    limits: &HeadLimits,
    tables: &'a mut Option<Box<Tables>>,
    block: &'a [u8],
    head: &mut Vec<u8>,
) -> Result<Decoded<'a>, HeadError> {
    let mut block = Reader::new(block);
    loop {
        let first = block.byte()?;
        if first & instruction::USE != 0 {
            let id = block.number(first, instruction::USE_BITS)?;
            let tables = tables.as_mut().ok_or(HeadError::NoTemplate)?;
            return tables.fill(limits, id, block, head);
        }
        if first & instruction::DEFINE != 0 {
            let id = block.number(first, instruction::DEFINE_BITS)?;
            let tables = tables.get_or_insert_default();
            tables.define(limits, id, &mut block)?;
            return tables.fill(limits, id, block, head);
        }
        if first == instruction::LITERAL {
            let length = block.whole()?;
            let destination = block.take(length)?;
            let text = block.rest();
            if text.len() > limits.max_head_bytes as usize {
                return Err(HeadError::TooLong);
            }
            check::head(text)?;
            head.extend_from_slice(text);
            return Ok(Decoded {
                destination,
                destination_id: None,
            });
        }
        if first & instruction::DROP_MASK != instruction::DROP {
            return Err(HeadError::Instruction);
        }
        let id = block.number(first, instruction::DROP_BITS)?;
        let tables = tables.as_mut().ok_or(HeadError::NoTemplate)?;
        tables.forget(id)?;
    }
}

impl Tables {
    fn held(&self, id: u64) -> Result<&Held, HeadError> {
        let at = usize::try_from(id).map_err(|_| HeadError::NoTemplate)?;
        let held = self.templates.get(at).and_then(Option::as_ref);
        held.map(|held| &**held).ok_or(HeadError::NoTemplate)
    }

    fn forget(&mut self, id: u64) -> Result<(), HeadError> {
        self.bytes -= self.held(id)?.template.cost;
        self.templates[id as usize] = None;
        Ok(())
    }

    /// Appends template `id`, with the values from the rest of `block`.
    fn fill(
        &mut self,
        limits: &HeadLimits,
        id: u64,
        mut block: Reader<'_>,
        head: &mut Vec<u8>,
    ) -> Result<Decoded<'_>, HeadError> {
        let at = usize::try_from(id).map_err(|_| HeadError::NoTemplate)?;
        let held = self.templates.get_mut(at).and_then(Option::as_mut);
        let Held {
            template,
            destination_id,
        } = &mut **held.ok_or(HeadError::NoTemplate)?;
        let whole = limits
            .template_bytes
            .saturating_sub(template.cost)
            .min(limits.all_bytes.saturating_sub(self.bytes));
        let mut room = whole;
        let end = head.len() + limits.max_head_bytes as usize;

        let mut done = 0;
        let filled = template.slots.iter_mut().try_for_each(|slot| {
            let at = slot.at as usize;
            head.extend_from_slice(&template.text[done..at]);
            done = at;
            slot.take(&mut block, head, end, &mut room)
        });
        // Account for it even if a value was malformed: the values before it are remembered.
        template.cost += whole - room;
        self.bytes += whole - room;
        filled?;
        head.extend_from_slice(&template.text[done..]);
        if head.len() > end {
            return Err(HeadError::TooLong);
        }
        if !block.rest().is_empty() {
            return Err(HeadError::Over);
        }
        Ok(Decoded {
            destination: &template.destination,
            destination_id: *destination_id,
        })
    }

    /// Reads a definition and stores the template under `id`.
    fn define(
        &mut self,
        limits: &HeadLimits,
        id: u64,
        block: &mut Reader<'_>,
    ) -> Result<(), HeadError> {
        // Ids are used in order from 0, so the table is no longer than the number of definitions.
        if id >= u64::from(limits.templates) || id > self.templates.len() as u64 {
            return Err(HeadError::NoTemplate);
        }
        let base = match block.whole()? {
            0 => None,
            above => Some(self.held(above - 1)?),
        };
        let length = block.whole()?;
        let (destination, destination_id) = match (length, base) {
            (0, Some(base)) => (&base.template.destination[..], base.destination_id),
            (length, _) => {
                let destination = block.take(length)?;
                (destination, self.known(destination))
            }
        };
        let base = base.map_or(&[][..], |base| &base.template.text);
        let (text, slots) = pieces(limits, base, destination.len(), block)?;
        let template = Template::new(destination.into(), text.into(), slots.into())?;

        let at = id as usize;
        let before = self.templates.get(at).and_then(Option::as_ref);
        let kept = self.bytes - before.map_or(0, |before| before.template.cost);
        let bytes = kept.checked_add(template.cost);
        self.bytes = bytes
            .filter(|&bytes| template.cost <= limits.template_bytes && bytes <= limits.all_bytes)
            .ok_or(HeadError::Full)?;
        let destination_id = destination_id.or_else(|| {
            let next = self
                .next_destination
                .map_or(Some(0), |id| id.checked_add(1))?;
            self.next_destination = Some(next);
            Some(next)
        });
        let held = Some(Box::new(Held {
            template,
            destination_id,
        }));
        match self.templates.get_mut(at) {
            Some(place) => *place = held,
            None => self.templates.push(held),
        }
        Ok(())
    }

    /// The number of a destination, if any template has it.
    fn known(&self, destination: &[u8]) -> Option<u32> {
        let mut held = self.templates.iter().flatten();
        held.find(|held| *held.template.destination == *destination)?
            .destination_id
    }
}

/// Reads text and slots. Copied bytes count like literal ones, so that a few bytes cannot expand beyond the limit on a
/// template.
fn pieces(
    limits: &HeadLimits,
    base: &[u8],
    destination: usize,
    block: &mut Reader<'_>,
) -> Result<(Vec<u8>, Vec<Slot>), HeadError> {
    let most = limits.template_bytes.min(limits.all_bytes) as usize;
    let (mut text, mut slots) = (Vec::new(), Vec::new());
    loop {
        let piece = block.whole()?;
        let number = piece >> instruction::PIECE_BITS;
        let more = match piece & instruction::PIECE_MASK {
            instruction::TEXT => block.take(number)?,
            instruction::COPY => {
                let start = usize::try_from(block.whole()?).unwrap_or(usize::MAX);
                let length = usize::try_from(number).unwrap_or(usize::MAX);
                base.get(start..)
                    .and_then(|base| base.get(..length))
                    .ok_or(HeadError::Template("a copy from beyond its base"))?
            }
            instruction::SLOT => {
                slots.push(Slot::new(text.len() as u32, SlotKind::from_number(number)?));
                &[]
            }
            _ if number == 0 => return Ok((text, slots)),
            _ => return Err(HeadError::Template("a piece of an unknown kind")),
        };
        let cost = Template::cost(destination, text.len() + more.len(), slots.len());
        if cost > most {
            return Err(HeadError::Full);
        }
        text.extend_from_slice(more);
    }
}
