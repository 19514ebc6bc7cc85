//! Signals, as the main loop sees them.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{self, SignalKind};
use tokio::time::Instant;

/// Stop signals within this time of the first count as one: a terminal and a service manager signal both a process and
/// its parent, which passes the signal on.
const SAME: Duration = Duration::from_millis(500);

/// Meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT: drain and end.
    Stop,
    /// SIGHUP: read the settings of logs again, and reopen the access log.
    Reload,
}

/// The handled signals.
pub struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
    /// Time of the last [`Signal::Stop`].
    stopped: Option<Instant>,
}

impl Signals {
    /// Takes over SIGTERM, SIGINT and SIGHUP.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new() -> io::Result<Self> {
        Ok(Signals {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            hang_up: unix::signal(SignalKind::hangup())?,
            stopped: None,
        })
    }

    /// Waits until it is to end. Dropping the future loses no such signal.
    pub async fn stop(&mut self) {
        while self.next().await != Signal::Stop {}
    }

    /// Waits for the next signal. Dropping the future loses no signal.
    pub async fn next(&mut self) -> Signal {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
                _ = self.hang_up.recv() => return Signal::Reload,
            }
            if self.stopped.is_none_or(|before| before.elapsed() >= SAME) {
                self.stopped = Some(Instant::now());
                return Signal::Stop;
            }
        }
    }
}
