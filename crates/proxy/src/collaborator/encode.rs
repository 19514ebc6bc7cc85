//! What is changed in a head on its way through.
//!
//! A head is forwarded as it came, with a list of edits: what belongs to one connection is cut,
//! what says who called is replaced by what we know, and the route's own changes are made.

use std::io::Write;

use heddle_model::{HeaderEdits, PathMatch, PathRewrite, Redirect};
use heddle_wire::http1::{
    Edits, Field, FieldKind, Framing, RequestHead, ResponseHead, TargetForm, Version, same_name,
};

use super::Connection;
use super::exchange::Exchange;
use crate::worker::Scratch;

impl Connection {
    /// Writes the request that `scratch.request` describes into `scratch.out`, as the chosen
    /// backend is to see it. `scratch.path` and `scratch.authority` hold the canonical forms.
    pub(super) fn encode_request(&self, exchange: &Exchange, scratch: &mut Scratch) {
        let Scratch {
            request,
            edits,
            linear,
            out,
            path,
            authority,
            value,
            ..
        } = scratch;
        let buf = self.client.inbox.contiguous(exchange.head_bytes, linear);
        edits.clear();
        request.strip_hop_by_hop(buf, edits);
        if request.version == Version::Http10 {
            edits.replace(request.version_span, b"HTTP/1.1");
        }
        if !self.offer.is_empty() {
            edits.append(b"Connection", b"upgrade");
            edits.append(b"Upgrade", &self.offer);
        }

        let rule = exchange.rule();
        let of_rule = rule.map(|rule| &rule.action.route.filters);
        let of_backend = exchange.backend().map(|backend| &backend.filters);
        let filters = [of_rule, of_backend];
        // Target.
        let new_path = filters.iter().rev().flatten().find_map(|filters| {
            let path = filters.rewrite.as_ref()?.path.as_ref()?;
            Some((path, &rule?.path))
        });
        let target_changed = request.form == TargetForm::Absolute
            || new_path.is_some()
            || path.as_slice() != request.path.of(buf);
        if target_changed {
            value.clear();
            match new_path {
                Some((rewrite, matched)) => apply(rewrite, matched, path, value),
                None => value.extend_from_slice(path),
            }
            put_query(request.query.map(|query| query.of(buf)), value);
            edits.replace(request.target, value);
        }

        // Host: what the rule says, else the canonical form of what the client said, else what it dialled.
        let hostname = filters
            .iter()
            .rev()
            .flatten()
            .find_map(|filters| filters.rewrite.as_ref()?.hostname.as_deref());
        let host = hostname.map_or(authority.as_slice(), str::as_bytes);
        match request.host {
            Some(span) if span.is_empty() => {
                let lines = request.fields.iter();
                let empty = lines.filter(|field| field.kind == FieldKind::Host);
                empty.for_each(|field| edits.cut(field.line));
                edits.append(b"Host", host);
            }
            Some(span) if span.of(buf) != host => edits.replace(span, host),
            Some(_) => {}
            None => edits.append(b"Host", host),
        }

        // Another node has said that already.
        if self.door.inbound().is_none() {
            self.forwarding_fields(request, buf, edits, authority, value);
        }
        let rule_edits = of_rule.map(|filters| &filters.request);
        let backend_edits = of_backend.map(|filters| &filters.request);
        apply_both(rule_edits, backend_edits, &request.fields, buf, edits);
        out.clear();
        edits.write_to(buf, out);
    }

