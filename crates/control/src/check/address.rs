//! Ports, IP addresses and host names.

use std::net::IpAddr;

use super::Flaw;

/// A port number: 1 to 65535.
pub(crate) fn port(number: i64) -> Result<u16, Flaw> {
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(Flaw::new(
            format!("{number} is no port"),
            "use a number from 1 to 65535",
        )),
    }
}

/// An address that a process can listen on and that can be connected to: one single IP.
pub(crate) fn endpoint_address(text: &str) -> Result<IpAddr, Flaw> {
    let address: IpAddr = text.parse().map_err(|_| {
        Flaw::new(
            format!("{text:?} is no IP address"),
            "write one like 127.1.0.1 or ::1",
        )
    })?;
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || broadcast {
        return Err(Flaw::new(
            format!("{text} does not name one place to connect to"),
            "write the address that the process listens on",
        ));
    }
    Ok(address)
}

/// A host name without wildcard, in lower case, that is no IP address (Gateway API
/// `PreciseHostname`).
pub(crate) fn hostname(text: &str) -> Result<String, Flaw> {
    if text.parse::<IpAddr>().is_ok() {
        return Err(Flaw::new(
            format!("{text} is an IP address"),
            "the Gateway API takes a host name only",
        ));
    }
    if !heddle_model::is_dns_subdomain(text) {
        let remedy = "use labels of a-z, 0-9 and '-' joined by dots; no port, no wildcard";
        return Err(Flaw::new(format!("{text:?} is no host name"), remedy));
    }
    Ok(text.to_owned())
}
