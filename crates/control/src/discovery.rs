//! The service `heddle.v1.Discovery`.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use heddle_authority::is_reachable;
use heddle_model::{NodeName, printable, shortened};
use heddle_xds::MAX_DISCOVERY_RESPONSE_BYTES;
use heddle_xds::delta::{self, Answer, Name};
use heddle_xds::proto::{DiscoveryRequest, DiscoveryResponse};
use heddle_xds::resources::Type;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::{Status, Streaming};
use tracing::{error, info, warn};

use super::nodes::Presence;
use super::peer::{Connection, Peer};
use super::streams::OpenStream;
use super::subscriptions::Subscriptions;
use super::{Shared, connection_of};

mod call;

pub(super) use call::Discovery;

use crate::frames::{self, Answered};

/// Characters of a node's text that are logged.
const MAX_LOGGED: usize = 1_000;

/// How long a node may be away before its absence is logged.
const BACK_WITHIN: Duration = Duration::from_secs(3);

/// Messages of a call that are computed before the node has read them.
const RESPONSES: usize = 2;
/// How long a node may take to read a response, and to answer it.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Messages of one call that are taken in a second. A node that asks all the time sends four in 20 ms, and an answer to each
/// response.
const MESSAGES_PER_SECOND: u32 = 1_000;
/// How long it may take to tell a node why its call ends.
const LAST_WORD: Duration = Duration::from_secs(1);

type Answers = mpsc::Sender<Answered>;

impl Shared {
    /// Begins a node's call: the stream of what it is sent, which is `gone` once it is read to its end or broken off.
    async fn stream(
        self: Arc<Self>,
        Connection { peer, holding }: Connection,
        mut requests: Streaming<DiscoveryRequest>,
        gone: oneshot::Receiver<Infallible>,
    ) -> Result<mpsc::Receiver<Answered>, Status> {
        let denied = self.authority.trust().denied;
        let node = self.admitted(&peer, &denied)?.clone();
        let first = timeout(self.bounds.answer_wait, requests.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("the call has no message"))??;
        let mut first = first.ok_or_else(|| Status::invalid_argument("the call has no message"))?;
        let registration = first.node.take().unwrap_or_default();
        if registration.node_name != node.as_str() {
            let said = "a node may have only its own part of the mesh";
            return Err(Status::permission_denied(said));
        }
        let address = mesh_address(&registration.mesh_address)?;
        let types = registration.type_urls.iter();
        let types = types.filter_map(|url| Type::from_url(url)).collect();
        let mut subscriptions = Subscriptions::new(node.clone(), types, registration.on_demand);
        self.take(&node, &mut subscriptions, first)?;
        let presence = self.nodes.arrive(&node, address);
        let presence =
            presence.ok_or_else(|| Status::resource_exhausted("there are too many nodes"))?;
        // When the connection ends during this wait, the call is dropped, and the presence with it.
        self.note_address(&node).await?;
        info!(%node, %address, "a node is present");
        self.warn_of_doubles(&node, address);
        let (answers, answered) = mpsc::channel(RESPONSES);
        tokio::spawn(async move {
            let under_way = holding.call();
            let stream = self.board.open(subscriptions, presence.standing());
            let told = self
                .clone()
                .tell(&peer, presence, (stream, requests), &answers)
                .await;
            if let Err(status) = &told {
                // Fails when the client has gone. One that does not read is not told.
                let _ = timeout(LAST_WORD, answers.send(Err(status.clone()))).await;
            }
            drop((answers, under_way));
            // What a node does not read would stay in memory for as long as the connection lasts.
            if timeout(LAST_WORD, gone).await.is_err() {
                holding.evict();
            }
            // The address may now be that of another connection of the node. Fails when the server shuts down.
            let _ = self.note_address(&node).await;
            self.say_gone(&peer, &node, told.err()).await;
        });
        Ok(answered)
    }

