//! Mutual TLS, towards other proxies and from them.
//!
//! A client asks for a Service's port by the server name ([`StockName`]) and for the protocol by ALPN (RFC 7301): a node's
//! proxy needs no more of a stock Envoy. Both sides speak TLS 1.3 only, and no session is resumed: a resumed one would
//! verify no certificate.

use envoy_types::pb::envoy::config::core::v3::TransportSocket;
use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::common_tls_context::{
    CombinedCertificateValidationContext, ValidationContextType,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::downstream_tls_context::SessionTicketKeysType;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::subject_alt_name_matcher::SanType;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, SdsSecretConfig,
    SubjectAltNameMatcher, TlsParameters, UpstreamTlsContext,
};
use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use heddle_model::{ServiceAccountName, SpiffeId, StockName, TrustDomain};
use prost::{Message, Name};

use crate::names::{Flavour, LEAF, ROOTS};
use crate::pack;
use crate::values::{ads, number, truth};

const TLS: &str = "envoy.transport_sockets.tls";
const RAW: &str = "envoy.transport_sockets.raw_buffer";
/// ALPN for opaque bytes between a stock Envoy and a node's proxy, or another Envoy.
const BYTES: &str = "heddle-bytes/1";
/// ALPN for requests (RFC 7301 section 6).
const REQUESTS: &str = "http/1.1";

impl Flavour {
    /// The ALPN name of connections that are used so.
    pub(crate) fn alpn(self) -> &'static str {
        match self {
            Flavour::Requests => REQUESTS,
            Flavour::Bytes => BYTES,
        }
    }
}

/// No TLS.
pub(crate) fn plain() -> TransportSocket {
    socket(RAW, &RawBuffer {})
}

/// TLS to the endpoints of a Service's port that have this account. `None`: the name is too long for a server name.
pub(crate) fn upstream(
    trust_domain: &TrustDomain,
    name: &StockName,
    flavour: Flavour,
) -> Option<TransportSocket> {
    let sni = name.to_sni(trust_domain)?;
    let server = identity(trust_domain, &name.account);
    Some(to_servers(sni, [server], flavour))
}

/// TLS to servers with one of these SPIFFE ids.
pub(crate) fn to_servers(
    sni: String,
    servers: impl IntoIterator<Item = String>,
    flavour: Flavour,
) -> TransportSocket {
    let servers = servers.into_iter().map(MatchPattern::Exact).collect();
    let context = UpstreamTlsContext {
        common_tls_context: Some(common(&[flavour], servers)),
        sni,
        // A client that resumes a session does not verify the server again.
        max_session_keys: number(0),
        ..UpstreamTlsContext::default()
    };
    socket(TLS, &context)
}

/// TLS from callers with one of these identities. Any other is refused in the handshake.
pub(crate) fn downstream(callers: Vec<MatchPattern>, flavour: Flavour) -> TransportSocket {
    let context = DownstreamTlsContext {
        common_tls_context: Some(common(&[flavour], callers)),
        require_client_certificate: truth(true),
        disable_stateful_session_resumption: true,
        session_ticket_keys_type: Some(SessionTicketKeysType::DisableStatelessSessionResumption(
            true,
        )),
        ..DownstreamTlsContext::default()
    };
    socket(TLS, &context)
}

/// Workloads of the mesh, of any account: not a node's own identity, nor that of an Envoy towards the control plane.
pub(crate) fn workloads(trust_domain: &TrustDomain) -> Vec<MatchPattern> {
    vec![MatchPattern::Prefix(format!("spiffe://{trust_domain}/ns/"))]
}

/// The SPIFFE id of an account.
pub(crate) fn identity(trust_domain: &TrustDomain, account: &ServiceAccountName) -> String {
    SpiffeId::workload(trust_domain.clone(), account.clone()).to_string()
}

fn common(flavours: &[Flavour], peers: Vec<MatchPattern>) -> CommonTlsContext {
    let peers = peers.into_iter().map(|peer| SubjectAltNameMatcher {
        san_type: SanType::Uri.into(),
        matcher: Some(StringMatcher {
            match_pattern: Some(peer),
            ignore_case: false,
        }),
        oid: String::new(),
    });
    let validation = CombinedCertificateValidationContext {
        default_validation_context: Some(CertificateValidationContext {
            match_typed_subject_alt_names: peers.collect(),
            ..CertificateValidationContext::default()
        }),
        validation_context_sds_secret_config: Some(secret(ROOTS)),
        ..CombinedCertificateValidationContext::default()
    };
    let only = TlsProtocol::TlSv13.into();
    CommonTlsContext {
        tls_params: Some(TlsParameters {
            tls_minimum_protocol_version: only,
            // An Envoy speaks 1.2 at most as a client, unless it is told.
            tls_maximum_protocol_version: only,
            ..TlsParameters::default()
        }),
        tls_certificate_sds_secret_configs: vec![secret(LEAF)],
        alpn_protocols: flavours.iter().map(|one| one.alpn().to_owned()).collect(),
        validation_context_type: Some(ValidationContextType::CombinedValidationContext(validation)),
        ..CommonTlsContext::default()
    }
}

fn secret(name: &str) -> SdsSecretConfig {
    SdsSecretConfig {
        name: name.to_owned(),
        sds_config: Some(ads()),
    }
}

fn socket<M: Message + Name>(name: &str, config: &M) -> TransportSocket {
    TransportSocket {
        name: name.to_owned(),
        config_type: Some(ConfigType::TypedConfig(pack(config))),
    }
}
