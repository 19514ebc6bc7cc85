//! Bytes in hexadecimal.

use std::fmt::Write as _;

/// Two digits for each byte, in lower case.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing into a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The opposite of [`encode`]; upper case is taken too. `None` for any other length or character.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != N * 2 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?;
    }
    Some(bytes)
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
