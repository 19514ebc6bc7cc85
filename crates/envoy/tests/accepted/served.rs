//! A control plane for one Envoy, without TLS.

use std::collections::BTreeSet;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use heddle_envoy::wire::{self, DeltaResponse};
use heddle_envoy::world::World;
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
    /// Of an Envoy that asks for state-of-the-world xDS.
    world: World,
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

    fn receive(&self, kind: Kind, request: heddle_xds::delta::Request) {
        let mut state = self.state();
        let State {
            catalog,
            session,
            refused,
            ..
        } = &mut *state;
        let session = session.as_mut().expect("a stream");
        let answer = session.receive(kind, request, catalog);
        if let Answer::Refused(why) = answer.expect("not too much") {
            refused.push(format!("{kind:?}: {why}"));
        }
    }

    /// The next message, encoded by `told`.
    fn respond(&self, told: Encode) -> Option<Vec<u8>> {
        let mut state = self.state();
        let State {
            catalog, session, ..
        } = &mut *state;
        let session = session.as_mut().expect("a stream");
        let next = session.respond(catalog).expect("the workload is there");
        let Some((kind, response)) = next else {
            let has_listeners = session.held(Kind::Routes) > 0;
            state.is_settled = has_listeners && !session.is_answer_due();
            self.settled.notify_one();
            return None;
        };
        state.told += 1;
        Some(told(&mut state.world, kind, response))
    }

    /// Begins a stream.
    fn begin<Asks, Tells>(
        &self,
        mut messages: Streaming<Asks>,
        asked: fn(&mut World, Asks) -> (Kind, heddle_xds::delta::Request),
        told: Encode,
    ) -> Answers<Tells>
    where
        Asks: Send + 'static,
        Tells: Message + Default + 'static,
    {
        let mut session = Session::new(Own::new(meshes::workload_name()));
        let (leaf, key) = certificate();
        session.put(Kind::Secret, secret::LEAF, secret::leaf(leaf.clone(), &key));
        session.put(Kind::Secret, secret::ROOTS, secret::roots(leaf));
        self.state().session = Some(session);
        let (answers, answered) = mpsc::channel(4);
        let served = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    message = messages.message() => match message {
                        Ok(Some(message)) => {
                            let (kind, request) = asked(&mut served.state().world, message);
                            served.receive(kind, request);
                        }
                        _ => return,
                    },
                    () = served.changed.notified() => {}
                }
                while let Some(bytes) = served.respond(told) {
                    let response = Tells::decode(bytes.as_slice()).expect("a response");
                    if answers.send(Ok(response)).await.is_err() {
                        return;
                    }
                }
            }
        });
        Box::pin(ReceiverStream::new(answered))
    }
}

/// Encodes a response.
type Encode = fn(&mut World, Kind, heddle_xds::delta::Response<Bytes>) -> Vec<u8>;

/// A message of an Envoy, as the control plane reads it.
fn same<T: Message + Default>(message: &impl Message) -> T {
    T::decode(message.encode_to_vec().as_slice()).expect("the same")
}

fn kind_of(type_url: &str) -> Kind {
    Kind::from_url(type_url).expect("a known type")
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Served {
    type StreamAggregatedResourcesStream = Answers<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Answers<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let asked = |world: &mut World, message: DiscoveryRequest| {
            let kind = kind_of(&message.type_url);
            (kind, world.request(kind, same(&message)))
        };
        Ok(Response::new(self.begin(
            request.into_inner(),
            asked,
            |world, kind, response| world.response(kind, response).encode_to_vec(),
        )))
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let asked = |_: &mut World, message: DeltaDiscoveryRequest| {
            (kind_of(&message.type_url), wire::request(same(&message)))
        };
        Ok(Response::new(self.begin(
            request.into_inner(),
            asked,
            |_, kind, response| DeltaResponse::new(kind, response).encode_to_vec(),
        )))
    }
}

/// A certificate that is its own root, and its key, in PEM.
pub(crate) fn certificate() -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let made = CertificateParams::default().self_signed(&key);
    (made.expect("a certificate").pem(), key.serialize_pem())
}
