//! What an operator asks of a holder: enrol this pod, release that one, which are there.
//!
//! One packet asks, packets answer (`SOCK_SEQPACKET`, unix(7)); the pod's namespace comes as a descriptor, so
//! that no path is looked up twice, or with more rights than those of the operator who asks.

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

/// How long a holder may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Make a pod the mesh's. With it comes its network namespace.
    Enrol {
        /// Whose pod it is.
        workload: WorkloadName,
        /// Where its namespace is found again when the holder was restarted.
        netns: PathBuf,
        /// What of it is left alone.
        exclude: Exclude,
    },
    /// Leave a pod alone from now on.
    Release {
        /// Whose pod it is.
        workload: WorkloadName,
    },
    /// Which pods are there?
    List,
    /// How does it do its work?
    Describe,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// It is done.
    Done,
    /// One of the pods; [`Reply::Done`] follows the last.
    Pod(PodStatus),
    /// How it does its work.
    Holder(Box<HolderStatus>),
    /// One of the namespaces that are guarded and no enrolled pod's; they come after [`Reply::Holder`].
    Guarded(Guarded),
    /// What the operator should know beside that it is done; [`Reply::Done`] follows.
    Warning(String),
    /// It is not done, and why.
    Refused(String),
}

/// What a holder has said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The pods, for [`Request::List`].
    pub pods: Vec<PodStatus>,
    /// What the operator should know.
    pub warnings: Vec<String>,
}

/// A pod that is enrolled, or should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodStatus {
    /// Its number; none, if it is lost.
    pub pod: Option<PodId>,
    /// Whose pod it is.
    pub workload: WorkloadName,
    /// Where its namespace is.
    pub netns: PathBuf,
    /// Its own addresses.
    pub addresses: Vec<IpAddr>,
    /// How it stands.
    pub state: PodState,
    /// What becomes of it without a proxy.
    pub fate: Fate,
    /// Why it is lost, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How an enrolled pod stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PodState {
    /// Its connections wait until the proxy has its identity and policies, and are refused when that takes long.
    Held,
    /// They are served.
    Serving,
    /// There is no proxy, nor is one waited for: its fate is in force.
    Unserved,
    /// They wait for a proxy that is there and has not answered for some seconds.
    Unresponsive,
    /// It is being released: what waits in its listeners is served still.
    Releasing,
    /// It was enrolled before the holder was restarted, and could not be again yet.
    Lost,
}

impl PodState {
    /// Its name in tables.
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

/// Asks the holder that listens at `socket`, and waits for what it says.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] and [`io::ErrorKind::ConnectionRefused`] when there is none; the holder's own
/// words when it refuses; [`io::ErrorKind::TimedOut`].
pub fn ask(socket: &Path, request: &Request, netns: Option<&OwnedFd>) -> io::Result<Answer> {
    let mut answer = Answer::default();
    converse(socket, request, netns, |reply| match reply {
        Reply::Pod(pod) => answer.pods.push(pod),
        Reply::Warning(warning) => answer.warnings.push(warning),
        Reply::Holder(_) | Reply::Guarded(_) | Reply::Done | Reply::Refused(_) => {}
    })?;
    Ok(answer)
}

/// Asks, and hands what is answered to `take`, up to the end.
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
                let why = "the holder ended before it answered";
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
