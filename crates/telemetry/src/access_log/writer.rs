//! The thread that writes the access log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use super::chunk::{BUFFERS, Chunk, Message};
use super::sink::LogSink;
use crate::WorkerStats;

/// Limit of messages queued for the writer, for all sinks together.
const QUEUE: usize = 16 * BUFFERS;
/// A small stack is enough: the writer formats nothing but a rare warning.
const STACK_BYTES: usize = 256 * 1024;

/// The destination of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// A file, opened for appending and created with mode 0640.
    File(PathBuf),
}

/// Handle of the access log. Clones refer to the same log. The writer thread ends when the last handle and the last
/// sink are dropped.
#[derive(Clone, Debug)]
pub struct AccessLog {
    node: Arc<str>,
    queue: SyncSender<Message>,
    reopen: Arc<AtomicBool>,
}

impl AccessLog {
    /// Opens the target and starts the writer thread. Every line carries the name `node`, which may be empty.
    ///
    /// # Errors
    /// When the file cannot be opened or the thread cannot be started.
    pub fn open(target: Target, node: &str) -> io::Result<AccessLog> {
        let out: Box<dyn Write + Send> = match &target {
            Target::Stdout => Box::new(io::stdout()),
            Target::File(path) => Box::new(append(path)?),
        };
        Self::start(out, target, node)
    }

    pub(super) fn start(
        out: Box<dyn Write + Send>,
        target: Target,
        node: &str,
    ) -> io::Result<AccessLog> {
        let (queue, messages) = sync_channel(QUEUE);
        let reopen = Arc::new(AtomicBool::new(false));
        let writer = Writer {
            out,
            target,
            reopen: Arc::clone(&reopen),
            lost: None,
            cut: false,
        };
        std::thread::Builder::new()
            .name("access-log".into())
            .stack_size(STACK_BYTES)
            .spawn(move || writer.run(&messages))?;
        Ok(AccessLog {
            node: node.into(),
            queue,
            reopen,
        })
    }

    /// A sink for one Worker. Lines that it drops are counted in `stats`.
    pub fn sink(&self, stats: Arc<WorkerStats>) -> LogSink {
        LogSink::new(stats, Arc::clone(&self.node), self.queue.clone())
    }

    /// Asks the writer to reopen the file after log rotation has renamed it. Returns at once; does nothing for
    /// standard output. If the file cannot be opened, the old one stays in use.
    pub fn reopen(&self) {
        self.reopen.store(true, Ordering::Release);
        // When the queue is full the writer is awake anyway.
        let _queued = self.queue.try_send(Message::Wake);
    }

    /// Waits until all lines that sinks have handed over are written; false when that takes longer than `timeout`.
    /// Blocks, so never call it on a data thread.
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
    /// Lines lost since writing began to fail; `None` while it succeeds. The failure is logged once, not for every
    /// line.
    lost: Option<u64>,
    /// Whether the last write ended in the middle of a line.
    cut: bool,
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
                    let _waiter_is_gone = done.try_send(());
                }
            }
        }
    }

    fn write(&mut self, mut chunk: Chunk) {
        let (written, outcome) = self.put(&chunk.bytes);
        let lost = lines(&chunk.bytes[written..]);
        if lost > 0 {
            chunk.stats.access_log_lost.add(lost);
        }
        match (outcome, self.lost) {
            (Ok(()), None) => {}
            (Ok(()), Some(lost)) => {
                self.lost = None;
                tracing::info!(lost, target = ?self.target, "the access log is written again");
            }
            (Err(_), Some(before)) => self.lost = Some(before + lost),
            (Err(error), None) => {
                self.lost = Some(lost);
                tracing::error!(%error, target = ?self.target, "cannot write the access log");
            }
        }
        chunk.bytes.clear();
        // Fails when the sink is gone; the buffer is no longer needed then.
        let _sink_is_gone = chunk.give_back.try_send(chunk.bytes);
    }

    /// Writes as much as possible, after ending a line that was cut before. Returns the number of bytes written.
    fn put(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        if self.cut {
            match self.out.write_all(b"\n") {
                Ok(()) => self.cut = false,
                Err(error) => return (0, Err(error)),
            }
        }
        let mut written = 0;
        while written < bytes.len() {
            match self.out.write(&bytes[written..]) {
                Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
                Ok(n) => {
                    written += n;
                    self.cut = bytes[..written].last() != Some(&b'\n');
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (written, Err(error)),
            }
        }
        (written, self.out.flush())
    }

    fn open_again(&mut self) {
        let Target::File(path) = &self.target else {
            return;
        };
        match append(path) {
            Ok(file) => {
                // An empty file needs no newline to end a line that was cut in the old one.
                self.cut &= file.metadata().map_or(true, |found| found.len() > 0);
                self.out = Box::new(file);
                tracing::info!(?path, "the access log was reopened");
            }
            Err(error) => {
                tracing::error!(%error, ?path, "cannot reopen the access log, the old file stays in use");
            }
        }
    }
}

/// The number of line ends in `bytes`.
fn lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

fn append(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .open(path)
}
