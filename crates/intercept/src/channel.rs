//! Messages between the holder and the proxy.
//!
//! A message is one packet of a Unix socket (`SOCK_SEQPACKET`, unix(7)), so that it is never read in part. Its
//! descriptors travel with it (`SCM_RIGHTS`). Both ends are the same program; even so, a malformed message is
//! refused.

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

/// Limit of a message, in bytes.
const MAX_MESSAGE: usize = 8 * 1024;
/// Limit of descriptors with a message.
const MAX_DESCRIPTORS: usize = 2;

/// Messages from the holder to the proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToProxy {
    /// A pod was enrolled. Its listeners for outbound and for inbound connections come with the message.
    Enrolled {
        pod: PodId,
        /// The workload that runs in the pod.
        workload: WorkloadName,
        /// The pod's own addresses now. Only the hooks follow later changes.
        addresses: Vec<IpAddr>,
    },
    /// All pods that were enrolled when the proxy was started have been sent.
    Recalled,
    /// How often tables of the hooks were full.
    Full(FullTables),
    /// Checks that the proxy still reads the channel. It answers with [`ToHolder::Pong`].
    Ping {
        /// Number to be repeated in the answer.
        number: u64,
    },
    /// A pod was released. No new connection is steered to its listeners. The proxy serves those in their backlog,
    /// then sends [`ToHolder::Drained`].
    Released { pod: PodId },
    /// The answer to [`ToHolder::Open`]. The socket comes with it, unless there is an error.
    Socket {
        /// Number of the request.
        request: u64,
        /// The kernel's error (errno(3)) when there is no socket.
        error: Option<i32>,
    },
}

/// Messages from the proxy to the holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToHolder {
    /// The proxy has started up.
    Ready,
    /// The proxy was told to stop, and accepts no new connections.
    Stopping,
    /// Requests a socket in a pod's namespace.
    Open {
        /// Number that the answer repeats.
        request: u64,
        /// The pod in whose namespace the socket is made.
        pod: PodId,
        /// Address family of the socket.
        family: Family,
        /// Source address of another host; `None` for an address of the pod. Loopback, link-local, multicast
        /// and the pod's own addresses are refused (EACCES), as are ports below 1024.
        source: Option<SocketAddr>,
    },
    /// The proxy serves the pod's connections from now on.
    Serving {
        pod: PodId,
        /// What happens to the pod's traffic if the proxy dies.
        fate: Fate,
    },
    /// The pod is no workload of the mesh: its outbound connections are refused, and no caller reaches it.
    Holding { pod: PodId },
    /// The proxy has closed the listeners of a released pod.
    Drained { pod: PodId },
    /// The answer to [`ToProxy::Ping`].
    Pong {
        /// Number of the ping.
        number: u64,
    },
}

/// Makes the two ends of a channel, non-blocking and closed on `exec`.
///
/// # Errors
/// When no descriptors are left.
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
/// [`io::ErrorKind::WouldBlock`] when the other end does not keep up, other errors when it is gone.
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
/// [`io::ErrorKind::WouldBlock`] when no message is there, [`io::ErrorKind::InvalidData`] when it is malformed
/// (later messages can still be received).
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
    // The ancillary buffer is rounded up, so it may hold one descriptor more than allowed.
    if received.flags.intersects(is_cut) || descriptors.len() > MAX_DESCRIPTORS {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let message = bytes.get(..received.bytes).unwrap_or_default();
    let message = serde_json::from_slice(message)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some((message, descriptors)))
}
