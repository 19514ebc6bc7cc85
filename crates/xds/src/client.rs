//! The node's side of the protocol.

use std::fmt;
use std::future::ready;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use heddle_model::{NodeName, ServiceAccountName, SpiffeId};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tower::service_fn;

use crate::limits::{
    MAX_CERTIFICATE_RESPONSE_BYTES, MAX_DISCOVERY_RESPONSE_BYTES, MAX_TRUST_BYTES,
};
use crate::node_mesh::{NodeMesh, Update};
use crate::proto;
use crate::proto::accesses_client::AccessesClient;
use crate::proto::authority_client::AuthorityClient;
use crate::proto::discovery_client::DiscoveryClient;
use crate::proto::{
    Access, AccessReport, DiscoveryRequest, DiscoveryResponse, IssueRequest, JoinRequest,
    WatchTrustRequest,
};
use crate::trust::{Certificate, Invalid, Joined, TrustUpdate};

/// Timeout for one answer.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// Requests of a discovery call that may wait to be sent.
const DISCOVERY_REQUESTS: usize = 16;
/// Keepalive: how often an idle connection is probed, and how long the reply may take.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(20);
const KEEP_ALIVE_WAIT: Duration = Duration::from_secs(10);

/// A connection to a control plane.
///
/// It never reconnects: when the connection ends, every call fails, and the caller makes a new one, perhaps with a
/// newer certificate. Clones share the connection.
#[derive(Debug, Clone)]
pub struct Client {
    authority: AuthorityClient<Channel>,
    discovery: DiscoveryClient<Channel>,
    accesses: AccessesClient<Channel>,
}

/// Why a call failed.
#[derive(Debug)]
pub enum ClientError {
    /// The connection failed, or the answer timed out. A later retry is safe.
    Unavailable(String),
    /// The control plane rejects the request; its message says why. A retry fails too until the operator changes
    /// something.
    Refused(String),
    /// The control plane asks for a lower rate of requests.
    Slower(String),
    /// The answer breaks the protocol.
    Invalid(Invalid),
}

impl ClientError {
    /// Whether a retry may succeed without a change by the operator.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Slower(_))
    }
}

/// What a node sends when it asks for its part of the mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The node's name, as in its certificate.
    pub node: NodeName,
    /// The address at which other nodes reach it.
    pub mesh_address: SocketAddr,
}

impl Client {
    /// Uses an open, authenticated connection to a control plane.
    ///
    /// # Errors
    /// [`ClientError::Unavailable`] when the peer does not speak the protocol.
    pub async fn over<IO>(io: IO) -> Result<Self, ClientError>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let unavailable =
            |error: tonic::transport::Error| ClientError::Unavailable(described(&error));
        // The connection is already open: this name is never resolved.
        let endpoint = Endpoint::from_static("http://control.heddle")
            .connect_timeout(ANSWER_WAIT)
            .http2_keep_alive_interval(KEEP_ALIVE_EVERY)
            .keep_alive_timeout(KEEP_ALIVE_WAIT)
            .keep_alive_while_idle(true)
            .http2_max_header_list_size(16 * 1024);
        let once = Mutex::new(Some(io));
        let connector = service_fn(move |_| {
            let io = once.lock().unwrap_or_else(PoisonError::into_inner).take();
            // A second request for the connection means that it has ended: the caller makes a new one.
            let ended = || io::Error::new(io::ErrorKind::NotConnected, "the connection has ended");
            ready(io.map(TokioIo::new).ok_or_else(ended))
        });
        let channel = endpoint
            .connect_with_connector(connector)
            .await
            .map_err(unavailable)?;
        Ok(Self {
            authority: AuthorityClient::new(channel.clone())
                .max_decoding_message_size(MAX_CERTIFICATE_RESPONSE_BYTES),
            accesses: AccessesClient::new(channel.clone())
                .max_decoding_message_size(MAX_CERTIFICATE_RESPONSE_BYTES),
            discovery: DiscoveryClient::new(channel)
                .max_decoding_message_size(MAX_DISCOVERY_RESPONSE_BYTES),
        })
    }

    /// Joins the mesh with a token's id and secret. The caller must already have compared the root that authenticated
    /// this connection with the token's digest.
    ///
    /// # Errors
    /// [`ClientError`]. Even after a transient error ([`ClientError::is_transient`]) the token may have been consumed.
    pub async fn join(
        &self,
        node: &NodeName,
        (token_id, token_secret): (&str, &[u8]),
        certificate_request: &[u8],
    ) -> Result<Joined, ClientError> {
        let request = JoinRequest {
            node_name: node.to_string(),
            token_id: token_id.to_owned(),
            token_secret: token_secret.to_vec(),
            certificate_request: certificate_request.to_vec(),
        };
        let answer = self.authority.clone().join(waiting(request)).await?;
        Ok(answer.into_inner().try_into()?)
    }

    /// Requests a certificate for an identity.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn issue(
        &self,
        id: &SpiffeId,
        certificate_request: &[u8],
    ) -> Result<Certificate, ClientError> {
        let request = IssueRequest {
            spiffe_id: id.to_string(),
            certificate_request: certificate_request.to_vec(),
        };
        let answer = self.authority.clone().issue(waiting(request)).await?;
        let certificate = answer.into_inner().certificate;
        Ok(certificate.ok_or(Invalid("certificate"))?.try_into()?)
    }

    /// Reports which accounts use which addresses by this node as their gateway, at most [`MAX_ACCESSES`](crate::MAX_ACCESSES).
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn report(
        &self,
        accesses: impl Iterator<Item = (ServiceAccountName, IpAddr)>,
    ) -> Result<(), ClientError> {
        let accesses = accesses.map(|(account, address)| Access {
            account: account.to_string(),
            address: address.to_string(),
        });
        let report = AccessReport {
            accesses: accesses.collect(),
        };
        self.accesses.clone().report(waiting(report)).await?;
        Ok(())
    }

    /// Watches the trust bundle and the deny-list. `bundle` (0 for none) and `denied` are the generations in force.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn watch_trust(&self, bundle: u64, denied: u64) -> Result<TrustWatch, ClientError> {
        let (confirm, confirmed) = mpsc::channel(1);
        let mut watch = TrustWatch {
            confirm,
            updates: None,
            bundle,
            denied,
        };
        watch.confirm(bundle, denied).await?;
        let mut client = self
            .authority
            .clone()
            .max_decoding_message_size(MAX_TRUST_BYTES);
        let answer = client.watch_trust(ReceiverStream::new(confirmed)).await?;
        watch.updates = Some(answer.into_inner());
        Ok(watch)
    }

    /// Begins to follow this node's part of the mesh, from what `mesh` knows on.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn discover(
        &self,
        own: &Registration,
        mesh: &mut NodeMesh,
    ) -> Result<Discovery, ClientError> {
        let (requests, said) = mpsc::channel(DISCOVERY_REQUESTS);
        mesh.connected();
        let first = DiscoveryRequest {
            node: Some(proto::Registration {
                node_name: own.node.to_string(),
                mesh_address: own.mesh_address.to_string(),
                type_urls: mesh
                    .first_types()
                    .map(|kind| kind.type_url().to_owned())
                    .collect(),
                on_demand: mesh.is_on_demand(),
            }),
            ..mesh.request().unwrap_or_default()
        };
        let ended = |_| ClientError::Unavailable("the control plane ended the call".to_owned());
        requests.send(first).await.map_err(ended)?;
        let mut discovery = self.discovery.clone();
        let answer = discovery.stream(ReceiverStream::new(said)).await?;
        Ok(Discovery {
            requests,
            responses: answer.into_inner(),
        })
    }
}