    /// Says who sent the request. What a client says about itself is removed and counted, unless
    /// it is one that the operator trusts to know.
    fn forwarding_fields(
        &self,
        request: &RequestHead,
        buf: &[u8],
        edits: &mut Edits,
        authority: &[u8],
        value: &mut Vec<u8>,
    ) {
        let (mut has_proto, mut has_host) = (false, false);
        let mut stripped = 0;
        value.clear();
        for field in request
            .fields
            .iter()
            .filter(|field| field.kind.is_forwarding())
        {
            if !self.trusted {
                edits.cut(field.line);
                stripped += 1;
                continue;
            }
            match field.kind {
                FieldKind::XForwardedFor => {
                    // One line for all, ours last.
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
            self.worker.stats.forwarding_headers_stripped.add(stripped);
        }
        value.extend_from_slice(self.peer.as_bytes());
        edits.append(b"X-Forwarded-For", value);
        if !has_proto {
            edits.append(b"X-Forwarded-Proto", b"http");
        }
        if !has_host && !authority.is_empty() {
            edits.append(b"X-Forwarded-Host", authority);
        }
    }

    /// Writes the response that `scratch.response` describes, whose head is the first
    /// `head_bytes` of `buf`, into `out`. `close` is said to the client.
    pub(super) fn encode_response(
        &self,
        exchange: &Exchange,
        response: &ResponseHead,
        buf: &[u8],
        close: bool,
        edits: &mut Edits,
        out: &mut Vec<u8>,
    ) {
        edits.clear();
        response.strip_hop_by_hop(buf, edits);
        if response.version == Version::Http10 {
            edits.replace(response.version_span, b"HTTP/1.1");
        }
        if exchange.http10 && response.framing == Framing::Chunked {
            // The client knows no chunks: it gets the bare bytes, ended by the connection's end.
            for field in &response.fields {
                if matches!(field.kind, FieldKind::TransferEncoding | FieldKind::Trailer) {
                    edits.cut(field.line);
                }
            }
        }
        // Another node says it of itself, and takes it out of what endpoints say.
        if !exchange.from_node {
            cut_reason(response, edits);
        }
        // A 426 says what the server would speak instead (RFC 9110 section 15.5.22).
        if response.status == 101 || (response.status == 426 && response.upgrades()) {
            upgrade_fields(response, buf, edits);
        }
        if response.status == 101 {
            // Neither kept nor closed: it speaks something else.
        } else if close {
            edits.append(b"Connection", b"close");
        } else if exchange.http10 {
            edits.append(b"Connection", b"keep-alive");
        }
        let of_rule = exchange.rule().map(|rule| &rule.action.route.filters);
        let of_backend = exchange.backend().map(|backend| &backend.filters);
        let rule_edits = of_rule.map(|filters| &filters.response);
        let backend_edits = of_backend.map(|filters| &filters.response);
        apply_both(backend_edits, rule_edits, &response.fields, buf, edits);
        out.clear();
        edits.write_to(buf, out);
    }
}

/// Takes out the field by which nodes say why they answer themselves: callers take it for ours.
pub(super) fn cut_reason(response: &ResponseHead, edits: &mut Edits) {
    for field in &response.fields {
        if field.kind == FieldKind::HeddleReason {
            edits.cut(field.line);
        }
    }
}

/// Says once more, for the next connection, which protocols the endpoint names.
fn upgrade_fields(response: &ResponseHead, buf: &[u8], edits: &mut Edits) {
    edits.append(b"Connection", b"upgrade");
    for field in &response.fields {
        if field.kind == FieldKind::Upgrade {
            edits.append(b"Upgrade", field.value.of(buf));
        }
    }
}

/// Makes a route's changes to a header section, those of `first` as if before those of `then`.
fn apply_both(
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

/// Makes changes to a header section. A line that `later` changes would only replace or remove is
/// not added in the first place.
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

/// Whether the changes replace or remove the lines of this name, in any spelling of it.
pub(super) fn takes_out(changes: &HeaderEdits, name: &[u8]) -> bool {
    let set = changes.set.iter().map(|(name, _)| name);
    set.chain(&changes.remove)
        .any(|known| same_name(known.as_bytes(), name))
}

/// Writes the path that takes the place of `path`, which `matched` matched.
fn apply(rewrite: &PathRewrite, matched: &PathMatch, path: &[u8], out: &mut Vec<u8>) {
    match (rewrite, matched) {
        (PathRewrite::ReplaceFull(full), _) => out.extend_from_slice(full.as_bytes()),
        (PathRewrite::ReplacePrefix(new), PathMatch::Prefix(old)) => {
            let rest = path.strip_prefix(old.as_bytes()).unwrap_or(path);
            out.extend_from_slice(new.as_bytes());
            out.extend_from_slice(rest);
            if new.is_empty() && rest.is_empty() {
                out.push(b'/');
            }
        }
        (PathRewrite::ReplacePrefix(_), PathMatch::Exact(_)) => out.extend_from_slice(path),
    }
}

fn put_query(query: Option<&[u8]>, out: &mut Vec<u8>) {
    if let Some(query) = query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
}

/// What a request called, in canonical form.
pub(super) struct TargetUri<'a> {
    /// Without the port.
    pub(super) host: &'a [u8],
    pub(super) path: &'a [u8],
    pub(super) query: Option<&'a [u8]>,
}

/// Writes the Location of a redirect into `scratch.value`: what the redirect does not change is
/// that of the request (Gateway API, HTTPRequestRedirectFilter).
pub(super) fn location(
    redirect: &Redirect,
    matched: &PathMatch,
    listener_port: u16,
    called: &TargetUri<'_>,
    out: &mut Vec<u8>,
) {
    let scheme = redirect.scheme.as_deref().unwrap_or("http");
    out.clear();
    out.extend_from_slice(scheme.as_bytes());
    out.extend_from_slice(b"://");
    out.extend_from_slice(
        redirect
            .hostname
            .as_deref()
            .map_or(called.host, str::as_bytes),
    );
    let well_known = match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    };
    let port = redirect.port.or(match redirect.scheme {
        Some(_) => well_known,
        None => Some(listener_port),
    });
    if let Some(port) = port.filter(|_| port != well_known) {
        // Writing to a vector cannot fail.
        let _ = write!(out, ":{port}");
    }
    match &redirect.path {
        Some(rewrite) => apply(rewrite, matched, called.path, out),
        None => out.extend_from_slice(called.path),
    }
    put_query(called.query, out);
}
