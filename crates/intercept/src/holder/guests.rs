//! Operators that ask something.

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

/// Operators that are listened to at the same time; the one that came first makes room for another.
const MAX_GUESTS: usize = 16;

/// How long no operator is let in after there was no descriptor or memory for one.
const BACK_OFF: Duration = Duration::from_secs(1);

/// Who asks.
pub(super) struct Guests {
    listener: OwnedFd,
    /// The user that may not.
    proxy: u32,
    guests: Vec<Guest>,
    /// Until when no operator is let in: there was no descriptor for one.
    closed: Option<Instant>,
}

/// One question each: when it is answered, the guest leaves.
struct Guest {
    socket: OwnedFd,
    /// A client that may not is heard out all the same: it hears no answer to a request that was not read.
    may_ask: bool,
    /// What is left to be said, once there is a question: a list is longer than what a socket takes at once.
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

    /// What is to be waited for.
    pub(super) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        let guests = self.guests.iter().map(Guest::polled);
        let listener = self.closed.is_none();
        let listener = listener.then(|| PollFd::new(&self.listener, PollFlags::IN));
        listener.into_iter().chain(guests)
    }

    /// When an operator may be let in again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.closed
    }

    /// Lets `answer` answer what has been asked, and says on what has been answered.
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
                // Who waits is there still: without this it would be looked at again and again.
                Err(error) => {
                    tracing::error!(%error, "operators that ask the holder have to wait");
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

    /// Says what the socket takes. Returns whether there is more to hear or to say.
    fn stays(&mut self) -> bool {
        let Some(answer) = &mut self.answer else {
            return true;
        };
        while let Some(reply) = answer.front() {
            match send(&self.socket, reply, &[]) {
                Ok(()) => answer.pop_front(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                // It has gone.
                Err(_) => return false,
            };
        }
        false
    }
}

/// The mode of the socket keeps others out as well; this does not depend on a folder. Where the user is the
/// proxy's as well, no process is heard: it cannot be known which of its processes the proxy has started.
fn may_ask(guest: &OwnedFd, proxy: u32) -> bool {
    socket_peercred(guest)
        .is_ok_and(|who| who.uid.as_raw() != proxy && (who.uid.is_root() || who.uid == geteuid()))
}
