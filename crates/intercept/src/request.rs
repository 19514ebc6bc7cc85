//! Requests of operators to a holder: enroll a pod, release it, list pods.
//!
//! A request is one packet, the reply one or more (`SOCK_SEQPACKET`, unix(7)). The pod's namespace is passed as a
//! descriptor, so that no path is resolved twice, or with more privileges than the operator has.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heddle_model::WorkloadName;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::{Deserialize, Serialize};

pub use about::{HolderStatus, ProxyStatus, describe};

use crate::channel::{receive, send};
use crate::hooks::Guarded;
use crate::{Exclude, Fate, PodId};

mod about;

/// Timeout for the whole reply of a holder.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// A request to the holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Enroll a pod. The descriptor of its network namespace comes with the request.
    #[serde(rename = "enrol")]
    Enroll {
        /// The workload that runs in the pod.
        workload: WorkloadName,
        /// Path at which a restarted holder finds the namespace again.
        netns: PathBuf,
        /// Traffic that is not intercepted.
        exclude: Exclude,
    },
    /// Stop intercepting a pod's traffic.
    #[serde(rename = "release")]
    Unenroll {
        /// The workload that runs in the pod.
        workload: WorkloadName,
    },
    /// List the pods.
    List,
    /// Return the [`HolderStatus`].
    Describe,
}

/// A packet of the holder's reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The request is done; always the last packet.
    Done,
    /// One pod of the list; [`Reply::Done`] follows the last one.
    Pod(PodStatus),
    /// The holder's status.
    Holder(Box<HolderStatus>),
    /// A guarded namespace that belongs to no enrolled pod; these come after [`Reply::Holder`].
    Guarded(Guarded),
    /// The request is done, with a warning; [`Reply::Done`] follows.
    Warning(String),
    /// The request was refused, and why; the only packet.
    Refused(String),
}

/// The collected reply of a holder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The pods, for [`Request::List`].
    pub pods: Vec<PodStatus>,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
}

/// Status of a pod that is enrolled, or lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodStatus {
    /// Number of the pod; `None` if it is lost.
    pub pod: Option<PodId>,
    /// The workload that runs in the pod.
    pub workload: WorkloadName,
    /// Path of the network namespace.
    pub netns: PathBuf,
    /// The pod's own addresses.
    pub addresses: Vec<IpAddr>,
    /// Whether and how its connections are served.
    pub state: PodState,
    /// What happens to its traffic without a proxy.
    pub fate: Fate,
    /// Why the pod is lost, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// State of an enrolled pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PodState {
    /// Connections wait until the proxy has the pod's identity and policies, and are refused when that takes too
    /// long.
    Held,
    /// The proxy serves the connections.
    Serving,
    /// There is no proxy and none is expected soon: the pod's [`Fate`] applies.
    Unserved,
    /// Connections wait for a proxy that runs but has not answered its holder for some seconds.
    Unresponsive,
    /// The pod is being released: connections in the backlog of its listeners are still served.
    Releasing,
    /// The pod was enrolled before the holder was restarted, and could not be enrolled again yet.
    Lost,
}

impl PodState {
    /// The name in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            PodState::Held => "held",
            PodState::Serving => "serving",
            PodState::Unserved => "unserved",
            PodState::Unresponsive => "unresponsive",
            PodState::Releasing => "releasing",
            PodState::Lost => "lost",
        }
    }
}

/// Sends a request to the holder that listens at `socket`, and waits for its reply.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] and [`io::ErrorKind::ConnectionRefused`] when no holder runs; the holder's message
/// when it refuses; [`io::ErrorKind::TimedOut`].
pub fn ask(socket: &Path, request: &Request, netns: Option<&OwnedFd>) -> io::Result<Answer> {
    let mut answer = Answer::default();
    converse(socket, request, netns, |reply| match reply {
        Reply::Pod(pod) => answer.pods.push(pod),
        Reply::Warning(warning) => answer.warnings.push(warning),
        Reply::Holder(_) | Reply::Guarded(_) | Reply::Done | Reply::Refused(_) => {}
    })?;
    Ok(answer)
}

/// Sends a request and passes each packet of the reply to `take`, up to [`Reply::Done`].
fn converse(
    socket: &Path,
    request: &Request,
    netns: Option<&OwnedFd>,
    mut take: impl FnMut(Reply),
) -> io::Result<()> {
    let connection = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    connect(&connection, &SocketAddrUnix::new(socket)?)?;
    let descriptors: Vec<_> = netns.iter().map(|netns| netns.as_fd()).collect();
    send(&connection, request, &descriptors)?;
    let until = Instant::now() + ANSWERS_WITHIN;
    loop {
        wait_readable(&connection, until)?;
        match receive::<Reply>(&connection)? {
            Some((Reply::Done, _)) => return Ok(()),
            Some((Reply::Refused(why), _)) => return Err(io::Error::other(why)),
            Some((reply, _)) => take(reply),
            None => {
                let why = "the holder closed the connection before it answered";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
            }
        }
    }
}

fn wait_readable(connection: &OwnedFd, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).map_err(io::Error::other)?;
    let mut ready = [PollFd::new(connection, PollFlags::IN)];
    match poll(&mut ready, Some(&left))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}
