//! The chunked transfer coding (RFC 9112 section 7.1), to the letter.
//!
//! Stricter than what a recipient must accept in one place: whitespace in chunk extensions, which
//! the grammar calls bad and which readers treat differently, is refused.

use crate::http1::framing::is_token_byte;
use crate::http1::{FieldKind, Limits, Reject};

/// Bytes of a trailer's name that are kept to tell its kind: more than the longest known name.
const NAME_BYTES: usize = 32;

/// Digits in a chunk size: what 64 bits need.
const MAX_SIZE_DIGITS: u8 = 16;

/// Framing bytes that every chunk may have, those that each byte of data allows on top, and what
/// may be in excess of both over a whole body: a body of nothing but chunk extensions is an attack.
const FREE_PER_CHUNK: u64 = 16;
const FREE_PER_DATA_BYTE: u64 = 2;
const MAX_EXCESS_BYTES: u64 = 16 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Size,
    /// After `;`, before the extension's name.
    ExtensionStart,
    ExtensionName,
    /// After `=`.
    ValueStart,
    ValueToken,
    ValueQuoted,
    /// After a backslash in a quoted value.
    ValueEscaped,
    /// After a quoted value's closing quote.
    ValueEnd,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    /// After the CR of the empty line.
    EndLf,
    Done,
    /// After a refusal, which is repeated.
    Refused(Reject),
}

#[derive(Debug)]
pub(super) struct Chunked {
    phase: Phase,
    /// The size being read, then what is left of the chunk's data.
    size: u64,
    digits: u8,
    name_len: u8,
    /// Bytes in the present size line.
    line_bytes: u16,
    trailer_bytes: u16,
    max_line_bytes: u16,
    max_trailer_bytes: u16,
    /// Framing beyond what is free.
    excess: u64,
    name: [u8; NAME_BYTES],
}

impl Chunked {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            phase: Phase::Size,
            size: 0,
            digits: 0,
            name_len: 0,
            line_bytes: 0,
            trailer_bytes: 0,
            max_line_bytes: limits.max_chunk_line_bytes,
            max_trailer_bytes: limits.max_trailer_bytes,
            excess: 0,
            name: [0; NAME_BYTES],
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    pub(super) fn remaining_hint(&self) -> Option<u64> {
        (self.phase == Phase::Data).then_some(self.size)
    }

    /// Takes input up to the end of the body, and returns how much that was.
    pub(super) fn advance(
        &mut self,
        input: &[u8],
        data: &mut impl FnMut(&[u8]),
    ) -> Result<usize, Reject> {
        let mut at = 0;
        while at < input.len() && self.phase != Phase::Done {
            if self.phase == Phase::Data {
                let rest = &input[at..];
                let take = usize::try_from(self.size)
                    .unwrap_or(usize::MAX)
                    .min(rest.len());
                data(&rest[..take]);
                at += take;
                self.size -= take as u64;
                if self.size == 0 {
                    self.phase = Phase::DataCr;
                }
                continue;
            }
            if let Some(taken) = self.plain_size_line(&input[at..]) {
                at += taken;
                continue;
            }
            match self.step(input[at]) {
                Ok(next) => self.phase = next,
                Err(reject) => {
                    self.phase = Phase::Refused(reject);
                    return Err(reject);
                }
            }
            at += 1;
        }
        Ok(at)
    }

    /// Takes what stands between two chunks' data, the end of the one and the size of the next, in
    /// one go. Only in its plainest form: what is split between reads, has extensions, ends the
    /// body or is wrong is left to [`step`](Self::step).
    fn plain_size_line(&mut self, input: &[u8]) -> Option<usize> {
        let line = match self.phase {
            Phase::Size if self.digits == 0 => input,
            Phase::DataCr => input.strip_prefix(b"\r\n")?,
            _ => return None,
        };
        let mut size = 0;
        let mut digits = 0;
        // Seven digits are chunks of 256 MiB, and far from any overflow.
        while let Some(digit) = line.get(digits).and_then(|&byte| hex_digit(byte)) {
            if digits == 7 {
                return None;
            }
            size = size << 4 | u64::from(digit);
            digits += 1;
        }
        let is_allowed = size > 0 && digits <= usize::from(self.max_line_bytes);
        if !is_allowed || line.get(digits..digits + 2) != Some(b"\r\n") {
            return None;
        }
        self.size = size;
        self.account(digits as u64);
        self.phase = Phase::Data;
        Some(input.len() - line.len() + digits + 2)
    }

    /// The phase after one byte of framing.
    fn step(&mut self, byte: u8) -> Result<Phase, Reject> {
        match self.phase {
            Phase::Size => self.size_digit(byte),
            Phase::ExtensionStart
            | Phase::ExtensionName
            | Phase::ValueStart
            | Phase::ValueToken
            | Phase::ValueQuoted
            | Phase::ValueEscaped
            | Phase::ValueEnd => self.extension(byte),
            Phase::SizeLf => self.size_line_end(byte),
            Phase::DataCr if byte == b'\r' => Ok(Phase::DataLf),
            Phase::DataLf if byte == b'\n' => Ok(Phase::Size),
            Phase::DataCr | Phase::DataLf => Err(Reject::CHUNK_DATA_END),
            Phase::TrailerStart | Phase::TrailerName | Phase::TrailerValue | Phase::TrailerLf => {
                self.trailer(byte)
            }
            Phase::EndLf if byte == b'\n' => Ok(Phase::Done),
            Phase::EndLf => Err(Reject::BARE_CR),
            Phase::Refused(reject) => Err(reject),
            // Neither takes framing; `advance` never asks.
            Phase::Data | Phase::Done => Ok(self.phase),
        }
    }

