//! The thread that writes the access log.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
/// sink are dropped; there is none while no target was ever given.
#[derive(Clone)]
pub struct AccessLog {
    node: Arc<str>,
    queue: SyncSender<Message>,
    change: Arc<Mutex<Option<Change>>>,
    is_on: Arc<AtomicBool>,
    start: Arc<Mutex<Start>>,
}

/// The start of the writer's thread.
struct Start {
    /// The writer's end of the queue, which the thread takes: it stays here if the thread cannot be started.
    messages: Option<Receiver<Message>>,
    is_done: bool,
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_on = self.is_on.load(Ordering::Relaxed);
        f.debug_struct("AccessLog").field("is_on", &is_on).finish()
    }
}

/// What the writer is asked to do before it goes on.
enum Change {
    Reopen,
    Out(Box<dyn Write + Send>, Target),
}

impl AccessLog {
    /// A log that has no target yet. Every line will carry the name `node`, which may be empty.
    pub fn off(node: &str) -> AccessLog {
        let (queue, messages) = sync_channel(QUEUE);
        AccessLog {
            node: node.into(),
            queue,
            change: Arc::default(),
            is_on: Arc::default(),
            start: Arc::new(Mutex::new(Start {
                messages: Some(messages),
                is_done: false,
            })),
        }
    }

    /// Opens the target and starts the writer thread. Every line carries the name `node`, which may be empty.
    ///
    /// # Errors
    /// When the file cannot be opened or the thread cannot be started.
    pub fn open(target: Target, node: &str) -> io::Result<AccessLog> {
        let log = AccessLog::off(node);
        log.write_to(Some(target))?;
        Ok(log)
    }

    #[cfg(test)]
    pub(super) fn start(
        out: Box<dyn Write + Send>,
        target: Target,
        node: &str,
    ) -> io::Result<AccessLog> {
        let log = AccessLog::off(node);
        log.turn_on(out, target)?;
        Ok(log)
    }

    /// Writes to another target from now on. `None` turns the log off; what sinks have buffered is still written.
    ///
    /// # Errors
    /// When the file cannot be opened or the thread cannot be started. The log goes on as before.
    pub fn write_to(&self, target: Option<Target>) -> io::Result<()> {
        let Some(target) = target else {
            self.is_on.store(false, Ordering::Relaxed);
            return Ok(());
        };
        let out: Box<dyn Write + Send> = match &target {
            Target::Stdout => Box::new(io::stdout()),
            Target::File(path) => Box::new(append(path)?),
        };
        self.turn_on(out, target)
    }

    fn turn_on(&self, out: Box<dyn Write + Send>, target: Target) -> io::Result<()> {
        let mut start = lock(&self.start);
        if start.is_done {
            self.ask(Change::Out(out, target));
        } else {
            let writer = Writer {
                out,
                target,
                change: Arc::clone(&self.change),
                lost: None,
                cut: false,
            };
            let from = Arc::clone(&self.start);
            std::thread::Builder::new()
                .name("access-log".into())
                .stack_size(STACK_BYTES)
                .spawn(move || {
                    let messages = lock(&from).messages.take();
                    drop(from);
                    if let Some(messages) = messages {
                        writer.run(&messages);
                    }
                })?;
            start.is_done = true;
        }
        drop(start);
        self.is_on.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether lines are written at present.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// A sink for one Worker. Lines that it drops are counted in `stats`.
    pub fn sink(&self, stats: Arc<WorkerStats>) -> LogSink {
        let is_on = Arc::clone(&self.is_on);
        LogSink::new(stats, Arc::clone(&self.node), self.queue.clone(), is_on)
    }

    /// Asks the writer to reopen the file after log rotation has renamed it. Returns at once; does nothing for
    /// standard output. If the file cannot be opened, the old one stays in use.
    pub fn reopen(&self) {
        if self.is_on() {
            self.ask(Change::Reopen);
        }
    }

    fn ask(&self, change: Change) {
        let mut asked = lock(&self.change);
        // A target that was just opened needs no reopening.
        if asked.is_none() || matches!(change, Change::Out(..)) {
            *asked = Some(change);
        }
        drop(asked);
        // When the queue is full the writer is awake anyway.
        let _queued = self.queue.try_send(Message::Wake);
    }

    /// Waits until all lines that sinks have handed over are written; false when that takes longer than `timeout`.
    /// Blocks, so never call it on a data thread.
    pub fn wait_written(&self, timeout: Duration) -> bool {
        if !lock(&self.start).is_done {
            // There was never a target.
            return true;
        }
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
    change: Arc<Mutex<Option<Change>>>,
    /// Lines lost since writing began to fail; `None` while it succeeds. The failure is logged once, not for every
    /// line.
    lost: Option<u64>,
    /// Whether the last write ended in the middle of a line.
    cut: bool,
}

impl Writer {
    fn run(mut self, messages: &Receiver<Message>) {
        while let Ok(message) = messages.recv() {
            let change = lock(&self.change).take();
            match change {
                Some(Change::Reopen) => self.open_again(),
                Some(Change::Out(out, target)) => self.go_over(out, target),
                None => {}
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

    fn go_over(&mut self, out: Box<dyn Write + Send>, target: Target) {
        tracing::info!(?target, "the access log is written here from now on");
        self.out = out;
        self.target = target;
        self.cut = false;
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

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
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
