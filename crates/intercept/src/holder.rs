//! The holder: what outlives the proxy.
//!
//! ```text
//!                      ┌──────────────── died: fate in force ◀───────────────┐
//!                      ▼                                                     │
//!  enrol ──▶ held ──▶ (proxy says that it serves the pod) ──▶ serving ───────┘
//!                                                                │
//!            released ◀── drained, or out of time ◀── releasing ◀┘ release
//! ```
//!
//! One thread, one loop, no runtime: it has the privileges, so it does little. It keeps hooks, namespaces and
//! listeners of pods, starts the proxy as its child and starts it again when it dies, and makes sockets in
//! namespaces for it. It reads nothing from any network.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use heddle_model::WorkloadName;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Exclude;
use crate::hooks::{self, Hooks};

mod child;
mod guests;
mod memory;
mod pods;
mod prompt;
mod sockets;
mod talk;

use child::Proxy;
use guests::Guests;
use memory::Memory;
use pods::Pods;
pub use prompt::go_first;

/// The shortest and the longest wait before a proxy that died is started again. The first time there is
/// none.
const RESTART: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// A proxy that lived for so long did not die of its start; nor did one that served a pod and lived for so long.
const LIVED: Duration = Duration::from_secs(10);
const SERVED: Duration = Duration::from_secs(1);

/// What a holder is told.
#[derive(Debug)]
pub struct Config {
    /// The proxy's program.
    pub program: PathBuf,
    /// Its arguments. Its standard input will be its end of the channel.
    pub arguments: Vec<OsString>,
    /// Where operators ask: a listening `SOCK_SEQPACKET` socket, which nobody else may reach.
    pub requests: OwnedFd,
    /// The file by which pods are known after the holder was restarted.
    pub memory: PathBuf,
    /// What is asked of the kernel.
    pub hooks: hooks::Options,
    /// The network namespace of the machine, if it is known: it is no pod's.
    pub host: Option<File>,
    /// A pod that is there from the start, in the holder's own namespace: one proxy for one pod.
    pub own: Option<Own>,
}

/// A pod whose proxy serves nobody else.
#[derive(Debug, Clone)]
pub struct Own {
    /// Whose pod it is.
    pub workload: WorkloadName,
    /// What of it is left alone.
    pub exclude: Exclude,
}

/// How a holder ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Stopped,
    /// The proxy ended before it ever worked, with this exit code: it would do so again.
    Proxy(i32),
}

/// Why there is no holder.
#[derive(Debug)]
pub struct HolderError {
    what: String,
    source: Option<io::Error>,
}

impl HolderError {
    fn new(what: impl Into<String>, source: io::Error) -> Self {
        HolderError {
            what: what.into(),
            source: Some(source),
        }
    }
}

impl fmt::Display for HolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.source {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for HolderError {}

/// Holds pods until a signal ends it. Pods that refuse without a proxy stay guarded.
///
/// # Errors
/// When the kernel does not do what is asked of it, or what is remembered cannot be read.
pub fn run(config: Config) -> Result<Ended, HolderError> {
    let signals =
        child::Signals::new().map_err(|error| HolderError::new("cannot handle signals", error))?;
    let hooks = Hooks::open(&config.hooks).map_err(|error| HolderError {
        what: error.to_string(),
        source: None,
    })?;
    tracing::info!(hooks = ?hooks.kind(), "pods can be enrolled");
    if let Hooks::Nft(_, Some(reason)) = &hooks {
        tracing::warn!("packet filters stand in for BPF programs, and leave no guard: {reason}");
    }
    let memory = Memory::open(config.memory)?;
    let guests = Guests::new(config.requests)
        .map_err(|error| HolderError::new("cannot listen for requests", error))?;
    let mut holder = Holder {
        program: config.program,
        arguments: config.arguments,
        pods: Pods::new(hooks, config.host.as_ref())
            .map_err(|error| HolderError::new("cannot see our own namespace", error))?,
        memory,
        proxy: None,
        next_start: Some(Instant::now()),
        wait: Duration::ZERO,
        has_worked: false,
        stopping: false,
    };
    holder.recall(config.own)?;
    holder.serve(guests, signals)
}

struct Holder {
    program: PathBuf,
    arguments: Vec<OsString>,
    pods: Pods,
    memory: Memory,
    proxy: Option<Proxy>,
    /// When the proxy is to be started.
    next_start: Option<Instant>,
    /// How long the next proxy but this one would wait.
    wait: Duration,
    /// Whether a proxy ever did.
    has_worked: bool,
    stopping: bool,
}

impl Holder {
    /// Enrols the pods that there were, and the one that is there from the start.
    fn recall(&mut self, own: Option<Own>) -> Result<(), HolderError> {
        for remembered in self.memory.recalled() {
            let workload = remembered.workload.clone();
            let is_there = remembered.netns.try_exists().unwrap_or(true);
            if let Err(why) = self.pods.recall(remembered.clone()) {
                tracing::warn!(%workload, "a pod is not enrolled again: {why}");
                // Otherwise its namespace went while nobody looked.
                if is_there {
                    self.memory.lose(remembered);
                }
            }
        }
        if let Some(Own { workload, exclude }) = own {
            let enrolled = self.pods.enrol_own(workload, exclude);
            enrolled.map_err(|why| HolderError {
                what: format!("this pod cannot be enrolled: {why}"),
                source: None,
            })?;
        }
        self.remember();
        Ok(())
    }

