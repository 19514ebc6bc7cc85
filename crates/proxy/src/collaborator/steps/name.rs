//! The authority that a request calls.

use std::io::Write;
use std::net::IpAddr;

use heddle_wire::http1::authority::{self, Authority};

use super::{CONTINUE, Step, StepContext};
use crate::entry::{Direct, Entry, Inbound};
use crate::failure::Failure;
use crate::route::HTTP_PORT;

/// Brings the authority into canonical form: what the head names, or what was dialled.
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

/// The authority that a client called last, in both forms: most clients call the same one in every
/// request of a connection.
#[derive(Debug, Default)]
pub(in crate::collaborator) struct LastCalled {
    raw: Vec<u8>,
    canonical: Vec<u8>,
    parts: Option<Authority>,
}

impl LastCalled {
    /// Brings an authority into canonical form, unless it is the one that came before.
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

/// Writes the authority of what was dialled, for a client that does not name what it calls (HTTP/1.0): the
/// Service's name as callers of every namespace may say it, or the address. Returns how long it is without
/// the port.
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
        // A forward proxy does not know, and requests come by none of the others.
        Entry::ForwardProxy { .. }
        | Entry::Mesh
        | Entry::Outbound { .. }
        | Entry::Arriving { .. } => return 0,
    };
    if port != HTTP_PORT {
        let _ = write!(out, ":{port}");
    }
    host_len
}
