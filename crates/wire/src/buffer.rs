//! Pooled, reference-counted, chained blocks of bytes.
//!
//! A [`Chain`] is a ring of fixed-size blocks that grows at one end and shrinks at the other. It
//! is the `BufferLinkList` of the one-proxy-per-node literature, with three properties that a
//! growing `Vec<u8>` per connection does not have:
//!
//! * **Growing never copies.** A message that outgrows its block continues in the next one.
//! * **An idle connection owns nothing.** Blocks return to the [`Pool`] as they empty, so the
//!   memory of ten thousand idle connections is that of none.
//! * **One bound for everybody.** The pool has a maximum, and a connection that finds it reached
//!   stops reading until others have written: back-pressure without a policy.
//!
//! The block size is the pool's setting. `examples/instructions.rs` counts what a size costs: at
//! 64 bytes, the literature's default, an 8 KiB read needs 128 blocks and as many slices in one
//! `readv`; from 4 KiB on the cost per byte no longer changes. [`DEFAULT_BLOCK_SIZE`] is the
//! smallest size at which a typical head and body share one block.
//!
//! A pool and its chains belong to one worker thread: reference counts are not atomic and nothing
//! is locked, which is why neither is `Send`.

mod chain;
mod pool;

pub use chain::Chain;
pub use pool::{BlockRef, Pool};

/// Block size in bytes that a worker uses unless configured otherwise.
pub const DEFAULT_BLOCK_SIZE: usize = 8 * 1024;

/// The pool has reached its bound; nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the buffer pool has reached its bound")
    }
}

impl std::error::Error for Full {}

#[cfg(test)]
mod tests;
