//! A control plane for one Envoy, without TLS.

use std::collections::BTreeSet;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use heddle_envoy::wire::{self, DeltaResponse};
use heddle_envoy::{Catalog, Kind, Own, Session, secret};
use heddle_model::{Mesh, ServiceAccountName};
use heddle_xds::delta::{Answer, Name};
use prost::Message;
use rcgen::{CertificateParams, KeyPair};
use tokio::net::UnixListener;
use tokio::sync::{Notify, mpsc};
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};

use crate::meshes;

/// What the control plane has, and what the Envoy has said of it.
#[derive(Default)]
struct State {
    catalog: Catalog,
    session: Option<Session>,
    /// Which meshes the Envoy has been told all of.
    is_settled: bool,
    refused: Vec<String>,
    told: usize,
}

#[derive(Clone, Default)]
pub(crate) struct Served {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    settled: Arc<Notify>,
}

impl Served {
    /// Serves at a Unix socket.
    pub(crate) fn start(socket: &Path) -> Self {
        let served = Served::default();
        let listener = UnixListener::bind(socket).expect("a socket");
        let service = AggregatedDiscoveryServiceServer::new(served.clone())
            .max_encoding_message_size(usize::MAX);
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
        served
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    /// Goes on to the next mesh.
    pub(crate) fn put(&self, mesh: Mesh) {
        let mut state = self.state();
        let changed = state.catalog.follow(Arc::new(mesh));
        state.is_settled = false;
        if let Some(session) = &mut state.session {
            session.note(&changed);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Has the workloads of an account use these Services.
    pub(crate) fn learn(&self, account: &ServiceAccountName, uses: BTreeSet<Name>) {
        let mut state = self.state();
        let changed = state.catalog.set_learned(account, uses);
        if let Some(session) = &mut state.session {
            session.note(&changed);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// How many clusters the Envoy has.
    pub(crate) fn clusters(&self) -> usize {
        let state = self.state();
        state
            .session
            .as_ref()
            .map_or(0, |session| session.held(Kind::Cluster))
    }

    /// Completes when the Envoy has answered everything.
    pub(crate) async fn settled(&self) {
        while !self.state().is_settled {
            self.settled.notified().await;
        }
    }

    /// What it refused, and why.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.state().refused.clone()
    }

    /// How many messages it was sent.
    pub(crate) fn told(&self) -> usize {
        self.state().told
    }

    fn receive(&self, message: DeltaDiscoveryRequest) {
        let kind = Kind::from_url(&message.type_url).expect("a known type");
        let mut state = self.state();
        let State {
            catalog,
            session,
            refused,
            ..
        } = &mut *state;
        let session = session.as_mut().expect("a stream");
        let answer = session.receive(kind, wire::request(message), catalog);
        if let Answer::Refused(why) = answer.expect("not too much") {
            refused.push(format!("{kind:?}: {why}"));
        }
    }

    fn respond(&self) -> Option<DeltaDiscoveryResponse> {
        let mut state = self.state();
        let State {
            catalog, session, ..
        } = &mut *state;
        let session = session.as_mut().expect("a stream");
        let told = session.respond(catalog).expect("the workload is there");
        let Some((kind, response)) = told else {
            let has_listeners = session.held(Kind::Routes) > 0;
            state.is_settled = has_listeners && !session.is_answer_due();
            self.settled.notify_one();
            return None;
        };
        state.told += 1;
        let bytes = DeltaResponse::new(kind, response).encode_to_vec();
        Some(DeltaDiscoveryResponse::decode(bytes.as_slice()).expect("a response"))
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Served {
    type StreamAggregatedResourcesStream = Answers<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Answers<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        _: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("delta only"))
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let mut session = Session::new(Own::new(meshes::workload_name()));
        let (leaf, key) = certificate();
        session.put(Kind::Secret, secret::LEAF, secret::leaf(leaf.clone(), &key));
        session.put(Kind::Secret, secret::ROOTS, secret::roots(leaf));
        self.state().session = Some(session);
        let (answers, answered) = mpsc::channel(4);
        let served = self.clone();
        let mut messages = request.into_inner();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    message = messages.message() => match message {
                        Ok(Some(message)) => served.receive(message),
                        _ => return,
                    },
                    () = served.changed.notified() => {}
                }
                while let Some(response) = served.respond() {
                    if answers.send(Ok(response)).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answered))))
    }
}

/// A certificate that is its own root, and its key, in PEM.
pub(crate) fn certificate() -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let made = CertificateParams::default().self_signed(&key);
    (made.expect("a certificate").pem(), key.serialize_pem())
}
