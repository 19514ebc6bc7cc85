//! The length of the header block part in a MESSAGE: one byte up to 254, else 255 followed by the excess in groups of
//! seven bits, lowest first (RFC 7541 section 5.1 with a prefix of 8 bits).

use super::super::LinkError;

/// Limit on the encoded length, in bytes.
pub(super) const MAX_BYTES: usize = 4;

/// Encodes `length`; returns the bytes and their number.
pub(super) fn put(length: u16) -> ([u8; MAX_BYTES], usize) {
    let mut bytes = [0; MAX_BYTES];
    if length < 255 {
        bytes[0] = length as u8;
        return (bytes, 1);
    }
    bytes[0] = 255;
    let mut rest = length - 255;
    let mut at = 1;
    while rest >= 0x80 {
        bytes[at] = 0x80 | (rest & 0x7f) as u8;
        rest >>= 7;
        at += 1;
    }
    bytes[at] = rest as u8;
    (bytes, at + 1)
}

/// Splits a MESSAGE's payload into the part of a header block and the bytes of the body.
///
/// # Errors
/// [`LinkError`] when the length is not in its shortest form, or exceeds the payload.
pub(super) fn split(payload: &[u8]) -> Result<(&[u8], &[u8]), LinkError> {
    let cut = LinkError::Rule("a header block exceeds its frame");
    let (&first, mut rest) = payload.split_first().ok_or(cut)?;
    let mut length = usize::from(first);
    if first == 255 {
        for place in 0.. {
            let (&byte, more) = rest.split_first().ok_or(cut)?;
            rest = more;
            length += usize::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                if byte == 0 && place > 0 {
                    return Err(LinkError::Rule("a length is not in its shortest form"));
                }
                break;
            }
            if place + 2 == MAX_BYTES {
                return Err(LinkError::Rule("a length is not in its shortest form"));
            }
        }
    }
    rest.split_at_checked(length).ok_or(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_read_as_it_was_written() {
        let long = [16_382, 16_383, 16_384, 16_638, 16_639, 16_640, u16::MAX];
        for length in (0..1000).chain(long) {
            let (bytes, used) = put(length);
            let mut payload = bytes[..used].to_vec();
            if length < 600 {
                assert!(length == 0 || split(&payload).is_err());
            }
            payload.resize(used + usize::from(length) + 3, 7);
            let (block, body) = split(&payload).expect("what was written");
            assert_eq!((block.len(), body), (usize::from(length), &[7; 3][..]));
        }
    }

    #[test]
    fn lengths_have_one_form() {
        for bytes in [
            &[255, 0x80, 0][..],
            &[255, 0x80, 0x80, 0x80, 1],
            &[255],
            &[],
        ] {
            assert!(split(bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(split(&[0]), Ok((&[][..], &[][..])));
    }
}
