//! Connections to endpoints with an Envoy of their own: mutual TLS at the endpoint's address, without a preface.
//!
//! An Envoy accepts the certificates of workloads only. A caller without an identity is connected in cleartext, as to an
//! endpoint outside of the mesh: an Envoy that requires an identity closes the connection.

use heddle_transport::Protocol;
use heddle_wire::preface::Kind;
use tokio::net::TcpStream;

use super::Call;
use super::remote::refused;
use crate::dial::{Shaking, Unmet, missing};
use crate::env::Alarm;
use crate::failure::Reason;
use crate::handshake::HandshakeError;
use crate::place::ByEnvoy;
use crate::side::Side;
use crate::upstream::Endpoint;
use crate::worker::Worker;

/// Sets up a connection over a socket to an Envoy, until `alarm` rings.
///
/// # Errors
/// Why the setup failed.
pub(super) async fn join_envoy(
    worker: &Worker,
    alarm: &Alarm,
    stream: TcpStream,
    (endpoint, envoy): (&Endpoint, &ByEnvoy),
    call: &Call<'_>,
) -> Result<Side, Reason> {
    let caller = worker.snapshot().guards.account(call.door).cloned();
    if caller.is_none() {
        return Ok(Side::new(stream));
    }
    let shaking = Shaking {
        env: &worker.env,
        alarm,
        caller: caller.as_ref(),
        called: &envoy.account,
        node: endpoint.address,
    };
    let protocol = match call.kind {
        Kind::Http => Protocol::StockHttp,
        Kind::Bytes => Protocol::StockBytes,
    };
    let broken = |broken: &HandshakeError| match refused(worker, endpoint, call.door, broken) {
        Reason::NodeConnectFailed => Reason::ConnectFailed,
        reason => reason,
    };
    let side: Side = match shaking.hands(stream, protocol).await {
        Ok(side) => side.into(),
        Err(Unmet::Late) => return Err(Reason::ConnectTimeout),
        Err(Unmet::NoIdentity(error)) => {
            return Err(missing(&worker.env, &call.door.source, &error));
        }
        Err(Unmet::Broken(error)) => return Err(broken(&error)),
    };
    alarm.rests_on(&side);
    // If the Envoy's identity was revoked meanwhile, nothing is sent to it.
    let held = worker.check(&side);
    held.map_err(|refusal| broken(&HandshakeError::Refused(refusal)))?;
    Ok(side)
}
