//! Operators that ask something.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{SocketFlags, accept_with, sockopt::socket_peercred};
use rustix::process::geteuid;

use crate::channel::{receive, send};
use crate::request::{Reply, Request};

/// Operators that are listened to at the same time; whoever came first makes room for another.
const MAX_GUESTS: usize = 16;

/// Who asks.
pub(super) struct Guests {
    listener: OwnedFd,
    guests: Vec<OwnedFd>,
}

impl Guests {
    pub(super) fn new(listener: OwnedFd) -> io::Result<Guests> {
        rustix::io::ioctl_fionbio(&listener, true)?;
        Ok(Guests {
            listener,
            guests: Vec::new(),
        })
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(&self.listener)
            .chain(&self.guests)
            .map(AsFd::as_fd)
    }

    /// Lets `answer` answer what has been asked. One question each: then the guest leaves.
    pub(super) fn serve(&mut self, mut answer: impl FnMut(Request, Option<OwnedFd>) -> Vec<Reply>) {
        self.guests.retain(|guest| match receive::<Request>(guest) {
            Ok(Some((request, descriptors))) => {
                for reply in answer(request, descriptors.into_iter().next()) {
                    // It may have gone, or reads nothing.
                    let _ = send(guest, &reply, &[]);
                }
                false
            }
            Ok(None) => false,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            Err(error) => {
                let why = format!("the request is not understood: {error}");
                let _ = send(guest, &Reply::Refused(why), &[]);
                false
            }
        });
        while let Ok(guest) =
            accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
        {
            if !may_ask(&guest) {
                let why = "only root and the user that the holder runs as may ask".to_owned();
                let _ = send(&guest, &Reply::Refused(why), &[]);
                continue;
            }
            if self.guests.len() >= MAX_GUESTS {
                self.guests.remove(0);
            }
            self.guests.push(guest);
        }
    }
}

/// The mode of the socket keeps others out as well; this does not depend on a folder.
fn may_ask(guest: &OwnedFd) -> bool {
    socket_peercred(guest).is_ok_and(|who| who.uid.is_root() || who.uid == geteuid())
}
