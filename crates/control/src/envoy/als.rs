//! The gRPC service `envoy.service.accesslog.v3.AccessLogService`, by which gateways report what their callers use.
//!
//! A report is believed of the Envoy of a gateway only, and about lazy callers only.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

use envoy_types::pb::envoy::service::accesslog::v3::StreamAccessLogsResponse;
use heddle_envoy::report::Accesses;
use heddle_model::WorkloadName;
use tokio::sync::{mpsc, oneshot};
use tonic::{Status, Streaming, body};

use super::roster::Report;
use crate::frames::{self, Answered};
use crate::peer::Peer;
use crate::service::Method;
use crate::{ENDS, Shared, connection_of};

/// Limit on a message of an Envoy, in bytes.
const MAX_BYTES: usize = 256 << 10;

/// The method by which gateways report.
pub(crate) struct Als;

impl Method for Als {
    const SERVICE: &'static str = "envoy.service.accesslog.v3.AccessLogService";
    const PATH: &'static str = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs";

    async fn begin(
        shared: Arc<Shared>,
        request: http::Request<body::Body>,
    ) -> Result<http::Response<body::Body>, Status> {
        let (head, body) = request.into_parts();
        let connection = connection_of(&head.extensions)?.clone();
        shared.admitted_gateway(&connection.peer)?;
        let requests = frames::requests::<StreamAccessLogsResponse, Accesses>(body, MAX_BYTES);
        // Reports are never answered; the response ends with the call.
        let (answers, answered) = mpsc::channel::<Answered>(1);
        let (is_there, _gone) = oneshot::channel();
        tokio::spawn(async move {
            let under_way = connection.holding.call();
            let ended = shared.hear(&connection.peer, requests).await;
            if let Err(status) = ended {
                // Fails when the client has gone.
                let _ = answers.try_send(Err(status));
            }
            drop(under_way);
        });
        Ok(frames::response(answered, is_there))
    }
}

impl Shared {
    /// The workload of an Envoy that is a gateway now.
    fn admitted_gateway(&self, peer: &Peer) -> Result<WorkloadName, Status> {
        let workload = self.admitted_envoy(peer)?;
        let mesh = self.board.newest();
        let known = mesh.as_ref().and_then(|mesh| {
            let known = mesh.workload(&workload)?;
            Some(
                known.proxy.is_envoy() && mesh.forwarding.gateways.contains(&known.service_account),
            )
        });
        match known {
            Some(true) => Ok(workload),
            _ => Err(Status::permission_denied(
                "only gateways report accesses (annotation heddle.dev/gateway of their ServiceAccount)",
            )),
        }
    }

    /// Hears the reports of a gateway until it ends the call.
    async fn hear(
        self: &Arc<Self>,
        peer: &Peer,
        mut requests: Streaming<Accesses>,
    ) -> Result<(), Status> {
        let mut closing = pin!(self.closing());
        loop {
            let message = tokio::select! {
                message = requests.message() => message,
                () = &mut closing => return Err(Status::unavailable(ENDS)),
            };
            // A broken connection ends the call as well.
            let Ok(Some(message)) = message else {
                return Ok(());
            };
            let gateway = self.admitted_gateway(peer)?;
            let uses = message.uses().map(|(account, to)| (account, to.ip()));
            let reports: BTreeSet<Report> = uses.collect();
            drop(message);
            self.learn(&gateway, reports).await?;
        }
    }
}
