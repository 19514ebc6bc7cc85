//! Changes in the head of a response, and the changes of routes in both directions.

use heddle_model::HeaderEdits;
use heddle_wire::http1::{Edits, Field, FieldKind, Framing, ResponseHead, Version, same_name};

use super::attempt::Attempt;
use super::exchange::Exchange;
use crate::io::Message;

/// Writes the head of a response into `out`: `response` is the parsed head in `buf`.
pub(super) fn encode_response(
    exchange: &Exchange,
    attempt: &Attempt,
    response: &ResponseHead,
    buf: &[u8],
    edits: &mut Edits,
    out: &mut Message,
) {
    edits.clear();
    response.strip_hop_by_hop(buf, edits);
    if response.version == Version::Http10 {
        edits.replace(response.version_span, b"HTTP/1.1");
    }
    if exchange.request.http10 && response.framing == Framing::Chunked {
        // The client does not know chunked encoding: it gets the plain bytes, ended by the end of the connection.
        for field in &response.fields {
            if matches!(field.kind, FieldKind::TransferEncoding | FieldKind::Trailer) {
                edits.cut(field.line);
            }
        }
    }
    // `heddle-reason` is kept only from another node, which itself removes it from endpoints' responses.
    if !attempt.from_node {
        cut_reason(response, edits);
    }
    // A 426 names the protocols that the server would accept instead (RFC 9110 section 15.5.22).
    if response.status == 101 || (response.status == 426 && response.upgrades()) {
        upgrade_fields(response, buf, edits);
    }
    if response.status == 101 {
        // Neither keep-alive nor close: the connection changes its protocol.
    } else if !exchange.request.keep_alive {
        edits.append(b"Connection", b"close");
    } else if exchange.request.http10 {
        edits.append(b"Connection", b"keep-alive");
    }
    let of_rule = exchange
        .decision
        .rule()
        .map(|rule| &rule.action.route.filters);
    let of_backend = exchange.decision.backend().map(|backend| &backend.filters);
    let rule_edits = of_rule.map(|filters| &filters.response);
    let backend_edits = of_backend.map(|filters| &filters.response);
    apply_both(backend_edits, rule_edits, &response.fields, buf, edits);
    write(edits, buf, out);
}

/// Writes a head with its edits applied.
pub(super) fn write(edits: &Edits, buf: &[u8], out: &mut Message) {
    edits.write_to(buf, out.begin());
    out.end_head();
}

/// Removes the field `heddle-reason` of an endpoint's response: callers would take it as this proxy's.
pub(super) fn cut_reason(response: &ResponseHead, edits: &mut Edits) {
    for field in &response.fields {
        if field.kind == FieldKind::HeddleReason {
            edits.cut(field.line);
        }
    }
}

/// Adds the endpoint's Upgrade protocols again, since hop-by-hop fields were removed.
fn upgrade_fields(response: &ResponseHead, buf: &[u8], edits: &mut Edits) {
    edits.append(b"Connection", b"upgrade");
    for field in &response.fields {
        if field.kind == FieldKind::Upgrade {
            edits.append(b"Upgrade", field.value.of(buf));
        }
    }
}

/// Applies a route's header changes: the result is as if `first` were applied before `then`.
pub(super) fn apply_both(
    first: Option<&HeaderEdits>,
    then: Option<&HeaderEdits>,
    fields: &[Field],
    buf: &[u8],
    edits: &mut Edits,
) {
    if let Some(first) = first {
        apply_edits(first, then, fields, buf, edits);
    }
    if let Some(then) = then {
        apply_edits(then, None, fields, buf, edits);
    }
}

/// Applies changes to a header section. A line that `later` would replace or remove is not added in the first place.
fn apply_edits(
    changes: &HeaderEdits,
    later: Option<&HeaderEdits>,
    fields: &[Field],
    buf: &[u8],
    edits: &mut Edits,
) {
    if changes.is_empty() {
        return;
    }
    for field in fields {
        if takes_out(changes, field.name.of(buf)) {
            edits.cut(field.line);
        }
    }
    for (name, value) in changes.set.iter().chain(&changes.add) {
        if !later.is_some_and(|later| takes_out(later, name.as_bytes())) {
            edits.append(name.as_bytes(), value.as_bytes());
        }
    }
}

/// Whether the changes replace or remove fields of this name, compared without regard to case.
pub(super) fn takes_out(changes: &HeaderEdits, name: &[u8]) -> bool {
    let set = changes.set.iter().map(|(name, _)| name);
    set.chain(&changes.remove)
        .any(|known| same_name(known.as_bytes(), name))
}
