//! Parsers of command-line values that several commands share.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::str::FromStr;

use heddle_model::{NodeName, WorkloadName};

/// Parses the name of a node.
///
/// # Errors
/// When the text is not a valid name; the message says what is.
pub fn node_name(text: &str) -> Result<NodeName, String> {
    NodeName::parse(text).map_err(|error| error.to_string())
}

/// Parses the name of a workload, `NAMESPACE/NAME`.
///
/// # Errors
/// When the text is not a valid name; the message says what is.
pub fn workload(text: &str) -> Result<WorkloadName, String> {
    WorkloadName::parse(text).map_err(|error| error.to_string())
}

/// Parses a numeric address and port to listen at. Host names are refused: a name may have several addresses, or others
/// later.
///
/// # Errors
/// When the text is anything else; the message gives examples.
pub fn address_and_port(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "this is no numeric address and port: write one such as 127.0.0.1:15008, 0.0.0.0:15008 or [::]:15008"
            .to_owned()
    })
}

/// `HOST:PORT`; an IPv6 address is in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostAndPort(pub(crate) String);

impl FromStr for HostAndPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        host_and_port(text).map(HostAndPort)
    }
}

impl fmt::Display for HostAndPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn host_and_port(text: &str) -> Result<String, String> {
    let forms =
        "write HOST:PORT such as 192.0.2.1:15012, control.example:15012 or [2001:db8::1]:15012";
    if let Some((_, rest)) = text.split_once("://") {
        let rest = rest.trim_end_matches('/');
        return Err(format!(
            "this is no URL: write {rest}, HOST:PORT without what is before it"
        ));
    }
    let (host, port) = text.rsplit_once(':').ok_or(forms)?;
    if !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(format!("{port:?} is no port: {forms}"));
    }
    if host.parse::<Ipv6Addr>().is_ok() {
        return Err(format!(
            "an address of IPv6 stands in brackets: write [{host}]:{port}"
        ));
    }
    let inner = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_right = match inner {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(is_name),
    };
    match is_right {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "{host:?} is neither a name nor an address: {forms}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::host_and_port;

    #[test]
    fn a_control_plane_is_named_by_host_and_port() {
        for right in [
            "192.0.2.1:15012",
            "control.example:1",
            "[::1]:28012",
            "localhost:1",
        ] {
            assert_eq!(host_and_port(right).as_deref(), Ok(right));
        }
        for (wrong, said) in [
            ("http://control:15012/", "write control:15012,"),
            ("::1:28012", "write [::1]:28012"),
            ("control", "write HOST:PORT"),
            ("control:", "is no port"),
            ("control:0", "is no port"),
            ("control:65536", "is no port"),
            (":15012", "neither a name nor an address"),
            ("[control]:15012", "neither a name nor an address"),
            ("a/b:15012", "neither a name nor an address"),
        ] {
            let refused = host_and_port(wrong).unwrap_err();
            assert!(refused.contains(said), "{wrong}: {refused}");
        }
    }
}