/// The stream of changes to the trust bundle and the deny-list.
#[derive(Debug)]
pub struct TrustWatch {
    confirm: mpsc::Sender<WatchTrustRequest>,
    /// `Some` once the call has begun.
    updates: Option<Streaming<crate::proto::WatchTrustResponse>>,
    bundle: u64,
    denied: u64,
}

impl TrustWatch {
    /// Waits for a change. It is cancel-safe: dropping the future loses nothing.
    ///
    /// # Errors
    /// [`ClientError`] when the call has ended.
    pub async fn next(&mut self) -> Result<TrustUpdate, ClientError> {
        let ended = || ClientError::Unavailable("the control plane ended the call".to_owned());
        let updates = self.updates.as_mut().ok_or_else(ended)?;
        let update = updates.message().await?.ok_or_else(ended)?;
        Ok(update.try_into()?)
    }

    /// Confirms to the control plane that an update is in force.
    ///
    /// # Errors
    /// [`ClientError::Unavailable`] when the call has ended.
    pub async fn confirm_update(&mut self, update: &TrustUpdate) -> Result<(), ClientError> {
        if let Some(bundle) = &update.bundle {
            self.bundle = bundle.generation;
        }
        if let Some(denied) = &update.denied {
            self.denied = denied.generation;
        }
        self.confirm(self.bundle, self.denied).await
    }

    async fn confirm(&self, bundle: u64, denied: u64) -> Result<(), ClientError> {
        let message = WatchTrustRequest {
            bundle_generation: bundle,
            deny_generation: denied,
        };
        let ended = |_| ClientError::Unavailable("the control plane ended the call".to_owned());
        self.confirm.send(message).await.map_err(ended)
    }
}

/// A call that tells a node what changes of its part of the mesh.
#[derive(Debug)]
pub struct Discovery {
    requests: mpsc::Sender<DiscoveryRequest>,
    responses: Streaming<DiscoveryResponse>,
}

impl Discovery {
    /// Waits until there is another mesh to use. It is cancel-safe: what came so far is in `mesh`.
    ///
    /// # Errors
    /// [`ClientError`] when the call has ended, or the control plane breaks the protocol.
    pub async fn next(&mut self, mesh: &mut NodeMesh) -> Result<Update, ClientError> {
        let ended = || ClientError::Unavailable("the control plane ended the call".to_owned());
        loop {
            // Room first: a request that was taken out must be sent. After the end the other direction says why.
            while let Ok(room) = self.requests.reserve().await {
                let Some(request) = mesh.request() else { break };
                room.send(request);
            }
            let response = self.responses.message().await?.ok_or_else(ended)?;
            if let Some(update) = mesh.accept(response)? {
                return Ok(update);
            }
        }
    }
}

/// A request with the [`ANSWER_WAIT`] timeout.
fn waiting<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(ANSWER_WAIT);
    request
}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        let said = || status.message().chars().take(1_000).collect();
        match status.code() {
            Code::ResourceExhausted => Self::Slower(said()),
            Code::PermissionDenied
            | Code::Unauthenticated
            | Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::Unimplemented
            | Code::OutOfRange => Self::Refused(said()),
            _ => Self::Unavailable(match status.message() {
                "" => status.code().description().to_owned(),
                _ => said(),
            }),
        }
    }
}

impl From<Invalid> for ClientError {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

/// An error with all of its sources: the outermost one says little.
fn described(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => write!(f, "the control plane cannot be reached: {why}"),
            Self::Refused(why) => write!(f, "the control plane refuses: {why}"),
            Self::Slower(why) => write!(f, "the control plane asks for fewer requests: {why}"),
            Self::Invalid(invalid) => write!(f, "the control plane's answer: {invalid}"),
        }
    }
}

impl std::error::Error for ClientError {}
