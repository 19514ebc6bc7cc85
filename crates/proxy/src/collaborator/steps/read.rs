//! Reads the properties of the request from its head.

use heddle_wire::http1::{Framing, Method, RequestHead, Version, may_be_offered, protocols};

use super::{CONTINUE, Step, StepContext};
use crate::door::Door;
use crate::failure::{Failure, Reason};
use crate::pump::Pump;

/// Stores method, version and framing, and the parts that the access log shows.
pub(super) fn read(context: &mut StepContext<'_>) -> Step {
    let StepContext {
        head, buf, request, ..
    } = context;
    request.method = head.method;
    request.http10 = head.version == Version::Http10;
    // What follows a CONNECT may be bytes for the tunnel that the client asks for, and no request (RFC 9110 section 9.3.6).
    request.keep_alive = head.keep_alive && head.method != Method::Connect;
    let claims = context.decision.bound.snapshot.guards.claims();
    request.asserted = claims.read(context.door, head, buf);
    request.upload = Pump::new(head.framing);
    request.upload.drops(head.nominated_trailers(buf));
    request.replay_bytes = 0;
    let client = &mut context.client;
    if context.worker.access_log().is_some() {
        let authority = head.target_authority.or(head.host);
        let authority = authority.map_or(&b""[..], |authority| authority.of(buf));
        client
            .shown
            .keep(head.method_span.of(buf), head.path.of(buf), authority);
    }
    client.offer.clear();
    match head.method {
        Method::Connect if !may_tunnel(context.door) => Err(Reason::ConnectMethod.into()),
        Method::Connect => CONTINUE,
        _ => Ok(offer(head, buf, client.offer)?),
    }
}

/// Whether CONNECT makes a tunnel (RFC 9110 section 9.3.6): to a gateway, for bytes whose protocol is not known.
fn may_tunnel(door: &Door) -> bool {
    door.forwarded()
        .is_some_and(|forwarded| forwarded.to.is_none())
}

/// Writes the protocols to which the client offers to upgrade (RFC 9110 section 7.8), except those that must not be
/// passed on, such as HTTP/2: a server may ignore that offer, so the client works without it.
///
/// # Errors
/// The reason for an upgrade by a request with a body, which is not supported.
fn offer(request: &RequestHead, buf: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
    if !request.upgrade {
        return Ok(());
    }
    for protocol in protocols(&request.fields, buf).filter(|one| may_be_offered(one)) {
        if !out.is_empty() {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(protocol);
    }
    match request.framing {
        Framing::None | Framing::Length(0) => Ok(()),
        _ if out.is_empty() => Ok(()),
        _ => Err(Reason::Upgrade.into()),
    }
}
