//! `heddle register`: registers one provider and keeps it registered.
//!
//! ```text
//!   start COMMAND ─► takes connections ─► registered ─┬─ signal ───► taken back ─► drain ─► SIGTERM ─► its end
//!        │                 │                          └─ its end ──► taken back
//!        └─ its end, signal┘ ─► end
//! ```
//!
//! Without a command, only the registration remains of this. The command runs in a process group of its own, so that a
//! terminal's Ctrl-C reaches only heddle: the registration is taken back before the command ends, so no request is sent
//! to a program that is about to end.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, anyhow};
use heddle_node::exit::{Exit, Failure};
use heddle_node::serving;
use heddle_node::serving::signals::{Signal, Signals};
use heddle_node::settings::Settings;
use heddle_registry::{Kept, News, Registration};
use rustix::process::{self as sys, Pid};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// Interval and timeout of attempts to connect to the command.
const TRY_EVERY: Duration = Duration::from_millis(50);
const TRY_FOR: Duration = Duration::from_secs(1);
/// Time after which a warning names what is waited for.
const SAY_AFTER: Duration = Duration::from_secs(5);

/// The provider to register, and the command to run.
pub(crate) struct Plan {
    pub(crate) registration: Registration,
    pub(crate) address: SocketAddr,
    /// Program and arguments; empty when heddle does not run the provider.
    pub(crate) command: Vec<OsString>,
    pub(crate) drain: Duration,
    pub(crate) at_once: bool,
}

/// Keeps a provider registered until it is told to stop or its command ends.
///
/// # Errors
/// When the command cannot be started, or etcd refuses the registration.
pub(crate) fn run(plan: &Plan, settings: &Settings) -> Result<ExitCode, Failure> {
    serving::in_runtime_of(Builder::new_current_thread(), settings, async |_| {
        let signals = Signals::new().context("cannot handle signals")?;
        let child = match plan.command.split_first() {
            Some((program, arguments)) => Some(Running::start(program, arguments)?),
            None => None,
        };
        Life { signals, child }.live(plan).await
    })
}

/// A running command that leads a process group of its own.
struct Running {
    child: Child,
    group: Option<Pid>,
}

impl Running {
    fn start(program: &OsString, arguments: &[OsString]) -> Result<Running, Failure> {
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(Running { child, group })
    }

    fn signal(&self, signal: sys::Signal) {
        if let Some(group) = self.group {
            // The group may be gone.
            let _gone = sys::kill_process_group(group, signal);
        }
    }

    /// Waits for the command's end. Dropping the future loses nothing.
    async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }
}

struct Life {
    signals: Signals,
    child: Option<Running>,
}

/// Why a wait has ended.
enum Over {
    /// The command has ended.
    Ended(ExitStatus),
    /// A stop signal came.
    Stop,
}

impl Life {
    async fn live(mut self, plan: &Plan) -> Result<ExitCode, Failure> {
        if !plan.at_once && self.child.is_some() {
            match self.until_it_listens(plan.address).await? {
                None => {}
                Some(Over::Ended(status)) => return Ok(code(status)),
                Some(Over::Stop) => return self.stop(Duration::ZERO).await,
            }
        }
        let (over, kept) = self.while_registered(&plan.registration).await?;
        let key = plan.registration.key();
        let is_revoked = match kept {
            Some(Kept::Revoked) => {
                tracing::info!(key, "not registered any more");
                true
            }
            Some(Kept::NotRevoked(why)) => {
                tracing::error!(
                    key,
                    "etcd could not be told, the registration ends with its lease: {why}"
                );
                false
            }
            Some(Kept::Refused(why)) => {
                if self.child.is_some() {
                    let _whatever_it_says = self.stop(Duration::ZERO).await?;
                }
                return Err(anyhow!("cannot register {key}: {why}").into());
            }
            // A second signal.
            None => {
                tracing::warn!(key, "stopped at once: the registration ends with its lease");
                if let Some(child) = &self.child {
                    child.signal(sys::Signal::KILL);
                }
                return Ok(Exit::Failed.into());
            }
        };
        match over {
            Some(status) => Ok(code(status)),
            None if self.child.is_some() => self.stop(plan.drain).await,
            None if is_revoked => Ok(Exit::Ok.into()),
            None => Ok(Exit::Failed.into()),
        }
    }

