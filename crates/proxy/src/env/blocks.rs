//! The buffer blocks for bodies and opaque streams.

use heddle_wire::buffer::Pool;

use super::Env;

/// The buffer blocks for bodies and opaque streams.
pub(crate) struct Blocks<'a> {
    /// For short bodies.
    pub(crate) usual: &'a Pool,
    /// For bodies that fill a normal block: fewer and larger pieces are cheaper to move.
    pub(crate) wide: &'a Pool,
    /// Limit of buffered bytes for one direction of one message.
    pub(crate) max_window: usize,
}

impl Env {
    /// The buffer blocks for bodies and opaque streams.
    pub(crate) fn stream_blocks(&self) -> Blocks<'_> {
        Blocks {
            usual: &self.pool,
            wide: &self.wide_pool,
            max_window: self.settings.bounds.stream_window_bytes,
        }
    }
}
