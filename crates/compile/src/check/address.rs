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

/// A single IP address on which a process can listen and to which others can connect.
pub(crate) fn endpoint_address(text: &str) -> Result<IpAddr, Flaw> {
    let address: IpAddr = text.parse().map_err(|_| {
        Flaw::new(
            format!("{text:?} is no IP address"),
            "write one like 127.1.0.1 or ::1",
        )
    })?;
    if address != address.to_canonical() {
        return Err(Flaw::new(
            format!("{text} is an IPv4 address in its IPv6-mapped form"),
            format!("write {}", address.to_canonical()),
        ));
    }
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || broadcast {
        return Err(Flaw::new(
            format!("{text} is not the address of a single host"),
            "write the address that the process listens on",
        ));
    }
    Ok(address)
}

/// A routed address by which a cluster calls a Service.
pub(crate) fn cluster_address(text: &str) -> Result<IpAddr, Flaw> {
    let remedy = "write one like 10.96.0.10, None for a headless Service, or nothing";
    let address: IpAddr = text
        .parse()
        .map_err(|_| Flaw::new(format!("{text:?} is no IP address"), remedy))?;
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    let mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    if address.is_loopback() || address.is_unspecified() || address.is_multicast() {
        let reason = format!("{text} cannot be a Service's: every machine has its own");
        return Err(Flaw::new(reason, remedy));
    }
    if broadcast || mapped {
        return Err(Flaw::new(format!("{text} cannot be a Service's"), remedy));
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
