//! Determines the authority that a request calls.

use std::io::Write;
use std::net::IpAddr;

use heddle_wire::http1::authority::{self, Authority};

use super::{CONTINUE, Step, StepContext};
use crate::entry::{Direct, Entry, Forwarded, Inbound};
use crate::failure::Failure;
use crate::route::HTTP_PORT;

/// Brings the authority into canonical form: the one in the head, or the dialled one.
pub(super) fn name(context: &mut StepContext<'_>) -> Step {
    let StepContext {
        head, buf, host, ..
    } = context;
    let named = match (head.target_authority, head.host) {
        (Some(target), _) => Some(target.of(buf)),
        (None, Some(field)) if !field.is_empty() => Some(field.of(buf)),
        _ => None,
    };
    let called = &mut *context.client.called;
    context.named = named.map(|raw| called.learn(raw)).transpose()?;
    host.clear();
    context.host_len = match &context.named {
        Some(named) => {
            host.extend_from_slice(&called.canonical);
            named.host_len
        }
        None => dialled(&context.door.entry, host),
    };
    CONTINUE
}

/// Caches the client's last authority, raw and canonical: most clients call the same one in every request of a
/// connection.
#[derive(Debug, Default)]
pub(in crate::collaborator) struct LastCalled {
    raw: Vec<u8>,
    canonical: Vec<u8>,
    parts: Option<Authority>,
}

impl LastCalled {
    /// Brings an authority into canonical form, unless it is the cached one.
    fn learn(&mut self, raw: &[u8]) -> Result<Authority, Failure> {
        if let Some(parts) = self.parts.filter(|_| self.raw == raw) {
            return Ok(parts);
        }
        self.parts = None;
        let parts = authority::canonicalise(raw, HTTP_PORT, &mut self.canonical);
        let parts = parts.map_err(Failure::request)?;
        self.raw.clear();
        self.raw.extend_from_slice(raw);
        self.parts = Some(parts);
        Ok(parts)
    }
}

/// Writes the dialled authority, for a client that sends none (HTTP/1.0): the Service's name in a form that callers of
/// every namespace may use, or the address. Returns its length without the port.
#[cold]
fn dialled(entry: &Entry, out: &mut Vec<u8>) -> usize {
    // Writing to a vector cannot fail.
    let (host_len, port) = match entry {
        Entry::Service { service, port, .. } => {
            let (name, namespace) = (&service.name, &service.namespace);
            let _ = write!(out, "{name}.{namespace}");
            (out.len(), *port)
        }
        Entry::Direct(Direct { endpoint, .. }) | Entry::Inbound(Inbound { endpoint, .. }) => {
            let _ = match endpoint.ip() {
                IpAddr::V4(address) => write!(out, "{address}"),
                IpAddr::V6(address) => write!(out, "[{address}]"),
            };
            (out.len(), endpoint.port())
        }
        // A tunnel leads to a Service by its address. A forward proxy and a gateway do not know the destination yet, and
        // requests never come through the other doors.
        Entry::Forwarded(Forwarded {
            to: Some((service, port)),
            ..
        }) => {
            let _ = write!(out, "{}.{}", service.name, service.namespace);
            (out.len(), *port)
        }
        Entry::Forwarded(_)
        | Entry::ForwardProxy { .. }
        | Entry::Mesh
        | Entry::Outbound { .. }
        | Entry::Arriving { .. } => return 0,
    };
    if port != HTTP_PORT {
        let _ = write!(out, ":{port}");
    }
    host_len
}
