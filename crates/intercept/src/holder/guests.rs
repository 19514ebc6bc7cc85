//! Connections of operators, one request each.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt::socket_peercred};
use rustix::process::geteuid;

use crate::channel::{receive, send};
use crate::request::{Reply, Request};

#[cfg(test)]
mod tests;

/// Limit of open connections of operators. Beyond it, connections without permission are closed first, then the
/// oldest.
const MAX_GUESTS: usize = 16;

/// Pause of accepting after no descriptor or memory was left.
const BACK_OFF: Duration = Duration::from_secs(1);

/// All connections of operators.
pub(super) struct Guests {
    listener: OwnedFd,
    /// ID of the proxy's user, which may make no requests.
    proxy: u32,
    guests: Vec<Guest>,
    /// End of the pause of accepting, if there is one.
    closed: Option<Instant>,
}

/// The connection of an operator. It is closed after the reply to its request.
struct Guest {
    socket: OwnedFd,
    /// Whether its user may make requests. If not, the request is read all the same, because a client does not get
    /// the reply of a connection that is closed with unread data.
    may_ask: bool,
    /// The rest of the reply; `None` before the request. A list of pods can be larger than the socket buffer.
    answer: Option<VecDeque<Reply>>,
}

impl Guests {
    pub(super) fn new(listener: OwnedFd, proxy: u32) -> io::Result<Guests> {
        rustix::io::ioctl_fionbio(&listener, true)?;
        Ok(Guests {
            listener,
            proxy,
            guests: Vec::new(),
            closed: None,
        })
    }

    /// The descriptors for poll.
    pub(super) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        let guests = self.guests.iter().map(Guest::polled);
        let listener = self.closed.is_none();
        let listener = listener.then(|| PollFd::new(&self.listener, PollFlags::IN));
        listener.into_iter().chain(guests)
    }

    /// When the pause of accepting ends, if there is one.
    pub(super) fn due(&self) -> Option<Instant> {
        self.closed
    }

    /// Passes received requests to `answer`, and continues to send replies.
    pub(super) fn serve(&mut self, mut answer: impl FnMut(Request, Option<OwnedFd>) -> Vec<Reply>) {
        self.guests.retain_mut(|guest| {
            guest.listen(&mut answer);
            guest.stays()
        });
        if self.closed.is_none_or(|until| until <= Instant::now()) {
            self.closed = None;
            self.let_in();
        }
    }

    fn let_in(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let socket = match accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
                // The connection stays in the backlog: without a pause, poll would return at once again and again.
                Err(error) => {
                    tracing::error!(%error, "cannot accept requests of operators: they have to wait");
                    self.closed = Some(Instant::now() + BACK_OFF);
                    return;
                }
            };
            let may_ask = may_ask(&socket, self.proxy);
            if self.guests.len() >= MAX_GUESTS {
                match self.guests.iter().position(|guest| !guest.may_ask) {
                    Some(refused) => drop(self.guests.remove(refused)),
                    None if may_ask => drop(self.guests.remove(0)),
                    None => continue,
                }
            }
            self.guests.push(Guest {
                socket,
                may_ask,
                answer: None,
            });
        }
    }
}

impl Guest {
    fn polled(&self) -> PollFd<'_> {
        let wanted = match self.answer {
            None => PollFlags::IN,
            Some(_) => PollFlags::OUT,
        };
        PollFd::new(&self.socket, wanted)
    }

    fn listen(&mut self, answer: &mut impl FnMut(Request, Option<OwnedFd>) -> Vec<Reply>) {
        if self.answer.is_some() {
            return;
        }
        self.answer = match receive::<Request>(&self.socket) {
            Ok(Some(_)) if !self.may_ask => {
                let why = "only root may ask a holder, and never the proxy's user";
                Some([Reply::Refused(why.to_owned())].into())
            }
            Ok(Some((request, descriptors))) => {
                Some(answer(request, descriptors.into_iter().next()).into())
            }
            Ok(None) => Some(VecDeque::new()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => {
                let why = format!("the request is not understood: {error}");
                Some([Reply::Refused(why)].into())
            }
        };
    }

    /// Sends the reply until the socket buffer is full. Returns whether the connection is still needed.
    fn stays(&mut self) -> bool {
        let Some(answer) = &mut self.answer else {
            return true;
        };
        while let Some(reply) = answer.front() {
            match send(&self.socket, reply, &[]) {
                Ok(()) => answer.pop_front(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                // The operator has disconnected.
                Err(_) => return false,
            };
        }
        false
    }
}

/// Whether the peer may make requests: root or our own user, but never the user of the proxy, since a process of that
/// user may belong to the proxy. The mode of the socket file restricts access as well, but depends on its folder.
fn may_ask(guest: &OwnedFd, proxy: u32) -> bool {
    socket_peercred(guest)
        .is_ok_and(|who| who.uid.as_raw() != proxy && (who.uid.is_root() || who.uid == geteuid()))
}
