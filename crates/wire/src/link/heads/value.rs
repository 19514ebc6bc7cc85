//! Encoding of the values in slots.

use super::digits::{self, Alphabet, Classes};
use super::memory::{MAX_REMEMBERED, Memory, PLACES, Place};
use super::number::{self, Reader};
use super::slot::{Slot, SlotKind};
use super::{HeadError, check, date};

/// Shortest value that an encoder remembers, in bytes: shorter ones cost little to send.
const MIN_REMEMBERED: usize = 6;
/// How much a repeated value adds to a slot's [`worth`](Slot::worth).
const WORTH_OF_A_HIT: i8 = 3;
const MAX_WORTH: i8 = 48;
/// A slot without any worth remembers values only in blocks whose number is a multiple of this, as a probe.
const PROBE: u32 = 16;

// The high three bits of a text's first byte: its form.
const REMEMBERED: u8 = 0 << 5;
const RAW: u8 = 1 << 5;
const HEX: u8 = 2 << 5;
const DECIMAL: u8 = 3 << 5;
const TOKEN: u8 = 4 << 5;
const PATH: u8 = 5 << 5;
const TYPED: u8 = 6 << 5;
const REMEMBER: u8 = 7 << 5;
const FORM: u8 = 7 << 5;
/// The low bits, which hold a number.
const BITS: u32 = 5;

// The first byte of a value in a slot for UUIDs or traces.
const SAME: u8 = 0;
const ANOTHER: u8 = 1;

// The number in a TYPED byte.
const TYPED_UUID: u8 = 0;
const TYPED_TRACE: u8 = 1;
const TYPED_DATE: u8 = 2;

/// The kind of slot that encodes `value` in the fewest bytes.
pub(super) fn kind_of(value: &[u8]) -> SlotKind {
    match value.len() {
        digits::UUID_LENGTH if digits::pack_uuid(value).is_some() => SlotKind::Uuid,
        digits::TRACE_LENGTH if digits::pack_trace(value).is_some() => SlotKind::Trace,
        date::LENGTH if date::parse(value).is_some() => SlotKind::Date,
        1..=20 if digits::parse_decimal(value).is_some() => SlotKind::Number,
        _ => SlotKind::Text,
    }
}

impl Slot {
    /// Appends `value`. A remembered value reduces `room`, the cost that the template may still add. `false` when the
    /// value is not of this slot's kind: nothing was appended then.
    #[inline]
    pub(super) fn put(
        &mut self,
        value: &[u8],
        out: &mut Vec<u8>,
        room: &mut u32,
        now: u32,
    ) -> bool {
        match self.kind {
            SlotKind::Text => self.put_remembering(value, out, room, now),
            SlotKind::Secret => put_text(value, out),
            SlotKind::Number => match digits::parse_decimal(value) {
                Some(number) => number::put(out, 0, 8, number),
                None => return false,
            },
            SlotKind::Date => return self.put_date(value, out),
            SlotKind::Uuid => match digits::pack_uuid(value) {
                Some(bytes) => self.put_packed(&bytes, out),
                None => return false,
            },
            SlotKind::Trace => match digits::pack_trace(value) {
                Some(bytes) => self.put_packed(&bytes, out),
                None => return false,
            },
        }
        true
    }

    fn put_packed(&mut self, packed: &[u8], out: &mut Vec<u8>) {
        if self.memory.last() == Some(packed) {
            return out.push(SAME);
        }
        out.push(ANOTHER);
        out.extend_from_slice(packed);
        self.memory.keep(packed);
    }

    fn put_date(&mut self, value: &[u8], out: &mut Vec<u8>) -> bool {
        let Memory::Date { seconds, text } = &mut self.memory else {
            return false;
        };
        if value == text {
            out.push(0);
            return true;
        }
        let Some(now) = date::parse(value) else {
            return false;
        };
        let difference = now as i64 - *seconds as i64;
        number::put(out, 0, 8, (difference << 1 ^ difference >> 63) as u64);
        *seconds = now;
        text.copy_from_slice(value);
        true
    }

