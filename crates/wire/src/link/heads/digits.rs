//! Packs values of few different characters: hexadecimal, decimal, and two alphabets of 64 characters.

/// `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` in lower case (RFC 9562 section 4).
pub(super) const UUID_LENGTH: usize = 36;
/// `00-`, the ids of trace and span, and flags (W3C Trace Context, level 1).
pub(super) const TRACE_LENGTH: usize = 55;
/// The packed length of a trace: 16, 8 and 1 bytes.
pub(super) const TRACE_BYTES: usize = 25;

/// The characters of base64url (RFC 4648 section 5), which most tokens consist of.
pub(super) const TOKEN: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// The characters of most paths, argument lists, times and entity tags.
pub(super) const PATH: &[u8; 64] =
    b"abcdefghijklmnopqrstuvwxyz0123456789/-._~?=&%+:,;@!$*()ABCDEFTZ\"";

/// Marks a byte that is not in the alphabet.
const NONE: u8 = 0xff;

const fn places<const N: usize>(alphabet: &[u8; N]) -> [u8; 256] {
    let mut places = [NONE; 256];
    let mut at = 0;
    while at < N {
        places[alphabet[at] as usize] = at as u8;
        at += 1;
    }
    places
}

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";
const HEX: [u8; 256] = places(HEX_DIGITS);
const TOKEN_PLACES: [u8; 256] = places(TOKEN);
const PATH_PLACES: [u8; 256] = places(PATH);
/// The two digits of each byte.
const HEX_PAIRS: [[u8; 2]; 256] = {
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [HEX_DIGITS[byte >> 4], HEX_DIGITS[byte & 15]];
        byte += 1;
    }
    pairs
};

/// The set of classes that all bytes of a value belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Classes(u8);

impl Classes {
    pub(super) const HEX: Self = Self(1);
    pub(super) const TOKEN: Self = Self(2);
    pub(super) const PATH: Self = Self(4);

    /// The classes to which every byte of `value` belongs.
    #[inline]
    pub(super) fn of(value: &[u8]) -> Self {
        let mut all = 7;
        for &byte in value {
            all &= CLASSES[byte as usize];
            if all == 0 {
                break;
            }
        }
        Self(all)
    }

    #[inline]
    pub(super) fn has(self, class: Self) -> bool {
        self.0 & class.0 != 0
    }
}

const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = (HEX[byte] != NONE) as u8
            | ((TOKEN_PLACES[byte] != NONE) as u8) << 1
            | ((PATH_PLACES[byte] != NONE) as u8) << 2;
        byte += 1;
    }
    classes
};

/// Packs pairs of lower-case digits into `out`, which has half the length. `false` when other characters are among
/// them; the content of `out` is then undefined.
#[inline]
pub(super) fn pack_hex(digits: &[u8], out: &mut [u8]) -> bool {
    debug_assert_eq!(digits.len(), 2 * out.len());
    let mut all = 0;
    for (pair, byte) in digits.chunks_exact(2).zip(out) {
        let (high, low) = (HEX[pair[0] as usize], HEX[pair[1] as usize]);
        all |= high | low;
        *byte = high << 4 | low & 15;
    }
    all < 16
}

/// Writes the digits of `bytes` into `out`, which has twice the length.
#[inline]
pub(super) fn unpack_hex(bytes: &[u8], out: &mut [u8]) {
    debug_assert_eq!(out.len(), 2 * bytes.len());
    for (pair, &byte) in out.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&HEX_PAIRS[byte as usize]);
    }
}

/// The groups of a UUID: start in the text, start in the bytes, and length in bytes.
const UUID_GROUPS: [(usize, usize, usize); 5] =
    [(0, 0, 4), (9, 4, 2), (14, 6, 2), (19, 8, 2), (24, 10, 6)];

#[inline]
pub(super) fn pack_uuid(text: &[u8]) -> Option<[u8; 16]> {
    let text: &[u8; UUID_LENGTH] = text.try_into().ok()?;
    let mut out = [0; 16];
    let mut whole = [text[8], text[13], text[18], text[23]] == *b"----";
    for (from, to, bytes) in UUID_GROUPS {
        whole &= pack_hex(&text[from..from + 2 * bytes], &mut out[to..to + bytes]);
    }
    whole.then_some(out)
}

