//! The authorization kinds of the Service Mesh Interface: access.smi-spec.io/v1alpha3 and specs.smi-spec.io/v1alpha4.
//! The specification is archived; its objects are still in use.

use std::collections::BTreeMap;

use serde::Deserialize;

/// access.smi-spec.io TrafficTarget.
#[derive(Debug, Deserialize)]
pub(crate) struct TrafficTarget {
    pub(crate) spec: TrafficTargetSpec,
}

#[derive(Debug, Deserialize)]
pub(crate) struct TrafficTargetSpec {
    pub(crate) destination: Subject,
    #[serde(default)]
    pub(crate) sources: Vec<Subject>,
    #[serde(default)]
    pub(crate) rules: Vec<TargetRule>,
}

/// IdentityBindingSubject.
#[derive(Debug, Deserialize)]
pub(crate) struct Subject {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct TargetRule {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) matches: Option<Vec<String>>,
}

/// specs.smi-spec.io HTTPRouteGroup.
#[derive(Debug, Deserialize)]
pub(crate) struct HttpRouteGroup {
    pub(crate) spec: HttpRouteGroupSpec,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HttpRouteGroupSpec {
    #[serde(default)]
    pub(crate) matches: Vec<HttpMatch>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HttpMatch {
    pub(crate) name: String,
    pub(crate) path_regex: Option<String>,
    pub(crate) methods: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
}

/// specs.smi-spec.io TCPRoute.
#[derive(Debug, Deserialize)]
pub(crate) struct TcpRoute {
    pub(crate) spec: TcpRouteSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TcpRouteSpec {
    pub(crate) matches: TcpMatch,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TcpMatch {
    pub(crate) ports: Vec<i64>,
}
