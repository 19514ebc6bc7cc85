//! For any header blocks, the decoder's state stays within its limits, and every decoded head is also one for a parser
//! that only splits at CR LF.
//!
//! The first byte chooses the limits. Blocks follow, each after its length in two bytes. A session would end after an
//! error; here decoding continues, to cover more code.

use crate::naive::{assert_head, head_limits};
use heddle_wire::link::heads::Decoder;

/// Checks one input.
pub fn check(data: &[u8]) {
    let Some((&choice, mut rest)) = data.split_first() else {
        return;
    };
    let limits = head_limits(choice);
    let mut decoder = Decoder::new(&limits);
    let mut head = Vec::new();
    while let Some((&length, more)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(length) & 0x3ff);
        let block;
        (block, rest) = more.split_at(length.min(more.len()));
        head.clear();
        if let Ok(decoded) = decoder.decode(block, &mut head) {
            assert!(decoded.destination.len() <= limits.all_bytes as usize + block.len());
            assert!(head.len() <= limits.max_head_bytes as usize);
            assert_head(&head);
        } else {
            assert!(head.is_empty());
        }
        assert!(decoder.bytes() <= limits.all_bytes);
        assert!(decoder.templates() <= limits.templates.into());
    }
}
