//! Bytes in hexadecimal.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

/// Two lower-case digits for each byte.
pub fn encode(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// The reverse of [`encode`]; upper case is accepted. `None` for another length or another character.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    // `decode_mut` panics when the lengths do not match.
    let is_whole = text.len() == N * 2
        && HEXLOWER_PERMISSIVE
            .decode_mut(text.as_bytes(), &mut bytes)
            .is_ok();
    is_whole.then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn bytes_are_read_again_and_nothing_else_is() {
        assert_eq!(encode(&[0, 0x0a, 0xff]), "000aff");
        assert_eq!(decode("000AfF"), Some([0, 0x0a, 0xff]));
        for text in ["", "000aF", "000aff0", "000agg", "+0+a+f", "é00a"] {
            assert_eq!(decode::<3>(text), None, "{text}");
        }
    }
}
