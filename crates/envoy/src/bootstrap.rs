//! The bootstrap with which a stock Envoy starts and finds the control plane.
//!
//! Written as JSON by hand, since it is the one configuration that people read. Source: `envoy/config/bootstrap/v3`.

use std::net::SocketAddr;
use std::path::Path;

use heddle_model::{SpiffeId, TrustDomain, WorkloadName};
use serde_json::{Value, json};

use crate::names::CONTROL;

/// The mark of the packets that an Envoy sends: a pod's packet filter does not redirect those (socket(7), `SO_MARK`).
pub const MARK: u32 = 1_337;
/// The port of the admin interface, on loopback.
pub const ADMIN_PORT: u16 = 15_000;

/// Files beside a bootstrap that has no secrets in itself.
pub const LINK_CHAIN: &str = "link.pem";
pub const LINK_KEY: &str = "link.key";
pub const LINK_ROOTS: &str = "roots.pem";
/// The same as secrets of Envoy, which name those files.
pub const LINK_SECRET: &str = "link.json";
pub const ROOTS_SECRET: &str = "roots.json";

const TYPE: &str = "type.googleapis.com/";
const UPSTREAM_TLS: &str = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";
const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
const CONNECTIONS: &str =
    "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig";
/// Instructions of a regular expression, at most.
const MAX_REGEX: u32 = 10_000_000;
/// Connections of one Envoy, at most.
const MAX_CONNECTIONS: u32 = 10_000;

/// What a bootstrap is made of.
#[derive(Debug, Clone, Copy)]
pub struct Bootstrap<'b> {
    /// The workload whose traffic the Envoy carries.
    pub workload: &'b WorkloadName,
    /// The trust domain of the control plane.
    pub trust_domain: &'b TrustDomain,
    /// The addresses of the control plane, at least one.
    pub control: &'b [SocketAddr],
    /// The certificate with which the Envoy connects to it.
    pub link: Link<'b>,
}

/// Where the certificate, the key and the roots are with which an Envoy connects to the control plane.
#[derive(Debug, Clone, Copy)]
pub enum Link<'b> {
    /// In the bootstrap itself, in PEM. The Envoy has to be started again with another one before the certificate expires.
    Inline {
        /// The certificate and its chain.
        chain: &'b str,
        /// The private key.
        key: &'b str,
        /// The roots of the control plane's certificate.
        roots: &'b str,
    },
    /// In files of this folder, which the Envoy reads again when others are moved in their place.
    Folder(&'b Path),
}

/// The bootstrap.
pub fn bootstrap(parts: &Bootstrap<'_>) -> Value {
    let workload = parts.workload.to_string();
    let ads = json!({"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"});
    json!({
        "node": {"id": workload, "cluster": workload},
        "admin": {"address": address(SocketAddr::from(([127, 0, 0, 1], ADMIN_PORT)))},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": true,
                "grpc_services": [{"envoy_grpc": {"cluster_name": CONTROL}}],
            },
            // Without a control plane it waits, and serves nothing that is not configured.
            "cds_config": ads,
            "lds_config": ads,
        },
        "cluster_manager": {
            "enable_deferred_cluster_creation": true,
            // It is asked what it uses.
            "load_stats_config": {
                "api_type": "GRPC",
                "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": CONTROL}}],
            },
            "upstream_bind_config": {
                "source_address": {"address": "0.0.0.0", "port_value": 0},
                "extra_source_addresses": [{"address": {"address": "::", "port_value": 0}}],
                "socket_options": [{
                    "description": "SO_MARK",
                    "level": 1,
                    "name": 36,
                    "int_value": MARK,
                    "state": "STATE_PREBIND",
                }],
            },
        },
        "deferred_stat_options": {"enable_deferred_creation_stats": true},
        "stats_config": {
            "use_all_default_tags": false,
            // Statistics of each cluster are most of the memory of an Envoy that knows many. `warming_clusters` is needed.
            "stats_matcher": {"inclusion_list": {"patterns": [
                {"prefix": "cluster_manager."},
                {"prefix": "listener_manager."},
                {"prefix": "server."},
                {"prefix": "control_plane."},
                {"prefix": "cluster.heddle-"},
                {"suffix": ".denied"},
                {"suffix": ".shadow_denied"},
            ]}},
        },
        "layered_runtime": {"layers": [{
            "name": "heddle",
            // Policies are regular expressions in part. Those that RE2 compiles to more than 100 instructions are refused by
            // default, and with them the listener with all of its policies.
            "static_layer": {
                "re2.max_program_size.error_level": MAX_REGEX,
                "re2.max_program_size.warn_level": MAX_REGEX,
            },
        }]},
        "overload_manager": {
            "refresh_interval": "1s",
            "resource_monitors": [{
                "name": "envoy.resource_monitors.global_downstream_max_connections",
                "typed_config": {
                    "@type": format!("{TYPE}{CONNECTIONS}"),
                    "max_active_downstream_connections": MAX_CONNECTIONS,
                },
            }],
        },
        "static_resources": {"clusters": [control(parts)]},
    })
}

