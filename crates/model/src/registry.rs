//! Settings of a mesh's registry in etcd, as far as they can be checked without asking etcd.

use std::fmt;

/// Limit of endpoints of one cluster.
const MAX_ENDPOINTS: usize = 16;
/// Limit of a prefix in bytes.
const MAX_PREFIX: usize = 128;

/// Checks a prefix of keys such as `/heddle/v1/`, and adds the final slash if it is missing.
///
/// # Errors
/// Says what to write instead of a prefix that does not begin with a slash, has a character other than printable ASCII
/// without spaces, has an empty part, or is longer than 128 bytes.
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

/// A fault of etcd's endpoints, or of the certificates for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryEndpointsError {
    /// No endpoint, or more than the limit.
    Count(usize),
    /// This text is not an endpoint's URL.
    NoEndpoint(String),
    /// Some endpoints are `https`, others are not.
    Mixed,
    /// There are certificates, but no endpoint is `https`.
    NoUseForCertificates,
    /// Endpoints are `https`, but no trusted authority is named.
    NoAuthority,
}

impl fmt::Display for RegistryEndpointsError {
    /// The fault, and what to write instead.
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
                "https:// endpoints need the certificate of their authority: name its file with --etcd-ca \
                 (registry.ca)"
            }
        })
    }
}

impl std::error::Error for RegistryEndpointsError {}

/// Checks etcd's endpoints and the certificates for them for contradictions. `has_certificates` is true if any
/// certificate is named.
///
/// # Errors
/// The first fault, with what to write instead.
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
