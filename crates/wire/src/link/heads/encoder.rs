use super::{HeadLimits, number};

/// Turns heads into blocks.
#[derive(Debug)]
pub struct Encoder {
    limits: HeadLimits,
}

impl Encoder {
    /// An encoder for a decoder with these limits.
    #[must_use]
    pub fn new(limits: &HeadLimits) -> Self {
        Self { limits: *limits }
    }

    /// Appends the header block for `head` to `out`: a whole HTTP/1.1 head, its empty line
    /// included, called at `destination` (empty for responses), in the name of `scope`. The block
    /// has to be sent, and in this order.
    ///
    /// A head that a parser has not accepted, or that is longer than the limit, is refused at the
    /// other end.
    pub fn encode(&mut self, _scope: u32, destination: &[u8], head: &[u8], out: &mut Vec<u8>) {
        let _ = self.limits;
        out.push(super::decoder::LITERAL);
        number::put(out, 0, 8, destination.len() as u64);
        out.extend_from_slice(destination);
        out.extend_from_slice(head);
    }
}
