//! The gRPC service `envoy.service.load_stats.v3.LoadReportingService`, by which lazy Envoys report what they use without a
//! gateway.
//!
//! Other Envoys are asked for nothing: an Envoy that knows all has thousands of clusters.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsResponse;
use heddle_envoy::report::Load;
use heddle_model::WorkloadName;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tonic::{Status, Streaming, body};

use crate::frames::{self, Answered};
use crate::peer::{Connection, Peer};
use crate::service::Method;
use crate::{ENDS, Shared, connection_of};

/// Limit on a report, in bytes.
const MAX_REPORT_BYTES: usize = 1 << 20;
/// Limit on what an Envoy is asked, in bytes.
const MAX_ASKED_BYTES: usize = 1 << 10;
/// How often an Envoy reports, at most and at least.
const REPORT_EVERY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// How long it may take to tell an Envoy why its call ends.
const LAST_WORD: Duration = Duration::from_secs(1);

/// The method by which Envoys report what they use.
pub(crate) struct Lrs;

impl Method for Lrs {
    const SERVICE: &'static str = "envoy.service.load_stats.v3.LoadReportingService";
    const PATH: &'static str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";

    async fn begin(
        shared: Arc<Shared>,
        request: http::Request<body::Body>,
    ) -> Result<http::Response<body::Body>, Status> {
        let (head, body) = request.into_parts();
        let Connection { peer, holding } = connection_of(&head.extensions)?.clone();
        let workload = shared.admitted_envoy(&peer)?;
        let requests = frames::requests::<LoadStatsResponse, Load>(body, MAX_REPORT_BYTES);
        let (answers, answered) = mpsc::channel::<Answered>(1);
        let (is_there, gone) = oneshot::channel::<Infallible>();
        tokio::spawn(async move {
            let under_way = holding.call();
            let ended = shared
                .hear_load((&peer, &workload), requests, &answers)
                .await;
            if let Err(status) = ended {
                // Fails when the client has gone.
                let _ = timeout(LAST_WORD, answers.send(Err(status))).await;
            }
            drop((answers, under_way));
            // What an Envoy does not read would stay in memory for as long as the connection lasts.
            if timeout(LAST_WORD, gone).await.is_err() {
                holding.evict();
            }
        });
        Ok(frames::response(answered, is_there))
    }
}

impl Shared {
    /// Hears the reports of an Envoy until it ends the call.
    async fn hear_load(
        self: &Arc<Self>,
        (peer, workload): (&Peer, &WorkloadName),
        mut requests: Streaming<Load>,
        answers: &mpsc::Sender<Answered>,
    ) -> Result<(), Status> {
        let mut closing = pin!(self.closing());
        let mut asked = None;
        loop {
            let message = tokio::select! {
                message = requests.message() => message,
                () = answers.closed() => return Ok(()),
                () = &mut closing => return Err(Status::unavailable(ENDS)),
            };
            // A broken connection ends the call as well.
            let Ok(Some(load)) = message else {
                return Ok(());
            };
            self.admitted_envoy(peer)?;
            let is_lazy = self.is_lazy(workload);
            // One that reports more often than it was asked to is heard as often as it should be.
            if is_lazy && self.envoys.may_report(workload, REPORT_EVERY[0] / 2) {
                self.note_load(workload, load).await?;
            }
            if asked != Some(is_lazy) {
                asked = Some(is_lazy);
                let frame = frames::frame(&self.question(is_lazy), MAX_ASKED_BYTES)?;
                if answers.send(Ok(frame)).await.is_err() {
                    return Ok(());
                }
            }
        }
    }

    fn is_lazy(&self, workload: &WorkloadName) -> bool {
        let mesh = self.board.newest();
        mesh.is_some_and(|mesh| {
            let known = mesh.workload(workload);
            known.is_some_and(|known| mesh.forwarding.is_lazy(known))
        })
    }

    async fn note_load(&self, workload: &WorkloadName, load: Load) -> Result<(), Status> {
        let counters = &self.counters;
        counters.lazy_direct.fetch_add(load.direct, Relaxed);
        counters.lazy_by_gateway.fetch_add(load.by_gateway, Relaxed);
        let now = (self.clock)().as_secs();
        let (envoys, workload) = (self.envoys.clone(), workload.clone());
        // It may wait for the disk. One at a time, and none in the way of nodes that join.
        let _turn = self.reporting.acquire().await;
        let noting = move || envoys.note_uses(&workload, &load.busy, now);
        let noted = tokio::task::spawn_blocking(noting).await;
        noted.map_err(|_| Status::unavailable(ENDS))
    }

    /// What an Envoy is asked: all of its clusters, or none.
    fn question(&self, is_lazy: bool) -> LoadStatsResponse {
        let [shortest, longest] = REPORT_EVERY;
        let every = match is_lazy {
            true => (self.envoys.forget_after() / 4).clamp(shortest, longest),
            false => longest,
        };
        LoadStatsResponse {
            send_all_clusters: is_lazy,
            load_reporting_interval: Some(envoy_types::pb::google::protobuf::Duration {
                seconds: i64::try_from(every.as_secs()).unwrap_or(i64::MAX),
                nanos: 0,
            }),
            ..LoadStatsResponse::default()
        }
    }
}
