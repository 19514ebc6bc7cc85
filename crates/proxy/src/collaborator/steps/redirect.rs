//! Builds the Location of a redirect.

use std::io::Write;

use heddle_model::{PathMatch, Redirect};

use super::encode::put_query;

/// The URI that a request called, in canonical form.
pub(super) struct TargetUri<'a> {
    /// Without the port.
    pub(super) host: &'a [u8],
    pub(super) path: &'a [u8],
    pub(super) query: Option<&'a [u8]>,
}

/// Writes the Location of a redirect: parts that the redirect does not set are those of the request (Gateway API,
/// HTTPRequestRedirectFilter).
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
        Some(rewrite) => rewrite.write_to(matched, called.path, out),
        None => out.extend_from_slice(called.path),
    }
    put_query(called.query, out);
}