    fn serve(
        &mut self,
        mut guests: Guests,
        mut signals: child::Signals,
    ) -> Result<Ended, HolderError> {
        loop {
            self.start_if_due()?;
            let ready = self.wait(&guests, &signals);
            let ready = ready.map_err(|error| HolderError::new("cannot wait for events", error))?;
            if ready.proxy_ended
                && let Some(ended) = self.proxy_ended()
            {
                return Ok(ended);
            }
            if ready.signal {
                for signal in signals.take() {
                    if let Some(ended) = self.signalled(signal) {
                        return Ok(ended);
                    }
                }
            }
            if ready.channel {
                self.listen_to_proxy();
            }
            guests.serve(|request, netns| self.answer(request, netns));
            for pod in self.pods.overdue(Instant::now()) {
                self.pods.forget(pod);
            }
            if let Some(proxy) = &mut self.proxy {
                proxy.flush(&self.pods);
            }
        }
    }

    /// Sleeps until something happens.
    fn wait(&self, guests: &Guests, signals: &child::Signals) -> io::Result<Ready> {
        let until = self.pods.due().into_iter().chain(self.next_start).min();
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        // Waits are of seconds: none is longer than the kernel can count.
        let timeout = timeout.and_then(|left| Timespec::try_from(left).ok());
        let mut all: Vec<PollFd<'_>> = Vec::new();
        for signal in signals.descriptors() {
            all.push(PollFd::from_borrowed_fd(signal, PollFlags::IN));
        }
        if let Some(proxy) = &self.proxy {
            all.push(PollFd::new(proxy.pidfd(), PollFlags::IN));
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::IN, proxy.is_heard());
            wanted.set(PollFlags::OUT, proxy.has_more_to_say());
            if !proxy.has_hung_up {
                all.push(PollFd::new(proxy.channel(), wanted));
            }
        }
        all.extend(guests.polled());
        match poll(&mut all, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |index: usize| all.get(index).is_some_and(|fd| !fd.revents().is_empty());
        Ok(Ready {
            signal: is_ready(0) || is_ready(1),
            proxy_ended: self.proxy.is_some() && is_ready(2),
            channel: self.proxy.as_ref().is_some_and(|it| !it.has_hung_up) && is_ready(3),
        })
    }

    fn start_if_due(&mut self) -> Result<(), HolderError> {
        if self.next_start.is_none_or(|due| due > Instant::now()) {
            return Ok(());
        }
        self.next_start = None;
        match Proxy::start(&self.program, &self.arguments) {
            Ok(mut proxy) => {
                for pod in self.pods.all() {
                    proxy.say_enrolled(pod);
                }
                proxy.say_recalled();
                self.proxy = Some(proxy);
            }
            Err(error) if !self.has_worked => {
                return Err(HolderError::new("cannot start the proxy", error));
            }
            Err(error) => {
                tracing::error!(%error, "cannot start the proxy; trying again");
                self.start_later();
            }
        }
        Ok(())
    }

    fn start_later(&mut self) {
        self.next_start = Some(Instant::now() + self.wait);
        self.wait = (self.wait * 2).clamp(RESTART.0, RESTART.1);
    }

    /// The proxy is gone. What becomes of pods is decided before anything else is done.
    fn proxy_ended(&mut self) -> Option<Ended> {
        self.pods.proxy_died();
        let proxy = self.proxy.take()?;
        let lived = proxy.age();
        let is_good = lived >= LIVED || (proxy.has_served && lived >= SERVED);
        let how = proxy.reap();
        if self.stopping {
            return Some(Ended::Stopped);
        }
        match how.code() {
            Some(code) if !self.has_worked => return Some(Ended::Proxy(code)),
            _ => tracing::error!("the proxy died ({how}); it is started again"),
        }
        if is_good {
            self.wait = Duration::ZERO;
        }
        self.start_later();
        None
    }

    fn signalled(&mut self, signal: child::Signal) -> Option<Ended> {
        match (signal, &self.proxy) {
            (child::Signal::Stop, Some(proxy)) => {
                // It accepts nothing more from now on.
                self.pods.proxy_died();
                self.stopping = true;
                proxy.signal(rustix::process::Signal::TERM);
                None
            }
            (child::Signal::Stop, None) => Some(Ended::Stopped),
            (child::Signal::HangUp, proxy) => {
                if let Some(proxy) = proxy {
                    proxy.signal(rustix::process::Signal::HUP);
                }
                None
            }
        }
    }

    fn remember(&mut self) {
        if let Err(error) = self.memory.keep(self.pods.all()) {
            tracing::error!("{error}: a holder that is restarted does not know all its pods");
        }
    }
}

/// What has happened.
struct Ready {
    signal: bool,
    proxy_ended: bool,
    channel: bool,
}
