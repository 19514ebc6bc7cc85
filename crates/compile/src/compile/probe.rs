//! Health checks that a workload declares.
//!
//! Heddle runs none of them. It has to know them because their senders (a kubelet, a script) have no identity: declared
//! health checks stay open to anonymous callers, and nothing else does.

use heddle_model::{Probe, WorkloadPort};

use super::{Scope, did_you_mean};
use crate::check;
use crate::manifest::core::IntOrString;
use crate::manifest::local::{HttpGet, LocalProbe, LocalWorkloadSpec};
use crate::manifest::node::FieldPath;

/// Compiles the probes of a workload, sorted, each once.
pub(super) fn compile(
    spec: &LocalWorkloadSpec,
    ports: &[WorkloadPort],
    scope: &mut Scope<'_>,
) -> Vec<Probe> {
    let at = FieldPath::of("spec");
    let written = [
        ("livenessProbe", &spec.liveness_probe),
        ("readinessProbe", &spec.readiness_probe),
        ("startupProbe", &spec.startup_probe),
    ];
    let mut probes: Vec<Probe> = written
        .into_iter()
        .filter_map(|(field, written)| probe(written.as_ref()?, ports, &at.field(field), scope))
        .collect();
    probes.sort();
    probes.dedup();
    probes
}

fn probe(
    written: &LocalProbe,
    ports: &[WorkloadPort],
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Option<Probe> {
    let LocalProbe {
        http_get,
        tcp_socket,
        exec,
        grpc,
    } = written;
    for (field, is_there) in [("exec", exec.is_some()), ("grpc", grpc.is_some())] {
        if is_there {
            scope.error(
                &at.field(field),
                "this kind of probe is not known to the proxy",
                "use httpGet or tcpSocket, or remove it",
            );
            return None;
        }
    }
    match (http_get, tcp_socket) {
        (Some(get), None) => http(get, ports, &at.field("httpGet"), scope),
        (None, Some(socket)) => {
            let at = at.field("tcpSocket");
            refuse_host(socket.host.as_deref(), &at, scope);
            Some(Probe {
                port: port(&socket.port, ports, &at, scope)?,
                path: None,
                query: String::new(),
            })
        }
        _ => {
            scope.error(
                at,
                "a probe has exactly one of httpGet and tcpSocket",
                "add httpGet with path and port, or tcpSocket with port",
            );
            None
        }
    }
}

fn http(
    written: &HttpGet,
    ports: &[WorkloadPort],
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Option<Probe> {
    refuse_host(written.host.as_deref(), at, scope);
    match written.scheme.as_deref() {
        None | Some("" | "HTTP") => {}
        Some("HTTPS") => scope.error(
            &at.field("scheme"),
            "Heddle cannot see requests in TLS that it does not terminate",
            "use tcpSocket, which checks that the port answers",
        ),
        Some(other) => scope.error(
            &at.field("scheme"),
            format!("{other:?} is no scheme"),
            did_you_mean(other, ["HTTP"], "use HTTP"),
        ),
    }
    let port = port(&written.port, ports, at, scope);
    let text = match written.path.as_deref() {
        None | Some("") => "/",
        Some(text) => text,
    };
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let path = scope.check(&at.field("path"), check::exact_path(path))?;
    let is_query = |b: u8| (b'!'..=b'~').contains(&b) && b != b'#';
    if !query.bytes().all(is_query) {
        scope.error(
            &at.field("path"),
            "the query holds a character that none can have",
            "write %XX for it",
        );
        return None;
    }
    Some(Probe {
        port: port?,
        path: Some(path),
        query: query.to_owned(),
    })
}

fn refuse_host(host: Option<&str>, at: &FieldPath, scope: &mut Scope<'_>) {
    if host.is_some_and(|host| !host.is_empty()) {
        scope.error(
            &at.field("host"),
            "a probe of another host does not check this workload",
            "remove it",
        );
    }
}

fn port(
    written: &IntOrString,
    ports: &[WorkloadPort],
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Option<u16> {
    let at = at.field("port");
    match written {
        IntOrString::Int(number) => scope.check(&at, check::port(*number)),
        IntOrString::String(name) => {
            let named = |port: &&WorkloadPort| port.name.as_deref() == Some(name);
            let found = ports.iter().find(named).map(|port| port.port);
            if found.is_none() {
                let names = ports.iter().filter_map(|port| port.name.as_deref());
                scope.error(
                    &at,
                    format!("spec.ports has no port named {name:?}"),
                    did_you_mean(name, names, "name the port there, or give its number here"),
                );
            }
            found
        }
    }
}
