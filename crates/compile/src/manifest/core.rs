//! Kinds of Kubernetes itself, in the shape of its API: v1 and discovery.k8s.io/v1.
//!
//! Enumerated values are strings here: `compile` checks them, where it can list the known values and say why one is
//! refused.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// The metadata common to every object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    pub(crate) name: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) creation_timestamp: Option<String>,
}

/// v1 Service.
#[derive(Debug, Deserialize)]
pub(crate) struct Service {
    pub(crate) spec: ServiceSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServiceSpec {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    #[serde(rename = "clusterIP")]
    pub(crate) cluster_ip: Option<String>,
    #[serde(rename = "clusterIPs")]
    pub(crate) cluster_ips: Vec<String>,
    pub(crate) selector: BTreeMap<String, String>,
    pub(crate) ports: Vec<ServicePortSpec>,
    pub(crate) session_affinity: Option<String>,
    pub(crate) external_name: Option<String>,
    pub(crate) internal_traffic_policy: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServicePortSpec {
    pub(crate) name: Option<String>,
    pub(crate) port: i64,
    pub(crate) target_port: Option<IntOrString>,
    pub(crate) protocol: Option<String>,
    pub(crate) app_protocol: Option<String>,
}

impl ServicePortSpec {
    /// The port's name; the API server treats an empty one as absent.
    pub(crate) fn port_name(&self) -> Option<&str> {
        self.name.as_deref().filter(|name| !name.is_empty())
    }
}

/// A port by number or by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IntOrString {
    Int(i64),
    String(String),
}

impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = IntOrString;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port's number or name")
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<IntOrString, E> {
                Ok(IntOrString::Int(value))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<IntOrString, E> {
                Ok(IntOrString::String(value.to_owned()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// v1 ServiceAccount: only its metadata matter.
#[derive(Debug, Deserialize)]
pub(crate) struct ServiceAccount {}

/// v1 Namespace: optional, since its objects are read without it.
#[derive(Debug, Deserialize)]
pub(crate) struct Namespace {}

/// discovery.k8s.io/v1 EndpointSlice.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointSlice {
    pub(crate) address_type: String,
    #[serde(default)]
    pub(crate) endpoints: Vec<SliceEndpoint>,
    #[serde(default)]
    pub(crate) ports: Vec<SlicePort>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SliceEndpoint {
    pub(crate) addresses: Vec<String>,
    #[serde(default)]
    pub(crate) conditions: SliceConditions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SliceConditions {
    pub(crate) ready: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SlicePort {
    pub(crate) name: Option<String>,
    pub(crate) port: Option<i64>,
    pub(crate) protocol: Option<String>,
}
