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

/// Sockets that may be asked for at the same time: the holder answers each in some microseconds.
const MAX_WAITING: usize = 1_024;

/// What the holder says.
#[derive(Debug)]
pub enum Event {
    /// A pod is the mesh's.
    Enrolled {
        /// The pod.
        pod: PodId,
        /// Whose pod it is.
        workload: WorkloadName,
        /// Its own addresses.
        addresses: Vec<IpAddr>,
        /// In its namespace: what it dials comes in here.
        outbound: TcpListener,
        /// In its namespace: what arrives for it comes in here.
        inbound: TcpListener,
    },
    /// All pods have been told that there were when the proxy was started.
    Recalled,
    /// How often the hooks had no room for a connection, since the holder was started.
    Full(FullTables),
    /// A pod is not the mesh's any more: what waits in its listeners is to be served still.
    Released {
        /// The pod.
        pod: PodId,
    },
}

/// What the holder is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tell {
    /// The proxy works: should it end, another try is worth it.
    Ready,
    /// The proxy ends, and takes nothing new from now on.
    Stopping,
    /// The pod's connections are served from now on, and what becomes of it should the proxy die.
    Serving {
        /// The pod.
        pod: PodId,
        /// What becomes of it.
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
}

/// The channel, for the one who listens to the holder.
#[derive(Debug)]
pub struct Client {
    channel: AsyncFd<Arc<Shared>>,
}

/// Tells the holder, from any thread.
#[derive(Debug, Clone)]
pub struct Teller {
    shared: Arc<Shared>,
}

/// Asks the holder for sockets, from any thread.
#[derive(Debug, Clone)]
pub struct Sockets {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    channel: OwnedFd,
    next: AtomicU64,
    /// Who waits for a socket; `None` once the holder is gone.
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
        // Every change of it is whole before the next begins.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// The proxy's end, and what Workers ask for sockets with. Within a runtime.
    ///
    /// # Errors
    /// When the descriptor cannot be used with the runtime.
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
        // SAFETY: the descriptor is open, and stays the same open one for as long as the registration
        // lives: it is closed when the last reference to it goes, and the registration holds one.
        let channel = unsafe { AsyncFd::register_with_interest(shared, Interest::READABLE) }?;
        Ok((Client { channel }, sockets))
    }

    /// What the holder says next; `None` once it is gone. Dropping the future loses nothing.
    ///
    /// Sockets that were asked for arrive here as well, and questions whether the proxy still works: a task must
    /// always be listening.
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
                    tracing::error!(%error, "the holder says what is not understood");
                }
                // Nothing to read after all.
                Err(_would_block) => {}
                Ok(Ok(None) | Err(_)) => {
                    // The tasks that wait hear it.
                    self.channel.get_ref().waiting().take();
                    return None;
                }
            }
        }
    }

    /// What the holder is told with.
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
                    tracing::error!(%workload, "the holder sent no listeners");
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
                // Where it does not fit, the holder has not listened for long: it asks again.
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
                    // The task that asked may have given up.
                    let _ = sender.send(answer);
                }
                None
            }
        }
    }
}

impl Teller {
    /// Tells the holder.
    ///
    /// # Errors
    /// When it is gone, or does not keep up.
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
    /// A non-blocking TCP socket in a pod's namespace, not connected. With a `source` it speaks with that
    /// address, of another host; with port 0 there, with any port.
    ///
    /// # Errors
    /// What the kernel said to the holder ([`io::ErrorKind::AddrInUse`] for a source's port that is taken),
    /// [`io::ErrorKind::PermissionDenied`] for a source that is no other host's, or a port below 1024 of one,
    /// [`io::ErrorKind::NotFound`] for a pod that is released, [`io::ErrorKind::BrokenPipe`] when the
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

/// Takes back a question whose asker has given up.
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
