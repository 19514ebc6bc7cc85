use proptest::prelude::*;

use super::*;

#[test]
fn alphabets_have_no_character_twice_and_none_that_ends_a_target() {
    for alphabet in [TOKEN, PATH] {
        let places = places(alphabet);
        for (at, &byte) in alphabet.iter().enumerate() {
            assert_eq!(usize::from(places[usize::from(byte)]), at);
            assert!(byte.is_ascii_graphic());
        }
    }
}

#[test]
fn other_spellings_are_left_alone() {
    assert!(pack_uuid(b"123e4567-e89b-12d3-a456-426614174000").is_some());
    assert!(pack_uuid(b"123E4567-e89b-12d3-a456-426614174000").is_none());
    assert!(pack_uuid(b"123e4567-e89b-12d3-a456+426614174000").is_none());
    assert!(pack_uuid(b"123e4567e89b12d3a456426614174000").is_none());
    let trace = *b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    assert!(pack_trace(&trace).is_some());
    for at in 0..trace.len() {
        let mut other = trace;
        other[at] = b'G';
        assert!(pack_trace(&other).is_none(), "{at}");
    }
    for text in ["", "00", "01", "+1", "1 ", "18446744073709551616", "a"] {
        assert_eq!(parse_decimal(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn what_fills_up_is_zero() {
    let mut out = Vec::new();
    assert!(!unpack_six(Alphabet::Token, &[0, 1], 2, &mut out));
    assert!(!unpack_six(Alphabet::Token, &[0x01], 1, &mut out));
    assert!(unpack_six(Alphabet::Token, &[0x04], 1, &mut out));
}

proptest! {
    #[test]
    fn packed_and_unpacked(
        bytes in any::<[u8; TRACE_BYTES]>(),
        number in any::<u64>(),
        text in "[0-9A-Za-z_-]{0,40}",
    ) {
        let uuid = bytes.first_chunk().unwrap();
        prop_assert_eq!(pack_uuid(&unpack_uuid(uuid)), Some(*uuid));
        prop_assert_eq!(pack_trace(&unpack_trace(&bytes)), Some(bytes));
        let mut decimal = Vec::new();
        put_decimal(number, &mut decimal);
        prop_assert_eq!(String::from_utf8(decimal.clone()).unwrap(), number.to_string());
        prop_assert_eq!(parse_decimal(&decimal), Some(number));
        prop_assert!(Classes::of(text.as_bytes()).has(Classes::TOKEN));
        let (mut packed, mut out) = (Vec::new(), Vec::new());
        put_six(Alphabet::Token, text.as_bytes(), &mut packed);
        prop_assert_eq!(packed.len(), six_bytes(text.len()));
        prop_assert!(unpack_six(Alphabet::Token, &packed, text.len(), &mut out));
        prop_assert_eq!(out, text.as_bytes());
    }

    #[test]
    fn any_bytes_are_some_number_of_characters(bytes in any::<Vec<u8>>()) {
        let n = bytes.len() * 8 / 6;
        let (mut out, mut packed) = (Vec::new(), Vec::new());
        if six_bytes(n) == bytes.len() && unpack_six(Alphabet::Path, &bytes, n, &mut out) {
            prop_assert!(Classes::of(&out).has(Classes::PATH));
            put_six(Alphabet::Path, &out, &mut packed);
            prop_assert_eq!(packed, bytes);
        }
    }
}
