//! HTTP heads on a link, as header blocks.
//!
//! An [`Encoder`] turns heads into blocks, the [`Decoder`] at the other end turns the blocks into
//! the same heads again, byte for byte. Blocks come to the decoder in the order in which they were
//! made, each of them once.

mod check;
mod decoder;
mod encoder;
#[allow(dead_code, reason = "for what templates need")]
mod number;

pub use decoder::{Decoded, Decoder};
pub use encoder::Encoder;

/// What a decoder takes, and an encoder keeps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Templates at a time. 0: heads are sent as they are.
    pub templates: u16,
    /// What one of them may cost, in bytes.
    pub template_bytes: u32,
    /// What all of them may cost together, in bytes.
    pub all_bytes: u32,
    /// Longest head, in bytes.
    pub max_head_bytes: u32,
}

impl HeadLimits {
    /// 256 templates of 16 KiB and 1 MiB together, heads of 64 KiB.
    pub const DEFAULT: Self = Self {
        templates: 256,
        template_bytes: 16 * 1024,
        all_bytes: 1024 * 1024,
        max_head_bytes: 64 * 1024,
    };
}

/// A block that is none. The session ends: its decoder may be out of step with the encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadError {
    /// The block ends too early.
    Cut,
    /// A number is longer than it needs to be, or than 64 bits.
    Number,
    /// The block begins with what this version does not know.
    Instruction,
    /// The head is longer than agreed.
    TooLong,
    /// The head has not the form of one.
    Head(&'static str),
}

impl std::fmt::Display for HeadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cut => f.write_str("a header block is cut"),
            Self::Number => f.write_str("a number in a header block is malformed"),
            Self::Instruction => f.write_str("a header block has an unknown instruction"),
            Self::TooLong => f.write_str("a header block's head is longer than agreed"),
            Self::Head(why) => write!(f, "a header block's head is malformed: {why}"),
        }
    }
}

impl std::error::Error for HeadError {}

#[cfg(test)]
mod tests;
