//! The gRPC service `heddle.v1.Accesses`, by which nodes that are gateways report what their callers use.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use heddle_model::{NodeName, ServiceAccountName};
use heddle_xds::MAX_ACCESSES;
use heddle_xds::proto::{AccessReport, AccessReported};
use heddle_xds::server;
use tonic::{Request, Response, Status};

use super::roster::Report;
use crate::peer::Peer;
use crate::{Shared, connection_of};

/// The service, for nodes that are gateways.
pub(crate) struct AccessesService(pub(crate) Arc<Shared>);

#[tonic::async_trait]
impl server::Accesses for AccessesService {
    async fn report(
        &self,
        request: Request<AccessReport>,
    ) -> Result<Response<AccessReported>, Status> {
        let peer = connection_of(request.extensions())?.peer.clone();
        let gateway = self.0.admitted_gateway_node(&peer)?;
        let reports = reports(&request.into_inner())?;
        self.0.learn(&gateway, reports).await?;
        Ok(Response::new(AccessReported {}))
    }
}

fn reports(message: &AccessReport) -> Result<BTreeSet<Report>, Status> {
    if message.accesses.len() > MAX_ACCESSES {
        return Err(Status::invalid_argument("too many accesses"));
    }
    let accesses = message.accesses.iter().map(|access| {
        let account = ServiceAccountName::parse(&access.account).ok()?;
        let address: IpAddr = access.address.parse().ok()?;
        Some((account, address))
    });
    let reports: Option<BTreeSet<Report>> = accesses.collect();
    reports.ok_or_else(|| Status::invalid_argument("an access has no account, or no IP address"))
}

impl Shared {
    /// The name of a node that is a gateway now.
    fn admitted_gateway_node(&self, peer: &Peer) -> Result<NodeName, Status> {
        let node = self.admitted(peer, &self.authority.trust().denied)?;
        match self.board.is_gateway(node) {
            true => Ok(node.clone()),
            false => Err(Status::permission_denied(
                "only nodes that are gateways report accesses (annotation heddle.dev/gateway of a workload's ServiceAccount)",
            )),
        }
    }
}
