//! The agent of node QoS within a node: `heddle qos run` as a process of its own, which the node's privileged process
//! starts and watches: the holder, or the node itself where there is none.
//!
//! ```text
//!            ┌──────── wait, twice as long each time ◄────────┐
//!            ▼                                                │
//!   due ─► running ── ends, killed ───────────────────────────┘
//!            │
//!            ├─ the node stops ─► SIGTERM ─► it puts everything back ─► gone
//!            └─ the node dies ─► SIGTERM, by the kernel (hygiene::stop_with) ─► the same
//! ```
//!
//! A process of its own, because the node shall live when the agent dies, and the holder does little: it reads no manifest
//! and speaks to no kubelet. Nothing here waits, except [`QosAgent::stop`].

mod pace;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use self::pace::Pace;
use crate::admin::Location;
use crate::serving::signals::{self, Signals};
use crate::settings::Settings;

/// The program: that of this process, even if another one has been installed since.
const PROGRAM: &str = "/proc/self/exe";
/// Its name in lists of processes.
const NAME: &str = "heddle";
/// How often it is looked whether the agent still runs.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// How long the agent may take to put everything back when the node stops.
const STOPS_WITHIN: Duration = Duration::from_secs(5);

/// The agent of a node.
#[derive(Debug)]
pub(crate) struct QosAgent {
    arguments: Vec<OsString>,
    running: Option<(Child, Instant)>,
    pace: Pace,
    looked: Option<Instant>,
}

impl QosAgent {
    /// Not started yet. `config` is the settings file of the node.
    pub(crate) fn new(settings: &Settings, config: Option<PathBuf>) -> Self {
        let mut arguments: Vec<OsString> = vec!["qos".into(), "run".into()];
        let mut flag = |name: &str, value: OsString| {
            arguments.push(format!("--{name}").into());
            arguments.push(value);
        };
        flag("of-node", std::process::id().to_string().into());
        if let Some(name) = &settings.node.name {
            flag("node", name.as_str().into());
        }
        let socket = Location::new(settings.admin.socket.clone());
        flag("proxy-socket", socket.path.into());
        if let Some(config) = config {
            flag("config", config.into());
        }
        if let Some(level) = settings.log.level.to_possible_value() {
            flag("log-level", level.get_name().into());
        }
        if let Some(format) = settings.log.format.to_possible_value() {
            flag("log-format", format.get_name().into());
        }
        QosAgent {
            arguments,
            running: None,
            pace: Pace::default(),
            looked: None,
        }
    }

    /// Starts the agent when that is due, and sees when it has ended. To be called at least every [`LOOK`], by the thread
    /// that lives as long as the node: the kernel stops the agent with it.
    pub(crate) fn turn(&mut self, now: Instant) {
        let since = self
            .looked
            .map(|looked| now.saturating_duration_since(looked));
        if since.is_some_and(|since| since < LOOK) {
            return;
        }
        self.looked = Some(now);
        if let Some((child, started)) = &mut self.running {
            let how = match child.try_wait() {
                Ok(None) => return,
                Ok(Some(status)) => status.to_string(),
                Err(error) => error.to_string(),
            };
            let wait = self
                .pace
                .ended(now, now.saturating_duration_since(*started));
            self.running = None;
            tracing::error!(
                "the agent of node QoS ended ({how}); the mesh goes on, and the agent is started again in {} s",
                wait.as_secs()
            );
        }
        if !self.pace.is_due(now) {
            return;
        }
        match self.start() {
            Ok(child) => {
                tracing::info!("the agent of node QoS is started, process {}", child.id());
                self.running = Some((child, now));
            }
            Err(error) => {
                let wait = self.pace.ended(now, Duration::ZERO);
                tracing::error!(
                    "cannot start the agent of node QoS: {error}; it is tried again in {} s",
                    wait.as_secs()
                );
            }
        }
    }

    fn start(&self) -> io::Result<Child> {
        Command::new(PROGRAM)
            .arg0(NAME)
            .args(&self.arguments)
            // A terminal's signals are for the node, which passes them on.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
    }

    /// Stops the agent, and waits until it has put everything back, for [`STOPS_WITHIN`] at most. An agent that takes
    /// longer goes on by itself; if it is killed, the next one puts back the rest.
    pub(crate) fn stop(self) {
        let Some((mut child, _)) = self.running else {
            return;
        };
        // Not reaped yet, so the process ID is still its own.
        if kill_process(Pid::from_child(&child), Signal::TERM).is_err() {
            return;
        }
        match ended_within(&mut child, STOPS_WITHIN) {
            Ok(true) => {}
            Ok(false) => tracing::error!(
                "the agent of node QoS has not put everything back within {} s: it goes on, or the next one does",
                STOPS_WITHIN.as_secs()
            ),
            Err(error) => tracing::error!("the agent of node QoS cannot be waited for: {error}"),
        }
    }
}

/// Waits for a child's end, and returns whether it came in time.
fn ended_within(child: &mut Child, limit: Duration) -> io::Result<bool> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let until = Instant::now() + limit;
    loop {
        if child.try_wait()?.is_some() {
            return Ok(true);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let mut all = [PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut all, Timespec::try_from(left).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The agent of a node without a holder, watched by a task beside what is served.
pub(crate) struct Watched {
    stop: oneshot::Sender<()>,
    task: JoinHandle<QosAgent>,
}

impl Watched {
    /// Starts the task; must run on the main thread's own runtime.
    ///
    /// # Errors
    /// When signals cannot be handled.
    pub(crate) fn start(agent: QosAgent) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let signals = Signals::new()?;
        Ok(Watched {
            stop,
            task: tokio::spawn(watch(agent, signals, stopped)),
        })
    }

    /// Stops the agent, as [`QosAgent::stop`] does. Only when nothing is served any more.
    pub(crate) async fn stop(self) {
        // The task may have ended, by a panic.
        let _ended = self.stop.send(());
        match self.task.await {
            Ok(agent) => agent.stop(),
            Err(error) => tracing::error!("the agent of node QoS was not stopped: {error}"),
        }
    }
}

async fn watch(
    mut agent: QosAgent,
    mut signals: Signals,
    mut stopped: oneshot::Receiver<()>,
) -> QosAgent {
    let mut look = tokio::time::interval(LOOK);
    let mut is_stopping = false;
    loop {
        tokio::select! {
            _ = &mut stopped => return agent,
            // A service manager may signal the agent, too: one that ends now is not started again.
            signal = signals.next() => is_stopping |= signal == signals::Signal::Stop,
            _ = look.tick() => if !is_stopping {
                agent.turn(Instant::now());
            },
        }
    }
}
