//! Where what passes through finds its blocks.

use heddle_wire::buffer::Pool;

use super::Env;

/// Where bodies and opaque streams find their blocks.
pub(crate) struct Blocks<'a> {
    /// For what is short.
    pub(crate) usual: &'a Pool,
    /// For what fills a usual block: fewer and larger pieces are cheaper to move.
    pub(crate) wide: &'a Pool,
    /// Bytes that one direction of one message may hold.
    pub(crate) max_window: usize,
}

impl Env {
    /// Where bodies and opaque streams find their blocks.
    pub(crate) fn stream_blocks(&self) -> Blocks<'_> {
        Blocks {
            usual: &self.pool,
            wide: &self.wide_pool,
            max_window: self.settings.bounds.stream_window_bytes,
        }
    }
}