#[inline]
pub(super) fn unpack_uuid(bytes: &[u8; 16]) -> [u8; UUID_LENGTH] {
    let mut text = [b'-'; UUID_LENGTH];
    for (to, from, length) in UUID_GROUPS {
        unpack_hex(&bytes[from..from + length], &mut text[to..to + 2 * length]);
    }
    text
}

#[inline]
pub(super) fn pack_trace(text: &[u8]) -> Option<[u8; TRACE_BYTES]> {
    let text: &[u8; TRACE_LENGTH] = text.try_into().ok()?;
    let mut out = [0; TRACE_BYTES];
    let whole = text.starts_with(b"00-")
        & (text[35] == b'-')
        & (text[52] == b'-')
        & pack_hex(&text[3..35], &mut out[..16])
        & pack_hex(&text[36..52], &mut out[16..24])
        & pack_hex(&text[53..], &mut out[24..]);
    whole.then_some(out)
}

#[inline]
pub(super) fn unpack_trace(bytes: &[u8; TRACE_BYTES]) -> [u8; TRACE_LENGTH] {
    let mut text = [b'-'; TRACE_LENGTH];
    text[..2].copy_from_slice(b"00");
    unpack_hex(&bytes[..16], &mut text[3..35]);
    unpack_hex(&bytes[16..24], &mut text[36..52]);
    unpack_hex(&bytes[24..], &mut text[53..]);
    text
}

/// Parses a decimal number in its only canonical form.
#[inline]
pub(super) fn parse_decimal(text: &[u8]) -> Option<u64> {
    let (&first, _) = text.split_first()?;
    if text.len() > 20 || (first == b'0' && text.len() > 1) {
        return None;
    }
    text.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10)
            .then_some(sum)?
            .checked_mul(10)?
            .checked_add(u64::from(digit))
    })
}

/// Appends `number` in decimal.
#[inline]
pub(super) fn put_decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut text = [0; 20];
    let mut start = text.len();
    loop {
        start -= 1;
        text[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&text[start..]);
}

/// One of the alphabets of 64 characters.
#[derive(Debug, Clone, Copy)]
pub(super) enum Alphabet {
    Token,
    Path,
}

/// Number of bytes for `n` packed characters.
#[inline]
pub(super) fn six_bytes(n: usize) -> usize {
    (n * 6).div_ceil(8)
}

/// Appends `text`, all in `alphabet`, as six bits per character, high bits first, padded with zeros.
pub(super) fn put_six(alphabet: Alphabet, text: &[u8], out: &mut Vec<u8>) {
    let places = match alphabet {
        Alphabet::Token => &TOKEN_PLACES,
        Alphabet::Path => &PATH_PLACES,
    };
    for four in text.chunks(4) {
        let mut bits = 0u32;
        for &byte in four {
            bits = bits << 6 | u32::from(places[byte as usize] & 63);
        }
        bits <<= 6 * (4 - four.len()) + 8;
        out.extend_from_slice(&bits.to_be_bytes()[..six_bytes(four.len())]);
    }
}

/// Appends the `n` characters packed in `bytes`, which has the length from [`six_bytes`]. `false` when the padding is
/// not zero.
pub(super) fn unpack_six(alphabet: Alphabet, bytes: &[u8], n: usize, out: &mut Vec<u8>) -> bool {
    debug_assert_eq!(bytes.len(), six_bytes(n));
    let characters = match alphabet {
        Alphabet::Token => TOKEN,
        Alphabet::Path => PATH,
    };
    let mut left = n;
    let mut filler = 0;
    for three in bytes.chunks(3) {
        let mut word = [0; 4];
        word[..three.len()].copy_from_slice(three);
        let bits = u32::from_be_bytes(word);
        let four = [26, 20, 14, 8].map(|shift| characters[(bits >> shift & 63) as usize]);
        let taken = left.min(4);
        out.extend_from_slice(&four[..taken]);
        left -= taken;
        filler = bits.checked_shl(6 * taken as u32).unwrap_or(0);
    }
    filler == 0
}

#[cfg(test)]
mod tests;
