//! The classification of a connection's first bytes does not change when more bytes arrive, and every head that the
//! parser accepts as a request is classified as one.

use heddle_wire::http1::{Beginning, Limits, RequestHead, beginning};

/// Checks one input.
pub fn check(data: &[u8]) {
    let mut decided = None;
    for length in 0..=data.len() {
        let now = beginning(&data[..length]);
        if let Some(before) = decided {
            assert_eq!(now, before, "after {length} bytes");
        } else if now != Beginning::Unclear {
            decided = Some(now);
        }
    }
    let mut head = RequestHead::new();
    if let Ok(Some(_)) = head.parse(data, &Limits::default()) {
        assert_eq!(beginning(data), Beginning::Request);
    }
}
