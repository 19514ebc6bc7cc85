//! Finds the routing rule of a request.

use heddle_model::Outcome;
use heddle_wire::http1::{Field, RequestHead};

use super::redirect::{TargetUri, location};
use super::{CONTINUE, Step, StepContext, Stop};
use crate::clock::{Due, millis};
use crate::collaborator::reply::Reply;
use crate::entry::Entry;
use crate::failure::Reason;
use crate::route::{HTTP_PORT, Request};

/// Finds the rule, responds if it is a redirect, and takes over its timeouts.
pub(super) fn follow(context: &mut StepContext<'_>) -> Step {
    let of_proxy = millis(context.worker.settings.timeouts.response_head);
    let of_proxy = Some(of_proxy).filter(|ms| *ms > 0);
    let (door, port) = (context.door, context.decision.port);
    let snapshot = &context.decision.bound.snapshot;
    let routes = match port {
        Some(port) if !door.is_fixed() => {
            let entry = snapshot.port(port);
            entry.routes(door.namespace()).map(|table| (entry, table))
        }
        // The calling node has applied its routes and chosen the endpoint; or the client has chosen it, to which routes
        // do not apply.
        _ => None,
    };
    let Some((entry, table)) = routes else {
        context.decision.target = port;
        // The timeouts of a request from another node are that node's.
        context.decision.response_head_ms = of_proxy.filter(|_| door.inbound().is_none());
        return CONTINUE;
    };
    let (head, buf) = (context.head, context.buf);
    let query = head.query.map(|query| query.of(buf));
    let (is_trusted, offer) = (context.client.is_trusted, context.client.offer.as_slice());
    let found = entry.rule_for(
        table,
        &Request {
            method: head.method_span.of(buf),
            path: context.path,
            query: query.unwrap_or_default(),
            // A rule sees exactly the fields that the endpoint gets.
            fields: |name: &[u8], each: &mut dyn FnMut(&[u8])| {
                if name.eq_ignore_ascii_case(b"host") {
                    return each(context.host);
                }
                if !offer.is_empty() && name.eq_ignore_ascii_case(b"upgrade") {
                    return each(offer);
                }
                for field in &head.fields {
                    if field.name.of(buf).eq_ignore_ascii_case(name)
                        && passes(head, buf, field, is_trusted)
                    {
                        each(field.value.of(buf));
                    }
                }
            },
        },
    );
    let rule = found.ok_or(Reason::NoRoute)?;
    context.decision.rule = Some(rule.index);
    let route = &rule.action.route;
    if let Outcome::Redirect(redirect) = &route.outcome {
        let port = match &door.entry {
            Entry::Service { port, .. } => *port,
            _ => HTTP_PORT,
        };
        let called = TargetUri {
            host: &context.host[..context.host_len],
            path: context.path,
            query,
        };
        location(redirect, &rule.path, port, &called, context.value);
        let status = redirect.status;
        return Err(Stop::Respond(Reply::Redirect { status }));
    }
    let (of_request, of_attempt) = (route.request_timeout_ms, route.backend_timeout_ms);
    if let Some(ms) = of_request.filter(|ms| *ms > 0) {
        let now = context.worker.clock.now_ms();
        context.request.limit(Due::at(now.saturating_add(ms)));
    }
    context.decision.attempt_ms = of_attempt.filter(|ms| *ms > 0);
    // If the route has timeouts, the proxy's own one does not apply.
    let has_own = of_request.is_some() || of_attempt.is_some();
    context.decision.response_head_ms = of_proxy.filter(|_| !has_own);
    CONTINUE
}

/// Whether a field other than Host and Upgrade is passed on to the endpoint.
fn passes(request: &RequestHead, buf: &[u8], field: &Field, is_trusted: bool) -> bool {
    match field.kind {
        kind if kind.is_forwarding() => is_trusted,
        _ => !request.ends_here(buf, field),
    }
}
