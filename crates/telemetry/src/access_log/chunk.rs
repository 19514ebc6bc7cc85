//! What goes from sinks to the writer.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use crate::WorkerStats;

/// Buffers of one sink: one is written to while the others are on their way to the disk.
pub(super) const BUFFERS: usize = 4;

/// A buffer on its way to the disk, with the way back.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    /// Whose lines they are, to be counted there if they are lost.
    pub(super) stats: Arc<WorkerStats>,
    pub(super) give_back: SyncSender<Vec<u8>>,
}

#[derive(Debug)]
pub(super) enum Message {
    Write(Chunk),
    /// Look at the reopen flag.
    Wake,
    /// Say when everything before this is written.
    Barrier(SyncSender<()>),
}
