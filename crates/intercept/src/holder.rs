//! The holder: what outlives the proxy.
//!
//! ```text
//!                      ┌────── died: waits for the next, or fate in force ◀─┐
//!                      ▼                                                     │
//!  enrol ──▶ held ──▶ (proxy says that it serves the pod) ──▶ serving ───────┘
//!                                                                │
//!            released ◀── drained, or out of time ◀── releasing ◀┘ release
//! ```
//!
//! One thread, one loop, no runtime: it has the privileges, so it does little. It keeps hooks, namespaces and
//! listeners of pods, starts the proxy as its child and starts it again when it dies or does not answer, and makes
//! sockets in namespaces for it. It reads nothing from any network.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use heddle_model::WorkloadName;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::hooks::{self, Hooks};
use crate::{Exclude, PodId};

mod child;
mod claim;
mod full;
mod gap;
mod guests;
mod leftovers;
mod memory;
mod pods;
mod pulse;
mod sockets;
mod talk;
#[cfg(test)]
mod tests;
mod watch;

use child::Proxy;
pub use claim::Claim;
use full::FullSeen;
use guests::Guests;
pub use leftovers::{Removed, uninstall};
use memory::{Memory, Remembered};
use pods::{EnrolledPod, Pods};

/// So many guarded pods are named; of more only the number is.
const NAMED: usize = 20;
/// What a holder is told.
#[derive(Debug)]
pub struct Config {
    /// The proxy's program.
    pub program: PathBuf,
    /// Its arguments. Its standard input will be its end of the channel.
    pub arguments: Vec<OsString>,
    /// The number of the user that the proxy becomes before it reads anything from a network. It may ask for
    /// nothing that operators may.
    pub proxy: u32,
    /// Where operators ask: a listening `SOCK_SEQPACKET` socket, which no other user may reach.
    pub requests: OwnedFd,
    /// The pods, and the file by which they are known after the holder was restarted.
    pub claim: Claim,
    /// What is asked of the kernel.
    pub hooks: hooks::Options,
    /// The network namespace of the machine, if it is known: it is no pod's.
    pub host: Option<File>,
    /// How long, in seconds of the holder's own running, a proxy may leave questions unanswered before it is killed,
    /// to be started again; `None`: for ever.
    pub proxy_timeout: Option<u32>,
    /// A pod that is there from the start, in the holder's own namespace: one proxy for one pod.
    pub own: Option<Own>,
}

/// A pod whose proxy serves no other pod.
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
    is_busy: bool,
}

impl HolderError {
    fn new(what: impl Into<String>, source: io::Error) -> Self {
        HolderError {
            what: what.into(),
            source: Some(source),
            is_busy: false,
        }
    }

    /// Whether another process has what this one needs.
    pub fn is_busy(&self) -> bool {
        self.is_busy
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
        is_busy: false,
    })?;
    tracing::info!(hooks = ?hooks.kind(), "pods can be enrolled");
    if let Hooks::Nft(_, Some(reason)) = &hooks {
        tracing::warn!("packet filters stand in for BPF programs, and leave no guard: {reason}");
    }
    let memory = Memory::open(config.claim.memory().to_owned())?;
    let guests = Guests::new(config.requests, config.proxy)
        .map_err(|error| HolderError::new("cannot listen for requests", error))?;
    let mut holder = RunningHolder {
        program: config.program,
        arguments: config.arguments,
        pods: Pods::new(hooks, config.host.as_ref(), config.hooks.ranges)
            .map_err(|error| HolderError::new("cannot see our own namespace", error))?,
        memory,
        claim: config.claim,
        proxy: None,
        proxy_timeout: config.proxy_timeout,
        next_start: Some(Instant::now()),
        wait: Duration::ZERO,
        has_worked: false,
        stopping: false,
        is_news: false,
        full: FullSeen::default(),
    };
    holder.recall(config.own)?;
    let ended = holder.serve(guests, signals)?;
    holder.claim.clear();
    Ok(ended)
}

struct RunningHolder {
    program: PathBuf,
    arguments: Vec<OsString>,
    pods: Pods,
    memory: Memory,
    claim: Claim,
    proxy: Option<Proxy>,
    proxy_timeout: Option<u32>,
    /// When the proxy is to be started.
    next_start: Option<Instant>,
    /// How long the next proxy but this one would wait.
    wait: Duration,
    /// Whether a proxy ever did.
    has_worked: bool,
    stopping: bool,
    /// Whether pods are to be written down that were not.
    is_news: bool,
    /// How often the hooks had no room.
    full: FullSeen,
}

impl RunningHolder {
    /// Enrols the pods that there were, and the one that is there from the start.
    fn recall(&mut self, own: Option<Own>) -> Result<(), HolderError> {
        for remembered in self.memory.recalled() {
            self.try_again(remembered, Instant::now());
        }
        if let Some(Own { workload, exclude }) = own {
            let enrolled = self.pods.enrol_own(workload, exclude);
            enrolled.map_err(|why| HolderError {
                what: format!("this pod cannot be enrolled: {why}"),
                source: None,
                is_busy: false,
            })?;
        }
        self.remember();
        self.say_guarded();
        Ok(())
    }

