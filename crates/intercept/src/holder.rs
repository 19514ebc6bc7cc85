//! The holder: the privileged process that outlives the proxy.
//!
//! ```text
//!                      ┌────── died: waits for the next, or fate in force ◀─┐
//!                      ▼                                                     │
//!  enroll ──▶ held ──▶ (proxy says that it serves the pod) ──▶ serving ──────┘
//!                                                                │
//!            released ◀── drained, or out of time ◀── releasing ◀┘ release
//! ```
//!
//! The holder has one thread with one loop and no async runtime: because it is privileged, it does little. It keeps
//! hooks, namespaces and listeners of pods, runs the proxy as its child, restarts it when it dies or does not answer,
//! and makes sockets in pods' namespaces for it. It reads nothing from any network.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::PodId;
use crate::hooks::Hooks;

mod child;
mod claim;
mod config;
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
pub use config::{Config, EachTurn, Own, Turn};
use full::FullSeen;
use guests::Guests;
pub use leftovers::{Removed, uninstall};
use memory::{Memory, Remembered};
use pods::{EnrolledPod, Pods};

/// Longest time between two turns of the main loop.
const LONGEST_TURN: Duration = Duration::from_secs(1);
/// Limit of guarded pods listed in the log; of further ones only the number is logged.
const NAMED: usize = 20;
/// How a holder ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was stopped by a signal.
    Stopped,
    /// The first proxy exited with this code before it had started up. A restart would fail the same way.
    Proxy(i32),
}

/// Why a holder could not start or continue.
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

    /// Whether another process holds a resource that this one needs.
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

/// Runs a holder until a signal stops it. Pods with [`Fate::Refuse`](crate::Fate::Refuse) stay guarded.
///
/// # Errors
/// When the kernel refuses an operation, or the file of stored pods cannot be read.
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
        tracing::warn!(
            "packet filter rules are used instead of BPF programs: there is no guard: {reason}"
        );
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
        each_turn: config.each_turn,
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
    /// When the proxy is to be started; `None` while it runs.
    next_start: Option<Instant>,
    /// Delay before the next restart of the proxy.
    wait: Duration,
    /// Whether a proxy has ever sent a message.
    has_worked: bool,
    stopping: bool,
    /// Whether the stored pods are out of date.
    is_news: bool,
    /// How often tables of the hooks were full.
    full: FullSeen,
    each_turn: EachTurn,
}

impl RunningHolder {
    /// Enrolls the stored pods again, and the holder's own pod.
    fn recall(&mut self, own: Option<Own>) -> Result<(), HolderError> {
        for remembered in self.memory.recalled() {
            self.try_again(remembered, Instant::now());
        }
        if let Some(Own { workload, exclude }) = own {
            let enrolled = self.pods.enroll_own(workload, exclude);
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

    /// Logs the namespaces that the guard of an earlier holder still refuses and whose pods are not known.
    fn say_guarded(&self) {
        let guarded = self.pods.hooks().guarded();
        for namespace in guarded.iter().take(NAMED) {
            let addresses: Vec<String> =
                namespace.addresses.iter().map(IpAddr::to_string).collect();
            tracing::warn!(
                namespace = format_args!("net:[{}]", namespace.inode),
                addresses = addresses.join(", "),
                "the guard of an earlier holder still refuses a pod that is not enrolled: enroll it again, or stop this node, \
                 and heddle node cleanup for all of them"
            );
        }
        if let Some(more) = guarded.len().checked_sub(NAMED).filter(|more| *more > 0) {
            tracing::warn!("and {more} more: see heddle pods");
        }
    }

    /// Enrolls a stored pod again, or marks it as lost. Returns its new number.
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

    /// Retries lost pods that are due, and forgets those whose namespaces are gone for good.
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
            (self.each_turn.0)(match (self.stopping, self.has_worked) {
                (true, _) => Turn::Stopping,
                (false, true) => Turn::Holding,
                (false, false) => Turn::Starting,
            });
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
                // A proxy that was told to stop may take its time, so it is not pinged.
                if !self.stopping {
                    proxy.feel(Instant::now());
                }
                proxy.flush(&self.pods);
            }
        }
    }

    /// Sleeps until a descriptor is ready or a deadline is due.
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
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // At most a second, so the conversion does not fail.
        let timeout = Timespec::try_from(left.unwrap_or(LONGEST_TURN).min(LONGEST_TURN)).ok();
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
                // The proxy stops accepting now.
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

    /// Reads changed addresses of pods, and releases pods whose namespaces are gone.
    fn follow_addresses(&mut self) {
        if !self.pods.follow(Instant::now()) {
            return;
        }
        // The pod that owns a contested address may be gone.
        for gone in self.pods.vanished() {
            self.release_vanished(&gone);
        }
    }

    /// Stores the enrolled and lost pods. Returns a message when that fails.
    fn remember(&mut self) -> Option<String> {
        let pods = self.pods.all().filter_map(EnrolledPod::remembered);
        let error = self.memory.keep(pods).err()?;
        let why = format!("{error}: after a restart the holder will not know all its pods");
        tracing::error!("{why}");
        Some(why)
    }
}

/// Events that ended the sleep.
struct Ready {
    signal: bool,
    addresses: bool,
    proxy_ended: bool,
    channel: bool,
}
