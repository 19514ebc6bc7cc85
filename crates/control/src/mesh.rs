//! The service `heddle.v1.Mesh`.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use heddle_authority::is_reachable;
use heddle_model::{NodeName, ServiceAccountName};
use heddle_xds::proto::{MeshUpdate, WatchRequest};
use heddle_xds::{MAX_MESH_BYTES, server};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tracing::{error, info, warn};

use super::nodes::Presence;
use super::peer::Peer;
use super::{Shared, peer_of};

/// Bytes reserved in a message for fields other than the mesh.
const MESSAGE_MARGIN: usize = 1_024;

/// How long a node may be away before its absence is logged.
const BACK_WITHIN: Duration = Duration::from_secs(3);

/// Computes a node's part of the mesh.
pub type ForNode = Box<dyn Fn(&NodeName) -> MeshSlice + Send + Sync>;
/// Whether a workload with a service account is placed on a node.
pub type IsPlaced = Box<dyn Fn(&NodeName, &ServiceAccountName) -> bool + Send + Sync>;

/// The source of the mesh that the server sends to nodes.
pub struct MeshSource {
    /// Identifies this run of the control plane: 1 to 64 bytes. Generations are comparable only within one epoch.
    pub epoch: String,
    /// The generation of the newest mesh, 0 while there is none. Each new value makes the server compute every node's
    /// part again.
    pub generation: watch::Receiver<u64>,
    /// Computes a node's part of the newest mesh. It is called on a blocking thread.
    pub for_node: ForNode,
    /// Whether the newest mesh places a workload with that service account on the node. It is called on an
    /// async runtime thread, so it must not block.
    pub is_placed: IsPlaced,
}

/// A node's part of a mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshSlice {
    /// The generation of the mesh from which it was made.
    pub generation: u64,
    /// The part of the mesh, as JSON.
    pub json: Bytes,
}

/// The gRPC service `heddle.v1.Mesh`.
pub(super) struct MeshService(pub(super) Arc<Shared>);

