//! The chunked transfer coding (RFC 9112 section 7.1), to the letter.
//!
//! It is stricter than RFC 9112 requires in one point: whitespace in chunk extensions, which the grammar calls bad and
//! which readers treat differently, is refused.
//!
//! The forwarded framing has one form. Data and size lines of plain digits are forwarded unchanged; any other size
//! line, and every trailer, is skipped and rewritten, see [`Line`]. A size line split between two reads is rewritten
//! too, because its first part was held back.

use super::{Line, Piece};
use crate::http1::framing::is_token_byte;
use crate::http1::{Limits, Reject};

/// Limit on the digits of a chunk size: 64 bits.
const MAX_SIZE_DIGITS: u8 = 16;

/// Free framing bytes per chunk, free framing bytes per byte of data, and the limit on framing beyond both over a whole
/// body: a body that is mostly chunk extensions is an attack.
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
    /// After the CR of the final empty line.
    EndLf,
    Done,
    /// After an error, which every later call repeats.
    Refused(Reject),
}

#[derive(Debug, Clone)]
pub(super) struct Chunked {
    phase: Phase,
    /// The size read so far, then the bytes left of the chunk's data.
    size: u64,
    digits: u8,
    /// Bytes in the current size line.
    line_bytes: u16,
    trailer_bytes: u16,
    max_line_bytes: u16,
    max_trailer_bytes: u16,
    /// Length of the field name at the front of `trailer`.
    name_len: u16,
    /// Framing bytes beyond the free ones so far.
    excess: u64,
    /// The trailer line being read, or the last one read; at most `max_trailer_bytes`.
    trailer: Vec<u8>,
}

/// How much of the input was processed.
pub(super) struct Reach {
    /// Bytes that are forwarded unchanged.
    pub(super) passed: usize,
    /// Bytes after them that are not.
    pub(super) skipped: usize,
    /// Whether those complete a line, which is to be rewritten.
    pub(super) rewritten: bool,
}

