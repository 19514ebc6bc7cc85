//! Where a mesh's registry is, as settings name it: what can be said of that without asking etcd.

use std::fmt;

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

/// What is wrong with the endpoints of etcd, or with the certificates that are named for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryEndpointsError {
    /// So many: none, or too many.
    Count(usize),
    /// This one is none.
    NoEndpoint(String),
    /// Some are `https`, some are not.
    Mixed,
    /// Certificates, and no endpoint is `https`.
    NoUseForCertificates,
    /// `https`, and no authority whose certificates are believed.
    NoAuthority,
}

impl fmt::Display for RegistryEndpointsError {
    /// What it is, and what to write instead.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RegistryEndpointsError::Count(count) => {
                return write!(f, "{count} endpoints of etcd: write 1 to {MAX_ENDPOINTS}");
            }
            RegistryEndpointsError::NoEndpoint(endpoint) => {
                return write!(
                    f,
                    "{endpoint:?} is no endpoint of etcd: write one such as http://127.0.0.1:2379"
                );
            }
            RegistryEndpointsError::Mixed => {
                "some endpoints are https:// and some are not: write all of them alike"
            }
            RegistryEndpointsError::NoUseForCertificates => {
                "certificates are of use with https:// endpoints only"
            }
            RegistryEndpointsError::NoAuthority => {
                "https:// endpoints need the certificate of who signed theirs: name its file with --etcd-ca \
                 (registry.ca)"
            }
        })
    }
}

impl std::error::Error for RegistryEndpointsError {}

/// Looks for what contradicts itself in endpoints of etcd, and in the certificates that are named for them: any at all,
/// and that of the authority of theirs.
///
/// # Errors
/// What it is, and what to write instead.
pub fn check_registry_endpoints(
    endpoints: &[String],
    has_certificates: bool,
    has_ca: bool,
) -> Result<(), RegistryEndpointsError> {
    if endpoints.is_empty() || endpoints.len() > MAX_ENDPOINTS {
        return Err(RegistryEndpointsError::Count(endpoints.len()));
    }
    if let Some(endpoint) = endpoints.iter().find(|endpoint| !is_endpoint(endpoint)) {
        return Err(RegistryEndpointsError::NoEndpoint(endpoint.clone()));
    }
    let secured = endpoints.iter().filter(|url| url.starts_with("https://"));
    match (secured.count(), has_certificates) {
        (0, true) => Err(RegistryEndpointsError::NoUseForCertificates),
        (0, false) => Ok(()),
        (some, _) if some < endpoints.len() => Err(RegistryEndpointsError::Mixed),
        (_, _) if has_ca => Ok(()),
        (_, _) => Err(RegistryEndpointsError::NoAuthority),
    }
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
