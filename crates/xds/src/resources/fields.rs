//! Fields that occur in several messages.

use std::net::{IpAddr, SocketAddr};

use heddle_model::{NodeName, ServiceAccountName, WorkloadName};

use crate::proto;
use crate::trust::Invalid;

/// An IP address of 4 or 16 bytes.
pub(super) fn ip(bytes: &[u8], field: &'static str) -> Result<IpAddr, Invalid> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Ok(v4.into());
    }
    let v6 = <[u8; 16]>::try_from(bytes).map_err(|_| Invalid(field))?;
    Ok(v6.into())
}

pub(super) fn ips(list: &[Vec<u8>], field: &'static str) -> Result<Vec<IpAddr>, Invalid> {
    list.iter().map(|bytes| ip(bytes, field)).collect()
}

pub(super) fn ip_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// A port, never 0.
pub(super) fn port(number: u32, field: &'static str) -> Result<u16, Invalid> {
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(Invalid(field)),
    }
}

pub(super) fn percent(number: u32, field: &'static str) -> Result<u8, Invalid> {
    u8::try_from(number).map_err(|_| Invalid(field))
}

pub(super) fn socket_address(
    message: Option<proto::SocketAddress>,
    field: &'static str,
) -> Result<SocketAddr, Invalid> {
    let message = message.ok_or(Invalid(field))?;
    Ok((ip(&message.ip, field)?, port(message.port, field)?).into())
}

/// The scope and the flow of an IPv6 address are left out: they have a meaning on one machine only.
pub(super) fn socket_address_message(address: SocketAddr) -> proto::SocketAddress {
    proto::SocketAddress {
        ip: ip_bytes(address.ip()),
        port: address.port().into(),
    }
}

/// A text that is not empty; `None` for an empty one.
pub(super) fn some_text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

pub(super) fn or_empty<T: ToString>(text: Option<&T>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

pub(super) fn account(text: &str, field: &'static str) -> Result<ServiceAccountName, Invalid> {
    ServiceAccountName::parse(text).map_err(|_| Invalid(field))
}

pub(super) fn workload_name(text: &str, field: &'static str) -> Result<WorkloadName, Invalid> {
    WorkloadName::parse(text).map_err(|_| Invalid(field))
}

/// The name of a node; `None` for an empty text.
pub(super) fn some_node(text: &str, field: &'static str) -> Result<Option<NodeName>, Invalid> {
    some(text, |text| {
        NodeName::parse(text).map_err(|_| Invalid(field))
    })
}

/// What `parse` makes of a text that is not empty; `None` for an empty one.
pub(super) fn some<T>(
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, Invalid>,
) -> Result<Option<T>, Invalid> {
    match text.is_empty() {
        true => Ok(None),
        false => parse(text).map(Some),
    }
}

pub(super) fn pairs(list: Vec<proto::Pair>) -> Vec<(String, String)> {
    list.into_iter()
        .map(|pair| (pair.name, pair.value))
        .collect()
}

pub(super) fn pair_messages(list: &[(String, String)]) -> Vec<proto::Pair> {
    let pair = |(name, value): &(String, String)| proto::Pair {
        name: name.clone(),
        value: value.clone(),
    };
    list.iter().map(pair).collect()
}
