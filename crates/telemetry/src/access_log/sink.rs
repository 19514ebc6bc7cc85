//! The Worker's end of the access log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};

use super::chunk::{BUFFERS, Chunk, Message};
use super::clock::Clock;
use super::record::{MAX_LINE, Record};
use crate::WorkerStats;

/// A buffer with this many bytes is handed to the writer.
const FULL: usize = 16 * 1024;
/// Collects a Worker's log lines. Owned by the Worker; dropping it hands the rest to the writer.
#[derive(Debug)]
pub struct LogSink {
    stats: Arc<WorkerStats>,
    node: Arc<str>,
    clock: Clock,
    /// The buffer being filled; `None` while the writer has all buffers.
    current: Option<Vec<u8>>,
    /// Whether the buffers exist. They are allocated at the first line: most proxies have no access log.
    has_buffers: bool,
    /// Lines in `current`, for the counter if it must be dropped.
    lines: u64,
    is_on: Arc<AtomicBool>,
    full: SyncSender<Message>,
    /// Sender with which the writer returns a buffer; a clone goes with each buffer.
    give_back: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
}

impl LogSink {
    pub(super) fn new(
        stats: Arc<WorkerStats>,
        node: Arc<str>,
        full: SyncSender<Message>,
        is_on: Arc<AtomicBool>,
    ) -> Self {
        let (give_back, empty) = std::sync::mpsc::sync_channel(BUFFERS);
        LogSink {
            stats,
            node,
            clock: Clock::new(),
            current: None,
            has_buffers: false,
            lines: 0,
            is_on,
            full,
            give_back,
            empty,
        }
    }

    /// Whether the log has a target at present.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// An empty buffer, if one of this sink's is free. The first call allocates all of them.
    fn free(&mut self) -> Option<Vec<u8>> {
        if !self.has_buffers {
            self.has_buffers = true;
            for _ in 0..BUFFERS {
                let buffer = Vec::with_capacity(FULL + MAX_LINE);
                let returned = self.give_back.try_send(buffer);
                debug_assert!(returned.is_ok(), "the channel holds them all");
            }
        }
        self.empty.try_recv().ok()
    }

    /// Writes one line into a buffer. When no buffer is free, the line is dropped and counted. Never waits, and
    /// allocates nothing but the buffers, at the first line.
    pub fn record(&mut self, record: &Record<'_>) {
        if self.current.is_none() {
            self.current = self.free();
        }
        let Some(buffer) = &mut self.current else {
            self.stats.access_log_dropped.inc();
            return;
        };
        record.write(buffer, &mut self.clock, &self.node);
        self.lines += 1;
        if buffer.len() >= FULL {
            self.flush();
        }
    }

    /// Whether lines are buffered, so that the Worker schedules a sweep with [`LogSink::flush`].
    pub fn has_lines(&self) -> bool {
        self.lines > 0
    }

    /// Hands the buffered lines to the writer. A Worker calls this at each sweep, at least once a second while it
    /// has written records, but not after every request, since it wakes the writer thread.
    pub fn flush(&mut self) {
        let Some(bytes) = self.current.take_if(|buffer| !buffer.is_empty()) else {
            return;
        };
        let chunk = Chunk {
            bytes,
            stats: Arc::clone(&self.stats),
            give_back: self.give_back.clone(),
        };
        match self.full.try_send(Message::Write(chunk)) {
            Ok(()) => {}
            Err(TrySendError::Full(refused) | TrySendError::Disconnected(refused)) => {
                self.stats.access_log_dropped.add(self.lines);
                if let Message::Write(mut chunk) = refused {
                    chunk.bytes.clear();
                    self.current = Some(chunk.bytes);
                }
            }
        }
        self.lines = 0;
    }
}

impl Drop for LogSink {
    fn drop(&mut self) {
        self.flush();
    }
}
