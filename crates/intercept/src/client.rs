//! The proxy's end of the channel to the holder.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use heddle_model::WorkloadName;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use crate::channel::{ToHolder, ToProxy, receive, send};
use crate::hooks::FullTables;
use crate::{Family, Fate, PodId};

#[cfg(test)]
mod tests;

/// Limit of pending requests for sockets: the holder answers each within microseconds.
const MAX_WAITING: usize = 1_024;

/// Events from the holder.
#[derive(Debug)]
pub enum Event {
    /// A pod was enrolled.
    Enrolled {
        pod: PodId,
        /// The workload that runs in the pod.
        workload: WorkloadName,
        /// The pod's own addresses.
        addresses: Vec<IpAddr>,
        /// Listener in the pod's namespace for outbound connections.
        outbound: TcpListener,
        /// Listener in the pod's namespace for inbound connections.
        inbound: TcpListener,
    },
    /// All pods that were enrolled when the proxy was started have been announced.
    Recalled,
    /// How often tables of the hooks were full, since the holder was started.
    Full(FullTables),
    /// A pod was released: connections in the backlog of its listeners are still to be served.
    Released { pod: PodId },
}

/// Messages to the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tell {
    /// The proxy has started up: if it dies, the holder should start it again.
    Ready,
    /// The proxy stops, and accepts no new connections.
    Stopping,
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
}

/// The receiving side of the channel.
#[derive(Debug)]
pub struct Client {
    channel: AsyncFd<Arc<Shared>>,
}

/// Sends messages to the holder, from any thread.
#[derive(Debug, Clone)]
pub struct Teller {
    shared: Arc<Shared>,
}

/// Requests sockets from the holder, from any thread.
#[derive(Debug, Clone)]
pub struct Sockets {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    channel: OwnedFd,
    next: AtomicU64,
    /// Pending requests for sockets; `None` once the holder is gone.
    waiting: Mutex<Option<Waiting>>,
}

type Waiting = HashMap<u64, oneshot::Sender<io::Result<OwnedFd>>>;

impl std::os::fd::AsRawFd for Shared {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.channel.as_raw_fd()
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        // A panic cannot leave the map half changed, so a poisoned lock is safe to use.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// Makes the receiving side, and the handle with which Workers request sockets. Call it within a tokio runtime.
    ///
    /// # Errors
    /// When the descriptor cannot be registered with the runtime.
    pub fn new(channel: OwnedFd) -> io::Result<(Client, Sockets)> {
        rustix::io::ioctl_fionbio(&channel, true)?;
        let shared = Arc::new(Shared {
            channel,
            next: AtomicU64::new(0),
            waiting: Mutex::new(Some(HashMap::new())),
        });
        let sockets = Sockets {
            shared: Arc::clone(&shared),
        };
        #[allow(
            unsafe_code,
            reason = "the runtime asks for a promise about the descriptor"
        )]
        // SAFETY: the descriptor is open, and stays open and the same for as long as the registration
        // lives: it is closed with the last reference to `shared`, and the registration holds one.
        let channel = unsafe { AsyncFd::register_with_interest(shared, Interest::READABLE) }?;
        Ok((Client { channel }, sockets))
    }

    /// The next event from the holder; `None` once it is gone. Cancel safe.
    ///
    /// This also receives requested sockets and answers the holder's pings, so a task must always be waiting here.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let received = self
                .channel
                .readable()
                .await
                .ok()?
                .try_io(|channel| receive::<ToProxy>(&channel.get_ref().channel));
            match received {
                Ok(Ok(Some((message, descriptors)))) => {
                    if let Some(event) = self.understand(message, descriptors) {
                        return Some(event);
                    }
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::error!(%error, "the holder sent a malformed message");
                }
                // A spurious wake-up: nothing to read.
                Err(_would_block) => {}
                Ok(Ok(None) | Err(_)) => {
                    // Dropping the senders wakes all waiting tasks with an error.
                    self.channel.get_ref().waiting().take();
                    return None;
                }
            }
        }
    }

    /// A handle for sending messages to the holder.
    pub fn teller(&self) -> Teller {
        Teller {
            shared: Arc::clone(self.channel.get_ref()),
        }
    }

    fn understand(&self, message: ToProxy, descriptors: Vec<OwnedFd>) -> Option<Event> {
        match message {
            ToProxy::Enrolled {
                pod,
                workload,
                addresses,
            } => {
                let Ok([outbound, inbound]) = <[OwnedFd; 2]>::try_from(descriptors) else {
                    tracing::error!(%workload, "the holder sent a pod without its listeners");
                    return None;
                };
                Some(Event::Enrolled {
                    pod,
                    workload,
                    addresses,
                    outbound: outbound.into(),
                    inbound: inbound.into(),
                })
            }
            ToProxy::Recalled => Some(Event::Recalled),
            ToProxy::Full(full) => Some(Event::Full(full)),
            ToProxy::Ping { number } => {
                // Fails when the socket buffer is full because the holder has not read for long: it sends another
                // ping.
                let _ = send(
                    &self.channel.get_ref().channel,
                    &ToHolder::Pong { number },
                    &[],
                );
                None
            }
            ToProxy::Released { pod } => Some(Event::Released { pod }),
            ToProxy::Socket { request, error } => {
                let answer = match (error, descriptors.into_iter().next()) {
                    (None, Some(socket)) => Ok(socket),
                    (Some(errno), _) => Err(io::Error::from_raw_os_error(errno)),
                    (None, None) => Err(io::ErrorKind::InvalidData.into()),
                };
                let mut waiting = self.channel.get_ref().waiting();
                if let Some(sender) = waiting.as_mut().and_then(|all| all.remove(&request)) {
                    // Fails when the requesting task has given up.
                    let _ = sender.send(answer);
                }
                None
            }
        }
    }
}

