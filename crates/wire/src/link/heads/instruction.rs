//! What blocks begin with, and what definitions consist of.

use super::number;

/// A use of a template, whose id is in the other bits; then the values of its slots.
pub(super) const USE: u8 = 0x80;
pub(super) const USE_BITS: u32 = 7;
/// A definition of the template whose id is in the other bits, and a use of it.
pub(super) const DEFINE: u8 = 0x40;
pub(super) const DEFINE_BITS: u32 = 6;
/// A head as it is.
pub(super) const LITERAL: u8 = 0x20;
/// The template whose id is in the other bits is dropped; the block goes on.
pub(super) const DROP: u8 = 0x10;
pub(super) const DROP_MASK: u8 = 0xf0;
pub(super) const DROP_BITS: u32 = 4;

/// Low bits of a piece of a definition, which say what it is.
pub(super) const PIECE_BITS: u32 = 2;
pub(super) const PIECE_MASK: u64 = 3;
/// So many bytes of text follow.
pub(super) const TEXT: u64 = 0;
/// So many bytes of the base, from the offset that follows.
pub(super) const COPY: u64 = 1;
/// A slot of that kind.
pub(super) const SLOT: u64 = 2;
/// There are no more.
pub(super) const END: u64 = 3;

/// Appends a piece.
pub(super) fn put_piece(out: &mut Vec<u8>, what: u64, number: u64) {
    number::put(out, 0, 8, number << PIECE_BITS | what);
}