    fn put_remembering(&mut self, value: &[u8], out: &mut Vec<u8>, room: &mut u32, now: u32) {
        if let Memory::Places(places) = &mut self.memory {
            let known = places.iter().position(|place| place.bytes == value);
            if let Some(known) = known {
                places[known].used = now;
                self.worth = (self.worth + WORTH_OF_A_HIT).min(MAX_WORTH);
                out.push(REMEMBERED | known as u8);
                return;
            }
        }
        if (MIN_REMEMBERED..=MAX_REMEMBERED).contains(&value.len())
            && (self.worth > 0 || now.is_multiple_of(PROBE))
        {
            let places = self.memory.places();
            let place = if places.len() < PLACES {
                places.len()
            } else {
                let age = |place: &Place| now.wrapping_sub(place.used);
                (0..PLACES).max_by_key(|&at| age(&places[at])).unwrap_or(0)
            };
            let cost = self.memory.cost_of(place, value.len());
            if cost <= *room {
                *room -= cost;
                self.worth = (self.worth - 1).max(0);
                self.memory.remember(place, value, now);
                out.push(REMEMBER | place as u8);
            }
        }
        put_text(value, out);
    }

    /// Reads a value from `block` and appends it to `head`, up to a length of `end` bytes.
    #[inline]
    pub(super) fn take(
        &mut self,
        block: &mut Reader<'_>,
        head: &mut Vec<u8>,
        end: usize,
        room: &mut u32,
    ) -> Result<(), HeadError> {
        match self.kind {
            SlotKind::Text => self.take_remembering(block, head, end, room),
            SlotKind::Secret => {
                let first = block.byte()?;
                take_text(first, block, head, end, self.in_target)
            }
            SlotKind::Number => {
                digits::put_decimal(block.whole()?, head);
                Ok(())
            }
            SlotKind::Date => self.take_date(block, head),
            SlotKind::Uuid => {
                let packed = self.take_packed(block)?;
                head.extend_from_slice(&digits::unpack_uuid(&packed));
                Ok(())
            }
            SlotKind::Trace => {
                let packed = self.take_packed(block)?;
                head.extend_from_slice(&digits::unpack_trace(&packed));
                Ok(())
            }
        }
    }

    fn take_packed<const N: usize>(
        &mut self,
        block: &mut Reader<'_>,
    ) -> Result<[u8; N], HeadError> {
        match block.byte()? {
            SAME => {
                let last = self.memory.last().and_then(|last| last.try_into().ok());
                last.ok_or(HeadError::Value("there is no previous value"))
            }
            ANOTHER => {
                let packed: [u8; N] = *block.array()?;
                self.memory.keep(&packed);
                Ok(packed)
            }
            _ => Err(HeadError::Value("an unknown mark for a UUID or trace")),
        }
    }

    fn take_date(&mut self, block: &mut Reader<'_>, head: &mut Vec<u8>) -> Result<(), HeadError> {
        let Memory::Date { seconds, text } = &mut self.memory else {
            return Err(HeadError::Value("a slot without a date"));
        };
        let number = block.whole()?;
        if number != 0 {
            let difference = (number >> 1) as i64 ^ -((number & 1) as i64);
            let now = seconds
                .checked_add_signed(difference)
                .filter(|&now| now < date::END)
                .ok_or(HeadError::Value("a date out of range"))?;
            *seconds = now;
            *text = date::write(now);
        }
        head.extend_from_slice(text);
        Ok(())
    }

    fn take_remembering(
        &mut self,
        block: &mut Reader<'_>,
        head: &mut Vec<u8>,
        end: usize,
        room: &mut u32,
    ) -> Result<(), HeadError> {
        let first = block.byte()?;
        let number = usize::from(first & !FORM);
        match first & FORM {
            REMEMBERED => {
                let place = self.memory.places().get(number);
                let place = place.ok_or(HeadError::Value("nothing is remembered there"))?;
                head.extend_from_slice(&place.bytes);
                Ok(())
            }
            REMEMBER => {
                if number >= PLACES || number > self.memory.places().len() {
                    return Err(HeadError::Value("no such place"));
                }
                let start = head.len();
                let first = block.byte()?;
                take_text(first, block, head, end, self.in_target)?;
                let value = &head[start..];
                if value.len() > MAX_REMEMBERED {
                    return Err(HeadError::Value("too long to be remembered"));
                }
                let cost = self.memory.cost_of(number, value.len());
                *room = room.checked_sub(cost).ok_or(HeadError::Full)?;
                self.memory.remember(number, value, 0);
                Ok(())
            }
            _ => take_text(first, block, head, end, self.in_target),
        }
    }
}

