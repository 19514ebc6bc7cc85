//! Signals, as the main loop sees them.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{self, SignalKind};
use tokio::time::Instant;

/// Signals to stop that come within this time of the first are the same: a terminal and a service manager signal a
/// process and the one that has started it, which passes the signal on.
const SAME: Duration = Duration::from_millis(500);

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reopen,
}

/// The signals that are handled from now on.
pub struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
    /// When one to stop was last given out.
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

    /// Waits for the next one. Dropping the future loses none.
    pub async fn next(&mut self) -> Signal {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
                _ = self.hang_up.recv() => return Signal::Reopen,
            }
            if self.stopped.is_none_or(|before| before.elapsed() >= SAME) {
                self.stopped = Some(Instant::now());
                return Signal::Stop;
            }
        }
    }
}
