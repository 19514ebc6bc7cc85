//! The thread that writes the access log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use super::sink::{BUFFERS, LogSink};
use crate::WorkerStats;

/// Chunks that may wait for the writer, over all sinks.
const QUEUE: usize = 16 * BUFFERS;
/// The writer formats nothing but a rare warning.
const STACK_BYTES: usize = 256 * 1024;

/// Where the log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// A file, appended to; created with mode 0640.
    File(PathBuf),
}

/// A buffer on its way to the disk, with the way back.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
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

/// Handle of the access log. Clones are the same log; the writer ends with the last handle and
/// the last sink.
#[derive(Clone, Debug)]
pub struct AccessLog {
    queue: SyncSender<Message>,
    reopen: Arc<AtomicBool>,
}

impl AccessLog {
    /// Opens the target and starts the writer.
    ///
    /// # Errors
    /// When the file cannot be opened or the thread cannot be started.
    pub fn open(target: Target) -> io::Result<AccessLog> {
        let out: Box<dyn Write + Send> = match &target {
            Target::Stdout => Box::new(io::stdout()),
            Target::File(path) => Box::new(append(path)?),
        };
        Self::start(out, target)
    }

    pub(super) fn start(out: Box<dyn Write + Send>, target: Target) -> io::Result<AccessLog> {
        let (queue, messages) = sync_channel(QUEUE);
        let reopen = Arc::new(AtomicBool::new(false));
        let writer = Writer {
            out,
            target,
            reopen: Arc::clone(&reopen),
            failing: false,
        };
        std::thread::Builder::new()
            .name("access-log".into())
            .stack_size(STACK_BYTES)
            .spawn(move || writer.run(&messages))?;
        Ok(AccessLog { queue, reopen })
    }

    /// The end for one Worker, whose dropped lines are counted in `stats`.
    pub fn sink(&self, stats: Arc<WorkerStats>) -> LogSink {
        LogSink::new(stats, self.queue.clone())
    }

    /// Asks the writer to open the file anew, after it was renamed by log rotation. Returns at
    /// once; does nothing for standard output. If it cannot be opened, the old file stays in use.
    pub fn reopen(&self) {
        self.reopen.store(true, Ordering::Release);
        // A full queue wakes the writer by itself.
        let _queued = self.queue.try_send(Message::Wake);
    }

    /// Waits until everything that sinks have handed over is written; false when that takes
    /// longer than `timeout`. Blocks: not for data threads.
    pub fn wait_written(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let (done, written) = sync_channel(1);
        let mut barrier = Message::Barrier(done);
        loop {
            match self.queue.try_send(barrier) {
                Ok(()) => break,
                Err(TrySendError::Full(back)) if Instant::now() < deadline => barrier = back,
                Err(_) => return false,
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        written
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            .is_ok()
    }
}

struct Writer {
    out: Box<dyn Write + Send>,
    target: Target,
    reopen: Arc<AtomicBool>,
    /// The last write failed; said once, not for every line.
    failing: bool,
}

impl Writer {
    fn run(mut self, messages: &Receiver<Message>) {
        while let Ok(message) = messages.recv() {
            if self.reopen.swap(false, Ordering::AcqRel) {
                self.open_again();
            }
            match message {
                Message::Write(chunk) => self.write(chunk),
                Message::Wake => {}
                Message::Barrier(done) => {
                    let _nobody_waits = done.try_send(());
                }
            }
        }
    }

    fn write(&mut self, mut chunk: Chunk) {
        let written = self
            .out
            .write_all(&chunk.bytes)
            .and_then(|()| self.out.flush());
        match written {
            Ok(()) => self.failing = false,
            Err(error) if !self.failing => {
                self.failing = true;
                tracing::error!(%error, target = ?self.target, "cannot write the access log");
            }
            Err(_) => {}
        }
        chunk.bytes.clear();
        // The sink may be gone, and then nobody needs the buffer.
        let _sink_is_gone = chunk.give_back.try_send(chunk.bytes);
    }

    fn open_again(&mut self) {
        let Target::File(path) = &self.target else {
            return;
        };
        match append(path) {
            Ok(file) => self.out = Box::new(file),
            Err(error) => tracing::error!(%error, ?path, "cannot reopen the access log"),
        }
    }
}

fn append(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .open(path)
}
