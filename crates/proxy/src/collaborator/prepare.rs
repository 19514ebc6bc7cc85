//! From a parsed head to a decision: which Service, which rule, which backend, which changes.
//!
//! Nothing here waits. What is decided goes into the [`Exchange`]; the request as it will be sent
//! goes into the scratch.

use std::io::Write;
use std::net::IpAddr;
use std::rc::Rc;

use heddle_model::{AppProtocol, Outcome};
use heddle_wire::http1::authority::{self, Authority};
use heddle_wire::http1::{
    Field, Framing, Method, RequestHead, TargetForm, Version, may_be_offered, path, protocols,
};

use super::Connection;
use super::encode;
use super::exchange::Exchange;
use crate::clock::Millis;
use crate::entry::Direct;
use crate::entry::Entry;
use crate::entry::Inbound;
use crate::failure::{Failure, Reason};
use crate::pump::Pump;
use crate::route::{HTTP_PORT, PortIndex, Request, Rule, Snapshot, Target};
use crate::worker::Scratch;

/// What is to be done with a request.
pub(super) enum Prepared {
    /// It stands in `scratch.out`, ready for the endpoints of `exchange.target`.
    Forward,
    /// Its answer is a redirect to what stands in `scratch.value`.
    Redirect { status: u16 },
}

impl Connection {
    /// Decides what happens to the request whose head was just parsed.
    pub(super) fn prepare(&mut self, exchange: &mut Exchange) -> Result<Prepared, Failure> {
        let worker = Rc::clone(&self.worker);
        let scratch = &mut *worker.scratch.borrow_mut();
        let Scratch {
            request,
            linear,
            authority: host,
            path: new_path,
            value,
            ..
        } = scratch;
        let buf = self.client.inbox.contiguous(exchange.head_bytes, linear);

        exchange.method = request.method;
        exchange.http10 = request.version == Version::Http10;
        exchange.keep_alive = request.keep_alive;
        exchange.upload = Pump::new(request.framing);
        if self.worker.log.is_some() {
            self.shown
                .keep(request.method_span.of(buf), request.path.of(buf));
        }
        self.offer.clear();
        offer(request, buf, &mut self.offer)?;

        let named = match (request.target_authority, request.host) {
            (Some(target), _) => Some(target.of(buf)),
            (None, Some(field)) if !field.is_empty() => Some(field.of(buf)),
            _ => None,
        };
        let named = named.map(|raw| self.called.learn(raw)).transpose()?;
        host.clear();
        // Without the port.
        let host_len = match named {
            Some(named) => {
                host.extend_from_slice(&self.called.canonical);
                named.host_len
            }
            None => dialled(&self.door.entry, host),
        };

        // Which port of which Service.
        let bound = exchange.bound.clone();
        let called = match &self.door.entry {
            entry @ (Entry::Service { .. } | Entry::Inbound(_) | Entry::Direct(_)) => self
                .found
                .find(&bound.snapshot, entry)
                .ok_or(Reason::ServiceGone)?,
            // These are never what a request comes by.
            Entry::Mesh | Entry::Outbound { .. } | Entry::Arriving { .. } => {
                return Err(Reason::ServiceGone.into());
            }
            Entry::ForwardProxy { caller } => {
                let named = named.as_ref().ok_or(Reason::NotForwardProxy)?;
                let host = std::str::from_utf8(&host[..named.host_len]).unwrap_or_default();
                let service = bound.snapshot.hosts.find(&caller.namespace, host);
                let service = service.ok_or(Reason::UnknownHost)?;
                bound
                    .snapshot
                    .find(service, named.port.unwrap_or(HTTP_PORT))
                    .ok_or(Reason::UnknownPort)?
            }
        };
        exchange.port = Some(called);
        let entry = bound.snapshot.port(called);
        match (entry.protocol, &self.door.entry) {
            (AppProtocol::Tcp | AppProtocol::Tls, Entry::ForwardProxy { .. }) => {
                return Err(Reason::CarriesBytes.into());
            }
            (protocol, _) if !is_supported(protocol) => {
                return Err(Reason::ProtocolNotSupported.into());
            }
            _ => {}
        }

        // One form of the path, for the rules and for the endpoint alike.
        let (routes, strict) = match self.door.is_fixed() {
            // The other node has followed its routes and chosen the endpoint; or the client has, which
            // routes have no say in.
            true => (None, bound.snapshot.guards.look_at_paths(&self.door)),
            false => {
                let routes = entry.routes(self.door.namespace());
                (routes, entry.strict_paths(routes))
            }
        };
        new_path.clear();
        let changed = match request.form {
            TargetForm::Asterisk => false,
            _ => match path::canonicalise(request.path.of(buf), new_path, strict)
                .map_err(Failure::request)?
            {
                path::Canonical::Verbatim => false,
                path::Canonical::Rewritten => true,
            },
        };
        if !changed {
            new_path.clear();
            new_path.extend_from_slice(request.path.of(buf));
        }

        let Some(routes) = routes else {
            exchange.target = Some(called);
            self.set_deadlines(exchange, None, None);
            self.encode_request(exchange, scratch);
            return Ok(Prepared::Forward);
        };
        let (trusted, offer) = (self.trusted, self.offer.as_slice());
        let snapshot = &bound.snapshot;
        let found = routes.find(
            snapshot,
            &Request {
                method: request.method_span.of(buf),
                path: new_path,
                query: request.query.map(|query| query.of(buf)).unwrap_or_default(),
                // What a rule sees is what the endpoint gets.
                fields: |name: &[u8], each: &mut dyn FnMut(&[u8])| {
                    if name.eq_ignore_ascii_case(b"host") {
                        return each(host.as_slice());
                    }
                    if !offer.is_empty() && name.eq_ignore_ascii_case(b"upgrade") {
                        return each(offer);
                    }
                    for field in &request.fields {
                        if field.name.of(buf).eq_ignore_ascii_case(name)
                            && passes(request, buf, field, trusted)
                        {
                            each(field.value.of(buf));
                        }
                    }
                },
            },
        );
        let rule = found.ok_or(Reason::NoRoute)?;
        exchange.rule = Some(rule.index);
        let route = &rule.action.route;
        if let Outcome::Redirect(redirect) = &route.outcome {
            let port = match &self.door.entry {
                Entry::Service { port, .. } => *port,
                _ => HTTP_PORT,
            };
            let called = encode::TargetUri {
                host: &host[..host_len],
                path: new_path,
                query: request.query.map(|query| query.of(buf)),
            };
            encode::location(redirect, &rule.path, port, &called, value);
            return Ok(Prepared::Redirect {
                status: redirect.status,
            });
        }
        exchange.target = Some(self.choose_backend(exchange, rule)?);
        self.set_deadlines(exchange, route.request_timeout_ms, route.backend_timeout_ms);
        self.encode_request(exchange, scratch);
        Ok(Prepared::Forward)
    }

