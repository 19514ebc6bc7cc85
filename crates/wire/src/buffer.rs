//! Pooled, reference-counted, chained blocks of bytes.
//!
//! A [`Chain`] is a ring of fixed-size blocks that grows at one end and shrinks at the other. It
//! is the `BufferLinkList` of the one-proxy-per-node literature, with three properties that a
//! growing `Vec<u8>` per connection does not have:
//!
//! * **Growing never copies.** A message larger than its block continues in the next block.
//! * **An idle connection owns nothing.** Blocks return to the [`Pool`] as they empty, so ten thousand idle connections
//!   hold no blocks at all.
//! * **One limit for all connections.** The pool has a maximum. A connection that finds it reached stops reading until
//!   others have written: back-pressure without a policy.
//!
//! The block size is the pool's setting. This is the cost to move 64 KiB through a chain, at 16 blocks or 16 KiB per
//! read, without the copies themselves (`examples/instructions.rs`):
//!
//! | block size in bytes | 64 | 1,024 | 4,096 | 8,192 | 16,384 | 32,768 |
//! |---|---|---|---|---|---|---|
//! | instructions | 255,936 | 15,996 | 4,839 | 3,049 | 2,142 | 1,866 |
//!
//! At 64 bytes, the default in the literature, it also takes 64 reads instead of 4. Beyond 8 KiB little is gained, and
//! a connection with one small message in flight holds more memory: hence [`DEFAULT_BLOCK_SIZE`].
//!
//! A pool and its chains belong to one Worker thread: reference counts are not atomic and nothing is locked, so neither
//! type is `Send`.

mod chain;
mod pool;

pub use chain::Chain;
pub use pool::{BlockRef, Pool};

/// Default block size of a Worker's pool, in bytes.
pub const DEFAULT_BLOCK_SIZE: usize = 8 * 1024;

/// The pool has reached its limit; nothing was written.
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