impl Teller {
    /// Sends a message to the holder.
    ///
    /// # Errors
    /// When the holder is gone, or does not keep up.
    pub fn tell(&self, tell: Tell) -> io::Result<()> {
        let message = match tell {
            Tell::Ready => ToHolder::Ready,
            Tell::Stopping => ToHolder::Stopping,
            Tell::Serving { pod, fate } => ToHolder::Serving { pod, fate },
            Tell::Holding { pod } => ToHolder::Holding { pod },
            Tell::Drained { pod } => ToHolder::Drained { pod },
        };
        send(&self.shared.channel, &message, &[])
    }
}

impl Sockets {
    /// Requests a non-blocking, unconnected TCP socket in a pod's namespace. With a `source` it is bound to that
    /// address of another host; port 0 stands for any port.
    ///
    /// # Errors
    /// The kernel's error at the holder ([`io::ErrorKind::AddrInUse`] when the source port is taken),
    /// [`io::ErrorKind::PermissionDenied`] for a source that is not an address of another host, or has a port below
    /// 1024, [`io::ErrorKind::NotFound`] for a pod that is released, [`io::ErrorKind::BrokenPipe`] when the
    /// holder is gone, [`io::ErrorKind::WouldBlock`] when it does not keep up.
    pub async fn open(
        &self,
        pod: PodId,
        family: Family,
        source: Option<SocketAddr>,
    ) -> io::Result<OwnedFd> {
        let shared = &self.shared;
        let request = shared.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        match &mut *shared.waiting() {
            None => return Err(io::ErrorKind::BrokenPipe.into()),
            Some(waiting) if waiting.len() >= MAX_WAITING => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Some(waiting) => waiting.insert(request, sender),
        };
        let asked = Asked { shared, request };
        let open = ToHolder::Open {
            request,
            pod,
            family,
            source,
        };
        send(&shared.channel, &open, &[])?;
        let answer = receiver.await;
        drop(asked);
        answer.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }
}

/// Removes a pending request when it is dropped, also when the requesting task gives up.
struct Asked<'a> {
    shared: &'a Shared,
    request: u64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = &mut *self.shared.waiting() {
            waiting.remove(&self.request);
        }
    }
}
