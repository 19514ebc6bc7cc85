//! An accepted preface encodes to the same bytes, and bytes after it change nothing.

use heddle_wire::preface::{MAX_PREFACE_BYTES, Preface};

/// Checks one input.
pub fn check(data: &[u8]) {
    let Ok(Some((preface, length))) = Preface::parse(data) else {
        return;
    };
    assert!(length <= MAX_PREFACE_BYTES);
    let mut written = Vec::new();
    assert!(preface.write_to(&mut written).is_ok());
    assert_eq!(written, data[..length]);
    assert_eq!(Preface::parse(&written), Ok(Some((preface, length))));
    assert_eq!(Preface::parse(&data[..length]), Ok(Some((preface, length))));
}
