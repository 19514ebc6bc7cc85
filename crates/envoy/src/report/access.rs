//! The access log of a gateway.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use heddle_model::{ServiceAccountName, SpiffeId};
use prost::Message;

use crate::names::ORIGINAL_DST;

#[cfg(test)]
mod tests;

/// `AccessLogType`: the entry is about a request that has begun, and is about to be forwarded.
const DOWNSTREAM_START: i32 = 4;

/// `StreamAccessLogsMessage`.
#[derive(Clone, PartialEq, Message)]
pub struct Accesses {
    #[prost(message, optional, tag = "2")]
    http_logs: Option<Entries>,
}

#[derive(Clone, PartialEq, Message)]
struct Entries {
    #[prost(message, repeated, tag = "1")]
    log_entry: Vec<Entry>,
}

/// `HTTPAccessLogEntry`.
#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(message, optional, tag = "1")]
    common_properties: Option<Common>,
    #[prost(message, optional, tag = "3")]
    request: Option<Request>,
}

#[derive(Clone, PartialEq, Message)]
struct Common {
    #[prost(message, optional, tag = "4")]
    tls_properties: Option<Tls>,
    #[prost(int32, tag = "33")]
    access_log_type: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Tls {
    #[prost(message, optional, tag = "5")]
    peer_certificate_properties: Option<Certificate>,
}

#[derive(Clone, PartialEq, Message)]
struct Certificate {
    #[prost(message, repeated, tag = "1")]
    subject_alt_name: Vec<AltName>,
}

#[derive(Clone, PartialEq, Message)]
struct AltName {
    #[prost(string, tag = "1")]
    uri: String,
}

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(btree_map = "string, string", tag = "13")]
    request_headers: BTreeMap<String, String>,
}

impl Accesses {
    /// The accounts of callers, and where their requests were going, of the requests that began.
    pub fn uses(&self) -> impl Iterator<Item = (ServiceAccountName, SocketAddr)> {
        let entries = self.http_logs.iter().flat_map(|logs| &logs.log_entry);
        entries.filter_map(Entry::uses)
    }
}

impl Entry {
    fn uses(&self) -> Option<(ServiceAccountName, SocketAddr)> {
        let common = self.common_properties.as_ref()?;
        if common.access_log_type != DOWNSTREAM_START {
            return None;
        }
        let certificate = common
            .tls_properties
            .as_ref()?
            .peer_certificate_properties
            .as_ref()?;
        let names = certificate.subject_alt_name.iter();
        let mut ids = names.filter_map(|name| SpiffeId::parse(&name.uri).ok());
        let account = ids.find_map(|id| id.service_account().cloned())?;
        let to = self.request.as_ref()?.request_headers.get(ORIGINAL_DST)?;
        Some((account, to.parse().ok()?))
    }
}
