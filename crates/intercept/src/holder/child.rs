//! The proxy process, and signals.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::pods::{EnrolledPod, Pods};
use super::pulse::{Beat, Pulse};
use crate::PodId;
use crate::channel::{ToProxy, pair, send};
use crate::hooks::FullTables;
use crate::sockopt::refuse_descriptors;

/// Limit of queued messages to the proxy. While it is reached, no messages of the proxy are read (back-pressure).
const MAX_ANSWERS: usize = 1_024;
/// Argument that tells the program that a holder started it.
const HELD: &str = "--held";

/// Process name (`argv[0]`) of the proxy.
const NAME: &str = "heddle";

/// A running proxy.
pub(super) struct Proxy {
    process: Child,
    pidfd: OwnedFd,
    channel: OwnedFd,
    /// Queued messages: pods, at most twice each, answers ([`MAX_ANSWERS`]), one ping, and one report of full
    /// tables.
    unsaid: VecDeque<Word>,
    pub(super) started: Instant,
    /// Whether it answers pings; `None` until it has sent [`ToHolder::Ready`](crate::channel::ToHolder::Ready).
    pulse: Option<Pulse>,
    /// Whether it has served a pod.
    pub(super) has_served: bool,
    /// Whether its end of the channel is closed. When the proxy dies, the kernel reports this before it closes the
    /// proxy's connections, and before it reports the end of the process.
    pub(super) has_hung_up: bool,
    /// Whether it accepts no new connections: the fates of pods apply, and its successor may take long.
    pub(super) is_stopping: bool,
}

/// A queued message to the proxy.
enum Word {
    Enrolled(PodId),
    Recalled,
    Released(PodId),
    Socket(u64, io::Result<OwnedFd>),
    /// At most one is queued.
    Ping(u64),
    /// At most one is queued.
    Full(FullTables),
}

impl Proxy {
    /// Starts the proxy, with its end of the channel as standard input.
    pub(super) fn start(program: &Path, arguments: &[OsString]) -> io::Result<Proxy> {
        let (channel, theirs) = pair()?;
        // The proxy has no descriptors to send. A hostile one could send a socket with SO_LINGER, whose close blocks
        // us. Kernels before Linux 6.16 do not support this, so errors are ignored.
        let _ = refuse_descriptors(&channel);
        let process = Command::new(program)
            .arg0(NAME)
            .args(arguments)
            .arg(HELD)
            .stdin(Stdio::from(theirs))
            .spawn()?;
        let pid = Pid::from_child(&process);
        Ok(Proxy {
            // The child is not reaped yet, so its process ID cannot have been reused.
            pidfd: pidfd_open(pid, PidfdFlags::empty())?,
            process,
            channel,
            unsaid: VecDeque::new(),
            started: Instant::now(),
            pulse: None,
            has_served: false,
            has_hung_up: false,
            is_stopping: false,
        })
    }

    pub(super) fn number(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// The proxy has started up: from now on it must answer pings.
    pub(super) fn works(&mut self, limit: Option<u32>, now: Instant) {
        self.pulse.get_or_insert_with(|| Pulse::new(limit, now));
    }

    /// When the next ping is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.pulse.as_ref().map(Pulse::due)
    }

    /// Sends a ping when one is due, logs when the proxy does not answer, and kills it after the timeout.
    pub(super) fn feel(&mut self, now: Instant) {
        match self
            .pulse
            .as_mut()
            .map_or(Beat::None, |pulse| pulse.look(now))
        {
            Beat::None => {}
            Beat::Ask(number) => {
                let is_unsaid = |word: &Word| matches!(word, Word::Ping(_));
                if !self.unsaid.iter().any(is_unsaid) {
                    self.unsaid.push_back(Word::Ping(number));
                }
            }
            Beat::Late => tracing::error!(
                "the proxy runs but does not answer: it is stopped, or something keeps it from running"
            ),
            Beat::End => {
                tracing::error!(
                    "the proxy has not answered for longer than --proxy-timeout: it is killed"
                );
                self.signal(rustix::process::Signal::KILL);
            }
        }
    }

    /// The proxy has answered ping `number`.
    pub(super) fn answered(&mut self, number: u64) {
        let pulse = self.pulse.as_mut();
        if pulse.is_some_and(|pulse| pulse.answered(number)) {
            tracing::info!("the proxy answers again");
        }
    }

    /// Whether the proxy answers, as far as known.
    pub(super) fn answers(&self) -> bool {
        self.pulse.as_ref().is_none_or(|pulse| !pulse.is_late())
    }

    pub(super) fn pidfd(&self) -> &OwnedFd {
        &self.pidfd
    }

    pub(super) fn channel(&self) -> &OwnedFd {
        &self.channel
    }

