//! Finds the Service's port that a request calls.

use heddle_model::{AppProtocol, ServiceName};
use heddle_wire::http1::Method;

use super::ask::ask;
use super::{CONTINUE, Step, StepContext, Stop, forwarded};
use crate::collaborator::reply::Reply;
use crate::entry::{Entry, Forwarded};
use crate::failure::Reason;
use crate::questions::Asker;
use crate::route::{HTTP_PORT, PortIndex, Snapshot, service_of};

/// Finds the port by the listener, or for a forward proxy by the authority.
pub(super) fn find(context: &mut StepContext<'_>) -> Step {
    let snapshot = &*context.decision.bound.snapshot;
    let called = match &context.door.entry {
        entry @ (Entry::Service { .. } | Entry::Inbound(_) | Entry::Direct(_)) => {
            match context.client.found.find(snapshot, entry) {
                Some(found) => found,
                None => return Err(missing(context, entry.service(), Reason::ServiceGone)),
            }
        }
        Entry::Forwarded(_) if !snapshot.guards.still_forward(context.door) => {
            return Err(Reason::PolicyDenied.into());
        }
        Entry::Forwarded(Forwarded { to: Some(_), .. }) => {
            let found = context.client.found.find(snapshot, &context.door.entry);
            found.ok_or(Reason::ServiceGone)?
        }
        Entry::Forwarded(forwarded) => forwarded::find(context, forwarded)?,
        // Requests never come through these doors.
        Entry::Mesh | Entry::Outbound { .. } | Entry::Arriving { .. } => {
            return Err(Reason::ServiceGone.into());
        }
        Entry::ForwardProxy { caller } => {
            let named = context.named.ok_or(Reason::NotForwardProxy)?;
            let host = &context.host[..named.host_len];
            let host = std::str::from_utf8(host).unwrap_or_default();
            let Some(service) = snapshot.hosts.find(&caller.namespace, host) else {
                let service = service_of(&caller.namespace, host);
                return Err(missing(context, service.as_ref(), Reason::UnknownHost));
            };
            let port = snapshot.find(service, named.port.unwrap_or(HTTP_PORT));
            port.ok_or(Reason::UnknownPort)?
        }
    };
    snapshot.mark_used(called);
    let protocol = snapshot.port(called).protocol;
    context.decision.port = Some(called);
    match (protocol, &context.door.entry) {
        (AppProtocol::Tcp | AppProtocol::Tls, Entry::ForwardProxy { .. }) => {
            Err(Reason::CarriesBytes.into())
        }
        (_, Entry::Forwarded(_)) if context.request.method == Method::Connect => {
            Err(Stop::Respond(Reply::Tunnel))
        }
        (protocol, _) if !is_supported(protocol) => Err(Reason::ProtocolNotSupported.into()),
        _ => CONTINUE,
    }
}

/// Why no further step runs for a Service that the configuration does not have, or not that port of it: `absent` if the
/// mesh has no such Service. Only callers of this node are worth a question: another node calls what is here.
fn missing(context: &StepContext<'_>, service: Option<&ServiceName>, absent: Reason) -> Stop {
    let (Some(service), Some(caller)) = (service, context.door.entry.caller()) else {
        return absent.into();
    };
    let missing = context.decision.bound.snapshot.missing(service);
    let asker = || Asker::Workload(caller.clone());
    ask(context.worker, asker, missing, absent)
}

/// Whether requests can be forwarded by this protocol.
pub(super) fn is_supported(protocol: AppProtocol) -> bool {
    matches!(protocol, AppProtocol::Http | AppProtocol::Undeclared)
}

/// Caches the port to which a listener leads, until the configuration changes: names are slower to look up than
/// numbers.
#[derive(Debug, Default)]
pub(in crate::collaborator) struct LastFound(Option<(u64, PortIndex)>);

impl LastFound {
    fn find(&mut self, snapshot: &Snapshot, entry: &Entry) -> Option<PortIndex> {
        match self.0 {
            Some((id, found)) if id == snapshot.id => Some(found),
            _ => {
                let found = snapshot.port_of(entry)?;
                self.0 = Some((snapshot.id, found));
                Some(found)
            }
        }
    }
}
