//! The gRPC service `envoy.service.discovery.v3.AggregatedDiscoveryService`.

use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use heddle_envoy::{Kind, secret, wire, world};
use heddle_model::calendar::utc;
use heddle_model::{ServiceAccountName, WorkloadName, printable, shortened};
use heddle_xds::delta::Answer;
use tokio::sync::mpsc;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::{Status, body};
use tracing::{error, info, warn};

use super::credentials;
use super::dialect::{Asked, Dialect, Told};
use super::roster::OpenStream;
use crate::frames::{self, Answered, FRAME_HEAD};
use crate::peer::{Connection, Peer};
use crate::service::Method;
use crate::{ENDS, Shared, connection_of};

/// Characters of an Envoy's text that are logged.
const MAX_LOGGED: usize = 1_000;
/// How long an Envoy may take to read a response. It may answer later: it does once clusters are usable.
const READ_WAIT: Duration = Duration::from_secs(60);
/// How long it may take to tell an Envoy why its call ends.
const LAST_WORD: Duration = Duration::from_secs(1);

/// The methods for xDS of all types on one stream: incremental, and state-of-the-world.
pub(crate) struct Ads;

impl Method for Ads {
    const SERVICE: &'static str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
    const PATH: &'static str = wire::DELTA;
    const ALSO: &'static str = world::WORLD;

    async fn begin(
        shared: Arc<Shared>,
        request: http::Request<body::Body>,
    ) -> Result<http::Response<body::Body>, Status> {
        let (head, body) = request.into_parts();
        let connection = connection_of(&head.extensions)?.clone();
        let requests = Dialect::of(head.uri.path(), body);
        let (is_there, gone) = oneshot::channel();
        let answers = shared.envoy_stream(connection, requests, gone)?;
        Ok(frames::response(answers, is_there))
    }
}

/// Messages of a call that are computed before the Envoy has read them.
const RESPONSES: usize = 2;

impl Shared {
    /// Begins an Envoy's call: the stream of what it is sent, which is `gone` once it is read to its end or broken off.
    fn envoy_stream(
        self: Arc<Self>,
        Connection { peer, holding }: Connection,
        requests: Dialect,
        gone: oneshot::Receiver<Infallible>,
    ) -> Result<mpsc::Receiver<Answered>, Status> {
        let workload = self.admitted_envoy(&peer)?;
        let (answers, answered) = mpsc::channel(RESPONSES);
        // An Envoy waits for the head of the response before it says anything.
        tokio::spawn(async move {
            let under_way = holding.call();
            let told = self.tell_envoy(&peer, &workload, requests, &answers).await;
            match &told {
                Ok(()) => info!(%workload, "an Envoy has disconnected"),
                Err(status) => {
                    let why = status.message();
                    warn!(%workload, "the stream of an Envoy has ended: {why}");
                }
            }
            if let Err(status) = &told {
                // Fails when the client has gone. One that does not read is not told.
                let _ = timeout(LAST_WORD, answers.send(Err(status.clone()))).await;
            }
            drop((answers, under_way));
            // What an Envoy does not read would stay in memory for as long as the connection lasts.
            if timeout(LAST_WORD, gone).await.is_err() {
                holding.evict();
            }
        });
        Ok(answered)
    }

    pub(super) fn admitted_envoy(&self, peer: &Peer) -> Result<WorkloadName, Status> {
        let denied = self.authority.trust().denied;
        let domain = self.authority.trust_domain();
        let workload = peer.admitted_envoy(domain, &denied, (self.clock)())?;
        Ok(workload.clone())
    }

