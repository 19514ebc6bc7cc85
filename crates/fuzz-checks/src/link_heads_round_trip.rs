//! Any heads that are sent arrive byte for byte at their destinations, and encoder and decoder hold the same state,
//! within the limits.
//!
//! The first byte chooses the limits. Heads follow, each up to an empty line, after a byte that chooses the workload
//! and the destination.

use crate::naive::head_limits;
use heddle_wire::link::heads::{Decoder, Encoder};

const DESTINATIONS: [&[u8]; 4] = [b"", b"a", b"\0\xff", b"elsewhere"];

/// Checks one input.
pub fn check(data: &[u8]) {
    let Some((&choice, mut rest)) = data.split_first() else {
        return;
    };
    let limits = head_limits(choice);
    let mut encoder = Encoder::new(&limits);
    let mut decoder = Decoder::new(&limits);
    let (mut block, mut out) = (Vec::new(), Vec::new());
    while let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") {
        let (whose, head);
        ((whose, head), rest) = {
            let (head, rest) = rest.split_at(end + 4);
            ((head[0], &head[1..]), rest)
        };
        if !is_head(head) || head.len() > limits.max_head_bytes as usize {
            continue;
        }
        if whose & 0xf0 == 0xf0 {
            encoder.age();
        }
        let destination = DESTINATIONS[usize::from(whose & 3)];
        block.clear();
        out.clear();
        encoder.encode(u32::from(whose >> 2 & 1), destination, head, &mut block);
        let decoded = decoder.decode(&block, &mut out).expect("what was encoded");
        assert_eq!(decoded.destination, destination);
        assert_eq!(out, head);
        assert_eq!(encoder.bytes(), decoder.bytes());
        assert_eq!(encoder.templates(), decoder.templates());
        assert!(decoder.bytes() <= limits.all_bytes);
        assert!(decoder.templates() <= limits.templates.into());
    }
}

/// Whether a decoder accepts the head unchanged.
fn is_head(head: &[u8]) -> bool {
    let limits = head_limits(0);
    let block = [&[0x20, 0], head].concat();
    let mut decoder = Decoder::new(&limits);
    decoder.decode(&block, &mut Vec::new()).is_ok()
}
