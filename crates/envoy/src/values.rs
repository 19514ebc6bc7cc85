//! Small messages that many others hold.

use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3::address::Address as OneOf;
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{
    Address, AggregatedConfigSource, ApiVersion, ConfigSource, SocketAddress,
};
use envoy_types::pb::google::protobuf::{BoolValue, Duration, UInt32Value};

/// A number that is set.
pub(crate) fn number(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}

/// A truth value that is set.
pub(crate) fn truth(value: bool) -> Option<BoolValue> {
    Some(BoolValue { value })
}

/// A time in milliseconds.
pub(crate) fn ms(ms: u64) -> Option<Duration> {
    let seconds = i64::try_from(ms / 1_000).unwrap_or(i64::MAX);
    let nanos = i32::try_from(ms % 1_000).unwrap_or(0) * 1_000_000;
    Some(Duration { seconds, nanos })
}

/// A time in seconds.
pub(crate) fn seconds(seconds: u32) -> Option<Duration> {
    ms(u64::from(seconds) * 1_000)
}

/// The address of a TCP socket.
pub(crate) fn address(at: SocketAddr) -> Address {
    let socket = SocketAddress {
        address: at.ip().to_string(),
        port_specifier: Some(PortSpecifier::PortValue(at.port().into())),
        ..SocketAddress::default()
    };
    Address {
        address: Some(OneOf::SocketAddress(socket)),
    }
}

/// The source of a resource: the stream that all of them come by. The same everywhere, since Envoy subscribes to one secret
/// once for each different source.
pub(crate) fn ads() -> ConfigSource {
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..ConfigSource::default()
    }
}
