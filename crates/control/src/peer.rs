//! The authenticated peer of a connection.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use heddle_authority::{Asker, DenyList, Serial, UnixTime};
use heddle_model::{NodeName, SpiffeId, Subject, TrustDomain, WorkloadName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;
use tonic::Status;
use tonic::transport::server::Connected;

use super::places::{Holding, Leave, Place};

/// Longest lifetime of a connection, whatever its certificate says: timers have a limited range.
const LONGEST: Duration = Duration::from_secs(90 * 86_400);

/// The peer of a connection, as found by the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its source address, if known.
    pub address: Option<SocketAddr>,
    /// Its verified certificate. `None` for a peer that sent none: it may join and nothing else.
    pub certificate: Option<PeerCertificate>,
}

/// The verified fields of a peer's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The SPIFFE ID that it proves.
    pub id: SpiffeId,
    /// Its serial number, if it has the form of serial numbers of this authority.
    pub serial: Option<Serial>,
    /// Expiry in seconds since 1970. The connection is closed then.
    pub not_after: u64,
}

impl Peer {
    /// The peer as the asker for [`may_issue`](heddle_authority::may_issue).
    pub(super) fn asker(&self) -> Option<Asker> {
        self.certificate.as_ref().map(|certificate| Asker {
            id: certificate.id.clone(),
            serial: certificate.serial,
        })
    }

    /// The node name of the peer; `None` if it is not a node.
    pub(super) fn node(&self) -> Option<&NodeName> {
        match &self.certificate.as_ref()?.id.subject {
            Subject::Node(node) => Some(node),
            Subject::Workload(_) | Subject::Control | Subject::Envoy(_) => None,
        }
    }

    /// The node name of a peer that is allowed to receive data now: its certificate is valid and not denied.
    pub(super) fn admitted(
        &self,
        trust_domain: &TrustDomain,
        denied: &DenyList,
        now: UnixTime,
    ) -> Result<&NodeName, Status> {
        self.valid(trust_domain, denied, now)?;
        self.node()
            .ok_or_else(|| Status::permission_denied("only nodes may ask for this"))
    }

    /// The workload of a peer that is an Envoy, and is allowed to receive data now.
    pub(super) fn admitted_envoy(
        &self,
        trust_domain: &TrustDomain,
        denied: &DenyList,
        now: UnixTime,
    ) -> Result<&WorkloadName, Status> {
        match &self.valid(trust_domain, denied, now)?.id.subject {
            Subject::Envoy(workload) => Ok(workload),
            _ => Err(Status::permission_denied(
                "only Envoys may ask for this (heddle envoy bootstrap)",
            )),
        }
    }

    /// The peer's certificate, if it is valid now and not denied.
    fn valid(
        &self,
        trust_domain: &TrustDomain,
        denied: &DenyList,
        now: UnixTime,
    ) -> Result<&PeerCertificate, Status> {
        let certificate = self.certificate.as_ref();
        let certificate =
            certificate.ok_or_else(|| Status::unauthenticated("no client certificate: join"))?;
        if now.as_secs() >= certificate.not_after {
            return Err(Status::unauthenticated("the certificate has expired"));
        }
        if certificate.id.trust_domain != *trust_domain {
            let said = "the certificate belongs to another trust domain";
            return Err(Status::permission_denied(said));
        }
        if denied
            .denies(&certificate.id, certificate.serial, now)
            .is_some()
        {
            return Err(Status::permission_denied("on the deny-list"));
        }
        Ok(certificate)
    }
}

/// A connection with its peer. It ends when its certificate expires, its root is no longer trusted, or it is evicted,
/// even while calls are in progress.
pub(super) struct PeerStream<IO> {
    io: IO,
    peer: Peer,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Permit of the connection limit. It is released when dropped, like `place`.
    _connection: OwnedSemaphorePermit,
    /// Place among the connections with this identity, or among those without a certificate.
    place: Place,
}

/// Connection data that tonic attaches to every request.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) peer: Peer,
    /// The holder of its place.
    pub(super) holding: Holding,
}

impl<IO> PeerStream<IO> {
    pub(super) fn new(
        io: IO,
        peer: Peer,
        life: Duration,
        distrusted: impl Future<Output = ()> + Send + 'static,
        (connection, place, leave): (OwnedSemaphorePermit, Place, Leave),
    ) -> Self {
        let end = async move {
            tokio::select! {
                () = sleep(life.min(LONGEST)) => {}
                () = distrusted => {}
                () = leave.told() => {}
            }
        };
        Self {
            io,
            peer,
            end: Box::pin(end),
            _connection: connection,
            place,
        }
    }
}

impl<IO> Connected for PeerStream<IO> {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        Connection {
            peer: self.peer.clone(),
            holding: self.place.holding(),
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for PeerStream<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for PeerStream<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
