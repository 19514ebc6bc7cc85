//! Standard output and standard error, written by a thread of their own.
//!
//! The main thread answers the admin socket and watches workloads; it must not stop because
//! no process reads its output. So lines go to a thread over a bounded channel, and when that is full
//! they are dropped, counted, and the count is written once there is room again.

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Lines that may wait for the thread. With lines of at most 8 KiB that is 4 MiB at worst.
const QUEUE: usize = 512;
const STACK_BYTES: usize = 64 * 1024;

enum Message {
    Line(Vec<u8>),
    /// Say when everything before this is written.
    Barrier(SyncSender<()>),
}

/// One of the two streams. Clones write to the same one; whole lines never mix.
#[derive(Clone)]
pub struct Console {
    queue: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
    is_terminal: bool,
}

impl Console {
    /// Starts the thread for one of our own streams.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(stream: impl Write + IsTerminal + Send + 'static) -> io::Result<Console> {
        let is_terminal = stream.is_terminal();
        Self::start_on(stream, is_terminal)
    }

    /// Starts the thread for anything that takes lines.
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

    /// Whether the output is a screen.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Writes a line, which brings its own line feed, or drops it; never waits.
    pub(crate) fn line(&self, line: Vec<u8>) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Message::Line(line)) {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Waits until everything so far is written, at most for `timeout`. Only for the end of the
    /// process: it blocks.
    pub(crate) fn wait_written(&self, timeout: Duration) {
        let (done, written) = sync_channel(1);
        if self.queue.try_send(Message::Barrier(done)).is_ok() {
            let _late = written.recv_timeout(timeout);
        }
    }
}

fn write_all(mut out: impl Write, messages: &Receiver<Message>, dropped: &AtomicU64) {
    while let Ok(message) = messages.recv() {
        // A stream that was closed takes nothing, and there is nowhere left to say so.
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
