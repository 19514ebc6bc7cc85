//! Finds what a lazy caller's proxy asks this node for, as its gateway: by the address that the caller has dialled.

use std::net::SocketAddr;

use heddle_model::ORIGINAL_DST_FIELD;
use heddle_wire::http1::{Field, same_name};

use super::ask::ask;
use super::{StepContext, Stop};
use crate::entry::Forwarded;
use crate::failure::Reason;
use crate::questions::Asker;
use crate::route::{Found, PortIndex};

/// Finds the port of a Service that has the original destination as its cluster address, and reports its use.
pub(super) fn find(context: &StepContext<'_>, forwarded: &Forwarded) -> Result<PortIndex, Stop> {
    let snapshot = &context.decision.bound.snapshot;
    let address = original(context).ok_or(Reason::NotAtGateway)?;
    let account = forwarded.caller.service_account();
    let account = account.ok_or(Reason::NotAtGateway)?;
    let found = snapshot.at(address).map_err(|missing| {
        let asker = || Asker::Lazy(account.clone());
        ask(context.worker, asker, missing, Reason::NotAtGateway)
    })?;
    let Found::Service(port) = found else {
        return Err(Reason::NotAtGateway.into());
    };
    let (worker, access) = (context.worker, (account, address.ip()));
    let sink = worker.settings.accesses.as_ref();
    worker.accesses.note(sink, access, worker.clock.now_ms());
    Ok(port)
}

/// The original destination, which the caller's proxy names once.
fn original(context: &StepContext<'_>) -> Option<SocketAddr> {
    let fields = context.head.fields.iter();
    let mut lines = fields.filter(|field| is_original_destination(field, context.buf));
    let line = lines.next().filter(|_| lines.next().is_none())?;
    let address = line.value.of(context.buf);
    std::str::from_utf8(address).ok()?.parse().ok()
}

/// Whether a field names the original destination, in any spelling.
pub(super) fn is_original_destination(field: &Field, buf: &[u8]) -> bool {
    same_name(field.name.of(buf), ORIGINAL_DST_FIELD.as_bytes())
}
