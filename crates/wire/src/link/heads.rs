//! HTTP heads on a link, encoded as header blocks.
//!
//! An [`Encoder`] turns heads into blocks; the [`Decoder`] at the other end turns the blocks into identical heads, byte
//! for byte. The decoder must get each block once, in the encoder's order. `docs/link-heads.md` specifies every byte.
//!
//! A template is a destination and a head with slots. Its life:
//!
//! ```text
//!               DEFINE, with what the encoder chose to stay
//!                 │                                     ┌──── USE: values, some are remembered
//!                 ▼                                     │
//!   nothing ──▶ checked once, held by both ends ◀───────┘
//!                 │        ▲
//!                 │        └─ DEFINE under the same id: a value differed where none had a slot
//!                 ▼
//!               DROP, or DEFINE of another one: not used for long, or no room
//! ```
//!
//! The encoder decides all of this, within the decoder's limits, and includes the instructions in the block that needs
//! them. So both ends hold the same templates after each block.
//!
//! ```
//! use heddle_wire::link::heads::{Decoder, Encoder, HeadLimits};
//!
//! let mut encoder = Encoder::new(&HeadLimits::DEFAULT);
//! let mut decoder = Decoder::new(&HeadLimits::DEFAULT);
//! let (mut block, mut head) = (Vec::new(), Vec::new());
//! for number in 1..=3 {
//!     let sent = format!("GET /books/{number} HTTP/1.1\r\nHost: shop\r\nAccept: */*\r\n\r\n");
//!     block.clear();
//!     encoder.encode(1, b"where", sent.as_bytes(), &mut block);
//!     head.clear();
//!     let decoded = decoder.decode(&block, &mut head)?;
//!     assert_eq!(decoded.destination, b"where");
//!     assert_eq!(head, sent.as_bytes());
//! }
//! assert_eq!(block.len(), 2);
//! # Ok::<(), heddle_wire::link::heads::HeadError>(())
//! ```

mod check;
mod date;
mod decoder;
mod define;
mod digits;
mod encoder;
mod instruction;
mod learn;
mod lines;
mod memory;
mod number;
mod slot;
mod table;
mod template;
mod value;

pub use decoder::{Decoded, Decoder};
pub use encoder::{Encoder, NO_SCOPE};

/// The limits of a decoder, which its encoder obeys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Number of templates. 0: all heads are sent as literals.
    pub templates: u16,
    /// Cost of one template, in bytes.
    pub template_bytes: u32,
    /// Cost of all templates together, in bytes.
    pub all_bytes: u32,
    /// Limit on a head, in bytes.
    pub max_head_bytes: u32,
}

impl HeadLimits {
    /// 256 templates of at most 16 KiB each and 1 MiB together, heads of at most 64 KiB.
    pub const DEFAULT: Self = Self {
        templates: 256,
        template_bytes: 16 * 1024,
        all_bytes: 1024 * 1024,
        max_head_bytes: 64 * 1024,
    };
}

/// A malformed block. The session must end: the decoder may be out of step with its encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadError {
    /// The block ends too early.
    Cut,
    /// A number is not in its shortest form, or exceeds 64 bits.
    Number,
    /// The block begins with an unknown instruction.
    Instruction,
    /// Bytes are left over at the end of the block.
    Over,
    /// There is no template with this id, or this id must not be used yet.
    NoTemplate,
    /// A template, or all of them, would exceed the cost limit.
    Full,
    /// A definition is malformed.
    Template(&'static str),
    /// A slot's value is malformed.
    Value(&'static str),
    /// The head exceeds the limit.
    TooLong,
    /// The head does not have the form of an HTTP head.
    Head(&'static str),
}

impl std::fmt::Display for HeadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cut => f.write_str("a header block is cut"),
            Self::Number => f.write_str("a number in a header block is malformed"),
            Self::Instruction => f.write_str("a header block has an unknown instruction"),
            Self::Over => f.write_str("a header block has bytes left over"),
            Self::NoTemplate => f.write_str("a header block names a template that is not there"),
            Self::Full => f.write_str("a header block's template costs more than agreed"),
            Self::Template(why) => write!(f, "a header block's template is malformed: {why}"),
            Self::Value(why) => write!(f, "a header block's value is malformed: {why}"),
            Self::TooLong => f.write_str("a header block's head is longer than agreed"),
            Self::Head(why) => write!(f, "a header block's head is malformed: {why}"),
        }
    }
}

impl std::error::Error for HeadError {}

#[cfg(test)]
mod tests;