    fn size_digit(&mut self, byte: u8) -> Result<Phase, Reject> {
        if let Some(digit) = hex_digit(byte) {
            if self.digits == MAX_SIZE_DIGITS || self.size >> 59 != 0 {
                return Err(Reject::CHUNK_SIZE_OVERFLOW);
            }
            self.count_line_byte()?;
            self.digits += 1;
            self.size = self.size << 4 | u64::from(digit);
            return Ok(Phase::Size);
        }
        match byte {
            b'\n' => Err(Reject::BARE_LF),
            b'\r' if self.digits > 0 => Ok(Phase::SizeLf),
            b';' if self.digits > 0 => {
                self.count_line_byte()?;
                Ok(Phase::ExtensionStart)
            }
            _ => Err(Reject::MALFORMED_CHUNK_SIZE),
        }
    }

    /// `*( ";" name [ "=" ( token / quoted-string ) ] )`, within a bound.
    fn extension(&mut self, byte: u8) -> Result<Phase, Reject> {
        let quoted = matches!(self.phase, Phase::ValueQuoted | Phase::ValueEscaped);
        if byte == b'\n' {
            return Err(Reject::BARE_LF);
        }
        self.count_line_byte()?;
        let next = match (self.phase, byte) {
            (Phase::ExtensionStart | Phase::ExtensionName, byte) if is_token_byte(byte) => {
                Phase::ExtensionName
            }
            (Phase::ExtensionName, b'=') => Phase::ValueStart,
            (Phase::ValueStart | Phase::ValueToken, byte) if is_token_byte(byte) => {
                Phase::ValueToken
            }
            (Phase::ValueStart, b'"') => Phase::ValueQuoted,
            (Phase::ValueQuoted, b'"') => Phase::ValueEnd,
            (Phase::ValueQuoted, b'\\') => Phase::ValueEscaped,
            (_, b'\t' | b' '..=b'~' | 0x80..) if quoted => Phase::ValueQuoted,
            (Phase::ExtensionName | Phase::ValueToken | Phase::ValueEnd, b';') => {
                Phase::ExtensionStart
            }
            (Phase::ExtensionName | Phase::ValueToken | Phase::ValueEnd, b'\r') => Phase::SizeLf,
            _ => return Err(Reject::MALFORMED_CHUNK_EXTENSION),
        };
        Ok(next)
    }

    fn size_line_end(&mut self, byte: u8) -> Result<Phase, Reject> {
        if byte != b'\n' {
            return Err(Reject::BARE_CR);
        }
        self.account(u64::from(self.line_bytes));
        if self.excess > MAX_EXCESS_BYTES {
            return Err(Reject::CHUNK_OVERHEAD);
        }
        self.line_bytes = 0;
        self.digits = 0;
        Ok(if self.size == 0 {
            Phase::TrailerStart
        } else {
            Phase::Data
        })
    }

    /// Weighs a size line against the data that it brings.
    fn account(&mut self, line_bytes: u64) {
        let free = FREE_PER_CHUNK.saturating_add(self.size.saturating_mul(FREE_PER_DATA_BYTE));
        self.excess = (self.excess + line_bytes).saturating_sub(free);
    }

    fn trailer(&mut self, byte: u8) -> Result<Phase, Reject> {
        self.trailer_bytes = self
            .trailer_bytes
            .checked_add(1)
            .filter(|&bytes| bytes <= self.max_trailer_bytes)
            .ok_or(Reject::TRAILERS_TOO_LARGE)?;
        match (self.phase, byte) {
            (Phase::TrailerLf, b'\n') => Ok(Phase::TrailerStart),
            (Phase::TrailerLf, _) => Err(Reject::BARE_CR),
            (_, b'\n') => Err(Reject::BARE_LF),
            (Phase::TrailerStart, b'\r') => Ok(Phase::EndLf),
            (Phase::TrailerStart, byte) if is_token_byte(byte) => {
                self.name[0] = byte;
                self.name_len = 1;
                Ok(Phase::TrailerName)
            }
            (Phase::TrailerName, byte) if is_token_byte(byte) => {
                if let Some(slot) = self.name.get_mut(usize::from(self.name_len)) {
                    *slot = byte;
                    self.name_len += 1;
                }
                Ok(Phase::TrailerName)
            }
            (Phase::TrailerName, b':') => {
                let name = &self.name[..usize::from(self.name_len)];
                if FieldKind::of(name).is_forbidden_trailer() {
                    return Err(Reject::FORBIDDEN_TRAILER);
                }
                Ok(Phase::TrailerValue)
            }
            (Phase::TrailerValue, b'\r') => Ok(Phase::TrailerLf),
            (Phase::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => Ok(Phase::TrailerValue),
            _ => Err(Reject::MALFORMED_TRAILER),
        }
    }

    fn count_line_byte(&mut self) -> Result<(), Reject> {
        if self.line_bytes >= self.max_line_bytes {
            return Err(Reject::CHUNK_LINE_TOO_LONG);
        }
        self.line_bytes += 1;
        Ok(())
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}
