//! Finds the Service's port that a request calls.

use heddle_model::AppProtocol;

use super::{CONTINUE, Step, StepContext};
use crate::entry::Entry;
use crate::failure::Reason;
use crate::route::{HTTP_PORT, PortIndex, Snapshot};

/// Finds the port by the listener, or for a forward proxy by the authority.
pub(super) fn find(context: &mut StepContext<'_>) -> Step {
    let snapshot = &*context.decision.bound.snapshot;
    let called = match &context.door.entry {
        entry @ (Entry::Service { .. } | Entry::Inbound(_) | Entry::Direct(_)) => {
            let found = context.client.found.find(snapshot, entry);
            found.ok_or(Reason::ServiceGone)?
        }
        // Requests never come through these doors.
        Entry::Mesh | Entry::Outbound { .. } | Entry::Arriving { .. } => {
            return Err(Reason::ServiceGone.into());
        }
        Entry::ForwardProxy { caller } => {
            let named = context.named.ok_or(Reason::NotForwardProxy)?;
            let host = &context.host[..named.host_len];
            let host = std::str::from_utf8(host).unwrap_or_default();
            let service = snapshot.hosts.find(&caller.namespace, host);
            let service = service.ok_or(Reason::UnknownHost)?;
            let port = snapshot.find(service, named.port.unwrap_or(HTTP_PORT));
            port.ok_or(Reason::UnknownPort)?
        }
    };
    let protocol = snapshot.port(called).protocol;
    context.decision.port = Some(called);
    match (protocol, &context.door.entry) {
        (AppProtocol::Tcp | AppProtocol::Tls, Entry::ForwardProxy { .. }) => {
            Err(Reason::CarriesBytes.into())
        }
        (protocol, _) if !is_supported(protocol) => Err(Reason::ProtocolNotSupported.into()),
        _ => CONTINUE,
    }
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
