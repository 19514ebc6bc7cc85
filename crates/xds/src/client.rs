//! A node's side of the protocol.

use std::fmt;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use heddle_model::{Mesh, NodeName, SpiffeId};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tower::service_fn;

use crate::limits::{
    MAX_CERTIFICATE_RESPONSE_BYTES, MAX_EPOCH_BYTES, MAX_MESH_BYTES, MAX_TRUST_BYTES,
};
use crate::proto::authority_client::AuthorityClient;
use crate::proto::mesh_client::MeshClient;
use crate::proto::{IssueRequest, JoinRequest, WatchRequest, WatchTrustRequest};
use crate::trust::{Certificate, Invalid, Joined, TrustUpdate};

/// How long one answer may take.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// How often a silent connection is asked whether it lives, and how long it may take to say so.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(20);
const KEEP_ALIVE_WAIT: Duration = Duration::from_secs(10);

/// A connection to a control plane.
///
/// It is one connection: when that ends, every call fails, and the caller makes another, perhaps with
/// a newer certificate. Clones share it.
#[derive(Debug, Clone)]
pub struct Client {
    authority: AuthorityClient<Channel>,
    mesh: MeshClient<Channel>,
}

/// Why a call came to nothing.
#[derive(Debug)]
pub enum ClientError {
    /// The connection failed, or the answer took too long. Another try, later, is safe.
    Unavailable(String),
    /// The control plane refuses; why, as far as it says. Another try will fare no better until
    /// the operator changes something.
    Refused(String),
    /// The control plane asks for fewer attempts.
    Slower(String),
    /// The answer does not hold to the protocol.
    Invalid(Invalid),
}

impl ClientError {
    /// Whether the same call may succeed later without a change by the operator.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Slower(_))
    }
}

/// What a node says of itself when it asks for its part of the mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Its name, as in its certificate.
    pub node: NodeName,
    /// Where other nodes reach it.
    pub mesh_address: SocketAddr,
    /// The epoch and generation of what it has in force, if anything.
    pub last: Option<(String, u64)>,
}

impl Client {
    /// Speaks to a control plane over a connection that was made and authenticated.
    ///
    /// # Errors
    /// [`ClientError::Unavailable`] when the other side does not speak the protocol.
    pub async fn over<IO>(io: IO) -> Result<Self, ClientError>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let unavailable =
            |error: tonic::transport::Error| ClientError::Unavailable(described(&error));
        // The connection is there already: the name is never looked up.
        let endpoint = Endpoint::from_static("http://control.heddle")
            .connect_timeout(ANSWER_WAIT)
            .http2_keep_alive_interval(KEEP_ALIVE_EVERY)
            .keep_alive_timeout(KEEP_ALIVE_WAIT)
            .keep_alive_while_idle(true)
            .http2_max_header_list_size(16 * 1024);
        let once = Mutex::new(Some(io));
        let connector = service_fn(move |_| {
            let io = once.lock().unwrap_or_else(PoisonError::into_inner).take();
            // Asked for again, the connection has ended: the caller makes another.
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
            mesh: MeshClient::new(channel).max_decoding_message_size(MAX_MESH_BYTES),
        })
    }

    /// Joins the mesh with a token's id and secret. The caller has compared the root that the
    /// connection was authenticated by with the token's digest.
    ///
    /// # Errors
    /// [`ClientError`]. After an error that [`ClientError::is_transient`] the token may have been
    /// used up all the same.
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

    /// Asks for a certificate of an identity.
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

    /// Follows which certificates to trust, from what is in force: the generations of the bundle (0 for
    /// none) and of the deny-list.
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

    /// Follows this node's part of the mesh.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn watch_mesh(&self, own: &Registration) -> Result<MeshWatch, ClientError> {
        let (last_epoch, last_generation) = own.last.clone().unwrap_or_default();
        let request = WatchRequest {
            node_name: own.node.to_string(),
            mesh_address: own.mesh_address.to_string(),
            last_epoch,
            last_generation,
        };
        let answer = self.mesh.clone().watch(request).await?;
        Ok(MeshWatch {
            updates: answer.into_inner(),
        })
    }
}

/// Which certificates to trust, as it changes.
#[derive(Debug)]
pub struct TrustWatch {
    confirm: mpsc::Sender<WatchTrustRequest>,
    /// There as soon as the call has begun.
    updates: Option<Streaming<crate::proto::WatchTrustResponse>>,
    bundle: u64,
    denied: u64,
}

impl TrustWatch {
    /// Waits for a change. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`ClientError`] when the call has ended.
    pub async fn next(&mut self) -> Result<TrustUpdate, ClientError> {
        let ended = || ClientError::Unavailable("the control plane ended the call".to_owned());
        let updates = self.updates.as_mut().ok_or_else(ended)?;
        let update = updates.message().await?.ok_or_else(ended)?;
        Ok(update.try_into()?)
    }

    /// Says that an update is in force.
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

/// A node's part of the mesh, as it changes.
#[derive(Debug)]
pub struct MeshWatch {
    updates: Streaming<crate::proto::MeshUpdate>,
}

impl MeshWatch {
    /// Waits for the next mesh: the epoch, and the mesh with its generation. Dropping the future
    /// loses nothing.
    ///
    /// # Errors
    /// [`ClientError`] when the call has ended, or the mesh cannot be read.
    pub async fn next(&mut self) -> Result<(String, Mesh), ClientError> {
        let ended = || ClientError::Unavailable("the control plane ended the call".to_owned());
        let update = self.updates.message().await?.ok_or_else(ended)?;
        if update.epoch.len() > MAX_EPOCH_BYTES {
            return Err(Invalid("epoch").into());
        }
        let mut mesh: Mesh =
            serde_json::from_slice(&update.mesh_json).map_err(|_| Invalid("mesh_json"))?;
        mesh.generation = update.generation;
        Ok((update.epoch, mesh))
    }
}

/// A call that does not wait for ever.
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

/// An error and what it came from; the outermost says little.
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
            Self::Slower(why) => write!(f, "the control plane asks for patience: {why}"),
            Self::Invalid(invalid) => write!(f, "the control plane's answer: {invalid}"),
        }
    }
}

impl std::error::Error for ClientError {}
