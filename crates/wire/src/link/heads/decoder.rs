use super::number::Reader;
use super::{HeadError, HeadLimits, check};

/// First byte of a block with a head as it is.
pub(super) const LITERAL: u8 = 0x20;

/// Turns blocks into heads.
#[derive(Debug)]
pub struct Decoder {
    limits: HeadLimits,
}

/// What a block says besides the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// Where the head is called; empty for responses.
    pub destination: &'a [u8],
    /// Stands for this destination and no other as long as the decoder lives. `None` when the
    /// destination is not remembered.
    pub destination_id: Option<u32>,
}

impl Decoder {
    /// A decoder that takes what is within `limits`.
    #[must_use]
    pub fn new(limits: &HeadLimits) -> Self {
        Self { limits: *limits }
    }

    /// Appends the head that `block` stands for to `head`.
    ///
    /// # Errors
    /// [`HeadError`] when the block is malformed or beyond the limits; `head` is as it was then,
    /// and the session is over.
    pub fn decode<'a>(
        &'a mut self,
        block: &'a [u8],
        head: &mut Vec<u8>,
    ) -> Result<Decoded<'a>, HeadError> {
        let mut block = Reader::new(block);
        if block.byte()? != LITERAL {
            return Err(HeadError::Instruction);
        }
        let length = block.whole()?;
        let destination = block.take(length)?;
        let text = block.rest();
        if text.len() > self.limits.max_head_bytes as usize {
            return Err(HeadError::TooLong);
        }
        check::head(text)?;
        head.extend_from_slice(text);
        Ok(Decoded {
            destination,
            destination_id: None,
        })
    }
}
