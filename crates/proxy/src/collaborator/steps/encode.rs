//! Writes the request in the form in which it is sent to endpoints.
//!
//! A head is forwarded unchanged, except for a list of edits: hop-by-hop fields are cut, fields about the caller are
//! replaced by verified values, and the route's changes are applied.

use heddle_wire::http1::{FieldKind, TargetForm, Version};

use super::forwarded::is_original_destination;
use super::{CONTINUE, Step, StepContext};
use crate::collaborator::edits::{apply_both, write};

/// Writes the edited head into `out`.
pub(super) fn encode(context: &mut StepContext<'_>) -> Step {
    let StepContext {
        head,
        buf,
        edits,
        path,
        value,
        decision,
        ..
    } = context;
    let (head, buf) = (*head, *buf);
    edits.clear();
    head.strip_hop_by_hop(buf, edits);
    if head.version == Version::Http10 {
        edits.replace(head.version_span, b"HTTP/1.1");
    }
    let offer = &*context.client.offer;
    if !offer.is_empty() {
        edits.append(b"Connection", b"upgrade");
        edits.append(b"Upgrade", offer);
    }

    let rule = decision.rule();
    let of_rule = rule.map(|rule| &rule.action.route.filters);
    let of_backend = decision.backend().map(|backend| &backend.filters);
    let filters = [of_rule, of_backend];
    // The target.
    let new_path = filters.iter().rev().flatten().find_map(|filters| {
        let path = filters.rewrite.as_ref()?.path.as_ref()?;
        Some((path, &rule?.path))
    });
    let target_changed = head.form == TargetForm::Absolute
        || new_path.is_some()
        || path.as_slice() != head.path.of(buf);
    if target_changed {
        value.clear();
        match new_path {
            Some((rewrite, matched)) => rewrite.write_to(matched, path, value),
            None => value.extend_from_slice(path),
        }
        put_query(head.query.map(|query| query.of(buf)), value);
        edits.replace(head.target, value);
    }

    // Host: by the rule, otherwise the canonical form of the client's authority, otherwise the dialled one.
    let hostname = filters
        .iter()
        .rev()
        .flatten()
        .find_map(|filters| filters.rewrite.as_ref()?.hostname.as_deref());
    let host = hostname.map_or(context.host.as_slice(), str::as_bytes);
    match head.host {
        Some(span) if span.is_empty() => {
            let lines = head.fields.iter();
            let empty = lines.filter(|field| field.kind == FieldKind::Host);
            empty.for_each(|field| edits.cut(field.line));
            edits.append(b"Host", host);
        }
        Some(span) if span.of(buf) != host => edits.replace(span, host),
        Some(_) => {}
        None => edits.append(b"Host", host),
    }

    if context.door.forwarded().is_some() {
        cut_original_destination(context);
    }
    // The calling node has already added these fields.
    if !context.door.is_from_node() {
        forwarding_fields(context);
    }
    let StepContext {
        edits,
        out,
        decision,
        ..
    } = context;
    let of_rule = decision.rule().map(|rule| &rule.action.route.filters);
    let of_backend = decision.backend().map(|backend| &backend.filters);
    let rule_edits = of_rule.map(|filters| &filters.request);
    let backend_edits = of_backend.map(|filters| &filters.request);
    apply_both(rule_edits, backend_edits, &head.fields, buf, edits);
    write(edits, buf, out);
    CONTINUE
}

/// Cuts what the caller's proxy has told this gateway only.
fn cut_original_destination(context: &mut StepContext<'_>) {
    let (head, buf) = (context.head, context.buf);
    for field in head.fields.iter() {
        if is_original_destination(field, buf) {
            context.edits.cut(field.line);
        }
    }
}

/// Adds the fields that say who sent the request. The client's own such fields are removed and counted, unless the
/// operator trusts this client.
fn forwarding_fields(context: &mut StepContext<'_>) {
    let StepContext {
        head,
        buf,
        edits,
        value,
        client,
        ..
    } = context;
    let (mut has_proto, mut has_host) = (false, false);
    let mut stripped = 0;
    value.clear();
    for field in (head.fields.iter()).filter(|field| field.kind.is_forwarding()) {
        if !client.is_trusted {
            edits.cut(field.line);
            stripped += 1;
            continue;
        }
        match field.kind {
            FieldKind::XForwardedFor => {
                // One line for all values, ours last.
                value.extend_from_slice(field.value.of(buf));
                value.extend_from_slice(b", ");
                edits.cut(field.line);
            }
            FieldKind::XForwardedProto => has_proto = true,
            FieldKind::XForwardedHost => has_host = true,
            _ => {}
        }
    }
    if stripped > 0 {
        let counter = &context.worker.stats.forwarding_headers_stripped;
        counter.add(stripped);
    }
    value.extend_from_slice(client.peer.as_bytes());
    edits.append(b"X-Forwarded-For", value);
    if !has_proto {
        edits.append(b"X-Forwarded-Proto", b"http");
    }
    if !has_host && !context.host.is_empty() {
        edits.append(b"X-Forwarded-Host", context.host);
    }
}

/// Writes the query with its question mark, if there is one.
pub(super) fn put_query(query: Option<&[u8]>, out: &mut Vec<u8>) {
    if let Some(query) = query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
}