/// The cluster of the control plane. The packets to it are marked as well.
fn control(parts: &Bootstrap<'_>) -> Value {
    let endpoints = parts.control.iter();
    let endpoints = endpoints.map(|at| json!({"endpoint": {"address": address(*at)}}));
    let endpoints: Vec<Value> = endpoints.collect();
    json!({
        "name": CONTROL,
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {
            "cluster_name": CONTROL,
            "endpoints": [{"lb_endpoints": endpoints}],
        },
        "typed_extension_protocol_options": {
            HTTP_OPTIONS: {
                "@type": format!("{TYPE}{HTTP_OPTIONS}"),
                "explicit_http_config": {"http2_protocol_options": {
                    "connection_keepalive": {"interval": "30s", "timeout": "10s"},
                    "max_concurrent_streams": 16,
                    "initial_stream_window_size": 65_536,
                    "initial_connection_window_size": 1_048_576,
                }},
            },
        },
        "transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": tls(parts),
        },
    })
}

fn tls(parts: &Bootstrap<'_>) -> Value {
    let control = SpiffeId::control(parts.trust_domain.clone());
    let server = json!([{"san_type": "URI", "matcher": {"exact": control.to_string()}}]);
    let only = "TLSv1_3";
    let mut common = json!({
        "alpn_protocols": ["h2"],
        // An Envoy speaks 1.2 at most as a client, unless it is told.
        "tls_params": {"tls_minimum_protocol_version": only, "tls_maximum_protocol_version": only},
    });
    match parts.link {
        Link::Inline { chain, key, roots } => {
            common["tls_certificates"] = json!([{
                "certificate_chain": {"inline_string": chain},
                "private_key": {"inline_string": key},
            }]);
            common["validation_context"] = json!({
                "trusted_ca": {"inline_string": roots},
                "match_typed_subject_alt_names": server,
            });
        }
        Link::Folder(folder) => {
            common["tls_certificate_sds_secret_configs"] = json!([from(folder, LINK_SECRET)]);
            common["combined_validation_context"] = json!({
                "default_validation_context": {"match_typed_subject_alt_names": server},
                "validation_context_sds_secret_config": from(folder, ROOTS_SECRET),
            });
        }
    }
    json!({
        "@type": format!("{TYPE}{UPSTREAM_TLS}"),
        "sni": format!("control.{}", parts.trust_domain),
        "common_tls_context": common,
    })
}

/// A secret out of a file. Its name is that of the file.
fn from(folder: &Path, file: &str) -> Value {
    json!({
        "name": file,
        "sds_config": {
            "path_config_source": {
                "path": folder.join(file),
                "watched_directory": {"path": folder},
            },
            "resource_api_version": "V3",
        },
    })
}

/// The contents of [`LINK_SECRET`] and [`ROOTS_SECRET`].
pub fn link_secrets(folder: &Path) -> [(&'static str, Value); 2] {
    let certificate = json!({"tls_certificate": {
        "certificate_chain": {"filename": folder.join(LINK_CHAIN)},
        "private_key": {"filename": folder.join(LINK_KEY)},
    }});
    let validation = json!({"validation_context": {
        "trusted_ca": {"filename": folder.join(LINK_ROOTS)},
    }});
    let secret = |name: &'static str, mut secret: Value| {
        secret["@type"] = json!(format!("{TYPE}{SECRET}"));
        secret["name"] = json!(name);
        (name, json!({"resources": [secret]}))
    };
    [
        secret(LINK_SECRET, certificate),
        secret(ROOTS_SECRET, validation),
    ]
}

fn address(at: SocketAddr) -> Value {
    json!({"socket_address": {"address": at.ip().to_string(), "port_value": at.port()}})
}
