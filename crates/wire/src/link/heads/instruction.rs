//! The instructions at the start of blocks, and the pieces of definitions.

use super::number;

/// Uses the template whose id is in the other bits; the values of its slots follow.
pub(super) const USE: u8 = 0x80;
pub(super) const USE_BITS: u32 = 7;
/// Defines and uses the template whose id is in the other bits.
pub(super) const DEFINE: u8 = 0x40;
pub(super) const DEFINE_BITS: u32 = 6;
/// A literal head follows.
pub(super) const LITERAL: u8 = 0x20;
/// Drops the template whose id is in the other bits; another instruction follows.
pub(super) const DROP: u8 = 0x10;
pub(super) const DROP_MASK: u8 = 0xf0;
pub(super) const DROP_BITS: u32 = 4;

/// The low bits of a piece of a definition: its type. The other bits are its number.
pub(super) const PIECE_BITS: u32 = 2;
pub(super) const PIECE_MASK: u64 = 3;
/// Text of this many bytes follows.
pub(super) const TEXT: u64 = 0;
/// Copies this many bytes of the base, from the offset that follows.
pub(super) const COPY: u64 = 1;
/// A slot of the kind with this number.
pub(super) const SLOT: u64 = 2;
/// The end of the definition.
pub(super) const END: u64 = 3;

/// Appends a piece of a definition.
pub(super) fn put_piece(out: &mut Vec<u8>, what: u64, number: u64) {
    number::put(out, 0, 8, number << PIECE_BITS | what);
}