impl Chunked {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            phase: Phase::Size,
            size: 0,
            digits: 0,
            line_bytes: 0,
            trailer_bytes: 0,
            max_line_bytes: limits.max_chunk_line_bytes,
            max_trailer_bytes: limits.max_trailer_bytes,
            name_len: 0,
            excess: 0,
            trailer: Vec::new(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    pub(super) fn remaining_hint(&self) -> Option<u64> {
        (self.phase == Phase::Data).then_some(self.size)
    }

    /// Processes input up to the end of the body; returns the number of bytes.
    #[inline(never)]
    pub(super) fn advance(
        &mut self,
        input: &[u8],
        take: &mut impl FnMut(Piece<'_>),
    ) -> Result<usize, Reject> {
        let mut taken = 0;
        while taken < input.len() && !self.is_done() {
            let reach = self.forward(&input[taken..], &mut |data| take(Piece::Data(data)))?;
            taken += reach.passed + reach.skipped;
            if reach.rewritten
                && let Line::Trailer { name, line } = self.line()
            {
                take(Piece::Trailer { name, line });
            }
        }
        Ok(taken)
    }

    /// Processes input up to the end of the body, or of the first line that cannot be forwarded unchanged.
    pub(super) fn forward(
        &mut self,
        input: &[u8],
        data: &mut impl FnMut(&[u8]),
    ) -> Result<Reach, Reject> {
        let mut passed = 0;
        while passed < input.len() && self.phase != Phase::Done {
            if self.phase == Phase::Data {
                let rest = &input[passed..];
                let take = usize::try_from(self.size)
                    .unwrap_or(usize::MAX)
                    .min(rest.len());
                data(&rest[..take]);
                passed += take;
                self.size -= take as u64;
                if self.size == 0 {
                    self.phase = Phase::DataCr;
                }
                continue;
            }
            if let Some(taken) = self.plain_size_line(&input[passed..]) {
                passed += taken;
                continue;
            }
            if !self.passes(input[passed]) {
                return self.skip_line(input, passed);
            }
            self.take(input[passed])?;
            passed += 1;
        }
        Ok(Reach {
            passed,
            skipped: 0,
            rewritten: false,
        })
    }

    /// Whether a framing byte is forwarded unchanged: the CRLF after a chunk's data, and the one that ends the body.
    fn passes(&self, byte: u8) -> bool {
        match self.phase {
            Phase::TrailerStart => byte == b'\r',
            phase => matches!(phase, Phase::DataCr | Phase::DataLf | Phase::EndLf),
        }
    }

    /// Processes a line that cannot be forwarded unchanged, as far as it has arrived.
    #[cold]
    fn skip_line(&mut self, input: &[u8], passed: usize) -> Result<Reach, Reject> {
        let mut reach = Reach {
            passed,
            skipped: 0,
            rewritten: false,
        };
        for &byte in &input[passed..] {
            reach.rewritten = matches!(self.phase, Phase::SizeLf | Phase::TrailerLf);
            self.take(byte)?;
            reach.skipped += 1;
            if reach.rewritten {
                break;
            }
        }
        Ok(reach)
    }

    /// The line that the last call completed.
    pub(super) fn line(&self) -> Line<'_> {
        match self.phase {
            Phase::Data => Line::Size(self.size),
            _ if self.trailer.is_empty() => Line::Size(0),
            _ => Line::Trailer {
                name: &self.trailer[..usize::from(self.name_len)],
                line: &self.trailer,
            },
        }
    }

    /// Processes one byte of framing.
    fn take(&mut self, byte: u8) -> Result<(), Reject> {
        let next = self.step(byte);
        self.phase = next.unwrap_or_else(Phase::Refused);
        next.map(drop)
    }

    /// Processes the framing between two chunks' data at once: the CRLF of one chunk and the size line of the next.
    /// Only in its plainest form: a line that is split between reads, has extensions or leading zeros, or is malformed
    /// is left to [`step`](Self::step).
    fn plain_size_line(&mut self, input: &[u8]) -> Option<usize> {
        let line = match self.phase {
            Phase::Size if self.digits == 0 => input,
            Phase::DataCr => input.strip_prefix(b"\r\n")?,
            _ => return None,
        };
        if line.first() == Some(&b'0') {
            return self.plain_last_line(input, line);
        }
        let mut size = 0;
        let mut digits = 0;
        // Seven digits allow chunks of up to 256 MiB, and cannot overflow.
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

    /// The same for the final size line, `0`.
    fn plain_last_line(&mut self, input: &[u8], line: &[u8]) -> Option<usize> {
        let rest = line.strip_prefix(b"0\r\n")?;
        if self.max_line_bytes == 0 {
            return None;
        }
        self.size = 0;
        self.account(1);
        self.phase = Phase::TrailerStart;
        Some(input.len() - rest.len())
    }

    /// The next phase after one byte of framing.
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
            // These phases take no framing bytes; `forward` never calls this.
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

    /// `*( ";" name [ "=" ( token / quoted-string ) ] )`, with a limited length.
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

    /// Counts a size line against the data that its chunk brings.
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
        if self.phase == Phase::TrailerStart {
            self.trailer.clear();
        }
        if self.phase != Phase::TrailerStart || byte != b'\r' {
            self.trailer.push(byte);
        }
        match (self.phase, byte) {
            (Phase::TrailerLf, b'\n') => Ok(Phase::TrailerStart),
            (Phase::TrailerLf, _) => Err(Reject::BARE_CR),
            (_, b'\n') => Err(Reject::BARE_LF),
            (Phase::TrailerStart, b'\r') => Ok(Phase::EndLf),
            (Phase::TrailerStart, byte) if is_token_byte(byte) => {
                self.name_len = 1;
                Ok(Phase::TrailerName)
            }
            (Phase::TrailerName, byte) if is_token_byte(byte) => {
                // The trailer section is limited to 16 bits, so this never saturates.
                self.name_len = self.name_len.saturating_add(1);
                Ok(Phase::TrailerName)
            }
            (Phase::TrailerName, b':') => Ok(Phase::TrailerValue),
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
