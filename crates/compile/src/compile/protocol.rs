//! The protocol of a Service's port.

use heddle_model::AppProtocol;

use super::{Scope, did_you_mean};
use crate::manifest::core::ServicePortSpec;
use crate::manifest::node::FieldPath;

/// Values of `appProtocol` (Kubernetes KEP-3726, and those common to meshes).
const APP_PROTOCOLS: [(&str, AppProtocol); 11] = [
    ("http", AppProtocol::Http),
    ("kubernetes.io/ws", AppProtocol::Http),
    ("kubernetes.io/h2c", AppProtocol::Http2Cleartext),
    ("h2c", AppProtocol::Http2Cleartext),
    ("http2", AppProtocol::Http2Cleartext),
    ("grpc", AppProtocol::Grpc),
    ("grpc-web", AppProtocol::Http),
    ("tcp", AppProtocol::Tcp),
    ("tls", AppProtocol::Tls),
    ("https", AppProtocol::Tls),
    ("kubernetes.io/wss", AppProtocol::Tls),
];

/// The protocol of a port: from `appProtocol`, or else from its name, or else undeclared.
pub(super) fn of(port: &ServicePortSpec, at: &FieldPath, scope: &mut Scope<'_>) -> AppProtocol {
    let (protocol, field) = match port.app_protocol.as_deref().filter(|text| !text.is_empty()) {
        Some(text) => (declared(text, at, scope), "appProtocol"),
        None => {
            let named = port.name.as_deref();
            (named.map_or(AppProtocol::Undeclared, by_name), "name")
        }
    };
    if is_unbuilt(protocol) {
        let spoken = protocol.as_str();
        scope.warn(
            &at.field(field),
            format!("{spoken} is carried as bytes, by connection and without routes, until HTTP/2 is built"),
            "declare appProtocol: tcp to say so yourself",
        );
    }
    protocol
}

/// Whether the proxy does not support a declared protocol.
fn is_unbuilt(protocol: AppProtocol) -> bool {
    matches!(protocol, AppProtocol::Http2Cleartext | AppProtocol::Grpc)
}

fn declared(text: &str, at: &FieldPath, scope: &mut Scope<'_>) -> AppProtocol {
    let lower = text.to_ascii_lowercase();
    if let Some((_, protocol)) = APP_PROTOCOLS.iter().find(|(known, _)| *known == lower) {
        return *protocol;
    }
    let path = at.field("appProtocol");
    let known = APP_PROTOCOLS.iter().map(|(known, _)| *known);
    let reason = format!("the protocol {text:?} is not known and is carried as tcp");
    let remedy = did_you_mean(text, known, "declare tcp to say so, or http");
    scope.warn(&path, reason, remedy);
    AppProtocol::Tcp
}

/// The protocol in a port's name, which ends at the first '-': `http`, `grpc-api`.
fn by_name(name: &str) -> AppProtocol {
    if name == "grpc-web" || name.starts_with("grpc-web-") {
        return AppProtocol::Http;
    }
    match name.split('-').next().unwrap_or(name) {
        "http" => AppProtocol::Http,
        "http2" | "h2c" => AppProtocol::Http2Cleartext,
        "grpc" => AppProtocol::Grpc,
        "tcp" => AppProtocol::Tcp,
        "tls" | "https" => AppProtocol::Tls,
        _ => AppProtocol::Undeclared,
    }
}

/// Whether requests on a port can be routed. HTTP/2 cannot yet; a byte stream never can.
pub(super) fn takes_routes(protocol: AppProtocol) -> bool {
    matches!(protocol, AppProtocol::Http | AppProtocol::Undeclared)
}

/// Whether a port is TCP's. Others are left out, since a DNS Service also has a UDP port.
pub(super) fn is_tcp(protocol: Option<&str>, at: &FieldPath, scope: &mut Scope<'_>) -> bool {
    match protocol {
        None | Some("" | "TCP") => true,
        Some("UDP" | "SCTP") => {
            let reason = "only TCP is carried: this port is left out";
            let remedy = "callers dial the endpoints themselves; remove the port if none do";
            scope.warn(&at.field("protocol"), reason, remedy);
            false
        }
        Some(other) => {
            let remedy = did_you_mean(other, ["TCP", "UDP", "SCTP"], "use TCP");
            scope.error(
                &at.field("protocol"),
                format!("{other:?} is no protocol"),
                remedy,
            );
            false
        }
    }
}
