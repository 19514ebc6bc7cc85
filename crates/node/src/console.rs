//! Standard output and standard error, written by a thread of their own.
//!
//! The main thread answers the admin socket and watches workloads; it must not block when no process reads its output.
//! So lines go to a thread over a bounded channel. When the channel is full, lines are dropped and counted, and the
//! count is written once there is room again.

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Capacity of the queue in lines. With lines of at most 8 KiB it holds at most 4 MiB.
const QUEUE: usize = 512;
const STACK_BYTES: usize = 64 * 1024;

enum Message {
    Line(Vec<u8>),
    /// Report when everything before this is written.
    Barrier(SyncSender<()>),
}

/// One of the two streams. Clones write to the same stream; lines are never interleaved.
#[derive(Clone)]
pub struct Console {
    queue: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
    is_terminal: bool,
}

impl Console {
    /// Starts the thread for standard output or standard error.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(stream: impl Write + IsTerminal + Send + 'static) -> io::Result<Console> {
        let is_terminal = stream.is_terminal();
        Self::start_on(stream, is_terminal)
    }

    /// Starts the thread for any writer.
    ///
    /// # Errors
    /// As [`Console::start`].
    pub(crate) fn start_on(
        out: impl Write + Send + 'static,
        is_terminal: bool,
    ) -> io::Result<Console> {
        let (queue, messages) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        std::thread::Builder::new()
            .name("console".into())
            .stack_size(STACK_BYTES)
            .spawn(move || write_all(out, &messages, &counted))?;
        Ok(Console {
            queue,
            dropped,
            is_terminal,
        })
    }

    /// Whether the output is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Writes a line, which must end in a line feed, or drops it. Never blocks.
    pub(crate) fn line(&self, line: Vec<u8>) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Message::Line(line)) {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Waits until everything so far is written, at most for `timeout`. It blocks the thread: only for the end of the
    /// process.
    pub(crate) fn wait_written(&self, timeout: Duration) {
        let (done, written) = sync_channel(1);
        if self.queue.try_send(Message::Barrier(done)).is_ok() {
            let _late = written.recv_timeout(timeout);
        }
    }
}

fn write_all(mut out: impl Write, messages: &Receiver<Message>, dropped: &AtomicU64) {
    while let Ok(message) = messages.recv() {
        // Errors are ignored: when the stream is closed, there is nowhere to report it.
        match message {
            Message::Line(line) => {
                let _closed = out.write_all(&line);
            }
            Message::Barrier(done) => {
                let _closed = out.flush();
                let _waiter_is_gone = done.try_send(());
            }
        }
        let lost = dropped.swap(0, Relaxed);
        if lost > 0 {
            drop(writeln!(
                out,
                "heddle: {lost} lines were dropped: output was not read"
            ));
        }
    }
}