    /// Sends one node the resources that it subscribes to, until it disconnects, is denied, or its certificate expires.
    async fn tell(
        self: Arc<Self>,
        peer: &Peer,
        presence: Presence,
        (stream, mut requests): (OpenStream, Streaming<DiscoveryRequest>),
        answers: &Answers,
    ) -> Result<(), Status> {
        let mut trust = self.authority.watch_trust();
        let (mut closing, mut displacing) = (pin!(self.closing()), pin!(presence.displaced()));
        let late = || Status::deadline_exceeded("the node does not answer");
        let mut pace = Pace::new();
        // Since when the node owes an answer and has given none.
        let mut silent: Option<Instant> = None;
        loop {
            let denied = Arc::clone(&trust.borrow_and_update().denied);
            let node = self.admitted(peer, &denied)?;
            // Room first, so that what is sent is the newest, not what was newest before the wait.
            let room = match answers.try_reserve() {
                Ok(room) => room,
                Err(TrySendError::Closed(())) => return Ok(()),
                Err(TrySendError::Full(())) => tokio::select! {
                    room = answers.reserve() => match room {
                        Ok(room) => room,
                        Err(_closed) => return Ok(()),
                    },
                    () = sleep(ANSWER_WAIT) => return Err(late()),
                    () = &mut displacing => return Err(displaced()),
                    changed = trust.changed() => {
                        if changed.is_err() {
                            return Ok(());
                        }
                        continue;
                    }
                    () = &mut closing => return Err(Status::unavailable(super::ENDS)),
                },
            };
            let looks_at = stream.subscriptions().rests();
            let response = match looks_at {
                None => self.board.respond(&mut stream.subscriptions()),
                Some(_) => None,
            };
            if let Some(response) = response {
                room.send(Ok(self.sent(&response)?));
                continue;
            }
            drop(room);
            stream.note_settled();
            silent = match stream.subscriptions().is_answer_due() {
                true => silent.or_else(|| Some(Instant::now())),
                false => None,
            };
            let by = silent.unwrap_or_else(Instant::now) + ANSWER_WAIT;
            tokio::select! {
                request = requests.message() => match request {
                    Ok(Some(request)) => {
                        let is_answer = self.take(node, &mut stream.subscriptions(), request)?;
                        silent = silent.filter(|_| !is_answer);
                        pace.message().await;
                    }
                    // The node has ended the call, or its connection broke.
                    Ok(None) => return Ok(()),
                    Err(broken) if broken.source().is_some() => return Ok(()),
                    Err(wrong) => return Err(wrong),
                },
                () = stream.woken() => {}
                () = sleep_until(looks_at.unwrap_or(by)), if looks_at.is_some() => {}
                changed = trust.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                }
                () = sleep_until(by), if silent.is_some() => return Err(late()),
                () = &mut displacing => return Err(displaced()),
                () = answers.closed() => return Ok(()),
                () = &mut closing => return Err(Status::unavailable(super::ENDS)),
            }
        }
    }

    /// A response as it is sent, which is counted.
    fn sent(&self, response: &DiscoveryResponse) -> Result<Bytes, Status> {
        let frame = frames::frame(response, MAX_DISCOVERY_RESPONSE_BYTES)?;
        let counters = &self.counters;
        let names = response.resources.len() + response.removed.len();
        let marks = u64::from(response.mark.is_some());
        counters.meshes_sent.fetch_add(marks, Relaxed);
        counters.resources_sent.fetch_add(names as u64, Relaxed);
        let bytes = (frame.len() - frames::FRAME_HEAD) as u64;
        counters.resource_bytes_sent.fetch_add(bytes, Relaxed);
        Ok(frame)
    }

    /// Takes a node's message. Returns whether it answers a response.
    fn take(
        &self,
        node: &NodeName,
        subscriptions: &mut Subscriptions,
        message: DiscoveryRequest,
    ) -> Result<bool, Status> {
        // A newer node may want more than this control plane has.
        let Some(kind) = Type::from_url(&message.type_url) else {
            subscriptions.pass_over();
            return Ok(false);
        };
        let answer = self.board.receive(subscriptions, kind, request(message));
        match answer.map_err(|error| Status::resource_exhausted(error.to_string()))? {
            Answer::None => return Ok(false),
            Answer::Accepted => {}
            Answer::Refused(why) => {
                self.counters.resources_refused.fetch_add(1, Relaxed);
                if let Some(unnamed) = self.may_say(node, "resource_refused") {
                    let why = printable(&shortened(&why, MAX_LOGGED)).into_owned();
                    warn!(
                        %node, kind = kind.message_name(), why, unnamed,
                        "a node refuses resources: what it had stays in force"
                    );
                }
            }
        }
        Ok(true)
    }

    /// Warns of nodes that share a name or an address.
    fn warn_of_doubles(&self, node: &NodeName, address: SocketAddr) {
        if let [other, ..] = self.nodes.also_at(node)[..]
            && let Some(unnamed) = self.may_say(node, "two_addresses")
        {
            warn!(
                %node, %address, %other, unnamed,
                "a node is at two addresses at once: it has just moved, or two machines have its identity \
                 (if its state folder was copied, deny the node, and let each join under a name of its own)"
            );
        }
        if let Some(other) = self.nodes.other_at(node, address)
            && self.may_say(node, "shared_address").is_some()
        {
            warn!(
                %node, %other, %address,
                "two nodes announce the same address: one of them cannot be reached"
            );
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
}

/// How fast the messages of one call are taken: a node that sends more waits for itself.
struct Pace {
    since: Instant,
    taken: u32,
}

impl Pace {
    fn new() -> Self {
        Pace {
            since: Instant::now(),
            taken: 0,
        }
    }

    /// Notes a message, and waits if there were too many.
    async fn message(&mut self) {
        self.taken += 1;
        if self.taken < MESSAGES_PER_SECOND {
            return;
        }
        sleep_until(self.since + Duration::from_secs(1)).await;
        *self = Pace::new();
    }
}

fn displaced() -> Status {
    Status::resource_exhausted("the node has too many newer calls")
}

/// A message of the protocol, as the machines take it.
pub(super) fn request(message: DiscoveryRequest) -> delta::Request {
    let names = |names: Vec<String>| names.into_iter().map(Name::from).collect();
    let versions = message.initial_versions.into_iter();
    let versions = versions.map(|one| (Name::from(one.name), one.version.into()));
    delta::Request {
        subscribe: names(message.subscribe),
        unsubscribe: names(message.unsubscribe),
        initial_versions: versions.collect(),
        nonce: message.nonce.into(),
        refused: (!message.refused.is_empty()).then_some(message.refused),
    }
}

/// Parses an address that other nodes can connect to.
fn mesh_address(text: &str) -> Result<SocketAddr, Status> {
    let address: Option<SocketAddr> = text.parse().ok();
    address.filter(is_reachable).ok_or_else(|| {
        Status::invalid_argument("mesh_address is no address and port that other nodes can reach")
    })
}
