//! Operators that ask something.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::net::{SocketFlags, accept_with, sockopt::socket_peercred};
use rustix::process::geteuid;

use crate::channel::{receive, send};
use crate::request::{Reply, Request};

#[cfg(test)]
mod tests;

/// Operators that are listened to at the same time; whoever came first makes room for another.
const MAX_GUESTS: usize = 16;

/// Who asks.
pub(super) struct Guests {
    listener: OwnedFd,
    guests: Vec<Guest>,
}

/// One question each: when it is answered, the guest leaves.
struct Guest {
    socket: OwnedFd,
    /// What is left to be said, once there is a question: a list is longer than what a socket takes at once.
    answer: Option<VecDeque<Reply>>,
}

impl Guests {
    pub(super) fn new(listener: OwnedFd) -> io::Result<Guests> {
        rustix::io::ioctl_fionbio(&listener, true)?;
        Ok(Guests {
            listener,
            guests: Vec::new(),
        })
    }

    /// What is to be waited for.
    pub(super) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        let guests = self.guests.iter().map(Guest::polled);
        std::iter::once(PollFd::new(&self.listener, PollFlags::IN)).chain(guests)
    }

    /// Lets `answer` answer what has been asked, and says on what has been answered.
    pub(super) fn serve(&mut self, mut answer: impl FnMut(Request, Option<OwnedFd>) -> Vec<Reply>) {
        self.guests.retain_mut(|guest| {
            guest.listen(&mut answer);
            guest.stays()
        });
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(socket) = accept_with(&self.listener, flags) {
            if !may_ask(&socket) {
                let why = "only root and the user that the holder runs as may ask".to_owned();
                let _ = send(&socket, &Reply::Refused(why), &[]);
                continue;
            }
            if self.guests.len() >= MAX_GUESTS {
                self.guests.remove(0);
            }
            let answer = None;
            self.guests.push(Guest { socket, answer });
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

/// The mode of the socket keeps others out as well; this does not depend on a folder.
fn may_ask(guest: &OwnedFd) -> bool {
    socket_peercred(guest).is_ok_and(|who| who.uid.is_root() || who.uid == geteuid())
}