#[tonic::async_trait]
impl server::Mesh for MeshService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<MeshUpdate, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let peer = peer_of(&request)?;
        let shared = Arc::clone(&self.0);
        let request = request.into_inner();
        let denied = shared.authority.trust().denied;
        let node = shared.admitted(&peer, &denied)?;
        if request.node_name != node.as_str() {
            let said = "a node may watch only its own part of the mesh";
            return Err(Status::permission_denied(said));
        }
        let address = mesh_address(&request.mesh_address)?;
        let presence = shared.nodes.arrive(node, address);
        let presence =
            presence.ok_or_else(|| Status::resource_exhausted("there are too many nodes"))?;
        // When the connection ends during this wait, the call is dropped, and the presence with it.
        shared.note_address(node).await?;
        info!(%node, %address, "a node is present");
        if let [other, ..] = shared.nodes.also_at(node)[..]
            && let Some(unnamed) = shared.may_say(node, "two_addresses")
        {
            warn!(
                %node, %address, %other, unnamed,
                "a node is at two addresses at once: it has just moved, or two machines have its identity \
                 (if its state folder was copied, deny the node, and let each join under a name of its own)"
            );
        }
        if let Some(other) = shared.nodes.other_at(node, address)
            && shared.may_say(node, "shared_address").is_some()
        {
            warn!(
                %node, %other, %address,
                "two nodes announce the same address: one of them cannot be reached"
            );
        }
        let same_epoch = request.last_epoch == shared.mesh.epoch;
        let has = same_epoch.then_some(request.last_generation);
        let (answers, stream) = mpsc::channel(1);
        let node = node.clone();
        tokio::spawn(async move {
            let told = shared.clone().tell_mesh(&peer, presence, has, &answers);
            let told = told.await;
            if let Err(status) = &told {
                // Fails when the client has gone.
                let _ = answers.send(Err(status.clone())).await;
            }
            drop(answers);
            // The address may now be that of another connection of the node. Fails when the server shuts down.
            let _ = shared.note_address(&node).await;
            shared.say_gone(&peer, &node, told.err()).await;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

impl Shared {
    /// Sends one node its part of the mesh, until it disconnects, is denied, or its certificate expires.
    async fn tell_mesh(
        self: Arc<Self>,
        peer: &Peer,
        _presence: Presence,
        mut has: Option<u64>,
        answers: &mpsc::Sender<Result<MeshUpdate, Status>>,
    ) -> Result<(), Status> {
        let mut generations = self.mesh.generation.clone();
        let mut trust = self.authority.watch_trust();
        loop {
            let denied = Arc::clone(&trust.borrow_and_update().denied);
            let node = self.admitted(peer, &denied)?.clone();
            let newest = *generations.borrow_and_update();
            if newest > 0 && has != Some(newest) {
                // Wait for room first, so that the newest part is sent, not the one that was newest before the wait.
                let Ok(place) = answers.reserve().await else {
                    return Ok(());
                };
                generations.borrow_and_update();
                let slice = self.slice(&node).await?;
                has = Some(slice.generation);
                self.counters.meshes_sent.fetch_add(1, Relaxed);
                place.send(Ok(MeshUpdate {
                    epoch: self.mesh.epoch.clone(),
                    generation: slice.generation,
                    mesh_json: slice.json,
                }));
            }
            tokio::select! {
                changed = generations.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                }
                changed = trust.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                }
                () = answers.closed() => return Ok(()),
                () = self.closing() => return Err(Status::unavailable(super::ENDS)),
            }
        }
    }

    /// Logs that a node is gone, and why if that is known: `told` is the status with which the server ended its call,
    /// `None` if the node ended it. A node that is back within [`BACK_WITHIN`] has only reconnected with a new
    /// certificate, and is not logged.
    async fn say_gone(&self, peer: &Peer, node: &NodeName, told: Option<Status>) {
        let denied = self.authority.trust().denied;
        let why = told.or_else(|| self.admitted(peer, &denied).err());
        if why.is_none() {
            tokio::select! {
                () = sleep(BACK_WITHIN) => {}
                () = self.closing() => return,
            }
        }
        let is_back = self.nodes.present().contains_key(node);
        if is_back || *self.closing.borrow() {
            return;
        }
        let certificate = peer.certificate.as_ref();
        let entry = certificate.and_then(|own| denied.denies(&own.id, own.serial, (self.clock)()));
        match (entry, why) {
            (Some(entry), _) => {
                let reason = entry.reason.as_str();
                warn!(%node, reason, "a node is gone: it is on the deny-list");
            }
            (None, Some(status)) => warn!(%node, "a node is gone: {}", status.message()),
            (None, None) => warn!(%node, "a node is gone: its connection has ended"),
        }
    }

    /// Stores a node's address, so that other nodes still learn it after a restart of the control plane. When that
    /// fails, an error is logged and the node stays present.
    async fn note_address(self: &Arc<Self>, node: &NodeName) -> Result<(), Status> {
        let (shared, name) = (Arc::clone(self), node.clone());
        let noted = self.blocking(move || {
            let newest = || shared.nodes.reached().get(&name).copied();
            shared.authority.note_address(&name, newest)
        });
        if let Err(why) = noted.await? {
            error!(%node, "the address of a node could not be stored: {why}");
        }
        Ok(())
    }

    async fn slice(self: &Arc<Self>, node: &NodeName) -> Result<MeshSlice, Status> {
        let (shared, name) = (Arc::clone(self), node.clone());
        let slice = self.blocking(move || (shared.mesh.for_node)(&name)).await?;
        let length = slice.json.len();
        if length > MAX_MESH_BYTES - MESSAGE_MARGIN {
            error!(%node, bytes = length, "a node's part of the mesh is too large to be sent");
            let said = format!("the mesh has {length} bytes, more than {MAX_MESH_BYTES}");
            return Err(Status::failed_precondition(said));
        }
        Ok(slice)
    }
}

/// Parses an address that other nodes can connect to.
fn mesh_address(text: &str) -> Result<SocketAddr, Status> {
    let address: Option<SocketAddr> = text.parse().ok();
    address.filter(is_reachable).ok_or_else(|| {
        Status::invalid_argument("mesh_address is no address and port that other nodes can reach")
    })
}
