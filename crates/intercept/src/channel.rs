//! What the holder and the proxy say to each other.
//!
//! A message is one packet of a Unix socket (`SOCK_SEQPACKET`, unix(7)), so that none is ever read in part,
//! and its descriptors travel with it (`SCM_RIGHTS`). Both ends are the same program; still, what does not
//! have the expected form is refused.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use heddle_model::WorkloadName;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::hooks::FullTables;
use crate::{Family, Fate, PodId};

#[cfg(test)]
mod tests;

/// The longest message, in bytes.
const MAX_MESSAGE: usize = 8 * 1024;
/// The most descriptors that come with one.
const MAX_DESCRIPTORS: usize = 2;

/// What the holder says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToProxy {
    /// A pod is the mesh's. With it come the listener for what it dials and the one for what arrives.
    Enrolled {
        /// The pod.
        pod: PodId,
        /// Whose pod it is.
        workload: WorkloadName,
        /// Its own addresses, as they are when this is said: later changes are the hooks' matter.
        addresses: Vec<IpAddr>,
    },
    /// All pods have been told that there were when the proxy was started.
    Recalled,
    /// How often the hooks had no room for a connection.
    Full(FullTables),
    /// Does the proxy still listen to this? To be answered with [`ToHolder::Pong`].
    Ping {
        /// Which question.
        number: u64,
    },
    /// A pod is not the mesh's any more. Nothing new is steered to its listeners; what waits in them is to
    /// be served still, and [`ToHolder::Drained`] said then.
    Released {
        /// The pod.
        pod: PodId,
    },
    /// The answer to [`ToHolder::Open`]. With it comes the socket, unless there is an error.
    Socket {
        /// Which question.
        request: u64,
        /// What the kernel said (errno(3)), when there is no socket.
        error: Option<i32>,
    },
}

/// What the proxy says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToHolder {
    /// The proxy works.
    Ready,
    /// The proxy was told to end, and takes nothing new from now on.
    Stopping,
    /// A socket in a pod's namespace is wanted.
    Open {
        /// By which the answer is told apart.
        request: u64,
        /// In whose namespace.
        pod: PodId,
        /// What it is to speak.
        family: Family,
        /// The address, of another host, that it speaks with; its own when there is none. Loopback, link-local
        /// and the pod's own addresses are refused (EACCES), as are groups and ports below 1024.
        source: Option<SocketAddr>,
    },
    /// The pod's connections are served from now on.
    Serving {
        /// The pod.
        pod: PodId,
        /// What becomes of it should the proxy die.
        fate: Fate,
    },
    /// The pod is no workload of the mesh: what it dials is refused, and no caller reaches it.
    Holding {
        /// The pod.
        pod: PodId,
    },
    /// A released pod's listeners are closed.
    Drained {
        /// The pod.
        pod: PodId,
    },
    /// The answer to [`ToProxy::Ping`].
    Pong {
        /// Which question.
        number: u64,
    },
}

/// The two ends of a channel, non-blocking and closed on `exec`.
///
/// # Errors
/// When there are no descriptors.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// Sends one message with its descriptors.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] when the other end does not keep up, anything else when it is gone.
pub fn send(
    channel: impl AsFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MAX_MESSAGE || descriptors.len() > MAX_DESCRIPTORS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let has_room = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        debug_assert!(has_room, "there is space for as many as there may be");
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(channel, &[IoSlice::new(&bytes)], &mut ancillary, flags)?;
    Ok(())
}

/// Receives the next message and its descriptors; `None` when the other end is gone.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] when there is none, [`io::ErrorKind::InvalidData`] when it has not the
/// expected form (the next one may).
pub fn receive<M: DeserializeOwned>(channel: impl AsFd) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut bytes = [0; MAX_MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    let received = match recvmsg(channel, &mut buffers, &mut ancillary, flags) {
        Ok(received) => received,
        Err(Errno::CONNRESET) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let descriptors: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    if received.bytes == 0 {
        return Ok(None);
    }
    let is_cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
    // The space for them is rounded up, and may have room for one more.
    if received.flags.intersects(is_cut) || descriptors.len() > MAX_DESCRIPTORS {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let message = bytes.get(..received.bytes).unwrap_or_default();
    let message = serde_json::from_slice(message)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some((message, descriptors)))
}