    /// Waits until the command accepts connections (`None`), or returns what ended the wait.
    async fn until_it_listens(&mut self, address: SocketAddr) -> Result<Option<Over>, Failure> {
        let listens = async {
            while !takes_connections(address).await {
                sleep(TRY_EVERY).await;
            }
        };
        let say = async {
            sleep(SAY_AFTER).await;
            tracing::warn!(
                "the command takes no connections at {address} yet: not registered before it does"
            );
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = listens => Ok(None),
            () = say => Ok(None),
            over = self.over() => over.map(Some),
        }
    }

    /// Waits for the command's end or a signal.
    async fn over(&mut self) -> Result<Over, Failure> {
        loop {
            tokio::select! {
                status = ended(&mut self.child) => return Ok(Over::Ended(status?)),
                signal = self.signals.next() => if signal == Signal::Stop {
                    return Ok(Over::Stop);
                },
            }
        }
    }

    /// Keeps the provider registered until the command ends, a signal comes or etcd refuses. Returns the command's exit
    /// status if it has ended, and the outcome at etcd (`None` after a second signal).
    async fn while_registered(
        &mut self,
        registration: &Registration,
    ) -> Result<(Option<ExitStatus>, Option<Kept>), Failure> {
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            // A dropped sender ends the registration, too.
            let _dropped = stopped.await;
        };
        let key = registration.key();
        let keeping = registration.keep(stopped, |news| say(key, &news));
        tokio::pin!(keeping);
        let mut over = None;
        tokio::select! {
            kept = &mut keeping => return Ok((None, Some(kept))),
            ended = self.over() => if let Over::Ended(status) = ended? {
                over = Some(status);
            },
        }
        drop(stop);
        let again = async { while self.signals.next().await != Signal::Stop {} };
        tokio::select! {
            kept = keeping => Ok((over, Some(kept))),
            () = again => Ok((over, None)),
        }
    }

    /// Waits for `drain`, sends SIGTERM, waits for the end, and returns the exit code. A signal ends the drain early;
    /// another one kills the command.
    async fn stop(mut self, drain: Duration) -> Result<ExitCode, Failure> {
        tokio::select! {
            () = sleep(drain) => {}
            over = self.over() => if let Over::Ended(status) = over? {
                return Ok(code(status));
            },
        }
        if let Some(child) = &self.child {
            child.signal(sys::Signal::TERM);
        }
        loop {
            match self.over().await? {
                Over::Ended(status) => return Ok(code(status)),
                Over::Stop => {
                    if let Some(child) = &self.child {
                        child.signal(sys::Signal::KILL);
                    }
                }
            }
        }
    }
}

/// Waits for the end of the command; without one, never resolves.
async fn ended(child: &mut Option<Running>) -> Result<ExitStatus, Failure> {
    match child {
        Some(child) => Ok(child.ended().await.context("cannot wait for the command")?),
        None => std::future::pending().await,
    }
}

async fn takes_connections(address: SocketAddr) -> bool {
    matches!(
        timeout(TRY_FOR, TcpStream::connect(address)).await,
        Ok(Ok(_))
    )
}

fn say(key: &str, news: &News) {
    match news {
        News::Registered => tracing::info!(key, "{news}"),
        News::Again(_) | News::Away(_) | News::Taken => tracing::warn!(key, "{news}"),
    }
}

/// The command's exit code, or 128 plus the signal's number, as in a shell.
fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    let code = code.and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(Exit::Failed as u8))
}
