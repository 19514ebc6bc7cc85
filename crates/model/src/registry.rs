//! Where a mesh's registry is, as settings name it: what can be said of that without asking etcd.

/// Endpoints of one cluster.
const MAX_ENDPOINTS: usize = 16;
/// Bytes of a prefix.
const MAX_PREFIX: usize = 128;

/// A prefix of keys such as `/heddle/v1/`, with the slash at its end, which may be left out.
///
/// # Errors
/// When it does not begin with a slash, holds something else than printable ASCII without spaces, an empty part, or
/// more than 128 bytes; and what to write instead.
pub fn registry_prefix(text: &str) -> Result<String, String> {
    let prefix = format!("{}/", text.strip_suffix('/').unwrap_or(text));
    let is_printable = prefix.bytes().all(|byte| byte.is_ascii_graphic());
    let parts = prefix.strip_prefix('/').unwrap_or_default();
    let is_path = !parts.is_empty() && !parts.trim_end_matches('/').is_empty();
    if !is_path || !is_printable || prefix.len() > MAX_PREFIX || prefix.contains("//") {
        return Err(format!(
            "{prefix:?} is no prefix: write one such as /heddle/v1/, of at most {MAX_PREFIX} \
             printable characters"
        ));
    }
    Ok(prefix)
}

/// Looks for what contradicts itself in endpoints of etcd, and in the certificates that are named for them: any at all,
/// and that of the authority of theirs.
///
/// # Errors
/// What it is, and what to write instead.
pub fn check_registry_endpoints(
    endpoints: &[String],
    has_certificates: bool,
    has_ca: bool,
) -> Result<(), String> {
    if endpoints.is_empty() || endpoints.len() > MAX_ENDPOINTS {
        let count = endpoints.len();
        return Err(format!(
            "{count} endpoints of etcd: write 1 to {MAX_ENDPOINTS}"
        ));
    }
    if let Some(endpoint) = endpoints.iter().find(|endpoint| !is_endpoint(endpoint)) {
        return Err(format!(
            "{endpoint:?} is no endpoint of etcd: write one such as http://127.0.0.1:2379"
        ));
    }
    let secured = endpoints.iter().filter(|url| url.starts_with("https://"));
    let refused = match (secured.count(), has_certificates) {
        (0, true) => "certificates are of use with https:// endpoints only",
        (0, false) => return Ok(()),
        (some, _) if some < endpoints.len() => {
            "some endpoints are https:// and some are not: write all of them alike"
        }
        (_, _) if has_ca => return Ok(()),
        (_, _) => {
            "https:// endpoints need the certificate of who signed theirs: name its file with --etcd-ca (registry.ca)"
        }
    };
    Err(refused.to_owned())
}

fn is_endpoint(url: &str) -> bool {
    let address = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"));
    address.is_some_and(|address| {
        let address = address.strip_suffix('/').unwrap_or(address);
        let port = address
            .rsplit_once(':')
            .map(|(host, port)| (host, port.parse::<u16>()));
        let is_plain = !address.contains(['/', '@', '?', '#']);
        is_plain
            && address.bytes().all(|byte| byte.is_ascii_graphic())
            && matches!(port, Some((host, Ok(port))) if !host.is_empty() && port > 0)
    })
}
