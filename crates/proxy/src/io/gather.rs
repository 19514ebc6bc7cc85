//! Copies or gathers the bytes of chains for sending.

use std::io::IoSlice;

use heddle_wire::buffer::{Chain, Pool};

use super::{SideError, SideResult};

/// Up to this many bytes, copying them into one buffer is cheaper than a vectored write.
pub(crate) const COPY_BYTES: usize = 4096;
/// Most blocks in one vectored call. Linux accepts 1,024, but more than this brings no gain.
pub(super) const SLICES: usize = 32;

/// Appends bytes to an outbox.
///
/// # Errors
/// [`SideError::Memory`] if the pool is at its limit.
pub(crate) fn keep(outbox: &mut Chain, pool: &Pool, bytes: &[u8]) -> SideResult<()> {
    let kept = outbox.extend_from_slice(pool, bytes);
    kept.map_err(|_| SideError::Memory)
}

/// Appends the first `bytes` bytes of a chain.
pub(super) fn append(out: &mut Vec<u8>, from: &Chain, bytes: usize) {
    let mut left = bytes;
    for run in from.runs() {
        let take = run.len().min(left);
        out.extend_from_slice(&run[..take]);
        left -= take;
        if left == 0 {
            break;
        }
    }
}

/// Fills `out` with the first `bytes` bytes of a chain; returns how many entries were set.
pub(super) fn limited<'a>(from: &'a Chain, out: &mut [IoSlice<'a>], bytes: usize) -> usize {
    let mut left = bytes;
    let mut count = 0;
    for (slot, run) in out.iter_mut().zip(from.runs()) {
        let take = run.len().min(left);
        *slot = IoSlice::new(&run[..take]);
        left -= take;
        count += 1;
        if left == 0 {
            break;
        }
    }
    count
}
