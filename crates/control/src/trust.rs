//! The service `heddle.v1.Authority`.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use heddle_authority::{
    CertificateRequest, IssueError, Issued, JoinError, TokenRefusal, Trust, may_issue,
};
use heddle_model::printable;
use heddle_model::{NodeName, SpiffeId};
use heddle_transport::secrets::{TokenId, TokenSecret};
use heddle_xds::proto::{
    IssueRequest, IssueResponse, JoinRequest, JoinResponse, WatchTrustRequest, WatchTrustResponse,
};
use heddle_xds::server;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::{info, warn};

use super::convert::{bundle, certificate, deny_list};
use super::nodes::Confirmed;
use super::peer::{Connection, Peer};
use super::{Shared, connection_of, peer_of};

/// Message for a node that fails to join. It does not disclose which part of the token was wrong.
const NOT_JOINED: &str = "the token is not accepted (see the control plane's log for the reason)";
/// Limit for logging a refused node name, in characters.
const MAX_LOGGED: usize = 100;

/// The gRPC service `heddle.v1.Authority`.
pub(super) struct AuthorityService(pub(super) Arc<Shared>);

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl server::Authority for AuthorityService {
    type WatchTrustStream = Answers<WatchTrustResponse>;

    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<JoinResponse>, Status> {
        let Connection { peer, holding } = connection_of(request.extensions())?.clone();
        // A token can be used once, so a node that is joining must not be evicted before it gets the response.
        let _under_way = holding.call();
        let source = peer.address.map(|address| address.ip());
        let shared = &self.0;
        if !shared.attempt(source) {
            shared.counters.joins_limited.fetch_add(1, Relaxed);
            return Err(Status::resource_exhausted("too many attempts to join"));
        }
        let joined = shared.clone().join(request.into_inner()).await;
        match joined {
            Ok((node, response)) => {
                shared.succeeded(source);
                shared.counters.joined.fetch_add(1, Relaxed);
                info!(%node, address = peer.address.map(display), "a node joined");
                Ok(Response::new(response))
            }
            Err(refused) => {
                shared.counters.joins_refused.fetch_add(1, Relaxed);
                let JoinRefusal {
                    node,
                    reason,
                    status,
                } = refused;
                warn!(
                    node,
                    address = peer.address.map(display),
                    reason,
                    "a node did not join"
                );
                Err(*status)
            }
        }
    }

    async fn issue(
        &self,
        request: Request<IssueRequest>,
    ) -> Result<Response<IssueResponse>, Status> {
        let peer = peer_of(&request)?;
        let issued = self.0.clone().issue(&peer, request.into_inner()).await;
        let counters = &self.0.counters;
        match &issued {
            Ok(_) => counters.issued.fetch_add(1, Relaxed),
            Err(_) => counters.issues_refused.fetch_add(1, Relaxed),
        };
        issued.map(Response::new)
    }

    async fn watch_trust(
        &self,
        request: Request<Streaming<WatchTrustRequest>>,
    ) -> Result<Response<Self::WatchTrustStream>, Status> {
        let peer = peer_of(&request)?;
        let shared = Arc::clone(&self.0);
        shared.admitted(&peer, &shared.authority.trust().denied)?;
        let mut said = request.into_inner();
        let first = timeout(shared.bounds.answer_wait, said.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no first message"))??;
        let first = first.ok_or_else(|| Status::invalid_argument("no first message"))?;
        let (answers, stream) = mpsc::channel(1);
        tokio::spawn(async move {
            if let Err(status) = shared.tell_trust(&peer, first, said, &answers).await {
                // Fails when the client has gone.
                let _ = answers.send(Err(status)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

/// Why a node did not join: node and reason for the log, the status for the node.
struct JoinRefusal {
    node: String,
    reason: &'static str,
    /// Boxed, because it is larger than the other fields together.
    status: Box<Status>,
}

impl Shared {
    async fn join(
        self: Arc<Self>,
        request: JoinRequest,
    ) -> Result<(NodeName, JoinResponse), JoinRefusal> {
        let named: String = request.node_name.chars().take(MAX_LOGGED).collect();
        let named = printable(&named).into_owned();
        let refused = |reason, status| JoinRefusal {
            node: named.clone(),
            reason,
            status: Box::new(status),
        };
        let invalid = |what: &str| Status::invalid_argument(what.to_owned());
        let node = NodeName::parse(&request.node_name)
            .map_err(|error| refused("node_name", invalid(&error.to_string())))?;
        let key = CertificateRequest::parse(&request.certificate_request)
            .map_err(|fault| refused("certificate_request", invalid(&fault.to_string())))?;
        let token = TokenId::parse(&request.token_id).zip(TokenSecret::from_bytes(
            &zeroize::Zeroizing::new(request.token_secret),
        ));
        let (id, secret) = token
            .ok_or_else(|| refused("token_malformed", Status::permission_denied(NOT_JOINED)))?;
        let now = (self.clock)();
        let name = node.clone();
        let shared = Arc::clone(&self);
        let joined = self
            .blocking(move || shared.authority.join((&id, &secret), &name, &key, now))
            .await
            .map_err(|status| refused("busy", status))?;
        let issued = joined.map_err(|error| {
            let status = match &error {
                JoinError::Token(TokenRefusal::NotDurable) => Status::internal(error.to_string()),
                JoinError::Token(_) | JoinError::Denied => Status::permission_denied(NOT_JOINED),
                JoinError::Issue(error) => unavailable(error),
            };
            refused(error.reason(), status)
        })?;
        warn_if_shortened(&issued);
        let response = JoinResponse {
            certificate: Some(certificate(&issued)),
            bundle: Some(bundle(&self.authority.trust().bundle)),
            trust_domain: self.authority.trust_domain().to_string(),
        };
        Ok((node, response))
    }

    async fn issue(
        self: Arc<Self>,
        peer: &Peer,
        request: IssueRequest,
    ) -> Result<IssueResponse, Status> {
        let denied = self.authority.trust().denied;
        let now = (self.clock)();
        let node = self.admitted(peer, &denied)?;
        let wanted = SpiffeId::parse(&request.spiffe_id)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let trust_domain = self.authority.trust_domain();
        let asker = peer.asker();
        let is_placed = |node: &_, account: &_| self.board.is_placed(node, account);
        let verdict = may_issue(
            asker.as_ref(),
            &wanted,
            trust_domain,
            &denied,
            now,
            is_placed,
        );
        if let Err(refusal) = verdict {
            let reason = refusal.reason();
            if let Some(unnamed) = self.may_say(node, reason) {
                warn!(%node, %wanted, reason, unnamed, "an identity was not issued");
            }
            return Err(Status::permission_denied(refusal.to_string()));
        }
        let key = CertificateRequest::parse(&request.certificate_request)
            .map_err(|fault| Status::invalid_argument(fault.to_string()))?;
        let (shared, holder) = (Arc::clone(&self), node.clone());
        let issued = self
            .blocking(move || shared.authority.issue_to(&holder, &wanted, &key, now))
            .await?;
        let issued = issued.map_err(|error| {
            if let Some(unnamed) = self.may_say(node, "failed") {
                warn!(%node, %error, unnamed, "an identity could not be issued");
            }
            unavailable(&error)
        })?;
        warn_if_shortened(&issued);
        Ok(IssueResponse {
            certificate: Some(certificate(&issued)),
        })
    }

    /// Sends one node the trust bundle and the deny-list, until it disconnects, is denied, or its certificate
    /// expires.
    async fn tell_trust(
        &self,
        peer: &Peer,
        first: WatchTrustRequest,
        mut said: Streaming<WatchTrustRequest>,
        answers: &mpsc::Sender<Result<WatchTrustResponse, Status>>,
    ) -> Result<(), Status> {
        let mut changes = self.authority.watch_trust();
        let mut has = (first.bundle_generation, first.deny_generation);
        // A node without a bundle has no deny-list either, whatever generation it claims.
        let mut is_new = has.0 == 0;
        self.confirmed(peer, &first)?;
        loop {
            let trust = changes.borrow_and_update().clone();
            self.admitted(peer, &trust.denied)?;
            if is_new || has != generations(&trust) {
                // Wait for room first, so that the newest trust is sent, not the one that was newest when the client
                // stopped reading.
                let Ok(place) = answers.reserve().await else {
                    return Ok(());
                };
                let trust = changes.borrow_and_update().clone();
                let newest = generations(&trust);
                place.send(Ok(WatchTrustResponse {
                    bundle: (is_new || has.0 != newest.0).then(|| bundle(&trust.bundle)),
                    deny_list: (is_new || has.1 != newest.1).then(|| deny_list(&trust.denied)),
                }));
                (has, is_new) = (newest, false);
                continue;
            }
            tokio::select! {
                changed = changes.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                }
                message = said.message() => match message? {
                    Some(message) => self.confirmed(peer, &message)?,
                    None => return Ok(()),
                },
                () = answers.closed() => return Ok(()),
                () = self.closing() => return Err(Status::unavailable(super::ENDS)),
            }
        }
    }

    /// Records the generations that a node confirms.
    fn confirmed(&self, peer: &Peer, said: &WatchTrustRequest) -> Result<(), Status> {
        let now = generations(&self.authority.trust());
        let confirmed = Confirmed {
            // A generation above the current one was issued by another instance of the authority, and confirms
            // nothing about this one.
            bundle: if said.bundle_generation <= now.0 {
                said.bundle_generation
            } else {
                0
            },
            denied: if said.deny_generation <= now.1 {
                said.deny_generation
            } else {
                0
            },
        };
        match peer
            .node()
            .is_some_and(|node| self.nodes.confirm(node, confirmed))
        {
            true => Ok(()),
            false => Err(Status::resource_exhausted("there are too many nodes")),
        }
    }

    /// Whether to log `reason` for a node now. If so, returns how often it was suppressed since the last time.
    pub(super) fn may_say(&self, node: &NodeName, reason: &'static str) -> Option<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.name((node.clone(), reason), Instant::now())
    }

    fn attempt(&self, source: Option<IpAddr>) -> bool {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        limiter.attempt(source, Instant::now())
    }

    fn succeeded(&self, source: Option<IpAddr>) {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        limiter.succeeded(source, Instant::now());
    }
}

fn generations(trust: &Trust) -> (u64, u64) {
    (trust.bundle.generation, trust.denied.generation)
}

fn warn_if_shortened(issued: &Issued) {
    if issued.shortened {
        warn!(
            not_after = issued.not_after,
            "a leaf certificate got a shorter lifetime: the signing certificate is about to expire, replace it"
        );
    }
}

fn unavailable(error: &IssueError) -> Status {
    match error {
        IssueError::TrustDomain => Status::permission_denied(error.to_string()),
        IssueError::Issuer(_) => Status::failed_precondition(error.to_string()),
        IssueError::Nodes => Status::resource_exhausted(error.to_string()),
        IssueError::Random(_) | IssueError::Signing | IssueError::NotDurable(_) => {
            Status::unavailable(error.to_string())
        }
    }
}
