use envoy_types::pb::envoy::data::accesslog::v3::tls_properties::CertificateProperties;
use envoy_types::pb::envoy::data::accesslog::v3::tls_properties::certificate_properties::SubjectAltName;
use envoy_types::pb::envoy::data::accesslog::v3::tls_properties::certificate_properties::subject_alt_name::San;
use envoy_types::pb::envoy::data::accesslog::v3::{
    AccessLogCommon, AccessLogType, HttpAccessLogEntry, HttpRequestProperties, TlsProperties,
};
use envoy_types::pb::envoy::service::accesslog::v3::StreamAccessLogsMessage;
use envoy_types::pb::envoy::service::accesslog::v3::stream_access_logs_message::{
    HttpAccessLogEntries, LogEntries,
};

use super::*;

fn entry(kind: AccessLogType, names: Vec<San>, to: &str) -> HttpAccessLogEntry {
    let names = names
        .into_iter()
        .map(|san| SubjectAltName { san: Some(san) });
    let certificate = CertificateProperties {
        subject_alt_name: names.collect(),
        ..CertificateProperties::default()
    };
    HttpAccessLogEntry {
        common_properties: Some(AccessLogCommon {
            access_log_type: kind.into(),
            tls_properties: Some(TlsProperties {
                peer_certificate_properties: Some(certificate),
                ..TlsProperties::default()
            }),
            ..AccessLogCommon::default()
        }),
        request: Some(HttpRequestProperties {
            path: "/".to_owned(),
            request_headers: [(ORIGINAL_DST, to), ("x", "y")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..HttpRequestProperties::default()
        }),
        ..HttpAccessLogEntry::default()
    }
}

#[test]
fn a_request_that_begins_says_who_uses_what() {
    let web = || San::Uri("spiffe://cluster.local/ns/shop/sa/web".to_owned());
    let begins = AccessLogType::DownstreamStart;
    let entries = vec![
        entry(
            begins,
            vec![San::Dns("web.shop".to_owned()), web()],
            "10.96.0.1:80",
        ),
        entry(AccessLogType::DownstreamEnd, vec![web()], "10.96.0.2:80"),
        entry(
            begins,
            vec![San::Uri("http://web".to_owned())],
            "10.96.0.3:80",
        ),
        entry(begins, vec![web()], "10.96.0.4"),
        entry(begins, Vec::new(), "10.96.0.5:80"),
        HttpAccessLogEntry::default(),
        entry(begins, vec![web()], "[fd00::1]:81"),
    ];
    let message = StreamAccessLogsMessage {
        log_entries: Some(LogEntries::HttpLogs(HttpAccessLogEntries {
            log_entry: entries,
        })),
        ..StreamAccessLogsMessage::default()
    };
    let read = Accesses::decode(message.encode_to_vec().as_slice()).expect("a report");
    let uses: Vec<String> = read
        .uses()
        .map(|(account, to)| format!("{account} {to}"))
        .collect();
    assert_eq!(uses, ["shop/web 10.96.0.1:80", "shop/web [fd00::1]:81"]);
}
