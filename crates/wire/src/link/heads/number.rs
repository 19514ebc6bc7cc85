//! Integers of variable length: in the low bits of a byte and, if these do not suffice, in further bytes (RFC 7541
//! section 5.1).

use super::HeadError;

/// Limit on the further bytes: enough for 64 bits.
const MAX_MORE: usize = 10;

/// Appends `value`, with its first `bits` in a byte whose other bits come from `high`.
#[inline]
pub(super) fn put(out: &mut Vec<u8>, high: u8, bits: u32, value: u64) {
    let most = (1u64 << bits) - 1;
    if value < most {
        out.push(high | value as u8);
    } else {
        put_long(out, high | most as u8, value - most);
    }
}

fn put_long(out: &mut Vec<u8>, first: u8, mut rest: u64) {
    out.push(first);
    while rest >= 0x80 {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The part of a block that is not read yet.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(block: &'a [u8]) -> Self {
        Self { rest: block }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, HeadError> {
        let (&byte, rest) = self.rest.split_first().ok_or(HeadError::Cut)?;
        self.rest = rest;
        Ok(byte)
    }

    #[inline]
    pub(super) fn take(&mut self, n: u64) -> Result<&'a [u8], HeadError> {
        let n = usize::try_from(n).map_err(|_| HeadError::Cut)?;
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(HeadError::Cut)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], HeadError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(HeadError::Cut)?;
        self.rest = rest;
        Ok(taken)
    }

    /// A number that begins in the low `bits` of `first`, a byte that was already read.
    #[inline]
    pub(super) fn number(&mut self, first: u8, bits: u32) -> Result<u64, HeadError> {
        let most = (1u64 << bits) - 1;
        let low = u64::from(first) & most;
        if low < most { Ok(low) } else { self.long(most) }
    }

    /// A number that begins with a whole byte.
    #[inline]
    pub(super) fn whole(&mut self) -> Result<u64, HeadError> {
        let first = self.byte()?;
        self.number(first, 8)
    }

    fn long(&mut self, most: u64) -> Result<u64, HeadError> {
        let mut rest = 0u64;
        for place in 0..MAX_MORE {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if place == MAX_MORE - 1 && part > 1 {
                break;
            }
            rest |= part << (7 * place);
            if byte & 0x80 == 0 {
                if byte == 0 && place > 0 {
                    break;
                }
                return rest.checked_add(most).ok_or(HeadError::Number);
            }
        }
        Err(HeadError::Number)
    }
}