    /// Tells one Envoy what its workload needs, until it disconnects, is denied, or its certificate expires.
    async fn tell_envoy(
        self: &Arc<Self>,
        peer: &Peer,
        workload: &WorkloadName,
        mut requests: Dialect,
        answers: &mpsc::Sender<Answered>,
    ) -> Result<(), Status> {
        let first = timeout(self.bounds.answer_wait, requests.next()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("the call has no message"))??;
        let first = first.ok_or_else(|| Status::invalid_argument("the call has no message"))?;
        if first.node != workload.to_string() {
            let claimed = printable(&shortened(&first.node, MAX_LOGGED)).into_owned();
            return Err(Status::permission_denied(format!(
                "node.id is {claimed}, and the certificate is that of {workload}: start the Envoy with the bootstrap that \
                 was printed with that certificate (heddle envoy bootstrap)"
            )));
        }
        let until = peer.certificate.as_ref().map_or(0, |one| one.not_after);
        let stream = self.envoys.open_stream(workload.clone(), until);
        if requests.has_whole_lists() {
            stream.session().gets_whole_lists();
        }
        self.take_from_envoy(&stream, workload, first)?;
        info!(%workload, until = utc(until), "an Envoy is connected");
        let mut trust = self.authority.watch_trust();
        let mut closing = pin!(self.closing());
        // Leaf and roots are due at once.
        let mut renewed = Instant::now();
        let mut is_trust_new = true;
        // The account of which it has a leaf.
        let mut proven = None;
        loop {
            self.admitted_envoy(peer)?;
            let account = self.account_of(workload);
            if is_trust_new {
                let bundle = Arc::clone(&trust.borrow_and_update().bundle);
                let roots = credentials::roots(&bundle);
                stream.session().put(Kind::Secret, secret::ROOTS, roots);
            }
            // Another root may sign from now on.
            if is_trust_new || account != proven || renewed <= Instant::now() {
                renewed = Instant::now() + self.renew(&stream, workload, account.as_ref());
                proven = account;
            }
            is_trust_new = false;
            let room = tokio::select! {
                room = answers.reserve() => match room {
                    Ok(room) => room,
                    Err(_closed) => return Ok(()),
                },
                () = sleep(READ_WAIT) => {
                    return Err(Status::deadline_exceeded("the Envoy does not read"));
                }
                () = &mut closing => return Err(Status::unavailable(ENDS)),
            };
            let response = stream.respond();
            let response = response.map_err(|gone| Status::not_found(gone.to_string()))?;
            if let Some((kind, response)) = response {
                let told = requests.told(kind, response)?;
                self.count_told(&told);
                room.send(Ok(told.frame));
                continue;
            }
            drop(room);
            tokio::select! {
                request = requests.next() => match request {
                    Ok(Some(request)) => self.take_from_envoy(&stream, workload, request)?,
                    // The Envoy has ended the call, or its connection broke.
                    Ok(None) => return Ok(()),
                    Err(broken) if broken.source().is_some() => return Ok(()),
                    Err(wrong) => return Err(wrong),
                },
                () = stream.woken() => {}
                changed = trust.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    is_trust_new = true;
                }
                () = sleep_until(renewed) => {}
                () = answers.closed() => return Ok(()),
                () = &mut closing => return Err(Status::unavailable(ENDS)),
            }
        }
    }

    fn account_of(&self, workload: &WorkloadName) -> Option<ServiceAccountName> {
        let mesh = self.board.newest()?;
        Some(mesh.workload(workload)?.service_account.clone())
    }

    /// Gives an Envoy another leaf. Returns after how long the next one is due.
    fn renew(
        &self,
        stream: &OpenStream,
        workload: &WorkloadName,
        account: Option<&ServiceAccountName>,
    ) -> Duration {
        let Some(account) = account else {
            return credentials::AGAIN;
        };
        match credentials::leaf(&self.authority, account, (self.clock)()) {
            Ok(leaf) => {
                let mut session = stream.session();
                session.put(Kind::Secret, secret::LEAF, leaf.packed);
                leaf.renew_after
            }
            Err(why) => {
                error!(%workload, "the leaf of an Envoy was not issued: {why}");
                credentials::AGAIN
            }
        }
    }

    fn count_told(&self, told: &Told) {
        let counters = &self.counters;
        let names = &counters.envoy_resources_sent;
        names.fetch_add(told.names as u64, Relaxed);
        let bytes = (told.frame.len() - FRAME_HEAD) as u64;
        counters.envoy_resource_bytes_sent.fetch_add(bytes, Relaxed);
    }

    fn take_from_envoy(
        &self,
        stream: &OpenStream,
        workload: &WorkloadName,
        message: Asked,
    ) -> Result<(), Status> {
        let Some((kind, request)) = message.about else {
            return Ok(());
        };
        let answer = stream.receive(kind, request);
        let answer = answer.map_err(|error| Status::resource_exhausted(error.to_string()))?;
        for took in stream.learned() {
            let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            self.counters.learning_ms.fetch_add(took, Relaxed);
            self.counters.dependencies_direct.fetch_add(1, Relaxed);
        }
        if let Answer::Refused(why) = answer {
            self.counters.envoy_resources_refused.fetch_add(1, Relaxed);
            let why = printable(&shortened(&why, MAX_LOGGED)).into_owned();
            warn!(
                %workload, kind = kind.as_str(), why,
                "an Envoy refuses resources: what it had stays in force"
            );
        }
        Ok(())
    }
}