    pub(super) fn signal(&self, signal: rustix::process::Signal) {
        // Fails when the process has ended.
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    /// Collects the exit status of a proxy that has ended.
    pub(super) fn reap(mut self) -> ExitStatus {
        self.process.wait().unwrap_or_default()
    }

    pub(super) fn say_enrolled(&mut self, pod: &EnrolledPod) {
        self.unsaid.push_back(Word::Enrolled(pod.id));
    }

    /// Tells the proxy that it has got all pods that exist so far.
    pub(super) fn say_recalled(&mut self) {
        self.unsaid.push_back(Word::Recalled);
    }

    pub(super) fn say_full(&mut self, full: FullTables) {
        self.unsaid.retain(|word| !matches!(word, Word::Full(_)));
        self.unsaid.push_back(Word::Full(full));
    }

    pub(super) fn say_released(&mut self, pod: PodId) {
        self.unsaid.push_back(Word::Released(pod));
    }

    pub(super) fn answer(&mut self, request: u64, made: io::Result<OwnedFd>) {
        self.unsaid.push_back(Word::Socket(request, made));
    }

    /// Whether messages of the proxy are read now.
    pub(super) fn is_heard(&self) -> bool {
        self.unsaid.len() < MAX_ANSWERS
    }

    pub(super) fn has_more_to_say(&self) -> bool {
        !self.unsaid.is_empty()
    }

    /// Sends queued messages until the socket buffer is full.
    pub(super) fn flush(&mut self, pods: &Pods) {
        while let Some(word) = self.unsaid.front() {
            match say(&self.channel, word, pods) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The proxy is gone, which is noticed elsewhere.
                Err(_) | Ok(()) => {}
            }
            self.unsaid.pop_front();
        }
    }
}

fn say(channel: &OwnedFd, word: &Word, pods: &Pods) -> io::Result<()> {
    let (message, descriptors): (ToProxy, Vec<BorrowedFd<'_>>) = match word {
        Word::Enrolled(id) => {
            // The pod may have been released since.
            let Some(pod) = pods.get(*id) else {
                return Ok(());
            };
            let enrolled = ToProxy::Enrolled {
                pod: pod.id,
                workload: pod.workload.clone(),
                addresses: pod.addresses.clone(),
            };
            (enrolled, vec![pod.outbound.as_fd(), pod.inbound.as_fd()])
        }
        Word::Recalled => (ToProxy::Recalled, Vec::new()),
        Word::Full(full) => (ToProxy::Full(*full), Vec::new()),
        Word::Ping(number) => (ToProxy::Ping { number: *number }, Vec::new()),
        Word::Released(id) => (ToProxy::Released { pod: *id }, Vec::new()),
        Word::Socket(request, made) => {
            let error = match made {
                Ok(_) => None,
                Err(error) if error.kind() == io::ErrorKind::NotFound => Some(libc::ENOENT),
                Err(error) => Some(error.raw_os_error().unwrap_or(libc::EIO)),
            };
            let descriptors = made.iter().map(AsFd::as_fd).collect();
            let request = *request;
            (ToProxy::Socket { request, error }, descriptors)
        }
    };
    send(channel, &message, &descriptors)
}

/// Meaning of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP, which is passed on to the proxy.
    HangUp,
}

/// Signals as descriptors for poll.
pub(super) struct Signals {
    stop: UnixStream,
    hang_up: UnixStream,
}

impl Signals {
    /// Installs handlers for SIGTERM, SIGINT and SIGHUP.
    pub(super) fn new() -> io::Result<Signals> {
        let (stop, stopped) = UnixStream::pair()?;
        let (hang_up, hung_up) = UnixStream::pair()?;
        for stream in [&stop, &stopped, &hang_up, &hung_up] {
            stream.set_nonblocking(true)?;
        }
        signal_hook::low_level::pipe::register(SIGTERM, stopped.try_clone()?)?;
        signal_hook::low_level::pipe::register(SIGINT, stopped)?;
        signal_hook::low_level::pipe::register(SIGHUP, hung_up)?;
        Ok(Signals { stop, hang_up })
    }

    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.stop.as_fd(), self.hang_up.as_fd()]
    }

    /// Takes the signals that have arrived.
    pub(super) fn take(&mut self) -> Vec<Signal> {
        let count = |stream: &mut UnixStream| stream.read(&mut [0; 64]).unwrap_or(0);
        let stops = count(&mut self.stop);
        let hang_ups = count(&mut self.hang_up).min(1);
        std::iter::repeat_n(Signal::HangUp, hang_ups)
            .chain(std::iter::repeat_n(Signal::Stop, stops))
            .collect()
    }
}