    fn choose_backend(&self, exchange: &mut Exchange, rule: &Rule) -> Result<PortIndex, Failure> {
        let draw = match &*rule.action.backends {
            [_] => 0,
            _ => self
                .worker
                .random
                .borrow_mut()
                .below(rule.action.total_weight),
        };
        let (index, backend) = rule.action.backend(draw).ok_or(Reason::NoBackend)?;
        exchange.set_backend(index);
        match backend.target {
            Target::Port(port) => {
                if is_supported(exchange.bound.snapshot.port(port).protocol) {
                    Ok(port)
                } else {
                    Err(Reason::ProtocolNotSupported.into())
                }
            }
            Target::Unresolved => Err(Reason::NoBackend.into()),
        }
    }

    /// Takes the route's limits; where it has some, the proxy's own are out of place. Trying again
    /// does not prolong the request.
    fn set_deadlines(&self, exchange: &mut Exchange, request: Option<u64>, attempt: Option<u64>) {
        if exchange.attempts > 0 {
            return;
        }
        let now = self.worker.clock.now_ms();
        exchange.request_due = match request {
            Some(ms) if ms > 0 => now.saturating_add(ms),
            _ => Millis::MAX,
        };
        exchange.due = exchange.request_due;
        exchange.attempt_ms = attempt.unwrap_or(0);
        // The limits of a request from another node are that node's.
        if request.is_some() || attempt.is_some() || self.door.inbound().is_some() {
            exchange.response_head_ms = 0;
        }
    }
}

/// The port that a listener leads to, as long as the configuration is the same: names cost more than
/// numbers to look up.
#[derive(Debug, Default)]
pub(super) struct LastFound(Option<(u64, PortIndex)>);

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

/// The authority that a client called last, in both forms: most clients call the same one in every
/// request of a connection.
#[derive(Debug, Default)]
pub(super) struct LastCalled {
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

/// Writes the protocols that the client offers to change to (RFC 9110 section 7.8) and that may be
/// offered on. A client that offers HTTP/2 does as well without: a server may ignore the offer.
///
/// # Errors
/// Refuses what is not built yet, with a reason, rather than to serve it wrongly.
fn offer(request: &RequestHead, buf: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
    if request.method == Method::Connect {
        return Err(Reason::ConnectMethod.into());
    }
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

/// Whether a field other than Host and Upgrade goes on to the endpoint.
fn passes(request: &RequestHead, buf: &[u8], field: &Field, trusted: bool) -> bool {
    match field.kind {
        kind if kind.is_forwarding() => trusted,
        _ => !request.ends_here(buf, field),
    }
}

fn is_supported(protocol: AppProtocol) -> bool {
    matches!(protocol, AppProtocol::Http | AppProtocol::Undeclared)
}
