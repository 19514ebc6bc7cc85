//! The reports of a gateway, as its Envoy sends them when a request begins.

use std::collections::HashMap;

use envoy_types::pb::envoy::data::accesslog::v3::tls_properties::CertificateProperties;
use envoy_types::pb::envoy::data::accesslog::v3::tls_properties::certificate_properties::SubjectAltName;
use envoy_types::pb::envoy::data::accesslog::v3::tls_properties::certificate_properties::subject_alt_name::San;
use envoy_types::pb::envoy::data::accesslog::v3::{
    AccessLogCommon, AccessLogType, HttpAccessLogEntry, HttpRequestProperties, TlsProperties,
};
use envoy_types::pb::envoy::service::accesslog::v3::StreamAccessLogsMessage;
use envoy_types::pb::envoy::service::accesslog::v3::access_log_service_client::AccessLogServiceClient;
use envoy_types::pb::envoy::service::accesslog::v3::stream_access_logs_message::{
    HttpAccessLogEntries, LogEntries,
};
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio_stream::wrappers::ReceiverStream;

use super::{Fleet, GATEWAY, NAMESPACE, address};

/// Messages that may wait to be sent.
const MESSAGES: usize = 16;

/// The stream of a gateway.
pub(super) struct Reports(mpsc::Sender<StreamAccessLogsMessage>);

impl Reports {
    /// Opens the stream.
    ///
    /// # Errors
    /// When the gateway cannot connect.
    pub(super) async fn open(fleet: &Fleet) -> anyhow::Result<Reports> {
        let channel = fleet.open(GATEWAY).await?;
        let (says, said) = mpsc::channel(MESSAGES);
        spawn_local(async move {
            let mut client = AccessLogServiceClient::new(channel);
            // Reports are not answered. A call that fails shows as uses that are never learned.
            let _ended = client.stream_access_logs(ReceiverStream::new(said)).await;
        });
        Ok(Reports(says))
    }

    /// Reports that a workload uses the Service of another one.
    ///
    /// # Errors
    /// When the call has ended.
    pub(super) async fn used(&self, workload: usize, service: usize) -> anyhow::Result<()> {
        let caller = format!("spiffe://cluster.local/ns/{NAMESPACE}/sa/w{workload}");
        let to = format!("{}:80", address(service));
        let certificate = CertificateProperties {
            subject_alt_name: vec![SubjectAltName {
                san: Some(San::Uri(caller)),
            }],
            ..CertificateProperties::default()
        };
        let entry = HttpAccessLogEntry {
            common_properties: Some(AccessLogCommon {
                access_log_type: AccessLogType::DownstreamStart.into(),
                tls_properties: Some(TlsProperties {
                    peer_certificate_properties: Some(certificate),
                    ..TlsProperties::default()
                }),
                ..AccessLogCommon::default()
            }),
            request: Some(HttpRequestProperties {
                request_headers: HashMap::from([("x-heddle-original-dst".to_owned(), to)]),
                ..HttpRequestProperties::default()
            }),
            ..HttpAccessLogEntry::default()
        };
        let entries = HttpAccessLogEntries {
            log_entry: vec![entry],
        };
        let message = StreamAccessLogsMessage {
            log_entries: Some(LogEntries::HttpLogs(entries)),
            ..StreamAccessLogsMessage::default()
        };
        Ok(self.0.send(message).await?)
    }
}
