//! Messages from sinks to the writer.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use crate::WorkerStats;

/// Buffers of one sink: one is filled while the others are on their way to the disk.
pub(super) const BUFFERS: usize = 4;

/// A full buffer for the writer, with the sender that returns it to its sink.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    /// The metrics of the Worker that wrote the lines, to count those that are lost.
    pub(super) stats: Arc<WorkerStats>,
    pub(super) give_back: SyncSender<Vec<u8>>,
}

#[derive(Debug)]
pub(super) enum Message {
    Write(Chunk),
    /// Wakes the writer, so that it checks the reopen flag.
    Wake,
    /// The writer sends on it once all earlier messages are written.
    Barrier(SyncSender<()>),
}