    /// Pods that are refused, and whose names are not known: what refuses them is older than this holder.
    fn say_guarded(&self) {
        let guarded = self.pods.hooks().guarded();
        for namespace in guarded.iter().take(NAMED) {
            let addresses: Vec<String> =
                namespace.addresses.iter().map(IpAddr::to_string).collect();
            tracing::warn!(
                namespace = format_args!("net:[{}]", namespace.inode),
                addresses = addresses.join(", "),
                "a guard of a holder before refuses a pod that is not enrolled: enrol it again, or stop this node, \
                 and heddle uninstall for all of them"
            );
        }
        if let Some(more) = guarded.len().checked_sub(NAMED).filter(|more| *more > 0) {
            tracing::warn!("and {more} more: heddle pods lists them");
        }
    }

    /// Enrols a pod that was enrolled before this holder was. Returns which it is now.
    fn try_again(&mut self, remembered: Remembered, now: Instant) -> Option<PodId> {
        let workload = remembered.workload.clone();
        match self.pods.recall(remembered.clone()) {
            Ok(id) => {
                self.memory.recovered(&workload);
                Some(id)
            }
            Err(why) => {
                if self.memory.lose(remembered, why.clone(), now) {
                    tracing::warn!(%workload, "a pod is not enrolled again: {why}; it is tried again");
                }
                None
            }
        }
    }

    /// Tries those again that could not be enrolled.
    fn try_lost(&mut self, now: Instant) {
        let mut is_news = false;
        for lost in self.memory.to_try(now) {
            let Some(id) = self.try_again(lost, now) else {
                continue;
            };
            is_news = true;
            if let Some(pod) = self.pods.get(id) {
                tracing::info!(workload = %pod.workload, pod = %id, "enrolled again");
                if let Some(proxy) = &mut self.proxy {
                    proxy.say_enrolled(pod);
                }
            }
        }
        for gone in self.memory.forget_gone(now) {
            is_news = true;
            tracing::warn!(workload = %gone, "a lost pod is forgotten: its namespace has not come back");
        }
        if is_news {
            self.remember();
        }
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
            if ready.addresses {
                self.pods.addresses_changed();
            }
            self.follow_addresses();
            guests.serve(|request, netns| self.answer(request, netns));
            self.pods.end_dials(Instant::now());
            self.end_gap(Instant::now());
            self.try_lost(Instant::now());
            for pod in self.pods.overdue(Instant::now()) {
                self.pods.forget(pod);
            }
            let full = self.full.look(Instant::now(), || self.pods.hooks().full());
            if let Some(proxy) = &mut self.proxy {
                if let Some(full) = full {
                    proxy.say_full(full);
                }
                // Once it is told to stop, it may take its time.
                if !self.stopping {
                    proxy.feel(Instant::now());
                }
                proxy.flush(&self.pods);
            }
        }
    }

    /// Sleeps until something happens.
    fn wait(&self, guests: &Guests, signals: &child::Signals) -> io::Result<Ready> {
        let proxy = self.proxy.as_ref().filter(|_| !self.stopping);
        let proxy = proxy.and_then(Proxy::due);
        let until = [
            self.pods.due(),
            self.memory.due(),
            proxy,
            self.next_start,
            guests.due(),
        ];
        let until = until.into_iter().flatten().min();
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        // Waits are of seconds: none is longer than the kernel can count.
        let timeout = timeout.and_then(|left| Timespec::try_from(left).ok());
        let mut all: Vec<PollFd<'_>> = Vec::new();
        for signal in signals.descriptors() {
            all.push(PollFd::from_borrowed_fd(signal, PollFlags::IN));
        }
        all.push(PollFd::new(self.pods.watches(), PollFlags::IN));
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
            addresses: is_ready(2),
            proxy_ended: self.proxy.is_some() && is_ready(3),
            channel: self.proxy.as_ref().is_some_and(|it| !it.has_hung_up) && is_ready(4),
        })
    }

    fn signalled(&mut self, signal: child::Signal) -> Option<Ended> {
        match (signal, &self.proxy) {
            (child::Signal::Stop, Some(proxy)) => {
                // It accepts nothing more from now on.
                self.pods.meet_fates();
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

    /// Reads what has changed of pods' addresses.
    fn follow_addresses(&mut self) {
        if !self.pods.follow(Instant::now()) {
            return;
        }
        // Whose it is may be gone.
        for gone in self.pods.vanished() {
            self.release_vanished(&gone);
        }
    }

    /// Writes down which pods there are. Returns why that cannot be done, in words.
    fn remember(&mut self) -> Option<String> {
        let pods = self.pods.all().filter_map(EnrolledPod::remembered);
        let error = self.memory.keep(pods).err()?;
        let why = format!("{error}: a holder that is restarted does not know all its pods");
        tracing::error!("{why}");
        Some(why)
    }
}

/// What has happened.
struct Ready {
    signal: bool,
    addresses: bool,
    proxy_ended: bool,
    channel: bool,
}