/// Appends `value` in its shortest form.
fn put_text(value: &[u8], out: &mut Vec<u8>) {
    match value.len() {
        digits::UUID_LENGTH => {
            if let Some(bytes) = digits::pack_uuid(value) {
                out.push(TYPED | TYPED_UUID);
                return out.extend_from_slice(&bytes);
            }
        }
        digits::TRACE_LENGTH => {
            if let Some(bytes) = digits::pack_trace(value) {
                out.push(TYPED | TYPED_TRACE);
                return out.extend_from_slice(&bytes);
            }
        }
        date::LENGTH => {
            if let Some(seconds) = date::parse(value) {
                out.push(TYPED | TYPED_DATE);
                return out.extend_from_slice(&seconds.to_be_bytes()[3..]);
            }
        }
        1..=20 => {
            if let Some(number) = digits::parse_decimal(value) {
                return number::put(out, DECIMAL, BITS, number);
            }
        }
        _ => {}
    }
    let n = value.len();
    let classes = Classes::of(value);
    if n < 2 {
        // No other form is shorter.
    } else if classes.has(Classes::HEX) && n.is_multiple_of(2) {
        number::put(out, HEX, BITS, n as u64 / 2);
        let start = out.len();
        out.resize(start + n / 2, 0);
        digits::pack_hex(value, &mut out[start..]);
        return;
    } else if n > 3 && classes.has(Classes::TOKEN) {
        number::put(out, TOKEN, BITS, n as u64);
        return digits::put_six(Alphabet::Token, value, out);
    } else if n > 3 && classes.has(Classes::PATH) {
        number::put(out, PATH, BITS, n as u64);
        return digits::put_six(Alphabet::Path, value, out);
    }
    number::put(out, RAW, BITS, n as u64);
    out.extend_from_slice(value);
}

/// Reads the text whose first byte is `first` and appends it to `head`, up to a length of `end` bytes.
fn take_text(
    first: u8,
    block: &mut Reader<'_>,
    head: &mut Vec<u8>,
    end: usize,
    in_target: bool,
) -> Result<(), HeadError> {
    let form = first & FORM;
    if form == TYPED {
        return take_typed(first & !FORM, block, head, in_target);
    }
    let number = block.number(first, BITS)?;
    if form == DECIMAL {
        digits::put_decimal(number, head);
        return Ok(());
    }
    let room = end.saturating_sub(head.len());
    let n = usize::try_from(number).map_err(|_| HeadError::TooLong)?;
    if n > room {
        return Err(HeadError::TooLong);
    }
    match form {
        RAW => {
            let bytes = block.take(number)?;
            if !check::is_value(bytes, in_target) {
                return Err(HeadError::Value(
                    "a control character, or a blank in a target",
                ));
            }
            head.extend_from_slice(bytes);
        }
        HEX => {
            if 2 * n > room {
                return Err(HeadError::TooLong);
            }
            let bytes = block.take(number)?;
            let start = head.len();
            head.resize(start + 2 * n, 0);
            digits::unpack_hex(bytes, &mut head[start..]);
        }
        TOKEN | PATH => {
            let alphabet = if form == TOKEN {
                Alphabet::Token
            } else {
                Alphabet::Path
            };
            let bytes = block.take(digits::six_bytes(n) as u64)?;
            if !digits::unpack_six(alphabet, bytes, n, head) {
                return Err(HeadError::Value("the padding is not zero"));
            }
        }
        _ => return Err(HeadError::Value("nothing is remembered here")),
    }
    Ok(())
}

fn take_typed(
    number: u8,
    block: &mut Reader<'_>,
    head: &mut Vec<u8>,
    in_target: bool,
) -> Result<(), HeadError> {
    match number {
        TYPED_UUID => head.extend_from_slice(&digits::unpack_uuid(block.array()?)),
        TYPED_TRACE => head.extend_from_slice(&digits::unpack_trace(block.array()?)),
        TYPED_DATE if !in_target => {
            let mut seconds = [0; 8];
            seconds[3..].copy_from_slice(block.array::<5>()?);
            let seconds = u64::from_be_bytes(seconds);
            if seconds >= date::END {
                return Err(HeadError::Value("a date out of range"));
            }
            head.extend_from_slice(&date::write(seconds));
        }
        _ => return Err(HeadError::Value("an unknown form of text")),
    }
    Ok(())
}
