//! A fake holder for tests of other crates: it makes plain sockets in the test's own namespace.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use heddle_model::WorkloadName;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::channel::{ToHolder, ToProxy, pair, receive, send};
use crate::{Family, PodId};

/// A fake holder, which needs no privileges.
#[derive(Debug)]
pub struct Holder {
    channel: Arc<OwnedFd>,
    /// Messages from the proxy, including requests for sockets.
    heard: Arc<Mutex<Vec<ToHolder>>>,
    _thread: JoinHandle<()>,
}

impl Holder {
    /// Starts the fake holder and returns the proxy's end of the channel. The holder ends when that is closed.
    ///
    /// # Errors
    /// When no descriptors are left.
    pub fn start() -> io::Result<(Holder, OwnedFd)> {
        let (channel, proxy) = pair()?;
        let channel = Arc::new(channel);
        let heard = Arc::<Mutex<Vec<ToHolder>>>::default();
        let thread = std::thread::spawn({
            let (channel, heard) = (Arc::clone(&channel), Arc::clone(&heard));
            move || serve(&channel, &heard)
        });
        let holder = Holder {
            channel,
            heard,
            _thread: thread,
        };
        Ok((holder, proxy))
    }

    /// Tells the proxy that a pod is enrolled, with listeners that the test has bound.
    ///
    /// # Errors
    /// When the proxy is gone.
    pub fn enroll(
        &self,
        pod: PodId,
        workload: &WorkloadName,
        addresses: &[IpAddr],
        (outbound, inbound): (&TcpListener, &TcpListener),
    ) -> io::Result<()> {
        let message = ToProxy::Enrolled {
            pod,
            workload: workload.clone(),
            addresses: addresses.to_vec(),
        };
        let listeners = [outbound.as_fd(), inbound.as_fd()];
        send(&self.channel, &message, &listeners)
    }

    /// Tells the proxy that it has got all pods that exist so far.
    ///
    /// # Errors
    /// When the proxy is gone.
    pub fn recalled(&self) -> io::Result<()> {
        send(&self.channel, &ToProxy::Recalled, &[])
    }

    /// Tells the proxy that a pod is released.
    ///
    /// # Errors
    /// When the proxy is gone.
    pub fn release(&self, pod: PodId) -> io::Result<()> {
        send(&self.channel, &ToProxy::Released { pod }, &[])
    }

    /// All messages from the proxy so far.
    pub fn heard(&self) -> Vec<ToHolder> {
        let heard = self.heard.lock();
        heard.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(channel: &OwnedFd, heard: &Mutex<Vec<ToHolder>>) {
    loop {
        let mut ready = [PollFd::new(channel, PollFlags::IN)];
        if poll(&mut ready, None).is_err() {
            return;
        }
        let Ok(Some((said, _))) = receive::<ToHolder>(channel) else {
            return;
        };
        if let ToHolder::Open {
            request,
            family,
            source,
            ..
        } = &said
        {
            let made = make(*family, *source);
            let error = made.as_ref().err().and_then(io::Error::raw_os_error);
            let socket = made.ok();
            let descriptors: Vec<_> = socket.iter().map(AsFd::as_fd).collect();
            let answer = ToProxy::Socket {
                request: *request,
                error,
            };
            if send(channel, &answer, &descriptors).is_err() {
                return;
            }
        }
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.push(said);
    }
}

/// Makes a socket. The source must be an address of this machine: others need privileges.
fn make(family: Family, source: Option<SocketAddr>) -> io::Result<OwnedFd> {
    let family = match family {
        Family::V4 => AddressFamily::INET,
        Family::V6 => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(source) = source {
        rustix::net::bind(&socket, &source)?;
    }
    Ok(socket)
}
